//! While etcd runs, its whole database is read through now and then: slowly, past the page cache, and without etcd's lock.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quorate_api::member::{DataReport, Verified};
use quorate_core::verification::{History, Proof, Reading, is_due, proof};
use quorate_etcd::{
    bbolt::Place,
    data_dir::DataDir,
    validate::{self, Findings, Severity},
};
use quorate_runtime::error::chain;
use tokio::task::JoinHandle;

use crate::{
    error::{Error, Result},
    inspect::Volume,
    supervisor::MemberSupervisor,
};

/// A mebibyte, which takes a disk much less time than passes between two transactions.
const STRETCH_PAGES: u64 = 256;
/// Less than 16 MiB in a second: a large database takes minutes, and any disk has that much to spare.
const BETWEEN_STRETCHES: Duration = Duration::from_millis(64);
/// How often a stretch is read before the whole reading is put off,
const MOST_TRIES: u32 = 20;
/// and how often before what is wrong with it is believed: what comes over a cable may be wrong once.
const LOOKS: u32 = 3;
/// Findings that a report names.
const MOST_FINDINGS: usize = 3;

/// What is remembered of readings while one etcd runs.
pub(crate) struct Verification {
    running_since: Timestamp,
    doubted: Option<Timestamp>,
    under_way: Option<UnderWay>,
}

/// A reading that has not ended yet. It ends soon after this is dropped.
struct UnderWay {
    began: Timestamp,
    reading: JoinHandle<Result<Result<Proof>>>,
    stop: Arc<AtomicBool>,
}

impl Verification {
    pub(crate) fn since(running_since: Timestamp) -> Self {
        Self { running_since, doubted: None, under_way: None }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl MemberSupervisor {
    /// Begins a reading when one is due, and puts what the last one proved into the report. Never waits for it.
    pub(crate) async fn verify(&self, verification: &mut Verification, report: &mut DataReport) {
        if verification.under_way.as_ref().is_some_and(|under_way| !under_way.reading.is_finished()) {
            return;
        }
        let Some(mut ended) = verification.under_way.take() else {
            let last = report.verified.as_ref().map(|verified| (verified.time.0, verified.damaged.is_some()));
            let (damaged, sound) = (last.filter(|(_, damaged)| *damaged), last.filter(|(_, damaged)| !damaged));
            let history = History {
                running_since: verification.running_since,
                verified: sound.map(|(time, _)| time),
                // Another file may be there by now, or the disk may have been mended.
                doubted: verification.doubted.max(damaged.map(|(time, _)| time)),
            };
            let now = (self.clock)();
            let who = format!("{}/{}", self.settings.namespace, self.name);
            verification.under_way =
                is_due(&who, &history, self.verify_every, now).then(|| begin(self.volume.clone(), now));
            return;
        };
        let read = (&mut ended.reading).await.map_err(io::Error::other);
        let read = read.map_err(|source| Error::Io { what: "reading the database".to_owned(), source });
        let proven = read.flatten().flatten().unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "the database could not be read through");
            match error {
                Error::Inspect(_) => Proof::Damaged(format!("it cannot be read: {}", chain(&error))),
                _ => Proof::None,
            }
        });
        let damaged = match proven {
            Proof::Sound => None,
            Proof::Damaged(damage) => {
                tracing::error!(member = self.name, damage, "the database that etcd runs on is damaged");
                Some(damage)
            }
            Proof::None => {
                tracing::info!(
                    member = self.name,
                    "the database changed too fast to be read; that is tried again later"
                );
                verification.doubted = Some(ended.began);
                return;
            }
        };
        // Kubernetes keeps whole seconds.
        let time = Timestamp::from_second(ended.began.as_second()).unwrap_or(ended.began);
        report.verified = Some(Verified { time: Time(time), damaged });
    }
}

fn begin(volume: Volume, now: Timestamp) -> UnderWay {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let reading = tokio::spawn(async move { volume.on(move |volume| read(volume, &told)).await });
    UnderWay { began: now, reading, stop }
}

/// Stretch by stretch, each as often as it takes to find a calm moment for it.
fn read(volume: &Volume, stop: &AtomicBool) -> Result<Proof> {
    let path = DataDir::new(&volume.data).db();
    let mut place = Place::default();
    let (mut tries, mut looks) = (0, 0);
    loop {
        looks += 1;
        let read = match validate::database_in_use(&path, &place, STRETCH_PAGES) {
            Ok(read) => read,
            // It may be exchanged at this moment.
            Err(_) if looks < LOOKS && !stop.load(Ordering::Relaxed) => {
                thread::sleep(BETWEEN_STRETCHES);
                continue;
            }
            Err(error) => return Err(Error::Inspect(error)),
        };
        let reading =
            Reading { damage: damage(&read.findings), transactions: read.transactions, replaced: read.replaced };
        match (proof(&reading), read.next) {
            (Proof::Sound, None) => return Ok(Proof::Sound),
            (Proof::Sound, Some(next)) => (place, tries, looks) = (next, 0, 0),
            (Proof::None, _) if tries < MOST_TRIES => tries += 1,
            (Proof::Damaged(_), _) if looks < LOOKS => {}
            (proof @ (Proof::Damaged(_) | Proof::None), _) => return Ok(proof),
        }
        thread::sleep(BETWEEN_STRETCHES);
        if stop.load(Ordering::Relaxed) {
            return Ok(Proof::None);
        }
    }
}

fn damage(findings: &Findings) -> Option<String> {
    let damage = findings.list.iter().filter(|finding| finding.kind.severity() == Severity::Damage);
    let mut named = damage.map(ToString::to_string).collect::<Vec<_>>();
    let more = named.len().saturating_sub(MOST_FINDINGS);
    named.truncate(MOST_FINDINGS);
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join("; ")),
        (false, more) => Some(format!("{}; {more} more", named.join("; "))),
    }
}
