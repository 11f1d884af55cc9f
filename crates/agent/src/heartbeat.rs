//! While etcd runs: it is asked how it is, the Lease is renewed, and what it began from is compared with the record as soon
//! as there is one to compare with. One that was compared is stopped only by a ticket that fences it.

use std::time::Duration;

use quorate_api::{
    member::{EtcdReport, ListedMember},
    status::MemberRole,
};
use quorate_core::{
    record::{Orders, VolumeRecord, confirm, fenced_report, renewed, running_report},
    start::Start,
    volume::Use,
};
use quorate_runtime::error::chain;
use tokio::time::{Instant, sleep};

use crate::{
    error::Result,
    identity::VolumeIdentity,
    inspect::Volume,
    kubernetes::Renewal,
    launch_socket::LauncherConnection,
    local_etcd::{self, LocalEtcd, Pulse, Status},
    supervisor::{MemberSupervisor, Permit, Record},
    verify::Verification,
};

/// More than two renewals fit into a Lease.
const RENEWAL: Duration = Duration::from_secs(3);
const PULSE: Duration = Duration::from_secs(1);
/// While etcd is starting, whoever waits for it waits for this.
const FIRST_PULSE: Duration = Duration::from_millis(50);
/// Who belongs to the cluster changes rarely, and what a slow start is busy with need not be told more often.
const BETWEEN_LISTS: Duration = Duration::from_secs(5);
/// An etcd whose files have not changed for this long is getting nowhere.
const STANDSTILL: Duration = Duration::from_mins(1);
/// How far etcd has got is kept on the volume this often, and when it ends.
const BETWEEN_KEEPS: Duration = Duration::from_secs(30);
/// A volume does not fill faster than that.
const BETWEEN_TENDS: Duration = Duration::from_secs(10);

/// What is remembered from one pulse to the next.
struct Heartbeat {
    permit: Permit,
    launcher: Option<LauncherConnection>,
    renewed: Option<Instant>,
    listed: Option<Instant>,
    progressed: Option<Instant>,
    /// What was seen of a slow start, and since when it has been so.
    progress: Option<(String, Instant)>,
    kept: Instant,
    members: Vec<ListedMember>,
    /// When it was asked how far it has got, and the answer: once it is old enough to be on disk, the member can never fall
    /// below it again.
    applied: Option<(Instant, i64)>,
    revision: Option<i64>,
    holder: Option<(Option<MemberRole>, Option<i64>)>,
    answered: bool,
    /// Whether it is known as whom it began.
    begun: bool,
    standing: Standing,
    /// When the API was last asked about it.
    asked: Option<Instant>,
    /// When the room on the volume was last seen to.
    tended: Option<Instant>,
    verification: Verification,
}

/// Whether the running etcd may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It began from what is on record.
    Confirmed,
    /// Nobody has said yet. It serves, and nothing is said about it.
    Unconfirmed,
    /// Its data must not be used.
    Fenced,
}

impl MemberSupervisor {
    /// Reports while etcd runs; returns when it is gone.
    pub(crate) async fn heartbeat(&self, launcher: Option<LauncherConnection>, permit: Permit) -> Result<()> {
        let etcd = local_etcd::connect(&self.settings, &self.paths)?;
        let mut heart = Heartbeat {
            begun: permit.identity.boot_count > 1,
            permit,
            launcher,
            renewed: None,
            listed: None,
            progressed: None,
            progress: None,
            kept: Instant::now(),
            members: Vec::new(),
            applied: None,
            revision: None,
            holder: None,
            answered: false,
            standing: Standing::Unconfirmed,
            asked: None,
            tended: None,
            verification: Verification::since((self.clock)()),
        };
        loop {
            let pulse = tokio::select! {
                () = gone(&mut heart.launcher, &self.volume) => {
                    tracing::warn!(member = self.name, "etcd is gone");
                    self.serving.set(false);
                    self.keep(heart.permit.identity).await;
                    return Ok(());
                }
                pulse = attend(&etcd, heart.answered) => pulse,
            };
            // Clients are never led to a learner: it turns them away, or tells them what was true some time ago.
            let serves = pulse.as_ref().is_some_and(|pulse| !pulse.learner);
            self.serving.set(serves && heart.standing != Standing::Fenced);
            heart.advance(pulse.as_ref());
            heart.standing = self.standing(&mut heart).await;
            match heart.standing {
                Standing::Confirmed => self.note(&etcd, &mut heart, pulse.as_ref()).await?,
                Standing::Unconfirmed => heart.answered |= pulse.is_some(),
                Standing::Fenced => {
                    self.serving.set(false);
                    self.stop(&mut heart).await;
                    sleep(PULSE).await;
                }
            }
        }
    }

    /// Compares what etcd began from with the record, until that is done.
    async fn standing(&self, heart: &mut Heartbeat) -> Standing {
        let permit = &mut heart.permit;
        let kept = &permit.identity.record;
        let is_compared = permit.record == Record::Read && kept.unconfirmed.is_none() && kept.fence.is_none();
        if is_compared && self.told_fence(&permit.identity).is_none() {
            return Standing::Confirmed;
        }
        if heart.standing == Standing::Unconfirmed && heart.asked.is_some_and(|asked| asked.elapsed() < PULSE) {
            return Standing::Unconfirmed;
        }
        heart.asked = Some(Instant::now());
        let orders = self.kubernetes.orders().await.or_as_told(self.told_fence(&permit.identity));
        let (start, keep) = confirm(&orders, kept);
        if keep != *kept {
            permit.identity.record = keep;
            // Before it is stopped: should this agent end now, the next one knows.
            self.keep_by_all_means(permit.identity.clone()).await;
        }
        if start != Start::Resume {
            permit.report = orders.last_report.or(permit.report.take());
            return Standing::Fenced;
        }
        if !orders.answered() || permit.identity.record.unconfirmed.is_some() {
            return Standing::Unconfirmed;
        }
        permit.report = orders.last_report.filter(|last| last.member_id.as_ref() == Some(&permit.identity.member_id));
        permit.report = permit.report.as_ref().map(|last| running_report(&permit.identity.running(0), Some(last)));
        permit.record = Record::Read;
        Standing::Confirmed
    }

    /// What the API said when it was last heard of this member, if that keeps the member from running. The watch says it, so
    /// that nobody has to ask all the time.
    fn told_fence(&self, identity: &VolumeIdentity) -> Option<Orders> {
        let seen = self.changes.borrow();
        let member = seen.as_ref().filter(|member| member.spec.ticket.stops(&identity.member_id, identity.epoch))?;
        Some(Orders::read(Some(member), None))
    }

    async fn stop(&self, heart: &mut Heartbeat) {
        let fence = heart.permit.identity.record.fence;
        tracing::error!(member = self.name, ?fence, "etcd runs on data that must not be used, and is stopped");
        let Some(launcher) = &mut heart.launcher else {
            tracing::error!(member = self.name, "there is no launcher that could stop etcd; delete the pod");
            if let Some((fence, last)) = fence.zip(heart.permit.report.as_ref()) {
                self.report(Some(fenced_report(fence, last)), EtcdReport { running: true, ..self.last_etcd() });
            }
            return;
        };
        if let Err(error) = launcher.stop().await {
            tracing::warn!(error = chain(&error), "the launcher did not hear that etcd must stop");
        }
    }

    async fn note(&self, local: &LocalEtcd, heart: &mut Heartbeat, pulse: Option<&Pulse>) -> Result<()> {
        if !heart.begun || heart.permit.report.is_none() {
            self.note_beginning(heart).await?;
        }
        if heart.tended.is_none_or(|tended| tended.elapsed() >= BETWEEN_TENDS) {
            heart.tended = Some(Instant::now());
            self.tend_volume(Use::Running).await?;
            self.tend_asides(self.is_trusted_voter(heart, pulse)).await;
        }
        if let Some(report) = heart.permit.report.as_mut().filter(|_| heart.answered) {
            self.verify(&mut heart.verification, report).await;
        }
        if let (Some(report), Some(from)) = (&mut heart.permit.report, &heart.permit.identity.recovered) {
            report.recovered = Some(from.clone());
        }
        let data = heart.permit.report.clone();
        let Some(pulse) = pulse else {
            let last = self.last_etcd();
            let progress = if heart.answered { None } else { self.progress(heart, last.progress.clone()).await? };
            self.report(data, EtcdReport { running: heart.answered, progress, ..last });
            return Ok(());
        };
        if !heart.answered {
            heart.answered = true;
            heart.progressed = None;
        }
        // A learner does not say who the others are.
        if !pulse.learner && heart.listed.is_none_or(|listed| listed.elapsed() >= BETWEEN_LISTS) {
            heart.listed = Some(Instant::now());
            // A refusal leaves what was last known.
            heart.members = local_etcd::members(&local.client()).await.unwrap_or(std::mem::take(&mut heart.members));
        }
        let progress = pulse.learner.then(|| self.catching_up(heart, pulse.status.as_ref()));
        let index = pulse.status.as_ref().filter(|_| !pulse.knows_leader).map(|status| status.applied_index);
        let etcd = EtcdReport { members: heart.members.clone(), progress, index, ..self.etcd_report(heart, pulse) };
        self.report(data, etcd.clone());
        if pulse.knows_leader {
            self.renew(heart, etcd, pulse.status.as_ref()).await;
        }
        if heart.kept.elapsed() >= BETWEEN_KEEPS {
            heart.kept = Instant::now();
            self.keep(heart.permit.identity.clone()).await;
        }
        Ok(())
    }

    /// Whether the cluster has all that this member should have, and nothing is known against it: what its predecessor has left
    /// is of no use any more. Whoever is not told of its ticket cannot know that no recovery is under way.
    fn is_trusted_voter(&self, heart: &Heartbeat, pulse: Option<&Pulse>) -> bool {
        let serves = pulse.is_some_and(|pulse| !pulse.learner && pulse.knows_leader);
        let alarms = pulse.and_then(|pulse| pulse.status.as_ref()).map_or(&[][..], |status| &status.report.alarms);
        let is_doubted = alarms.iter().any(|alarm| alarm.contains("CORRUPT"))
            || heart
                .permit
                .report
                .as_ref()
                .is_none_or(|report| report.verified.as_ref().is_some_and(|verified| verified.damaged.is_some()));
        let identity = &heart.permit.identity;
        let seen = self.changes.borrow();
        let epoch = seen.as_ref().and_then(|member| member.spec.ticket.epoch());
        serves && !is_doubted && epoch == Some(identity.epoch)
    }

    /// Once it has a log it can have voted: that it began is on record from here, and as whom. It was let start as the member
    /// that its ticket names, and began as the one that the cluster lists with its address, which may have been exchanged in
    /// that very moment. What is on record must be that one, or it could begin a second time.
    async fn note_beginning(&self, heart: &mut Heartbeat) -> Result<()> {
        let Ok(Some((cluster, member))) = self.volume.on(Volume::log_owner).await? else { return Ok(()) };
        heart.begun = true;
        let Permit { identity, report, .. } = &mut heart.permit;
        if identity.boot_count == 1 && identity.cluster_id == cluster && identity.member_id != member {
            tracing::warn!(member = self.name, expected = identity.member_id, id = member, "etcd began as another");
            identity.member_id = member;
            identity.record = VolumeRecord::default();
            *report = None;
            self.keep(identity.clone()).await;
        }
        report.get_or_insert_with(|| running_report(&identity.running(0), None));
        Ok(())
    }

    /// What an etcd that does not answer yet is busy with. Not at every pulse, because everybody who watches is told.
    async fn progress(&self, heart: &mut Heartbeat, last: Option<String>) -> Result<Option<String>> {
        if heart.progressed.is_some_and(|seen| seen.elapsed() < BETWEEN_LISTS) {
            return Ok(last);
        }
        heart.progressed = Some(Instant::now());
        let seen = self.volume.on(Volume::progress).await?;
        if heart.progress.as_ref().is_none_or(|(before, _)| *before != seen) {
            heart.progress = Some((seen, Instant::now()));
        }
        // Files that no longer change are no progress: it may hang.
        let moving = heart.progress.as_ref().filter(|(_, since)| since.elapsed() < STANDSTILL);
        Ok(moving.map(|(seen, _)| seen.clone()))
    }

    /// How far a learner has got. How far it has to go, only the others know.
    fn catching_up(&self, heart: &mut Heartbeat, status: Option<&Status>) -> String {
        let told = heart.progressed.is_some_and(|seen| seen.elapsed() < BETWEEN_LISTS);
        if let Some(last) = self.last_etcd().progress.filter(|_| told) {
            return last;
        }
        heart.progressed = Some(Instant::now());
        match status {
            Some(status) => format!("catching up, {} MiB so far", status.db_size >> 20),
            None => "catching up".to_owned(),
        }
    }

    /// What etcd does not say stays as it was last known; who it is, its volume says.
    fn etcd_report(&self, heart: &Heartbeat, pulse: &Pulse) -> EtcdReport {
        if let Some(status) = &pulse.status {
            return status.report.clone();
        }
        let (identity, last) = (&heart.permit.identity, self.last_etcd());
        let voter = last.role.filter(|role| *role != MemberRole::Learner);
        EtcdReport {
            running: true,
            cluster_id: Some(identity.cluster_id.clone()),
            member_id: Some(identity.member_id.clone()),
            role: if pulse.learner { Some(MemberRole::Learner) } else { voter },
            ..last
        }
    }

    async fn renew(&self, heart: &mut Heartbeat, etcd: EtcdReport, status: Option<&Status>) {
        let holder = (etcd.role, etcd.term);
        let due = heart.renewed.is_none_or(|renewed| renewed.elapsed() >= RENEWAL);
        if !due && heart.holder.as_ref() == Some(&holder) {
            return;
        }
        let identity = &mut heart.permit.identity;
        let running = identity.running(identity.record.reached_index);
        let renewal = Renewal {
            mark: renewed(identity.record.mark.as_ref(), &running),
            revision: status.map(|status| status.revision).or(heart.revision),
            etcd: EtcdReport {
                db_size: status.map(|status| status.db_size),
                db_in_use: status.map(|status| status.db_in_use),
                ..etcd
            },
        };
        match self.kubernetes.renew(&renewal, (self.clock)()).await {
            Ok(()) => {
                identity.record.mark = Some(renewal.mark);
                heart.revision = renewal.revision;
                heart.renewed = Some(Instant::now());
                heart.holder = Some(holder);
            }
            Err(error) => tracing::warn!(error = chain(&error), "the Lease could not be renewed"),
        }
    }
}

impl Heartbeat {
    fn advance(&mut self, pulse: Option<&Pulse>) {
        let Some(status) = pulse.and_then(|pulse| pulse.status.as_ref()) else { return };
        match self.applied {
            Some((asked, _)) if asked.elapsed() < RENEWAL => {}
            before => {
                let reached = &mut self.permit.identity.record.reached_index;
                *reached = before.map_or(*reached, |(_, index)| index.max(*reached));
                self.applied = Some((Instant::now(), status.applied_index));
            }
        }
    }
}

/// Returns when etcd is gone.
async fn gone(launcher: &mut Option<LauncherConnection>, volume: &Volume) {
    match launcher {
        Some(launcher) => launcher.gone().await,
        // An error would say nothing about etcd; who returns looks again.
        None => drop(volume.use_becomes(false).await),
    }
}

/// The next pulse: soon while etcd is starting, then once a second. Nothing if etcd does not answer.
async fn attend(etcd: &LocalEtcd, answered: bool) -> Option<Pulse> {
    sleep(if answered { PULSE } else { FIRST_PULSE }).await;
    match local_etcd::pulse(&etcd.client()).await {
        Ok(pulse) => Some(pulse),
        Err(error) => {
            if answered {
                tracing::warn!(error = chain(&error), "etcd does not answer");
            }
            None
        }
    }
}
