//! etcd's write-ahead log: framed records whose checksums form one chain across all segments.

mod commit;
mod reader;
mod record;
mod residue;
mod scan;
mod writer;

pub use commit::{CommitError, Vote, commit_all};
pub use reader::Corruption;
pub use record::{RecordType, SegmentName};
pub use scan::{Tail, WalError, WalScan, has_segments, list_segments, read_metadata, scan_dir};
pub use writer::{BOOTSTRAP_TERM, BootstrapError, WalEncoder, bootstrap_segment};
