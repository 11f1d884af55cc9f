//! Watches over one member: inspects its volume, asks the core, lets etcd start, and sees to it while it runs.

use std::{
    cell::{Cell, RefCell},
    fs,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use quorate_api::{
    EtcdMember,
    member::{DataReport, DataState, EtcdMemberStatus, EtcdReport, VolumeReport},
    settings::MemberSettings,
};
use quorate_core::{
    record::{Orders, Verdict, VolumeRecord, judge, running_report},
    start::{ApiAnswer, Identity, Start},
};
use quorate_runtime::error::chain;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    config::{Beginning, etcd_config, every_address},
    discard::Asides,
    error::{Result, While},
    http::{self, Serving},
    identity::VolumeIdentity,
    inspect::{Looked, Volume},
    kubernetes::Kubernetes,
    launch_socket::{LaunchSocket, Launcher, LauncherConnection},
    paths::Paths,
    recovery::Order,
    reserve::use_by,
    soundness::KnownDamage,
};

/// Look again even if nothing was reported: a missed change must not last.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Its image may still be on the way.
const NOT_ASKED: &str = "the etcd container has not started yet";
/// The kubelet starts its container again, later each time.
const ENDED: &str = "etcd has ended; the log of its container says why";
const NEVER_JOINED: &str = "etcd has ended before it joined; the log of its container says why, and perhaps the cluster \
                            does not list this member any more";
/// A launcher connects again within a moment after its agent was restarted.
const FOR_LAUNCHER: Duration = Duration::from_secs(5);

pub(crate) struct MemberSupervisor {
    pub(crate) name: String,
    pub(crate) settings: MemberSettings,
    pub(crate) paths: Paths,
    pub(crate) volume: Volume,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) serving: Serving,
    pub(crate) clock: Clock,
    pub(crate) changes: watch::Receiver<Option<EtcdMember>>,
    reports: watch::Sender<Option<EtcdMemberStatus>>,
    /// What reports say about the room on the volume. It goes with the next one and never alone: a report without the rest
    /// would take the rest away.
    pub(crate) room: RefCell<Option<VolumeReport>>,
    pub(crate) asides: RefCell<Asides>,
    /// Whether the volume can hold room back, as far as is known.
    pub(crate) reservable: Cell<bool>,
    pub(crate) verify_every: SignedDuration,
}

/// Tells the time.
pub(crate) type Clock = fn() -> Timestamp;

/// What a start came to: whose data it is from now on.
pub(crate) struct Permit {
    pub(crate) identity: VolumeIdentity,
    pub(crate) beginning: Beginning,
    /// What is on record and continues; nothing before there is a log.
    pub(crate) report: Option<DataReport>,
    pub(crate) record: Record,
}

/// Whether it is known what was on record before this start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Read,
    /// The API did not answer, or nobody has asked yet. Until it does, nothing is reported: that could take the record
    /// back.
    Unread,
}

/// Runs until the pod is stopped.
pub(crate) async fn supervise(
    name: String,
    settings: MemberSettings,
    paths: Paths,
    clock: Clock,
    verify_every: SignedDuration,
) -> Result<()> {
    let serving = Serving::default();
    let mut stop = signal(SignalKind::terminate()).doing(|| "listening for signals".to_owned())?;
    let probes = http::serve(settings.agent_port, serving.clone());
    let kubernetes = Kubernetes::connect(&settings.namespace, &name).await?;
    let changes = kubernetes.changes();
    let mut supervisor = MemberSupervisor {
        volume: Volume {
            root: paths.volume().to_owned(),
            data: paths.data(),
            namespace: settings.namespace.clone(),
            cluster: settings.cluster.clone(),
            member: name.clone(),
            damage: KnownDamage::default(),
        },
        reports: kubernetes.reporter(changes.clone()),
        changes,
        clock,
        room: RefCell::default(),
        asides: RefCell::default(),
        reservable: Cell::new(true),
        verify_every,
        kubernetes,
        serving,
        settings,
        paths,
        name,
    };
    tokio::select! {
        ended = probes => ended,
        ended = supervisor.run() => ended,
        _ = stop.recv() => Ok(()),
    }
}

impl MemberSupervisor {
    async fn run(&mut self) -> Result<()> {
        let socket = LaunchSocket::open(&self.paths.socket())?;
        let mut waits = NOT_ASKED;
        loop {
            if self.volume.on(Volume::is_in_use).await? {
                match timeout(FOR_LAUNCHER, running_launcher(&socket)).await.ok().transpose()? {
                    Some(Launcher::Replays(launcher)) => self.abandon(launcher).await?,
                    Some(Launcher::Runs(launcher)) => self.adopt(Some(launcher)).await?,
                    Some(Launcher::Asks(_)) | None => self.adopt(None).await?,
                }
                waits = ENDED;
                continue;
            }
            // The first report goes out before anybody asks, because the operator waits for it.
            if self.look(Some(waits)).await?.is_none() {
                continue;
            }
            let launcher = tokio::select! {
                launcher = socket.next() => launcher?,
                in_use = self.volume.use_becomes(true) => {
                    in_use?;
                    continue;
                }
            };
            match launcher {
                Launcher::Runs(launcher) => {
                    self.adopt(Some(launcher)).await?;
                    waits = ENDED;
                }
                Launcher::Replays(launcher) => self.abandon(launcher).await?,
                Launcher::Asks(mut launcher) => {
                    let Some(permit) = self.admit(&mut launcher).await? else { continue };
                    if launcher.let_start().await.is_ok() {
                        tracing::info!(member = self.name, boot = permit.identity.boot_count, "etcd may start");
                        let joins = matches!(permit.beginning, Beginning::Join { .. });
                        self.heartbeat(Some(launcher), permit).await?;
                        let joined = self.volume.on(Volume::holds_log).await?.unwrap_or(true);
                        waits = if joins && !joined { NEVER_JOINED } else { ENDED };
                    }
                }
            }
        }
    }

    /// Inspects, asks the core, keeps what must last and reports, in this order. Nothing if an etcd runs on the data.
    pub(crate) async fn look(&self, progress: Option<&str>) -> Result<Option<(Looked, Orders, Verdict)>> {
        let mut orders = self.kubernetes.orders().await;
        let Some(looked) = self.volume.on(Volume::inspect).await? else { return Ok(None) };
        let mut verdict = judge(&looked.inspection, &orders, &looked.kept());
        // What can start from its own data does so at once, because the API may wait for it. Nobody waits for the others.
        if orders.ticket == ApiAnswer::Unreachable && verdict.start != Start::Resume {
            orders = self.kubernetes.patient_orders().await;
            verdict = judge(&looked.inspection, &orders, &looked.kept());
        }
        let own = looked.identity.as_ref();
        if let Some(own) = own.filter(|own| verdict.report.member_id.as_ref() == Some(&own.member_id)) {
            verdict.report.recovered = own.recovered.clone().or(verdict.report.recovered);
        }
        // First of all: on a full volume nothing else could be written either.
        self.tend_volume(use_by(&verdict.start)).await?;
        self.tend_asides(false).await;
        // What is known of whoever was here before stays with its name until another member's is written: should the API go
        // away meanwhile, a fence that was opened too early would let it start.
        let goes_on = matches!(verdict.start, Start::Resume | Start::Wait(_) | Start::Refuse(_));
        let doubted = own.is_some_and(|own| own.doubted) && looked.inspection.found.state != DataState::Valid;
        let changed = own.filter(|own| goes_on && (own.record != verdict.keep || own.doubted != doubted));
        if let Some(identity) = changed.cloned()
            && !self.keep_by_all_means(VolumeIdentity { record: verdict.keep.clone(), doubted, ..identity }).await
        {
            // Nobody may rely on a fence that does not last.
            verdict.report.ticket_epoch = None;
        }
        // Only with what was on record before: a report that forgets would make a wiped member look new.
        if orders.answered() {
            let progress = progress.map(str::to_owned);
            self.report(Some(verdict.report.clone()), EtcdReport { progress, ..EtcdReport::default() });
        }
        Ok(Some((looked, orders, verdict)))
    }

    /// This agent was restarted beside a running etcd, which an earlier one had let start.
    async fn adopt(&self, launcher: Option<LauncherConnection>) -> Result<()> {
        let Ok(Some(identity)) = self.volume.on(|volume| VolumeIdentity::read(&volume.root)).await? else {
            // Nothing can be said about it until whoever runs there is gone.
            tracing::warn!(member = self.name, "an etcd runs on data whose owner is not known");
            return self.volume.use_becomes(false).await;
        };
        if identity.successor.is_some() {
            // It only applies its log, and there is no launcher that could end it.
            tracing::error!(member = self.name, "an etcd that nobody waits for keeps the data busy; delete the pod");
            return self.volume.use_becomes(false).await;
        }
        tracing::info!(member = self.name, boot = identity.boot_count, "etcd runs already");
        let permit = Permit { identity, beginning: Beginning::OwnData, report: None, record: Record::Unread };
        self.heartbeat(launcher, permit).await
    }

    /// This agent was restarted beside an etcd that applies its log, which is begun again.
    async fn abandon(&self, mut launcher: LauncherConnection) -> Result<()> {
        tracing::warn!(member = self.name, "etcd applies its log for an agent that is gone, and is ended");
        self.end(&mut launcher).await
    }

    /// Asks the core until it lets etcd start, or until the launcher gives up.
    async fn admit(&mut self, launcher: &mut LauncherConnection) -> Result<Option<Permit>> {
        loop {
            self.changes.borrow_and_update();
            let Some((looked, orders, verdict)) = self.look(None).await? else { return Ok(None) };
            tracing::info!(member = self.name, decision = ?verdict.start, "looked at the data directory");
            let permit = match &verdict.start {
                Start::Resume if looked.identity.as_ref().is_some_and(|own| own.successor.is_some()) => {
                    tracing::error!(
                        member = self.name,
                        "the data was made ready for a successor and must not run again"
                    );
                    None
                }
                Start::Resume => looked
                    .inspection
                    .found
                    .identity
                    .as_ref()
                    .map(|found| Ok(self.resume(found, &looked, &orders, &verdict))),
                Start::New { epoch, token, initial_cluster } => {
                    if !self.still_stands(&verdict.start, initial_cluster).await? {
                        continue;
                    }
                    Some(self.begin_new(*epoch, token, initial_cluster, &verdict.keep))
                }
                Start::Join { epoch, cluster_id, member_id, initial_cluster } => {
                    // The others have been there for long, and one that is down at the moment is not waited for.
                    let own = initial_cluster.iter().filter(|peer| peer.name == self.name).cloned();
                    if !self.still_stands(&verdict.start, &own.collect::<Vec<_>>()).await? {
                        continue;
                    }
                    Some(Ok(self.begin_joining(*epoch, cluster_id, member_id, initial_cluster, &verdict.keep)))
                }
                Start::Quarantine(why) => {
                    let now = (self.clock)();
                    match self.volume.on(move |volume| volume.quarantine(now)).await? {
                        Ok(aside) => {
                            tracing::warn!(aside = %aside.display(), ?why, "moved aside what is in the way");
                            continue;
                        }
                        Err(error) => {
                            tracing::error!(error = chain(&error), "what is in the way cannot be moved aside yet");
                            None
                        }
                    }
                }
                Start::Recover { epoch, token, initial_cluster, raise_to } => {
                    let recovered = match Order::new(&self.name, *epoch, token, initial_cluster, *raise_to) {
                        Ok(order) => self.recover(launcher, &order, &looked, &verdict).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = recovered {
                        tracing::error!(error = chain(&error), "the new incarnation cannot begin yet");
                        self.tell(&verdict, &format!("it is tried again: {}", chain(&error)));
                        sleep(LOOK_AGAIN).await;
                    }
                    // It may have had the launcher start an etcd, and then this connection was that one's.
                    return Ok(None);
                }
                Start::Restore { .. } | Start::Wait(_) | Start::Refuse(_) => None,
            };
            match permit {
                None => {}
                Some(permit) => match self.get_ready(permit?).await {
                    Ok(Some(permit)) => return Ok(Some(permit)),
                    Ok(None) => tracing::warn!(member = self.name, "that etcd begins could not be put on record yet"),
                    Err(error) => tracing::error!(error = chain(&error), "etcd cannot be started yet"),
                },
            }
            tokio::select! {
                () = launcher.gone() => return Ok(None),
                _ = self.changes.changed() => {}
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Everything that has to be on the volume and on record; nothing if it cannot be put on record yet.
    async fn get_ready(&mut self, permit: Permit) -> Result<Option<Permit>> {
        // Here the volume says already who it is, and that it was let start it says only after the record.
        if permit.recovers() && !self.is_on_record(&permit).await {
            return Ok(None);
        }
        let recovers = permit.recovers();
        let permit = self.prepare(permit).await?;
        Ok((recovers || self.is_on_record(&permit).await).then_some(permit))
    }

    fn resume(&self, found: &Identity, looked: &Looked, orders: &Orders, verdict: &Verdict) -> Permit {
        let recovered = looked.identity.as_ref().and_then(|own| own.recovered.clone());
        let identity = self.identity(found, found.boot_count + 1, verdict.keep.clone());
        let identity = VolumeIdentity { recovered, ..identity };
        let report = running_report(&identity.running(0), Some(&verdict.report));
        let record = if orders.answered() { Record::Read } else { Record::Unread };
        Permit { identity, beginning: Beginning::OwnData, report: Some(report), record }
    }

    pub(crate) fn identity(&self, data: &Identity, boot_count: i64, record: VolumeRecord) -> VolumeIdentity {
        VolumeIdentity {
            namespace: self.settings.namespace.clone(),
            cluster: self.settings.cluster.clone(),
            member: self.name.clone(),
            cluster_id: data.cluster_id.clone(),
            member_id: data.member_id.clone(),
            epoch: data.epoch,
            boot_count,
            record,
            recovered: None,
            successor: None,
            doubted: false,
        }
    }

    /// Everything that has to be on the volume, and where etcd looks, before it starts.
    async fn prepare(&self, permit: Permit) -> Result<Permit> {
        let config = etcd_config(&self.name, &self.settings, &self.paths, &permit.beginning, every_address());
        let path = self.paths.config();
        let now = (self.clock)();
        let prepare = move |volume: &Volume| {
            if permit.beginning != Beginning::OwnData {
                volume.clear_remains(now)?;
            }
            permit.identity.write(&volume.root)?;
            fs::write(&path, config.to_string()).doing(|| format!("writing {}", path.display()))?;
            Ok(permit)
        };
        self.volume.on(prepare).await?
    }

    pub(crate) fn last_etcd(&self) -> EtcdReport {
        self.reports.borrow().as_ref().and_then(|status| status.etcd.clone()).unwrap_or_default()
    }

    pub(crate) fn report(&self, data: Option<DataReport>, etcd: EtcdReport) {
        self.reports.send_if_modified(|reported| {
            let before = reported.as_ref().and_then(|status| status.data.clone());
            let volume = self.room.borrow().clone();
            let next = Some(EtcdMemberStatus { data: data.or(before), etcd: Some(etcd), backup: None, volume });
            let changed = *reported != next;
            *reported = next;
            changed
        });
    }
}

/// The launcher of an etcd that runs already. One that asks meanwhile will ask again.
async fn running_launcher(socket: &LaunchSocket) -> Result<Launcher> {
    loop {
        match socket.next().await? {
            Launcher::Asks(_) => {}
            launcher => return Ok(launcher),
        }
    }
}
