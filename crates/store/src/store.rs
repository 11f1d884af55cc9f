//! A place in a store: what is there, reading it, deleting it.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};

use crate::classify::{Asked, classify};
use crate::client::Client;
use crate::wire::Conditions;
use crate::{Body, Credentials, Error, ErrorKind, ObjectName, Prefix, Provider, Result, Settings};

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: ObjectName,
    pub size: u64,
    /// By the clock of the store.
    pub modified: Timestamp,
}

/// A place in a store. Clones share everything, also what the probe found out.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    settings: Settings,
    location: String,
    conditions: Arc<Conditions>,
    client: RwLock<Arc<Client>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.0.location)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.location)
    }
}

impl Store {
    /// Sends nothing yet: what is wrong with the settings is known here, what the server thinks of them is not.
    pub fn open(settings: Settings) -> Result<Self> {
        let conditions = Arc::<Conditions>::default();
        let client = RwLock::new(Arc::new(Client::new(&settings, Arc::clone(&conditions))?));
        Ok(Self(Arc::new(Inner { location: settings.location(), settings, conditions, client })))
    }

    /// From now on as somebody else, as when the Secret has changed. What is under way goes on as it began.
    pub fn replace_credentials(&self, credentials: Option<Credentials>) -> Result<()> {
        let settings = Settings { credentials, ..self.0.settings.clone() };
        let client = Arc::new(Client::new(&settings, Arc::clone(&self.0.conditions))?);
        *self.0.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(())
    }

    /// All objects, or those below a name, in no promised order. What is not ours by its name is passed over.
    pub fn list(&self, below: Option<&ObjectName>) -> BoxStream<'static, Result<Entry>> {
        let prefix = self.prefix().clone();
        let doing = below.map_or_else(|| "listing it".to_owned(), |name| format!("listing {name}/"));
        let below = self.path(below.map_or("", ObjectName::as_str));
        let store = self.clone();
        self.client()
            .objects
            .list(Some(&below))
            .map_err(move |error| store.error(&error, Asked::Reading, &doing))
            .try_filter_map(move |found| future::ready(Ok(entry(&prefix, &found))))
            .boxed()
    }

    /// The whole object, unless it is larger than the caller is ready to hold.
    pub async fn read(&self, name: &ObjectName, most: u64) -> Result<Bytes> {
        let body = self.stream(name, 0).await?;
        if body.size() > most {
            return Err(body.damaged(&format!("it has {} bytes where at most {most} are expected", body.size())));
        }
        body.collect().await
    }

    /// A part of the object, all of which must be there.
    pub async fn read_range(&self, name: &ObjectName, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let wanted = range.end - range.start;
        let body = self.get(name, Some(GetRange::Bounded(range))).await?;
        let short = body.damaged("the object is shorter than expected");
        let bytes = body.collect().await?;
        if bytes.len() as u64 == wanted { Ok(bytes) } else { Err(short) }
    }

    /// The object from an offset to its end, piece by piece. A connection that breaks is taken up again, within limits.
    pub async fn stream(&self, name: &ObjectName, from: u64) -> Result<Body> {
        self.get(name, (from > 0).then_some(GetRange::Offset(from))).await
    }

    async fn get(&self, name: &ObjectName, range: Option<GetRange>) -> Result<Body> {
        let doing = format!("reading {name}");
        self.refuse_links(name, &doing).await?;
        let options = GetOptions { range, ..GetOptions::default() };
        let found = self.client().objects.get_opts(&self.path(name.as_str()), options).await;
        let found = found.map_err(|error| self.error(&error, Asked::Reading, &doing))?;
        Ok(Body::new(self.location(), doing, found))
    }

    /// That it was not there is fine; that it is locked is an error of its own kind.
    pub async fn delete(&self, name: &ObjectName) -> Result<()> {
        let doing = format!("deleting {name}");
        self.refuse_links(name, &doing).await?;
        self.remove(&self.client(), name.as_str()).await
    }

    /// Also what is not an object of ours by its name.
    pub(crate) async fn remove(&self, client: &Client, name: &str) -> Result<()> {
        let Err(error) = client.objects.delete(&self.path(name)).await else { return Ok(()) };
        let error = self.error(&error, Asked::Deleting, &format!("deleting {name}"));
        if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
    }

    /// In a directory that others write to, a link could lead anywhere. Nothing is read, written or deleted through one.
    pub(crate) async fn refuse_links(&self, name: &ObjectName, doing: &str) -> Result<()> {
        if self.0.settings.provider != Provider::File {
            return Ok(());
        }
        let mut path = std::path::PathBuf::from(&self.0.settings.bucket);
        for segment in self.prefix().key(name.as_str()).split('/') {
            path.push(segment);
            match tokio::fs::symlink_metadata(&path).await {
                Ok(found) if found.is_symlink() => {
                    let cause = "a part of its path is a symbolic link, which we do not follow";
                    return Err(Error::new(ErrorKind::Misconfigured, self.location(), doing, cause));
                }
                Ok(_) => {}
                // What is not there leads nowhere.
                Err(_) => break,
            }
        }
        Ok(())
    }

    pub(crate) fn location(&self) -> &str {
        &self.0.location
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn prefix(&self) -> &Prefix {
        &self.0.settings.prefix
    }

    pub(crate) fn conditions(&self) -> &Conditions {
        &self.0.conditions
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.0.client.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn path(&self, name: &str) -> Path {
        Path::from(self.prefix().key(name))
    }

    pub(crate) fn error(&self, error: &object_store::Error, asked: Asked, doing: &str) -> Error {
        let cause = classify(error, asked);
        Error::new(cause.kind, self.location(), doing, cause.text)
    }
}

fn entry(prefix: &Prefix, found: &object_store::ObjectMeta) -> Option<Entry> {
    let name = prefix.name_of(found.location.as_ref())?;
    Some(Entry { name, size: found.size, modified: modified(found) })
}

/// The time as the rest of the code has it.
pub(crate) fn modified(found: &object_store::ObjectMeta) -> Timestamp {
    let time = found.last_modified;
    let nanoseconds = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or_default();
    // A time that cannot be told is as late as can be: then nothing is deleted early.
    Timestamp::new(time.timestamp(), nanoseconds).unwrap_or(Timestamp::MAX)
}
