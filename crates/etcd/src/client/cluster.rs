//! Membership.

use super::channel::Client;
use super::error::ClientError;
use crate::pb::rpc::cluster::{
    MemberAddRequest, MemberAddResponse, MemberIdRequest, MemberListRequest, MemberUpdateRequest, Members,
};

impl Client {
    /// A linearizable list needs a quorum; the other is what this member believes.
    pub async fn member_list(&self, linearizable: bool) -> Result<Members, ClientError> {
        self.call("/etcdserverpb.Cluster/MemberList", MemberListRequest { linearizable }).await
    }

    pub async fn member_add(&self, peer_urls: Vec<String>, is_learner: bool) -> Result<MemberAddResponse, ClientError> {
        self.call("/etcdserverpb.Cluster/MemberAdd", MemberAddRequest { peer_urls, is_learner }).await
    }

    pub async fn member_remove(&self, id: u64) -> Result<Members, ClientError> {
        self.call("/etcdserverpb.Cluster/MemberRemove", MemberIdRequest { id }).await
    }

    pub async fn member_update(&self, id: u64, peer_urls: Vec<String>) -> Result<Members, ClientError> {
        self.call("/etcdserverpb.Cluster/MemberUpdate", MemberUpdateRequest { id, peer_urls }).await
    }

    pub async fn member_promote(&self, id: u64) -> Result<Members, ClientError> {
        self.call("/etcdserverpb.Cluster/MemberPromote", MemberIdRequest { id }).await
    }
}
