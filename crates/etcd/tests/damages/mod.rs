//! Ways in which the files of a member lose bits, or whole parts, while nobody uses them.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;
/// The header of a page: its number, its kind, how many entries it has. Behind it, for each entry: flags, where its key is,
/// how long key and value are.
const PAGE_KIND: usize = 8;
const PAGE_COUNT: usize = 10;
const ENTRY_PLACE: usize = 20;
const ENTRY_LENGTH: usize = 28;
/// Within the meta pages: which page everything else is found from. A checksum covers it.
const META_ROOT: usize = 40;

/// The key that is damaged, and what it says.
#[derive(Clone, Debug)]
pub(crate) struct Needle {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) revision: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    /// One bit of the needle's value,
    Value,
    /// of its key,
    Key,
    /// of the revision under which it is stored,
    Revision,
    /// of the page that holds it: its number,
    PageNumber,
    PageKind,
    PageCount,
    /// or of the first entry there.
    EntryPlace,
    EntryLength,
    /// One bit of one of the pages that everything is found from,
    OneMeta,
    /// or of both.
    BothMetas,
    /// One bit of whatever byte of the database is the n-th of [`SOMEWHERE`], evenly, of those that are not zero.
    Somewhere(usize),
    /// One bit in the middle of the log.
    LogBit,
    /// The second half of the log is gone,
    LogCut,
    /// or all of it.
    LogMissing,
}

const SOMEWHERE: usize = 8;

impl Damage {
    pub(crate) fn all() -> Vec<Self> {
        let known = [
            Self::Value,
            Self::Key,
            Self::Revision,
            Self::PageNumber,
            Self::PageKind,
            Self::PageCount,
            Self::EntryPlace,
            Self::EntryLength,
            Self::OneMeta,
            Self::BothMetas,
        ];
        let log = [Self::LogBit, Self::LogCut, Self::LogMissing];
        known.into_iter().chain((0..SOMEWHERE).map(Self::Somewhere)).chain(log).collect()
    }

    /// Does it to a data directory. Pages that are no longer in use may hold the needle too, and are damaged with the others.
    pub(crate) fn inflict(self, data: &Path, needle: &Needle) {
        let (database, wal) = (data.join("member/snap/db"), data.join("member/wal"));
        let bytes = fs::read(&database).unwrap();
        let values = places(&bytes, &needle.value);
        assert!(!values.is_empty(), "the value is not in the database yet");
        let pages = |offset: usize| values.iter().map(|place| place / PAGE * PAGE + offset).collect::<Vec<_>>();
        match self {
            Self::Value => flip(&database, &values),
            Self::Key => flip(&database, &places(&bytes, &needle.key)),
            Self::Revision => {
                let stored = [&needle.revision.to_be_bytes()[..], b"_"].concat();
                flip(&database, &places(&bytes, &stored).iter().map(|place| place + 7).collect::<Vec<_>>());
            }
            Self::PageNumber => flip(&database, &pages(0)),
            Self::PageKind => flip(&database, &pages(PAGE_KIND)),
            Self::PageCount => flip(&database, &pages(PAGE_COUNT)),
            Self::EntryPlace => flip(&database, &pages(ENTRY_PLACE)),
            Self::EntryLength => flip(&database, &pages(ENTRY_LENGTH)),
            Self::OneMeta => flip(&database, &[META_ROOT]),
            Self::BothMetas => flip(&database, &[META_ROOT, PAGE + META_ROOT]),
            Self::Somewhere(n) => {
                let used = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(place, _)| place);
                let used = used.collect::<Vec<_>>();
                flip(&database, &[used[(2 * n + 1) * used.len() / (2 * SOMEWHERE)]]);
            }
            Self::LogBit => {
                let (segment, used) = last_segment(&wal);
                flip(&segment, &[used / 2]);
            }
            Self::LogCut => {
                let (segment, used) = last_segment(&wal);
                File::options().write(true).open(segment).unwrap().set_len(used as u64 / 2).unwrap();
            }
            Self::LogMissing => fs::remove_dir_all(wal).unwrap(),
        }
    }
}

/// Whether the file of a data directory says so already: etcd writes its database a moment after it has answered.
pub(crate) fn is_stored(data: &Path, needle: &Needle) -> bool {
    let bytes = fs::read(data.join("member/snap/db")).unwrap_or_default();
    !places(&bytes, &needle.value).is_empty()
}

fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(wanted.len()).enumerate();
    windows.filter(|(_, window)| *window == wanted).map(|(place, _)| place).collect()
}

fn flip(path: &Path, places: &[usize]) {
    assert!(!places.is_empty(), "there is nothing to damage in {}", path.display());
    let file = File::options().read(true).write(true).open(path).unwrap();
    for place in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, *place as u64).unwrap();
        file.write_all_at(&[byte[0] ^ 4], *place as u64).unwrap();
    }
}

/// The newest segment, and how much of it is in use: etcd allocates more than it needs.
fn last_segment(wal: &Path) -> (PathBuf, usize) {
    let entries = fs::read_dir(wal).unwrap().map(|entry| entry.unwrap().path());
    let segment = entries.filter(|path| path.extension().is_some_and(|end| end == "wal")).max().unwrap();
    let used = fs::read(&segment).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (segment, used)
}
