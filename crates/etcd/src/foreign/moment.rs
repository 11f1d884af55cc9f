//! May the state of a past moment be built on this base?

use std::path::Path;

use jiff::Timestamp;

use super::{Base, DeltaStream, ForeignError};
use crate::events::EventStream;

/// The base is only safe to start from if something shows that all of it was there at that moment: an event after it
/// that is as old, its own creation, or the event of its last revision. Where files repeat what the base holds, the first
/// event comes before its end, and whoever reads on from there sees how old the rest is.
pub(super) fn check(dir: &Path, base: Base, moment: Timestamp) -> Result<(), ForeignError> {
    let mut stream = DeltaStream::between(dir, base.revision, None)?;
    let reaches_back = stream.pull()? && stream.event().time.is_some_and(|time| time <= moment);
    if reaches_back
        || base.taken.is_some_and(|taken| taken <= moment)
        || received(dir, base.revision).is_some_and(|time| time <= moment)
    {
        return Ok(());
    }
    Err(ForeignError::BaseAge { base: base.revision, moment })
}

/// When a revision was received, if there are delta files that tell.
fn received(dir: &Path, revision: i64) -> Option<Timestamp> {
    let mut stream = DeltaStream::between(dir, revision.checked_sub(1)?, Some(revision)).ok()?;
    while stream.pull().ok()? {
        if stream.event().mod_revision >= revision {
            return stream.event().time.filter(|_| stream.event().mod_revision == revision);
        }
    }
    None
}
