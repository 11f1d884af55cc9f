//! Whether a cluster kept its word: a load over real clients that records all it was told, and a checker that goes through
//! it afterwards.
//!
//! The load knows nothing of how the cluster is run: it writes, reads and watches through whatever endpoints it is given,
//! while members come and go. Nothing is repeated by itself: an attempt whose outcome is unknown stays unknown until an
//! event or a read shows it. The checker is a pure function over the [`History`].
//!
//! ```no_run
//! # use quorate_etcd::client::Options;
//! # use quorate_ledger::{Endpoint, Ledger, Load};
//! # async fn test(members: Vec<Endpoint>) {
//! let ledger = Ledger::start(members, Load::default());
//! // ... members come and go ...
//! let verdict = ledger.stop().await;
//! assert!(verdict.is_clean(), "{verdict}");
//! # }
//! ```

#![forbid(unsafe_code)]

mod check;
mod endpoints;
mod history;
mod ledger;
mod load;
mod outcome;
mod readers;
mod recorder;
mod settle;
mod verdict;
mod watchers;
mod writers;

pub use check::{Rule, Violation, check};
pub use endpoints::{Endpoint, Endpoints};
pub use history::{
    Change, Epoch, Event, Final, History, Kv, Lease, Message, Moment, Outcome, Position, Read, ReadKind, Scope, Stream,
    StreamMessage, Write,
};
pub use ledger::Ledger;
pub use load::Load;
pub use verdict::{Pause, Verdict};
