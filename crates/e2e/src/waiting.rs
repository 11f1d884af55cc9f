//! Waiting for conditions, never for time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longer than anything should take on a busy machine; what matters is the condition.
pub const PATIENCE: Duration = Duration::from_mins(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Looks until there is something to see, and returns it with the time it took.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    timed(what, look).await.0
}

/// [`eventually`], with the time it took.
pub async fn timed<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> (T, Duration) {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return (seen, began.elapsed());
        }
        assert!(began.elapsed() < PATIENCE, "waited {} s in vain until {what}", PATIENCE.as_secs());
        sleep(BETWEEN_LOOKS).await;
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
