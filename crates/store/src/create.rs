//! Creating an object whole, and only if there is none; and finding out what became of an attempt whose answer was lost.
//!
//! A request may succeed and its answer get lost; the client then sends it again and hears that the object exists. So every
//! object carries the mark of the attempt that created it, and an attempt that does not know how it ended looks at the mark.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::classify::{Asked, Cause, classify};
use crate::client::Client;
use crate::{Error, ErrorKind, ObjectName, Result, Store};

/// As all providers allow it: Azure takes only what could be an identifier in C#.
const MARK: &str = "quoratecreation";

/// What one attempt to create an object is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn attributes(&self, client: &Client) -> Attributes {
        let mut attributes = Attributes::new();
        if client.marks {
            attributes.insert(Attribute::Metadata(MARK.into()), self.0.clone().into());
        }
        attributes
    }
}

/// What is found at the name of an attempt that does not know how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Ours,
    Theirs,
    Nothing,
    Unknown,
}

/// How an attempt to create an object ended, from how it failed and what is there now.
pub(crate) fn settle(failure: Cause, found: Found) -> Result<(), Cause> {
    use ErrorKind::AlreadyExists;
    match (failure.kind, found) {
        (_, Found::Ours) => Ok(()),
        (kind, Found::Theirs) if kind != AlreadyExists => {
            Err(Cause::new(AlreadyExists, format!("there is an object by this name now ({})", failure.text)))
        }
        (..) => Err(failure),
    }
}

/// Whether the request, or an earlier one of the same attempt, may have been carried out although it failed. A refusal
/// counts: where objects are locked, a store may look at the lock of what is there before it looks at the condition.
fn is_open(kind: ErrorKind) -> bool {
    kind != ErrorKind::Misconfigured
}

impl Store {
    /// Creates an object of these bytes. If there is one by this name it stays as it is, and the error says so.
    ///
    /// After an error of kind `Timeout` or `Unreachable` the object may be there, and may even appear later: whoever tries
    /// again under the same name and hears that it exists has to look whether it is their own.
    pub async fn create(&self, name: &ObjectName, bytes: Bytes) -> Result<()> {
        let doing = format!("creating {name}");
        self.refuse_links(name, &doing).await?;
        let mark = Mark::new().map_err(|error| self.no_randomness(&doing, &error))?;
        self.put(&self.client(), name.as_str(), bytes, &mark, &doing).await
    }

    pub(crate) async fn put(&self, client: &Client, name: &str, bytes: Bytes, mark: &Mark, doing: &str) -> Result<()> {
        let path = self.path(name);
        let conditional = self.conditions().puts.load(Ordering::Acquire);
        if !conditional {
            self.check_nothing_is_there(client, &path, doing).await?;
        }
        let mode = if conditional { PutMode::Create } else { PutMode::Overwrite };
        let options = PutOptions { mode, attributes: mark.attributes(client), ..PutOptions::default() };
        let done = client.objects.put_opts(&path, PutPayload::from_bytes(bytes), options).await;
        self.settled(client, &path, mark, done.map(drop), doing).await?;
        if !conditional {
            self.check_ours_has_stayed(client, &path, mark, doing).await?;
        }
        Ok(())
    }

    /// The end of an attempt, if necessary by looking at what is there.
    pub(crate) async fn settled(
        &self,
        client: &Client,
        path: &Path,
        mark: &Mark,
        done: object_store::Result<()>,
        doing: &str,
    ) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        let failure = classify(&error, Asked::Creating);
        let ended = if client.marks && is_open(failure.kind) {
            settle(failure, self.found(client, path, mark).await)
        } else {
            Err(failure)
        };
        ended.map_err(|cause| Error::new(cause.kind, self.location(), doing, cause.text))
    }

    async fn found(&self, client: &Client, path: &Path, mark: &Mark) -> Found {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match client.objects.get_opts(path, options).await {
            Ok(there) => {
                let creator = there.attributes.get(&Attribute::Metadata(MARK.into()));
                if creator.is_some_and(|creator| creator.as_ref() == mark.as_str()) {
                    Found::Ours
                } else {
                    Found::Theirs
                }
            }
            Err(error) if classify(&error, Asked::Reading).kind == ErrorKind::NotFound => Found::Nothing,
            Err(_) => Found::Unknown,
        }
    }

    /// The weaker way, for stores without conditions: look, then write. Two that look at the same time both write.
    pub(crate) async fn check_nothing_is_there(&self, client: &Client, path: &Path, doing: &str) -> Result<()> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match client.objects.get_opts(path, options).await {
            Ok(_) => {
                let cause = "there is an object by this name";
                Err(Error::new(ErrorKind::AlreadyExists, self.location(), doing, cause))
            }
            Err(error) => {
                let error = self.error(&error, Asked::Reading, doing);
                if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
            }
        }
    }

    /// The other half of the weaker way: the one who was overwritten hears of it, if it happened by now.
    pub(crate) async fn check_ours_has_stayed(
        &self,
        client: &Client,
        path: &Path,
        mark: &Mark,
        doing: &str,
    ) -> Result<()> {
        if client.marks && self.found(client, path, mark).await == Found::Theirs {
            let cause = "somebody else has written it at the same time, and the store has kept theirs";
            return Err(Error::new(ErrorKind::AlreadyExists, self.location(), doing, cause));
        }
        Ok(())
    }

    pub(crate) fn no_randomness(&self, doing: &str, error: &std::io::Error) -> Error {
        Error::new(ErrorKind::Unreachable, self.location(), doing, format!("there is no randomness: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_an_attempt_ended_follows_from_its_failure_and_what_is_there() {
        use ErrorKind::{AlreadyExists, Damaged, Denied, Timeout, Unreachable};
        let cases = [
            (AlreadyExists, Found::Ours, None),
            (AlreadyExists, Found::Theirs, Some(AlreadyExists)),
            (AlreadyExists, Found::Unknown, Some(AlreadyExists)),
            // Some stores refuse the second one a moment before the first is visible.
            (AlreadyExists, Found::Nothing, Some(AlreadyExists)),
            (Unreachable, Found::Nothing, Some(Unreachable)),
            (Timeout, Found::Ours, None),
            (Timeout, Found::Theirs, Some(AlreadyExists)),
            (Timeout, Found::Nothing, Some(Timeout)),
            (Timeout, Found::Unknown, Some(Timeout)),
            (Damaged, Found::Ours, None),
            (Damaged, Found::Nothing, Some(Damaged)),
            (Denied, Found::Ours, None),
            (Denied, Found::Theirs, Some(AlreadyExists)),
            (Denied, Found::Nothing, Some(Denied)),
            (Denied, Found::Unknown, Some(Denied)),
        ];
        for (failure, found, expected) in cases {
            let ended = settle(Cause::new(failure, "x"), found);
            assert_eq!(ended.err().map(|cause| cause.kind), expected, "{failure:?} {found:?}");
        }
    }

    #[test]
    fn two_attempts_have_different_marks() {
        assert_ne!(Mark::new().unwrap(), Mark::new().unwrap());
    }
}
