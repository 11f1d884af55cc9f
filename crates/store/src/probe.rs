//! Whether a store keeps the promise on which fencing rests: that of two who create the same name, one is told so.

use std::fmt;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload};

use crate::classify::{Asked, classify};
use crate::client::Client;
use crate::create::Mark;
use crate::leftovers::{parked_name, probe_name};
use crate::{Error, ErrorKind, Result, Store};

/// What a store does with the condition that an object must not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The second one is refused.
    Honoured,
    /// The second one overwrites the first.
    Ignored,
    /// The store refuses every request that has the condition.
    Unsupported,
}

impl fmt::Display for Conditional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Honoured => "honoured",
            Self::Ignored => "ignored",
            Self::Unsupported => "unsupported",
        })
    }
}

/// What the probe found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// For objects that are created in one request.
    pub puts: Conditional,
    /// For uploads in parts.
    pub uploads: Conditional,
}

impl Capabilities {
    /// Whether two writers can never both believe to have created a name.
    pub fn are_safe(self) -> bool {
        self.puts == Conditional::Honoured && self.uploads == Conditional::Honoured
    }
}

const CONTENT: &[u8] = b"Quorate looks whether this store creates objects only once. This object can be deleted.\n";

impl Store {
    /// Tries it out on an object of its own, which is removed again, and from now on creates objects accordingly: with
    /// conditions where they are honoured, and elsewhere by looking first, which is weaker. Then two writers that are
    /// alive at the same time can both believe to have created a name; the mark tells one of them afterwards, at best.
    pub async fn probe(&self) -> Result<Capabilities> {
        let doing = "trying out conditions";
        let mark = Mark::new().map_err(|error| self.no_randomness(doing, &error))?;
        let client = self.client();
        let found = self.probe_with(&client, &mark, doing).await;
        let removed = self.remove(&client, &probe_name(&mark)).await;
        let found = found?;
        // Who may not delete, or not yet, still has a store that can be written to.
        if let Err(error) = removed
            && !matches!(error.kind(), ErrorKind::Locked | ErrorKind::Denied)
        {
            return Err(error);
        }
        self.conditions().puts.store(found.puts == Conditional::Honoured, Ordering::Release);
        self.conditions().uploads.store(found.uploads == Conditional::Honoured, Ordering::Release);
        Ok(found)
    }

    async fn probe_with(&self, client: &Client, mark: &Mark, doing: &str) -> Result<Capabilities> {
        // What was found out before must not decide what is found out now.
        self.conditions().uploads.store(true, Ordering::Release);
        let path = self.path(&probe_name(mark));
        let put = |mode| {
            let options = PutOptions { mode, attributes: mark.attributes(client), ..PutOptions::default() };
            client.objects.put_opts(&path, PutPayload::from_static(CONTENT), options)
        };
        let first = put(PutMode::Create).await.map(drop);
        let puts = match self.settled(client, &path, mark, first, doing).await {
            Ok(()) => judge(put(PutMode::Create).await.map(drop))
                .map_err(|error| self.error(&error, Asked::Creating, doing))?,
            Err(error) if error.kind() == ErrorKind::Misconfigured => {
                // It is the condition only if it goes without.
                put(PutMode::Overwrite).await.map_err(|error| self.error(&error, Asked::Creating, doing))?;
                Conditional::Unsupported
            }
            Err(error) => return Err(error),
        };
        let second = self.upload_over(client, mark).await?;
        let uploads = judge(second).map_err(|error| self.error(&error, Asked::Creating, doing))?;
        Ok(Capabilities { puts, uploads })
    }

    /// An upload in parts onto the object that is there.
    async fn upload_over(&self, client: &Client, mark: &Mark) -> Result<object_store::Result<()>> {
        let doing = "trying out an upload in parts";
        let failed = |error: object_store::Error| -> Error { self.error(&error, Asked::Creating, doing) };
        let path = self.path(&probe_name(mark));
        let parked = self.path(&parked_name(mark));
        let stage = if client.parks { &parked } else { &path };
        let options = PutMultipartOptions { attributes: mark.attributes(client), ..Default::default() };
        let mut upload = client.objects.put_multipart_opts(stage, options).await.map_err(failed)?;
        upload.put_part(PutPayload::from_bytes(Bytes::from_static(CONTENT))).await.map_err(failed)?;
        let completed = upload.complete().await.map(drop);
        if !client.parks {
            if completed.is_err() {
                let _ = upload.abort().await;
            }
            return Ok(completed);
        }
        completed.map_err(failed)?;
        let copied = client.objects.copy_if_not_exists(stage, &path).await;
        let _ = self.remove(client, &parked_name(mark)).await;
        Ok(copied)
    }
}

/// What it means how a second creation of the same name ended.
fn judge(second: object_store::Result<()>) -> Result<Conditional, object_store::Error> {
    let Err(error) = second else { return Ok(Conditional::Ignored) };
    match classify(&error, Asked::Creating).kind {
        // Who could create the name a moment ago and now may not is kept from it by what is there, as by a lock.
        ErrorKind::AlreadyExists | ErrorKind::Denied => Ok(Conditional::Honoured),
        ErrorKind::Misconfigured => Ok(Conditional::Unsupported),
        _ => Err(error),
    }
}
