//! Looking after one member.

use super::channel::Client;
use super::error::ClientError;
use crate::pb::rpc::maintenance::{
    AlarmAction, AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DowngradeRequest, DowngradeResponse,
    HashKvRequest, HashKvResponse, HashResponse, MoveLeaderRequest, StatusResponse,
};
use crate::pb::rpc::{Empty, HeaderOnly};

impl Client {
    pub async fn status(&self) -> Result<StatusResponse, ClientError> {
        self.call("/etcdserverpb.Maintenance/Status", Empty {}).await
    }

    pub async fn alarms(&self) -> Result<AlarmResponse, ClientError> {
        let any = AlarmMember { member_id: 0, alarm: AlarmType::None.into() };
        self.alarm(AlarmAction::Get, any).await
    }

    pub async fn alarm(&self, action: AlarmAction, alarm: AlarmMember) -> Result<AlarmResponse, ClientError> {
        let AlarmMember { member_id, alarm } = alarm;
        self.call("/etcdserverpb.Maintenance/Alarm", AlarmRequest { action: action.into(), member_id, alarm }).await
    }

    /// Blocks the member while it rewrites its database.
    pub async fn defragment(&self) -> Result<HeaderOnly, ClientError> {
        self.long_call("/etcdserverpb.Maintenance/Defragment", Empty {}).await
    }

    pub async fn hash(&self) -> Result<HashResponse, ClientError> {
        self.long_call("/etcdserverpb.Maintenance/Hash", Empty {}).await
    }

    /// Hash of the keyspace as of `revision`, 0 for the current one.
    pub async fn hash_kv(&self, revision: i64) -> Result<HashKvResponse, ClientError> {
        self.long_call("/etcdserverpb.Maintenance/HashKV", HashKvRequest { revision }).await
    }

    /// Only the leader accepts this.
    pub async fn move_leader(&self, target_id: u64) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Maintenance/MoveLeader", MoveLeaderRequest { target_id }).await
    }

    pub async fn downgrade(&self, request: DowngradeRequest) -> Result<DowngradeResponse, ClientError> {
        self.call("/etcdserverpb.Maintenance/Downgrade", request).await
    }
}
