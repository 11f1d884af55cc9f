//! A member's first start: who it is stands on its volume and on record before etcd runs, and its ticket is looked at again at
//! the last moment.

use std::time::Duration;

use quorate_api::{
    EtcdMember,
    member::{DataReport, EtcdReport, Peer, Ticket},
};
use quorate_core::{
    record::{VolumeRecord, beginning_report, recovered_report},
    start::{Identity, Start},
};
use quorate_etcd::membership::{InitialCluster, hex_id};
use tokio::time::{sleep, timeout};

use crate::{
    config::{Beginning, listed},
    error::Result,
    supervisor::{MemberSupervisor, Permit, Record},
};

/// Other members' names appear in DNS when their pods do.
const FOR_DNS: Duration = Duration::from_secs(10);
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(50);
/// How long a report may take to be seen.
const FOR_RECORD: Duration = Duration::from_secs(5);

impl Permit {
    /// Whether a ticket lets this member begin, and not another in its place.
    fn is_given_by(&self, ticket: &Ticket) -> bool {
        match (&self.beginning, ticket) {
            (Beginning::New { .. }, Ticket::Bootstrap { epoch, .. }) => *epoch == self.identity.epoch,
            (Beginning::Join { .. }, Ticket::Join { member_id, .. }) => *member_id == self.identity.member_id,
            (Beginning::OwnData, Ticket::Recover { epoch, .. } | Ticket::Resume { epoch }) => {
                *epoch == self.identity.epoch
            }
            _ => false,
        }
    }

    /// Whether this is the first start of an incarnation that was recovered on this volume.
    pub(crate) fn recovers(&self) -> bool {
        self.beginning == Beginning::OwnData && self.identity.boot_count == 1 && self.identity.recovered.is_some()
    }

    /// What has to be on record before etcd runs, if it begins.
    fn first_report(&self) -> Option<DataReport> {
        let own = self.identity.running(0);
        match (&self.beginning, &self.identity.recovered) {
            // Its volume says that it was let start only after this: a record that says so already would be ahead of it.
            (Beginning::OwnData, Some(from)) if self.recovers() => {
                Some(recovered_report(&Identity { boot_count: 0, ..own }, from.clone()))
            }
            (Beginning::OwnData, _) => None,
            (Beginning::New { .. } | Beginning::Join { .. }, _) => Some(beginning_report(&own)),
        }
    }
}

impl MemberSupervisor {
    /// A new member's identity follows from its ticket, so it is on the volume before etcd is.
    pub(crate) fn begin_new(
        &self,
        epoch: i64,
        token: &str,
        initial_cluster: &[Peer],
        keep: &VolumeRecord,
    ) -> Result<Permit> {
        let cluster = InitialCluster::parse(&listed(initial_cluster), token)?;
        let own = initial_cluster.iter().filter(|peer| peer.name == self.name).map(|peer| peer.url.clone());
        let member = cluster.own_member(&self.name, &own.collect::<Vec<_>>())?;
        let new = Identity {
            cluster_id: hex_id(cluster.cluster_id()),
            member_id: member.hex_id(),
            epoch,
            boot_count: 1,
            last_index: 0,
        };
        let beginning = Beginning::New { token: token.to_owned(), initial_cluster: initial_cluster.to_owned() };
        Ok(self.begin(&new, beginning, keep))
    }

    /// Here the ticket names it: the cluster has given it its identifier already.
    pub(crate) fn begin_joining(
        &self,
        epoch: i64,
        cluster_id: &str,
        member_id: &str,
        initial_cluster: &[Peer],
        keep: &VolumeRecord,
    ) -> Permit {
        let (cluster_id, member_id) = (cluster_id.to_owned(), member_id.to_owned());
        let new = Identity { cluster_id, member_id, epoch, boot_count: 1, last_index: 0 };
        self.begin(&new, Beginning::Join { initial_cluster: initial_cluster.to_owned() }, keep)
    }

    fn begin(&self, new: &Identity, beginning: Beginning, keep: &VolumeRecord) -> Permit {
        let identity = self.identity(new, new.boot_count, keep.clone());
        Permit { identity, beginning, report: None, record: Record::Read }
    }

    /// A member that begins is on record before it does. Whatever else it knows is its own to say later.
    pub(crate) async fn is_on_record(&mut self, permit: &Permit) -> bool {
        let Some(report) = permit.first_report() else { return true };
        let own = permit.identity.running(0);
        self.report(Some(report.clone()), EtcdReport::default());
        let is_there = |seen: &Option<EtcdMember>| {
            let data = seen.as_ref().and_then(|member| member.status.as_ref()?.data.as_ref());
            data.is_some_and(|data| {
                let is_own = data.member_id.as_ref() == Some(&own.member_id) && data.epoch == Some(own.epoch);
                is_own && data.recovered == report.recovered
            })
        };
        let seen = timeout(FOR_RECORD, self.changes.wait_for(is_there)).await.ok().and_then(Result::ok);
        // The ticket as it is with the record there: it may have been exchanged at the last moment.
        let given = seen.map(|seen| seen.as_ref().is_some_and(|member| permit.is_given_by(&member.spec.ticket)));
        if let Some(given) = given {
            return given;
        }
        // A watch may hang on a connection of which nothing has come for long.
        let orders = self.kubernetes.patient_orders().await;
        orders.recorded.known().is_some_and(|mark| mark.is_of(&own))
            && orders.ticket.known().is_some_and(|ticket| permit.is_given_by(ticket))
    }

    /// Waits for names. That may take a while, and the ticket may be withdrawn meanwhile.
    pub(crate) async fn still_stands(&self, start: &Start, names: &[Peer]) -> Result<bool> {
        self.wait_for_names(names).await;
        let again = self.look(None).await?.map(|(_, _, verdict)| verdict.start);
        Ok(again.as_ref() == Some(start))
    }

    /// etcd looks up its own name once per second at best; asking here costs less.
    async fn wait_for_names(&self, peers: &[Peer]) {
        let known = async |peer: &Peer| {
            let host = peer.url.split("://").last().unwrap_or_default().to_owned();
            tokio::net::lookup_host(host).await.is_ok()
        };
        let all = async {
            for peer in peers {
                while !known(peer).await {
                    sleep(BETWEEN_QUESTIONS).await;
                }
            }
        };
        if timeout(FOR_DNS, all).await.is_err() {
            tracing::warn!("not all members are in DNS yet; etcd goes on looking");
        }
    }
}
