//! The member's guard: inspects, decides by the core's table, lets etcd start, and reports while it runs.

use std::{fs, path::Path, time::Duration};

use jiff::Timestamp;
use quorate_api::{
    member::{DataReport, DataState, EtcdMemberStatus, EtcdReport, Peer},
    settings::{MemberSettings, paths},
};
use quorate_core::start::{Identity, Refusal, Start, Word, start};
use quorate_etcd::{
    client::Client,
    membership::{InitialCluster, hex_id},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::{Beginning, etcd_config, listed},
    door::{Caller, Door},
    error::{Result, While, chain},
    http::{self, Serving},
    identity::VolumeIdentity,
    inspect::{Inspection, Volume},
    kubernetes::{Kubernetes, Orders},
    local_etcd::{self, Pulse},
};

/// More than two renewals fit into a Lease.
const RENEWAL: Duration = Duration::from_secs(3);
const PULSE: Duration = Duration::from_secs(1);
/// While etcd is starting, whoever waits for it waits for this.
const FIRST_PULSE: Duration = Duration::from_millis(50);
/// Look again even if nothing was reported: a missed change must not last.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Other members' names appear in DNS when their pods do.
const FOR_DNS: Duration = Duration::from_secs(10);

struct Guard {
    name: String,
    settings: MemberSettings,
    volume: Volume,
    kubernetes: Kubernetes,
    changes: watch::Receiver<Option<EtcdMemberStatus>>,
    reports: watch::Sender<Option<EtcdMemberStatus>>,
    serving: Serving,
}

/// What a start came to: whose data it is from now on.
struct Permit {
    identity: VolumeIdentity,
    beginning: Beginning,
    /// On record already, or not before there is a log.
    report: Option<DataReport>,
    record: Record,
}

/// Whether it is known what was on record before this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Read,
    /// The API did not answer, or nobody has asked yet. Until it does, nothing is reported: that could take the record
    /// back.
    Unread,
}

/// Runs until the pod is stopped.
pub(crate) async fn guard(name: String, settings: MemberSettings) -> Result<()> {
    let serving = Serving::default();
    let mut stop = signal(SignalKind::terminate()).doing(|| "listening for signals".to_owned())?;
    let probes = http::serve(settings.agent_port, serving.clone());
    let kubernetes = Kubernetes::connect(&settings.namespace, &name).await?;
    let changes = kubernetes.changes();
    let mut guard = Guard {
        volume: Volume {
            root: paths::VOLUME.into(),
            data: paths::DATA.into(),
            namespace: settings.namespace.clone(),
            cluster: settings.cluster.clone(),
            member: name.clone(),
        },
        reports: kubernetes.reporter(changes.clone()),
        changes,
        kubernetes,
        serving,
        settings,
        name,
    };
    tokio::select! {
        ended = probes => ended,
        ended = guard.run() => ended,
        _ = stop.recv() => Ok(()),
    }
}

impl Guard {
    async fn run(&mut self) -> Result<()> {
        let door = Door::open(Path::new(paths::SOCKET))?;
        loop {
            if self.volume.is_in_use() {
                self.adopt().await?;
            }
            // The first report goes out before anybody asks, because the operator waits for it.
            if self.look().await.is_none() {
                continue;
            }
            let mut caller = tokio::select! {
                caller = door.next() => caller?,
                () = self.volume.use_becomes(true) => continue,
            };
            let Some(permit) = self.admit(&mut caller).await? else { continue };
            if caller.let_start().await.is_ok() {
                tracing::info!(member = self.name, boot = permit.identity.boot_count, "etcd may start");
                self.accompany(caller.gone(), permit).await?;
            }
        }
    }

    /// Inspects, decides and reports, in this order. Nothing if an etcd runs on the data.
    async fn look(&self) -> Option<(Inspection, Orders, Start)> {
        let orders = self.kubernetes.orders().await;
        let inspection = self.volume.inspect()?;
        let decision = start(&inspection.found, &orders.ticket, &orders.recorded);
        self.report_stopped(&inspection, &orders, &decision);
        Some((inspection, orders, decision))
    }

    /// This agent was restarted beside a running etcd, which an earlier one had let start.
    async fn adopt(&self) -> Result<()> {
        let Ok(Some(identity)) = VolumeIdentity::read(&self.volume.root) else {
            // Nothing can be said about it until whoever runs there is gone.
            tracing::warn!(member = self.name, "an etcd runs on data whose owner is not known");
            self.volume.use_becomes(false).await;
            return Ok(());
        };
        tracing::info!(member = self.name, boot = identity.boot_count, "etcd runs already");
        let permit = Permit { identity, beginning: Beginning::OwnData, report: None, record: Record::Unread };
        self.accompany(self.volume.use_becomes(false), permit).await
    }

    /// Asks the table until it lets etcd start, or until the launcher gives up.
    async fn admit(&mut self, caller: &mut Caller) -> Result<Option<Permit>> {
        loop {
            self.changes.borrow_and_update();
            let Some((inspection, orders, decision)) = self.look().await else { return Ok(None) };
            tracing::info!(member = self.name, ?decision, "looked at the data directory");
            match decision {
                Start::Resume => {
                    if let Some(identity) = inspection.found.identity.clone() {
                        return self.resume(&identity, &inspection, &orders).map(Some);
                    }
                }
                Start::New { epoch, token, initial_cluster } => {
                    self.wait_for_names(&initial_cluster).await;
                    // That took a while, and the ticket may have been withdrawn meanwhile.
                    let again = self.look().await.map(|(_, _, decision)| decision);
                    if again
                        == Some(Start::New { epoch, token: token.clone(), initial_cluster: initial_cluster.clone() })
                    {
                        return self.begin_new(epoch, token, initial_cluster).map(Some);
                    }
                    continue;
                }
                Start::Quarantine(_) => {
                    let aside = self.volume.quarantine(Timestamp::now())?;
                    tracing::warn!(aside = %aside.display(), "moved unusable data aside");
                    continue;
                }
                Start::Join { .. } | Start::Restore { .. } | Start::Wait(_) | Start::Refuse(_) => {}
            }
            tokio::select! {
                () = caller.gone() => return Ok(None),
                _ = self.changes.changed() => {}
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }

    fn resume(&self, data: &Identity, inspection: &Inspection, orders: &Orders) -> Result<Permit> {
        let identity = VolumeIdentity {
            namespace: self.settings.namespace.clone(),
            cluster: self.settings.cluster.clone(),
            member: self.name.clone(),
            cluster_id: data.cluster_id.clone(),
            member_id: data.member_id.clone(),
            epoch: data.epoch,
            boot_count: data.boot_count + 1,
        };
        let (report, record) = match orders.ticket {
            Word::Unreachable => (None, Record::Unread),
            _ => (Some(inspection.report(orders.last_report.as_ref(), None)), Record::Read),
        };
        let permit = Permit { identity, beginning: Beginning::OwnData, report, record };
        self.prepare(&permit)?;
        Ok(permit)
    }

    /// A new member's identity follows from its ticket, so it is on the volume before etcd is.
    fn begin_new(&self, epoch: i64, token: String, initial_cluster: Vec<Peer>) -> Result<Permit> {
        self.volume.clear_remains(Timestamp::now())?;
        let cluster = InitialCluster::parse(&listed(&initial_cluster), &token)?;
        let own = initial_cluster.iter().filter(|peer| peer.name == self.name).map(|peer| peer.url.clone());
        let member = cluster.own_member(&self.name, &own.collect::<Vec<_>>())?;
        let identity = VolumeIdentity {
            namespace: self.settings.namespace.clone(),
            cluster: self.settings.cluster.clone(),
            member: self.name.clone(),
            cluster_id: hex_id(cluster.cluster_id()),
            member_id: member.hex_id(),
            epoch,
            boot_count: 1,
        };
        let beginning = Beginning::New { token, initial_cluster };
        let permit = Permit { identity, beginning, report: None, record: Record::Read };
        self.prepare(&permit)?;
        Ok(permit)
    }

    fn prepare(&self, permit: &Permit) -> Result<()> {
        permit.identity.write(&self.volume.root)?;
        let config = etcd_config(&self.name, &self.settings, &permit.beginning);
        fs::write(paths::CONFIG, config.to_string()).doing(|| format!("writing {}", paths::CONFIG))
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
                    sleep(FIRST_PULSE).await;
                }
            }
        };
        if timeout(FOR_DNS, all).await.is_err() {
            tracing::warn!("not all members are in DNS yet; etcd goes on looking");
        }
    }

    /// Reports while etcd runs; returns when it is gone.
    async fn accompany(&self, gone: impl Future<Output = ()>, permit: Permit) -> Result<()> {
        let client = local_etcd::connect(&self.settings)?;
        let mut attendance = Attendance { permit, renewed: None, holder: None, applied: None, answered: false };
        tokio::pin!(gone);
        loop {
            let pulse = tokio::select! {
                () = &mut gone => {
                    tracing::warn!(member = self.name, "etcd is gone");
                    self.serving.set(false);
                    return Ok(());
                }
                pulse = attend(&client, &attendance) => pulse,
            };
            self.serving.set(pulse.is_some());
            self.note(&mut attendance, pulse.as_ref()).await;
        }
    }

    /// What was on record of the member that runs, which is valid because it runs. Whether the API answered.
    async fn read_record(&self, permit: &mut Permit) -> bool {
        let orders = self.kubernetes.orders().await;
        if matches!(orders.ticket, Word::Unreachable) {
            return false;
        }
        let own = |report: &DataReport| report.member_id.as_ref() == Some(&permit.identity.member_id);
        let valid = |report| DataReport { state: DataState::Valid, reason: None, ..report };
        permit.report = orders.last_report.filter(own).map(valid);
        permit.record = Record::Read;
        true
    }

    async fn note(&self, attendance: &mut Attendance, pulse: Option<&Pulse>) {
        if attendance.permit.record == Record::Unread && !self.read_record(&mut attendance.permit).await {
            return;
        }
        let identity = &attendance.permit.identity;
        if attendance.permit.report.is_none() && self.volume.holds_log().unwrap_or(false) {
            // It has a log, so from now on it can have voted: that it began is on record from here.
            attendance.permit.report = Some(DataReport {
                cluster_id: Some(identity.cluster_id.clone()),
                member_id: Some(identity.member_id.clone()),
                epoch: Some(identity.epoch),
                ..DataReport::of(DataState::Valid)
            });
        }
        let data = attendance
            .permit
            .report
            .clone()
            .map(|report| DataReport { boot_count: Some(identity.boot_count), ..report });
        let Some(pulse) = pulse else {
            self.report(data, EtcdReport { running: attendance.answered, ..self.last_etcd() });
            return;
        };
        attendance.answered = true;
        self.report(data, pulse.report.clone());
        let holder = (pulse.report.member_id.clone(), pulse.report.role, pulse.report.term);
        let due = attendance.renewed.is_none_or(|renewed| renewed.elapsed() >= RENEWAL);
        let changed = attendance.holder.as_ref() != Some(&holder);
        if pulse.knows_leader && (due || changed) {
            match self.kubernetes.renew(pulse, attendance.applied, identity.boot_count, Timestamp::now()).await {
                Ok(()) => {
                    attendance.applied = Some(pulse.applied_index);
                    attendance.renewed = Some(Instant::now());
                    attendance.holder = Some(holder);
                }
                Err(error) => tracing::warn!(error = chain(&error), "the Lease could not be renewed"),
            }
        }
    }

    /// Only with what was on record before: a report that forgets would make a wiped member look new.
    fn report_stopped(&self, inspection: &Inspection, orders: &Orders, decision: &Start) {
        if !matches!(orders.ticket, Word::Unreachable) {
            let data = inspection.report(orders.last_report.as_ref(), refusal(decision));
            self.report(Some(data), EtcdReport::default());
        }
    }

    fn last_etcd(&self) -> EtcdReport {
        self.reports.borrow().as_ref().and_then(|status| status.etcd.clone()).unwrap_or_default()
    }

    fn report(&self, data: Option<DataReport>, etcd: EtcdReport) {
        self.reports.send_if_modified(|reported| {
            let before = reported.as_ref().and_then(|status| status.data.clone());
            let next = Some(EtcdMemberStatus { data: data.or(before), etcd: Some(etcd), backup: None });
            let changed = *reported != next;
            *reported = next;
            changed
        });
    }
}

/// Why sound data is not started, for whoever looks at the member.
fn refusal(decision: &Start) -> Option<&'static str> {
    match decision {
        Start::Refuse(Refusal::IdentityChanged) => Some(
            "the volume holds another member, or this member of another cluster, than this member was known as; \
             put the right volume back, or replace the member",
        ),
        Start::Refuse(Refusal::RolledBack) => Some(
            "the volume is older than what this member was known to hold, so it has forgotten writes that it \
             acknowledged; put the right volume back, or replace the member",
        ),
        Start::Refuse(Refusal::LaterEpoch) => {
            Some("the volume is of a later incarnation of the cluster than the ticket")
        }
        _ => None,
    }
}

/// What is remembered from one pulse to the next.
struct Attendance {
    permit: Permit,
    renewed: Option<Instant>,
    /// As of the last renewal: long enough ago to be on disk, so the member can never fall below it again.
    applied: Option<i64>,
    holder: Option<(Option<String>, Option<quorate_api::status::MemberRole>, Option<i64>)>,
    answered: bool,
}

/// The next pulse: soon while etcd is starting, then once a second. Nothing if etcd does not answer.
async fn attend(client: &Client, attendance: &Attendance) -> Option<Pulse> {
    sleep(if attendance.answered { PULSE } else { FIRST_PULSE }).await;
    match local_etcd::pulse(client).await {
        Ok(pulse) => Some(pulse),
        Err(error) => {
            if attendance.answered {
                tracing::warn!(error = chain(&error), "etcd does not answer");
            }
            None
        }
    }
}
