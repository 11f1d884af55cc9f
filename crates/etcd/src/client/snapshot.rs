//! The member's database as a stream, verified as it passes.

use prost::bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tonic::Streaming;

use super::channel::Client;
use super::error::ClientError;
use crate::pb::rpc::Empty;
use crate::pb::rpc::maintenance::SnapshotResponse;
use crate::snapshot::DIGEST_SIZE;

const CALL: &str = "/etcdserverpb.Maintenance/Snapshot";

/// Chunks of a snapshot file, its SHA-256 included as the last 32 bytes.
#[derive(Debug)]
pub struct SnapshotStream {
    client: Client,
    answers: Streaming<SnapshotResponse>,
    hash: Sha256,
    /// The last bytes seen, which may be the digest.
    tail: BytesMut,
    remaining: Option<u64>,
    version: String,
    done: bool,
}

impl Client {
    pub async fn snapshot(&self) -> Result<SnapshotStream, ClientError> {
        let answers = self.server_stream(CALL, Empty {}).await?;
        Ok(SnapshotStream {
            client: self.clone(),
            answers,
            hash: Sha256::new(),
            tail: BytesMut::with_capacity(2 * DIGEST_SIZE),
            remaining: None,
            version: String::new(),
            done: false,
        })
    }
}

impl SnapshotStream {
    /// The next part of the file. `None` only after the whole file came and its digest was right.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while !self.done {
            let limit = self.client.options().stall_timeout;
            let answer = timeout(limit, self.answers.message()).await.map_err(|_| self.client.stalled(CALL))?;
            let Some(answer) = answer.map_err(|status| self.client.refused(CALL, status))? else {
                self.done = true;
                self.check_end()?;
                break;
            };
            self.remaining = Some(answer.remaining_bytes);
            if !answer.version.is_empty() {
                self.version = answer.version;
            }
            if !answer.blob.is_empty() {
                self.digest(&answer.blob);
                return Ok(Some(answer.blob));
            }
        }
        Ok(None)
    }

    /// Bytes the member has still to send, once it has said so.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Storage version of the snapshot; empty before 3.6.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn digest(&mut self, blob: &[u8]) {
        self.tail.extend_from_slice(blob);
        let content = self.tail.split_to(self.tail.len().saturating_sub(DIGEST_SIZE));
        self.hash.update(&content);
    }

    fn check_end(&mut self) -> Result<(), ClientError> {
        if self.tail.len() != DIGEST_SIZE {
            return Err(self.client.truncated(CALL, "the digest at the end is missing"));
        }
        let digest = std::mem::take(&mut self.hash).finalize();
        if digest.as_slice() != self.tail {
            return Err(ClientError::SnapshotDigest { endpoint: self.client.endpoint().to_owned() });
        }
        Ok(())
    }
}
