//! How much is asked of the cluster, and how patiently.

use std::time::Duration;

use quorate_etcd::client::{Client, ClientError, Options};

#[derive(Clone, Debug)]
pub struct Load {
    /// Clients that write. They differ: lasting connections to one member or to all in turn, and new ones for each request.
    /// One more asks without waiting for answers.
    pub writers: usize,
    pub readers: usize,
    /// Clients that watch: every second one keeps breaking off and going on elsewhere.
    pub watchers: usize,
    /// Between two requests of one client.
    pub pause: Duration,
    pub call_timeout: Duration,
    /// At the end, for a last write to be acknowledged, members to be readable and watches to come to an end.
    pub settle_timeout: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            writers: 4,
            readers: 2,
            watchers: 4,
            pause: Duration::from_millis(20),
            call_timeout: Duration::from_secs(2),
            settle_timeout: Duration::from_mins(1),
        }
    }
}

impl Load {
    pub(crate) fn connect(&self, options: &Options) -> Result<Client, ClientError> {
        Client::new(Options {
            connect_timeout: Duration::from_secs(1),
            call_timeout: self.call_timeout,
            long_call_timeout: self.settle_timeout,
            // As often as etcd bears it: a watch on a member that froze has to notice.
            keep_alive: Duration::from_secs(6),
            ..options.clone()
        })
    }
}

/// The parts of the keyspace, each with its own use. All are watched; those of a few keys are read as a whole.
pub(crate) const REGISTERS: &str = "register/";
pub(crate) const PAIRS: &str = "pair/";
pub(crate) const ONCE: &str = "once/";
pub(crate) const LEASED: &str = "leased/";
pub(crate) const GROUPS: [&str; 4] = [REGISTERS, PAIRS, ONCE, LEASED];
/// How many keys there are in those that are read as a whole.
pub(crate) const KEYS: u64 = 6;

/// Enough to mix requests; nobody guesses it.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(seed).unwrap_or_default().wrapping_mul(0xd129_0ddb_53c4_3e49))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
