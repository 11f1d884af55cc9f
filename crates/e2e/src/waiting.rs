//! Waiting for conditions, never for time.

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};

/// Longer than anything should take on a busy machine; what matters is the condition.
pub const PATIENCE: Duration = Duration::from_mins(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What a look can bring: the thing itself, or not yet, perhaps with a reason.
pub trait Look {
    type Seen;
    fn seen(self) -> Result<Self::Seen, String>;
}

impl<T> Look for Option<T> {
    type Seen = T;
    fn seen(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Seen = T;
    fn seen(self) -> Result<T, String> {
        self.map_err(|reason| format!(": {reason}"))
    }
}

/// Looks until there is something to see, and returns it.
pub async fn eventually<L: Look>(what: &str, mut look: impl AsyncFnMut() -> L) -> L::Seen {
    let began = Instant::now();
    loop {
        match look().await.seen() {
            Ok(seen) => return seen,
            Err(reason) if began.elapsed() >= PATIENCE => {
                panic!("waited {} s in vain until {what}{reason}", PATIENCE.as_secs())
            }
            Err(_) => sleep(BETWEEN_LOOKS).await,
        }
    }
}

/// Looks again and again for as long as a fault needs to show.
pub async fn stays(what: &str, period: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + period;
    while Instant::now() < until {
        assert!(holds().await, "it did not stay true that {what}");
        sleep(BETWEEN_LOOKS).await;
    }
}
