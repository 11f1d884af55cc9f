//! What etcd did not let the operator change, until it does: the next pass says so.
//!
//! Kept in memory. After the operator's next life it is found out again, because the change is asked for again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_core::view::Refusal;

use crate::error::Error;

/// By the identifier of the cluster.
#[derive(Debug, Default)]
pub struct Refusals {
    clusters: Mutex<HashMap<String, Refusal>>,
}

impl Refusals {
    pub fn last(&self, cluster_uid: &str) -> Option<Refusal> {
        self.lock().get(cluster_uid).cloned()
    }

    /// What has come of a pass. One that failed for any other reason says nothing about rights.
    pub fn note<T>(&self, cluster_uid: &str, came_of_it: &Result<T, Error>) {
        match came_of_it {
            Ok(_) => drop(self.lock().remove(cluster_uid)),
            Err(Error::NotAllowed { what, cause }) => {
                let refusal = Refusal { what: what.clone(), cause: cause.clone() };
                self.lock().insert(cluster_uid.to_owned(), refusal);
            }
            Err(_) => {}
        }
    }

    /// The cluster is gone.
    pub fn forget(&self, cluster_uid: &str) {
        self.lock().remove(cluster_uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Refusal>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_remembered_until_a_pass_comes_to_its_end_and_only_for_its_own_cluster() {
        let refusals = Refusals::default();
        let what = "give db-3 (beef) a vote".to_owned();
        let cause = "etcdserver: permission denied".to_owned();
        let refused = Err::<(), _>(Error::NotAllowed { what: what.clone(), cause: cause.clone() });
        refusals.note("a", &refused);
        refusals.note("a", &Err::<(), _>(Error::PassDied));
        assert_eq!(refusals.last("a"), Some(Refusal { what, cause }));
        assert_eq!(refusals.last("b"), None);
        refusals.note("a", &Ok(()));
        assert_eq!(refusals.last("a"), None);
    }
}
