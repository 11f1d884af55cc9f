//! The keys that are alive at the end of a history.

use crate::history::{History, HistoryError};
use crate::mvcc::StoredValue;

/// Visits the newest put of every live key, in the order of their last change.
pub fn live_keys<E: From<HistoryError>>(
    history: &History<'_>,
    mut visit: impl FnMut(&StoredValue<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let keep = history.keep(history.revision())?;
    history.for_each(|entry| {
        if !keep.contains(entry.ordinal) {
            return Ok(());
        }
        let value = StoredValue::decode(entry.value)
            .map_err(|source| HistoryError::Value { revision: entry.main(), source })?;
        // The marker of a bumped revision is no key that anybody put.
        if value.key.is_empty() { Ok(()) } else { visit(&value) }
    })
}

/// How many keys are alive.
pub fn count_live_keys(history: &History<'_>) -> Result<u64, HistoryError> {
    let mut count = 0;
    live_keys(history, |_| -> Result<(), HistoryError> {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}
