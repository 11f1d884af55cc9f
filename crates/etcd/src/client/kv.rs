//! Keys and values.

use super::channel::Client;
use super::error::ClientError;
use crate::pb::rpc::HeaderOnly;
use crate::pb::rpc::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse,
};

/// Key and range end that cover every key there is.
pub const WHOLE_KEYSPACE: (&[u8], &[u8]) = (b"\0", b"\0");

/// The range end that makes a range of all keys starting with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Nothing sorts behind a prefix of 0xff bytes: the range is open.
    vec![0]
}

impl Client {
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, ClientError> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    pub async fn put(&self, request: PutRequest) -> Result<PutResponse, ClientError> {
        self.call("/etcdserverpb.KV/Put", request).await
    }

    pub async fn delete_range(&self, request: DeleteRangeRequest) -> Result<DeleteRangeResponse, ClientError> {
        self.call("/etcdserverpb.KV/DeleteRange", request).await
    }

    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, ClientError> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    pub async fn compact(&self, request: CompactionRequest) -> Result<HeaderOnly, ClientError> {
        self.long_call("/etcdserverpb.KV/Compact", request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_lacks_it() {
        assert_eq!(prefix_end(b"/a"), b"/b");
        assert_eq!(prefix_end(b"a\xff\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
        assert_eq!(prefix_end(b""), b"\0");
    }
}
