//! The content of an object as it arrives. An end before the end is an error, never an end.

use std::io::SeekFrom;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::{GetResult, GetResultPayload};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::classify::{Asked, Cause, classify};
use crate::{Error, ErrorKind, Result};

/// The client below reads a file in pieces of 8 KiB, each with a change of threads.
const PIECE_OF_A_FILE: usize = 1 << 20;

/// An object that is being read. Only what is asked for is in memory.
pub struct Body {
    store: String,
    doing: String,
    size: u64,
    expected: u64,
    seen: u64,
    pieces: BoxStream<'static, Result<Bytes, Cause>>,
}

impl Body {
    pub(crate) fn new(store: &str, doing: String, found: GetResult) -> Self {
        let Range { start, end } = found.range;
        let pieces = match found.payload {
            GetResultPayload::File(file, _) => pieces_of(File::from_std(file), start..end),
            GetResultPayload::Stream(stream) => stream.map_err(|error| broken(&error)).boxed(),
        };
        Self { store: store.to_owned(), doing, size: found.meta.size, expected: end - start, seen: 0, pieces }
    }

    /// Bytes of the whole object.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next piece; nothing once everything has arrived.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match self.pieces.next().await {
            Some(Ok(piece)) => {
                self.seen += piece.len() as u64;
                if self.seen > self.expected {
                    return Err(self.damaged("there are more bytes than the store announced"));
                }
                Ok(Some(piece))
            }
            Some(Err(cause)) => Err(Error::new(cause.kind, &self.store, &self.doing, cause.text)),
            None if self.seen < self.expected => {
                let cause = format!("it ended after {} of {} bytes", self.seen, self.expected);
                Err(self.damaged(&cause))
            }
            None => Ok(None),
        }
    }

    /// Everything that is still to come.
    pub(crate) async fn collect(mut self) -> Result<Bytes> {
        let mut all = BytesMut::with_capacity(usize::try_from(self.expected).unwrap_or_default());
        while let Some(piece) = self.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    pub(crate) fn damaged(&self, cause: &str) -> Error {
        Error::new(ErrorKind::Damaged, &self.store, &self.doing, cause)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("doing", &self.doing).field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// A connection that breaks while the content arrives, again after every attempt to go on, has cut it short.
fn broken(error: &object_store::Error) -> Cause {
    let cause = classify(error, Asked::Reading);
    match cause.kind {
        ErrorKind::Unreachable => Cause::new(ErrorKind::Damaged, format!("it was cut short: {}", cause.text)),
        _ => cause,
    }
}

fn pieces_of(file: File, range: Range<u64>) -> BoxStream<'static, Result<Bytes, Cause>> {
    let failed = |error: std::io::Error| Cause::new(ErrorKind::Unreachable, error.to_string());
    stream::try_unfold((file, range, false), move |(mut file, mut range, placed)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        if !placed {
            file.seek(SeekFrom::Start(range.start)).await.map_err(failed)?;
        }
        let wanted = PIECE_OF_A_FILE.min(usize::try_from(range.end - range.start).unwrap_or(PIECE_OF_A_FILE));
        let mut piece = BytesMut::with_capacity(wanted);
        let read = (&mut file).take(wanted as u64).read_buf(&mut piece).await.map_err(failed)?;
        if read == 0 {
            return Ok(None);
        }
        range.start += read as u64;
        Ok(Some((piece.freeze(), (file, range, true))))
    })
    .boxed()
}
