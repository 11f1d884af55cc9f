//! A quorum is lost for good, and this member's data is the best copy that is left: a new incarnation begins from it.
//!
//! Everything that the log holds counts. Whatever dies on the way leaves a volume from which the next agent goes on: with the
//! data as it was, of which the successor is made again, or with the successor in its place.

use std::time::Duration;

use quorate_api::member::{EtcdReport, LogEnd, Peer, RecoveredFrom};
use quorate_core::record::Verdict;
use quorate_etcd::{
    membership::{InitialCluster, Member, hex_id},
    validate::{DirError, DirFacts},
    wal::Vote,
};
use quorate_runtime::error::chain;
use tokio::time::sleep;

use crate::{
    config::listed,
    error::{Error, Result},
    identity::{Successor, VolumeIdentity},
    inspect::{Looked, Volume, log_end},
    launch_socket::LauncherConnection,
    quarantine::aside_name,
    soundness::Soundness,
    successor::Revisions,
    supervisor::MemberSupervisor,
};

/// Everybody who watches is told.
const BETWEEN_REPORTS: Duration = Duration::from_secs(5);

/// The incarnation that is to begin.
pub(crate) struct Order {
    pub(crate) epoch: i64,
    pub(crate) raise_to: i64,
    cluster: InitialCluster,
    member: Member,
}

impl Order {
    pub(crate) fn new(name: &str, epoch: i64, token: &str, initial_cluster: &[Peer], raise_to: i64) -> Result<Self> {
        let cluster = InitialCluster::parse(&listed(initial_cluster), token)?;
        let own = initial_cluster.iter().filter(|peer| peer.name == name).map(|peer| peer.url.clone());
        let member = cluster.own_member(name, &own.collect::<Vec<_>>())?.clone();
        Ok(Self { epoch, raise_to, cluster, member })
    }
}

impl MemberSupervisor {
    /// Makes the data the beginning of a new incarnation. What came of it, the next look at the volume says.
    pub(crate) async fn recover(
        &self,
        launcher: &mut LauncherConnection,
        order: &Order,
        looked: &Looked,
        verdict: &Verdict,
    ) -> Result<()> {
        let Some(own) = &looked.identity else { return Ok(()) };
        self.tell(verdict, "checking the last copy");
        let reason = match self.volume.on(Volume::read_through).await? {
            Ok(Soundness::Sound { facts, .. }) => {
                return self.recover_from(launcher, order, own, &facts, verdict).await;
            }
            Ok(Soundness::Damaged(reason)) => reason,
            Err(error @ Error::Inspect(DirError::InUse { .. })) => return Err(error),
            Err(error) => chain(&error),
        };
        // From here on it is reported as what it is, and there may be another copy.
        tracing::error!(member = self.name, reason, "the copy to recover from cannot be used");
        self.write(VolumeIdentity { doubted: true, ..own.clone() }).await
    }

    async fn recover_from(
        &self,
        launcher: &mut LauncherConnection,
        order: &Order,
        own: &VolumeIdentity,
        facts: &DirFacts,
        verdict: &Verdict,
    ) -> Result<()> {
        let mut successor = self.successor(order, own, facts)?;
        let identity = VolumeIdentity { doubted: false, successor: Some(successor.clone()), ..own.clone() };
        // Before the log is touched: from then on the data is not what other members know of it.
        self.write(identity.clone()).await?;
        let applied = facts.schema.as_ref().map_or(0, |schema| schema.consistent_index);
        let index = u64::try_from(successor.log_end.index).unwrap_or_default();
        if applied < index {
            self.tell(verdict, "replaying the log");
            self.replay(launcher, order.epoch, vote(facts), index).await?;
        }
        let revisions = self.write_successor(verdict, order, &identity, &successor).await?;
        let Revisions { before, after } = revisions;
        successor.recovered = Some(RecoveredFrom { epoch: order.epoch, revision: before, raised_to: after });
        self.write(VolumeIdentity { successor: Some(successor.clone()), ..identity }).await?;
        // All that took its time, and another copy may have been found meanwhile.
        let again = self.look(Some("putting the new incarnation into place")).await?;
        if again.is_none_or(|(_, _, again)| again.start != verdict.start) {
            return Ok(());
        }
        self.volume.on(move |volume| volume.put_into_place(&successor)).await??;
        tracing::warn!(member = self.name, order.epoch, before, after, "a new incarnation takes the place of the data");
        Ok(())
    }

    /// The one that is in the making, or another if another is ordered now.
    fn successor(&self, order: &Order, own: &VolumeIdentity, facts: &DirFacts) -> Result<Successor> {
        let (cluster_id, member_id) = (hex_id(order.cluster.cluster_id()), order.member.hex_id());
        if cluster_id == own.cluster_id || member_id == own.member_id {
            let source = std::io::ErrorKind::InvalidInput.into();
            let what = format!("the ticket names member {member_id} of cluster {cluster_id}, which is what is there");
            return Err(Error::Io { what, source });
        }
        let before = own.successor.as_ref();
        let end = facts.log.as_ref().and_then(log_end).unwrap_or(LogEnd { term: 0, index: 0 });
        Ok(Successor {
            cluster_id,
            member_id,
            epoch: order.epoch,
            log_end: before.map_or(end, |before| before.log_end),
            aside: before.map_or_else(|| aside_name((self.clock)()), |before| before.aside.clone()),
            recovered: None,
        })
    }

    async fn write_successor(
        &self,
        verdict: &Verdict,
        order: &Order,
        identity: &VolumeIdentity,
        successor: &Successor,
    ) -> Result<Revisions> {
        let (identity, next) = (identity.clone(), successor.clone());
        let (cluster, member, raise_to) = (order.cluster.clone(), order.member.clone(), order.raise_to);
        let write = move |volume: &Volume| volume.write_successor(&identity, &next, &cluster, &member, raise_to);
        let writing = self.volume.on(write);
        tokio::pin!(writing);
        loop {
            let aside = successor.aside.clone();
            let (written, all) = self.volume.on(move |volume| volume.written(&aside)).await?;
            let sizes = format!("{} of {} MiB", written >> 20, all >> 20);
            self.tell(verdict, &format!("writing the new incarnation, {sizes}"));
            tokio::select! {
                written = &mut writing => return written?,
                () = sleep(BETWEEN_REPORTS) => {}
            }
        }
    }

    async fn write(&self, identity: VolumeIdentity) -> Result<()> {
        self.volume.on(move |volume| identity.write(&volume.root)).await?
    }

    /// What it is busy with. Nothing runs that anybody could use.
    pub(crate) fn tell(&self, verdict: &Verdict, progress: &str) {
        tracing::info!(member = self.name, progress, "recovers");
        let progress = Some(progress.to_owned());
        self.report(Some(verdict.report.clone()), EtcdReport { progress, ..EtcdReport::default() });
    }
}

/// Whether the data says that its member has a vote. What the log says beyond that cannot take it away.
fn vote(facts: &DirFacts) -> Vote {
    let own = facts.log.as_ref().map(|log| log.node_id);
    let members = facts.schema.iter().flat_map(|schema| &schema.members);
    let mut voters = members.filter(|member| !member.is_learner);
    if voters.any(|member| Some(member.id) == own) { Vote::Has } else { Vote::Gets }
}
