//! Clients that write, read and watch all the while, and a ledger of what they were told.

use std::time::Duration;

use quorate_api::status::MemberHealth;
use quorate_etcd::client::{Options, Tls};
use quorate_ledger::{Endpoint, Epoch, Ledger, Load, Verdict};
use tokio::{sync::watch, task::JoinHandle};

use crate::{Cluster, cluster::Kind, eventually};

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// They go wherever the status says that a member is ready, as that changes.
#[derive(Debug)]
#[must_use]
pub struct Clients {
    ledger: Ledger,
    follow: JoinHandle<()>,
}

impl Clients {
    pub async fn of(cluster: &Cluster) -> Self {
        let (cluster, tls) = (cluster.clone(), cluster.tls().await);
        let (shown, endpoints) = watch::channel(ready_members(&cluster, &tls).await);
        let follow = tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let now = ready_members(&cluster, &tls).await;
                let places = |all: &[Endpoint]| all.iter().map(|one| one.options.endpoint.clone()).collect::<Vec<_>>();
                shown.send_if_modified(|shown| {
                    let changed = !now.is_empty() && places(shown) != places(&now);
                    if changed {
                        *shown = now;
                    }
                    changed
                });
            }
        });
        Self { ledger: Ledger::start(endpoints, Load::default()), follow }
    }

    /// Waits until so many more writes were acknowledged.
    pub async fn have_written(&self, more: usize) {
        let enough = self.ledger.acknowledged() + more;
        eventually("clients write", async || (self.ledger.acknowledged() >= enough).then_some(())).await;
    }

    /// Says that a recovery has made a new incarnation of the cluster, which the history has to bear out.
    pub fn declare(&self, epoch: Epoch) {
        self.ledger.declare(epoch);
    }

    /// Everything that was acknowledged is there, and everybody who watched saw all of it, once and in order.
    pub async fn were_told_the_truth(self) -> Verdict {
        // The last look at the members is that at a cluster that is whole.
        tokio::time::sleep(2 * BETWEEN_LOOKS).await;
        self.follow.abort();
        let verdict = self.ledger.stop().await;
        assert!(verdict.is_clean(), "{verdict}");
        verdict
    }
}

async fn ready_members(cluster: &Cluster, tls: &Tls) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for member in cluster.status().await.members {
        if member.status != MemberHealth::Ready {
            continue;
        }
        let Some(pod) = cluster.find(Kind::Pod, &member.name).await else { continue };
        let Some(address) = pod["status"]["podIP"].as_str() else { continue };
        let options = Options { tls: Some(tls.clone()), ..Options::new(format!("https://{address}:2379")) };
        endpoints.push(Endpoint::new(member.name, options));
    }
    endpoints
}
