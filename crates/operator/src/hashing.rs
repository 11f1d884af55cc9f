//! Hashes over the data of members, worked out beside the passes.
//!
//! On a large database that takes longer than a cluster may go without a pass: whoever falls silent meanwhile must be noticed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::hashes::HashAnswer;

use crate::etcd::FOR_HASHES;

/// What nobody has come back for after this time is of no use any more.
const KEPT_FOR: Duration = FOR_HASHES.saturating_add(Duration::from_mins(1));

/// What is being worked out, by the identifier of the cluster.
#[derive(Debug, Default)]
pub struct Hashing {
    clusters: Mutex<HashMap<String, Work>>,
}

#[derive(Debug)]
struct Work {
    began: Instant,
    came_of_it: Arc<OnceLock<HashAnswer>>,
}

impl Hashing {
    /// What has come of it, told once. If nobody has begun with it, that is done now.
    pub fn ask<W>(&self, cluster_uid: &str, work: impl FnOnce() -> W) -> HashAnswer
    where
        W: Future<Output = HashAnswer> + Send + 'static,
    {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.retain(|_, work| work.began.elapsed() < KEPT_FOR);
        match clusters.get(cluster_uid).map(|work| work.came_of_it.get().cloned()) {
            Some(Some(answer)) => {
                clusters.remove(cluster_uid);
                return answer;
            }
            Some(None) => {}
            None => {
                let came_of_it = Arc::<OnceLock<HashAnswer>>::default();
                let (begun, answer) = (work(), Arc::clone(&came_of_it));
                tokio::spawn(async move { answer.set(begun.await) });
                clusters.insert(cluster_uid.to_owned(), Work { began: Instant::now(), came_of_it });
            }
        }
        HashAnswer::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_pass_does_not_wait_for_hashes_and_a_later_one_is_told_once() {
        let hashing = Hashing::default();
        let (done, wait) = oneshot::channel::<()>();
        let failed = HashAnswer::Failed("nobody answered".to_owned());
        let answer = failed.clone();
        let slow = || async move {
            let _ = wait.await;
            answer
        };
        assert_eq!(hashing.ask("a", slow), HashAnswer::Pending);
        let never = || async { panic!("it is worked out already") };
        assert_eq!(hashing.ask("a", never), HashAnswer::Pending);
        assert_eq!(hashing.ask("b", std::future::pending), HashAnswer::Pending, "another cluster");
        done.send(()).unwrap();
        let told = loop {
            tokio::task::yield_now().await;
            match hashing.ask("a", never) {
                HashAnswer::Pending => {}
                told => break told,
            }
        };
        assert_eq!(told, failed);
        assert_eq!(hashing.ask("a", std::future::pending), HashAnswer::Pending, "it begins anew");
    }
}
