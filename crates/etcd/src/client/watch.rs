//! Watching keys change.

use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;

use super::channel::Client;
use super::error::ClientError;
use crate::pb::mvcc::Event;
use crate::pb::rpc::ResponseHeader;
use crate::pb::rpc::watch::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchRequestUnion, WatchResponse};

const CALL: &str = "/etcdserverpb.Watch/Watch";

/// What a watch reports.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchMessage {
    /// Changes in order. Unless `complete`, the last revision continues in the next message: memory stays bounded even
    /// when one revision deletes a million keys, and nobody mistakes a part for the whole.
    Events { events: Vec<Event>, complete: bool },
    /// Everything up to this revision has been delivered.
    Progress { revision: i64 },
    /// The member ended the watch. A compact revision above 0 says that its start is no longer available.
    Canceled { compact_revision: i64, reason: String },
}

/// One watch on one stream. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    created: ResponseHeader,
}

impl Client {
    /// Opens a watch and waits until the member has confirmed it. Large revisions arrive in fragments.
    pub async fn watch(&self, create: WatchCreateRequest) -> Result<Watch, ClientError> {
        let (requests, outgoing) = mpsc::channel(4);
        let create = WatchRequestUnion::Create(WatchCreateRequest { fragment: true, ..create });
        let request = WatchRequest { request_union: Some(create) };
        requests.send(request).await.map_err(|_| self.truncated(CALL, "the stream closed"))?;
        let mut answers = self.both_ways::<_, WatchResponse>(CALL, ReceiverStream::new(outgoing)).await?;
        let limit = self.options().call_timeout;
        let first = timeout(limit, answers.message()).await.map_err(|_| self.stalled(CALL))?;
        let first = first.map_err(|status| self.refused(CALL, status))?;
        let first = first.ok_or_else(|| self.truncated(CALL, "the watch was not confirmed"))?;
        if first.canceled {
            let status = tonic::Status::failed_precondition(first.cancel_reason);
            return Err(self.refused(CALL, status));
        }
        let created = first.header.unwrap_or_default();
        Ok(Watch { client: self.clone(), requests, answers, created })
    }
}

impl Watch {
    /// The member's revision when the watch was created.
    pub fn created_at(&self) -> i64 {
        self.created.revision
    }

    /// Which cluster the member belongs to.
    pub fn cluster_id(&self) -> u64 {
        self.created.cluster_id
    }

    /// Waits for the next message, without a limit: silence is normal, and a dead connection is noticed by keep-alive.
    /// `None` when the member closed the stream.
    pub async fn next(&mut self) -> Result<Option<WatchMessage>, ClientError> {
        let answer = self.answers.message().await.map_err(|status| self.client.refused(CALL, status))?;
        Ok(answer.map(message))
    }

    /// Asks the member to report how far the watch has come.
    pub async fn request_progress(&self) -> Result<(), ClientError> {
        let request = WatchRequest { request_union: Some(WatchRequestUnion::Progress(WatchProgressRequest {})) };
        self.requests.send(request).await.map_err(|_| self.client.truncated(CALL, "the stream closed"))
    }
}

fn message(answer: WatchResponse) -> WatchMessage {
    if answer.canceled {
        let WatchResponse { compact_revision, cancel_reason, .. } = answer;
        return WatchMessage::Canceled { compact_revision, reason: cancel_reason };
    }
    if answer.events.is_empty() && !answer.fragment {
        return WatchMessage::Progress { revision: answer.header.map_or(0, |header| header.revision) };
    }
    WatchMessage::Events { events: answer.events, complete: !answer.fragment }
}
