//! Several deltas, one after the other, as one stream of events.

use std::collections::BTreeMap;
use std::io::Read;

use super::delta::DeltaReader;
use super::format::ObjectError;
use super::keyring::Keyring;
use super::name::ObjectName;
use crate::events::{ChangeEvent, EventError, EventStream};
use crate::snapshot::Digest256;

#[derive(Debug, thiserror::Error)]
pub enum Link {
    #[error("{name}")]
    Object { name: ObjectName, source: ObjectError },
    #[error(
        "{name} continues another object than {previous}: one of them was replaced; \
         restore to revision {} at most, or use a newer full backup", name.first.saturating_sub(1)
    )]
    Parent { name: ObjectName, previous: ObjectName },
    #[error("{name} is of another cluster or epoch than the deltas before it")]
    Stranger { name: ObjectName },
}

/// Opens its objects one at a time, in the order given, and lends their events without repeating a revision.
#[derive(Debug)]
pub struct DeltaChain<I: Iterator, R> {
    objects: I,
    keys: Keyring,
    current: Option<(ObjectName, DeltaReader<R>)>,
    previous: Option<Previous>,
    /// The last revision lent so far; what an object repeats of it is skipped.
    delivered: i64,
    /// Of the object being read; all of one revision comes from one object.
    revision: i64,
    leases: BTreeMap<i64, i64>,
}

#[derive(Debug)]
struct Previous {
    name: ObjectName,
    cluster_uid: String,
    digest: Digest256,
}

impl<I, R> DeltaChain<I, R>
where
    I: Iterator<Item = (ObjectName, R)>,
    R: Read,
{
    pub fn new(objects: I, keys: Keyring) -> Self {
        let (current, previous) = (None, None);
        Self { objects, keys, current, previous, delivered: 0, revision: 0, leases: BTreeMap::new() }
    }

    fn pull(&mut self) -> Result<bool, Link> {
        loop {
            let Some((name, reader)) = &mut self.current else {
                if !self.open_next()? {
                    return Ok(false);
                }
                continue;
            };
            let name = *name;
            if reader.pull().map_err(|source| Link::Object { name, source })? {
                let revision = reader.current().mod_revision;
                if revision > self.delivered {
                    self.revision = revision;
                    return Ok(true);
                }
            } else {
                self.close()?;
            }
        }
    }

    fn open_next(&mut self) -> Result<bool, Link> {
        let Some((name, input)) = self.objects.next() else { return Ok(false) };
        let failed = |source| Link::Object { name, source };
        let reader = DeltaReader::open(input, &self.keys).map_err(failed)?;
        let header = reader.header();
        if let Some(previous) = &self.previous {
            if (name.epoch, &header.cluster_uid) != (previous.name.epoch, &previous.cluster_uid) {
                return Err(Link::Stranger { name });
            }
            // A writer that took over may repeat some revisions; only a seamless successor names what it succeeds.
            let seamless = name.first == previous.name.last + 1;
            if seamless && header.parent_digest() != Some(previous.digest) && name.fencing == previous.name.fencing {
                return Err(Link::Parent { name, previous: previous.name });
            }
        }
        self.delivered = self.delivered.max(self.revision);
        self.current = Some((name, reader));
        Ok(true)
    }

    /// Checks an object that was read to its end against its name.
    fn close(&mut self) -> Result<(), Link> {
        let Some((name, reader)) = self.current.take() else { return Ok(()) };
        let Some((trailer, digest)) = reader.end() else { return Ok(()) };
        name.check(reader.header(), trailer).map_err(|source| Link::Object { name, source })?;
        self.leases.extend(reader.known_leases());
        self.previous = Some(Previous { name, cluster_uid: reader.header().cluster_uid.clone(), digest: *digest });
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Link> {
        if let Some((name, reader)) = &mut self.current {
            let name = *name;
            reader.drain().map_err(|source| Link::Object { name, source })?;
        }
        self.close()
    }
}

const NOTHING: &ChangeEvent = &ChangeEvent {
    key: Vec::new(),
    value: Vec::new(),
    kind: crate::events::EventKind::Put,
    create_revision: 0,
    mod_revision: 0,
    version: 0,
    lease: 0,
    time: None,
};

impl<I, R> EventStream for DeltaChain<I, R>
where
    I: Iterator<Item = (ObjectName, R)>,
    R: Read,
{
    fn advance(&mut self) -> Result<bool, EventError> {
        self.pull().map_err(EventError::source_error)
    }

    fn event(&self) -> &ChangeEvent {
        self.current.as_ref().map_or(NOTHING, |(_, reader)| reader.current())
    }

    fn finish(&mut self) -> Result<(), EventError> {
        self.drain().map_err(EventError::source_error)
    }

    fn leases(&self) -> BTreeMap<i64, i64> {
        self.leases.clone()
    }
}
