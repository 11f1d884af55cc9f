//! Leases.

use tokio::time::timeout;
use tonic::codegen::tokio_stream;

use super::channel::Client;
use super::error::ClientError;
use crate::pb::rpc::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesResponse,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use crate::pb::rpc::{Empty, HeaderOnly};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

impl Client {
    pub async fn lease_grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, ClientError> {
        self.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    pub async fn lease_revoke(&self, id: i64) -> Result<HeaderOnly, ClientError> {
        self.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRevokeRequest { id }).await
    }

    /// Renews a lease once. A time to live of zero in the answer means that the lease is gone.
    pub async fn lease_keep_alive(&self, id: i64) -> Result<LeaseKeepAliveResponse, ClientError> {
        let requests = tokio_stream::once(LeaseKeepAliveRequest { id });
        let mut answers = self.both_ways::<_, LeaseKeepAliveResponse>(KEEP_ALIVE, requests).await?;
        let answer =
            timeout(self.options().call_timeout, answers.message()).await.map_err(|_| self.stalled(KEEP_ALIVE))?;
        let answer = answer.map_err(|status| self.refused(KEEP_ALIVE, status))?;
        answer.ok_or_else(|| self.truncated(KEEP_ALIVE, "no answer came"))
    }

    pub async fn lease_time_to_live(&self, id: i64, keys: bool) -> Result<LeaseTimeToLiveResponse, ClientError> {
        self.call("/etcdserverpb.Lease/LeaseTimeToLive", LeaseTimeToLiveRequest { id, keys }).await
    }

    pub async fn leases(&self) -> Result<LeaseLeasesResponse, ClientError> {
        self.call("/etcdserverpb.Lease/LeaseLeases", Empty {}).await
    }
}
