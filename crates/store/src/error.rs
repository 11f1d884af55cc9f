//! What can go wrong with a store, in kinds that callers act on, and texts that never repeat what a server said.
//!
//! The errors of the client below hold URLs with signatures and answers that echo them. They end here: an [`Error`] is
//! made of our own words, a status, a code of the provider's list, and what the operating system says.

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no such object.
    NotFound,
    /// Somebody else was first.
    AlreadyExists,
    /// The store knows who asks and refuses, or does not know who asks.
    Denied,
    /// Nobody answers there, or the answer is that something broke.
    Unreachable,
    /// No answer in time. What a write did is unknown.
    Timeout,
    /// Asked too often or too much.
    Throttled,
    /// The object is under retention or a legal hold.
    Locked,
    /// An answer that is cut short or makes no sense.
    Damaged,
    /// It can never work with these settings.
    Misconfigured,
}

impl ErrorKind {
    /// Whether the same request may succeed later with nobody changing anything.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::Throttled | Self::Damaged)
    }

    fn next_step(self) -> &'static str {
        match self {
            Self::NotFound => "list the prefix to see what is there",
            Self::AlreadyExists => "look at what is there before writing again",
            Self::Denied => "check the credentials and what they may do in this bucket",
            Self::Unreachable => "check endpoint, network and certificates; it is tried again",
            Self::Timeout => "check the network; it is tried again",
            Self::Throttled => "it is tried again later",
            Self::Locked => "it can be deleted when its retention has ended",
            Self::Damaged => "it is read again; if it stays, look at the server and what is between",
            Self::Misconfigured => "correct the settings of the store",
        }
    }
}

/// The store, the object, the cause and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {doing}: {cause}; {}", kind.next_step())]
pub struct Error {
    kind: ErrorKind,
    store: String,
    doing: String,
    cause: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, store: &str, doing: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { kind, store: store.to_owned(), doing: doing.into(), cause: cause.into() }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Without store and object, for places that name them already.
    pub fn cause(&self) -> &str {
        &self.cause
    }
}
