//! Stored backups: one container for full and delta backups, their names, and what a listing of them means.
//!
//! Nothing here touches a store, a network or a clock. Objects are written to any `Write` and read from any `Read`, in
//! blocks, so that memory stays at a few MiB whatever the size; what may be restored, what a writer does next and what
//! may be deleted are functions of a listing. The bytes are specified in `docs/formats.md`, section 11.

mod catalogue;
mod delta;
mod delta_chain;
mod describe;
mod format;
mod full;
mod keyring;
mod name;
mod next;
mod plan;
mod reader;
mod record;
mod retention;
mod revision_scan;
mod writer;

pub use catalogue::{Catalogue, Chain, Facts, Listed, Object, Standing};
pub use delta::{DeltaReader, DeltaWriter};
pub use delta_chain::{DeltaChain, Link};
pub use describe::{Described, Description, Start, describe};
pub use format::{BlockEntry, Header, Kind, LeaseEntry, ObjectError, Trailer};
pub use full::{FullReader, FullWriter};
pub use keyring::{Key, KeyError, Keyring};
pub use name::{ObjectName, cluster_tag};
pub use next::{FullReason, Next, Refusal, Writer, next};
pub use plan::{Plan, PlanError, Range, Target};
pub use reader::ObjectReader;
pub use retention::{Keep, Policy, Retention, Verdict, retain};
pub use writer::{Finished, ObjectWriter, WriteOptions};
