//! Creating an object of unknown length from a stream, in bounded memory.
//!
//! Parts are sent while the next one fills. Nothing is visible until the end, and at the end only if nobody has created the
//! name meanwhile: where the completion of an upload takes a condition it gets one, elsewhere the upload is completed under a
//! name of its own and moved by a copy that takes one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutPayload};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::classify::{Asked, classify};
use crate::client::Client;
use crate::create::Mark;
use crate::leftovers::parked_name;
use crate::{Error, ErrorKind, ObjectName, Result, Store};

/// All parts but the last have the same size, which some stores insist on; 5 MiB is the least that S3 takes.
const PART: usize = 8 << 20;
/// Parts on their way. With the one that fills, 24 MiB are in memory.
const ON_THEIR_WAY: usize = 2;
/// What S3 and Google allow, which limits an object to 78 GiB.
const MOST_PARTS: usize = 10_000;

/// An object that is being written. Dropped before it is finished, it never was.
pub struct Upload {
    store: Store,
    client: Arc<Client>,
    name: ObjectName,
    doing: String,
    mark: Mark,
    filling: BytesMut,
    size: u64,
    parts: usize,
    begun: Option<Begun>,
}

/// An upload of which the store knows.
struct Begun {
    upload: Box<dyn MultipartUpload>,
    sending: JoinSet<object_store::Result<()>>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("name", &self.name).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Store {
    /// Begins to create an object. Nothing is sent until a part is full.
    pub async fn upload(&self, name: &ObjectName) -> Result<Upload> {
        let doing = format!("creating {name}");
        self.refuse_links(name, &doing).await?;
        let mark = Mark::new().map_err(|error| self.no_randomness(&doing, &error))?;
        Ok(Upload {
            store: self.clone(),
            client: self.client(),
            name: name.clone(),
            doing,
            mark,
            filling: BytesMut::new(),
            size: 0,
            parts: 0,
            begun: None,
        })
    }
}

impl Upload {
    /// Appends; waits while as much is on its way as may be. After an error the upload is of no use any more.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let fits = bytes.len().min(PART - self.filling.len());
            if self.filling.is_empty() {
                self.filling.reserve(PART);
            }
            self.filling.extend_from_slice(&bytes.split_to(fits));
            self.size += fits as u64;
            if self.filling.len() == PART {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Makes the object visible, whole, and returns its size; or fails, and nothing of it is there.
    pub async fn finish(mut self) -> Result<u64> {
        let rest = self.filling.split().freeze();
        if self.begun.is_none() {
            self.store.put(&self.client, self.name.as_str(), rest, &self.mark, &self.doing).await?;
            return Ok(self.size);
        }
        if !rest.is_empty() {
            self.filling = rest.into();
            self.send().await?;
        }
        self.wait_until_on_their_way(0).await?;
        // Taken out only at the end: until then, whoever drops this future cancels the upload.
        if let Err(error) = self.complete().await {
            self.cancel().await;
            return Err(error);
        }
        self.begun = None;
        Ok(self.size)
    }

    /// Gives up and tells the store, so that it keeps no parts.
    pub async fn abort(mut self) {
        self.cancel().await;
    }

    async fn cancel(&mut self) {
        if let Some(begun) = self.begun.take() {
            begun.cancel().await;
        }
    }

    async fn send(&mut self) -> Result<()> {
        if self.parts == MOST_PARTS {
            let cause = format!("it is larger than {MOST_PARTS} parts of {PART} bytes");
            return Err(Error::new(ErrorKind::Misconfigured, self.store.location(), &self.doing, cause));
        }
        self.wait_until_on_their_way(ON_THEIR_WAY - 1).await?;
        if self.begun.is_none() {
            self.begun = Some(self.begin().await?);
        }
        let Some(begun) = &mut self.begun else { return Ok(()) };
        let part = begun.upload.put_part(PutPayload::from_bytes(self.filling.split().freeze()));
        begun.sending.spawn(part);
        self.parts += 1;
        Ok(())
    }

    async fn begin(&mut self) -> Result<Begun> {
        let options = PutMultipartOptions { attributes: self.mark.attributes(&self.client), ..Default::default() };
        let path = self.store.path(&self.stage());
        let upload = self.client.objects.put_multipart_opts(&path, options).await;
        let upload = upload.map_err(|error| self.error(&error))?;
        Ok(Begun { upload, sending: JoinSet::new() })
    }

    /// Where the parts come together.
    fn stage(&self) -> String {
        if self.client.parks { parked_name(&self.mark) } else { self.name.as_str().to_owned() }
    }

    async fn wait_until_on_their_way(&mut self, most: usize) -> Result<()> {
        let Some(begun) = &mut self.begun else { return Ok(()) };
        while begun.sending.len() > most {
            let failed = match begun.sending.join_next().await {
                None | Some(Ok(Ok(()))) => continue,
                Some(Ok(Err(error))) => self.error(&error),
                Some(Err(_)) => {
                    let cause = "the task that sends a part has ended";
                    Error::new(ErrorKind::Unreachable, self.store.location(), &self.doing, cause)
                }
            };
            self.cancel().await;
            return Err(failed);
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<()> {
        let path = self.store.path(self.name.as_str());
        let conditional = self.client.parks || self.store.conditions().uploads.load(Ordering::Acquire);
        if !conditional {
            self.store.check_nothing_is_there(&self.client, &path, &self.doing).await?;
        }
        let Some(begun) = &mut self.begun else { return Ok(()) };
        let completed = begun.upload.complete().await.map(drop);
        let stage = self.store.path(&self.stage());
        self.store.settled(&self.client, &stage, &self.mark, completed, &self.doing).await?;
        if self.client.parks {
            let copied = self.client.objects.copy_if_not_exists(&stage, &path).await;
            let ended = self.store.settled(&self.client, &path, &self.mark, copied, &self.doing).await;
            // If this fails it is cleared away later; the object itself is there, or is not.
            let _ = self.store.remove(&self.client, &self.stage()).await;
            return ended;
        }
        if !conditional {
            self.store.check_ours_has_stayed(&self.client, &path, &self.mark, &self.doing).await?;
        }
        Ok(())
    }

    fn error(&self, error: &object_store::Error) -> Error {
        let cause = classify(error, Asked::Creating);
        Error::new(cause.kind, self.store.location(), &self.doing, cause.text)
    }
}

impl Begun {
    async fn cancel(mut self) {
        self.sending.shutdown().await;
        // Whatever comes of it: what is not completed is not visible, and the store's own rules clear it away in time.
        let _ = self.upload.abort().await;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(begun), Ok(runtime)) = (self.begun.take(), Handle::try_current()) {
            runtime.spawn(begun.cancel());
        }
    }
}
