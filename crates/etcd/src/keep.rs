//! Which entry is the newest of its key, for any number of keys in bounded memory.
//!
//! The name is that of the set which etcd's index makes for a compaction: what to keep although it is old.
//! Entries are split by a hash of their key into partitions on disk; each partition then fits into memory. The result
//! is one bit per entry.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::scratch::{ScratchError, nameless_file};

const PARTITIONS: usize = 256;
const RECORD: usize = 24;
/// Records per block; with 256 partitions the blocks being filled take 4 MiB.
const BLOCK: usize = 680 * RECORD;

/// The newest entry of each key, if it is a put.
#[derive(Debug)]
pub(crate) struct Keep {
    bits: Vec<u64>,
    /// How many entries are kept, which is the number of live keys.
    pub(crate) live: u64,
}

impl Keep {
    pub(crate) fn contains(&self, ordinal: u64) -> bool {
        let word = usize::try_from(ordinal / 64).ok().and_then(|word| self.bits.get(word));
        word.is_some_and(|word| word & (1 << (ordinal % 64)) != 0)
    }

    fn insert(&mut self, ordinal: u64) {
        let Ok(word) = usize::try_from(ordinal / 64) else { return };
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(word) = self.bits.get_mut(word) {
            *word |= 1 << (ordinal % 64);
            self.live += 1;
        }
    }
}

#[derive(Debug, Default)]
struct Partition {
    open: Vec<u8>,
    /// Offsets of full blocks in the scratch file.
    blocks: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct KeepBuilder {
    dir: PathBuf,
    /// Two keyed hashes make 128 bits that nobody can aim collisions at.
    hashers: [RandomState; 2],
    partitions: Vec<Partition>,
    file: Option<File>,
    written: u64,
    next: u64,
}

impl KeepBuilder {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            hashers: [RandomState::new(), RandomState::new()],
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            file: None,
            written: 0,
            next: 0,
        }
    }

    /// Adds the next entry; ordinals count from 0 in the order of these calls.
    pub(crate) fn push(&mut self, user_key: &[u8], is_tombstone: bool) -> Result<(), ScratchError> {
        let [high, low] = [&self.hashers[0], &self.hashers[1]].map(|state| {
            let mut hasher = state.build_hasher();
            hasher.write(user_key);
            hasher.finish()
        });
        let record = (self.next << 1) | u64::from(!is_tombstone);
        self.next += 1;
        let [slot, ..] = high.to_le_bytes();
        let Some(partition) = self.partitions.get_mut(usize::from(slot)) else { return Ok(()) };
        partition.open.extend_from_slice([high, low, record].map(u64::to_le_bytes).as_flattened());
        if partition.open.len() < BLOCK {
            return Ok(());
        }
        let failed = |source| ScratchError { dir: self.dir.clone(), source };
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(nameless_file(&self.dir)?),
        };
        file.write_all_at(&partition.open, self.written).map_err(failed)?;
        partition.blocks.push(self.written);
        self.written += BLOCK as u64;
        partition.open.clear();
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Keep, ScratchError> {
        let words = usize::try_from(self.next.div_ceil(64)).unwrap_or_default();
        let mut keep = Keep { bits: vec![0; words], live: 0 };
        let mut newest: HashMap<u128, u64, BuildHasherDefault<AlreadyHashed>> = HashMap::default();
        let mut block = vec![0; BLOCK];
        for partition in &self.partitions {
            newest.clear();
            for offset in &partition.blocks {
                if let Some(file) = &self.file {
                    file.read_exact_at(&mut block, *offset)
                        .map_err(|source| ScratchError { dir: self.dir.clone(), source })?;
                }
                collect(&block, &mut newest);
            }
            collect(&partition.open, &mut newest);
            for record in newest.values().filter(|record| *record & 1 == 1) {
                keep.insert(record >> 1);
            }
        }
        Ok(keep)
    }
}

/// Records are in ascending order of their ordinals, so the last one of a key wins.
fn collect(records: &[u8], newest: &mut HashMap<u128, u64, BuildHasherDefault<AlreadyHashed>>) {
    for record in records.as_chunks::<RECORD>().0 {
        if let (Some(hash), Some(ordinal)) = (record.first_chunk(), record.last_chunk()) {
            newest.insert(u128::from_le_bytes(*hash), u64::from_le_bytes(*ordinal));
        }
    }
}

/// The map's keys are hashes; hashing them again would only cost time.
#[derive(Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // The second half: the first byte of the first one is the same for a whole partition.
        self.0 = bytes.last_chunk().map_or(0, |half| u64::from_le_bytes(*half));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_newest_entry_of_each_key_is_kept_unless_it_is_a_deletion() {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = KeepBuilder::new(dir.path());
        let mut model: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        // Enough entries to spill every partition several times.
        let total = 600_000_u64;
        for ordinal in 0..total {
            let key = ordinal.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 70_001;
            let is_tombstone = ordinal % 7 == 3;
            builder.push(&key.to_be_bytes(), is_tombstone).unwrap();
            model.insert(key, (!is_tombstone).then_some(ordinal));
        }
        assert!(builder.partitions.iter().all(|partition| !partition.blocks.is_empty()));
        let keep = builder.finish().unwrap();
        let mut expected: Vec<u64> = model.into_values().flatten().collect();
        expected.sort_unstable();
        let kept: Vec<u64> = (0..total + 100).filter(|ordinal| keep.contains(*ordinal)).collect();
        assert_eq!(kept, expected);
        assert_eq!(keep.live, expected.len() as u64);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "scratch files have no names");
    }
}
