//! `quorate data verify`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Error, Result, anyhow, bail};
use quorate_etcd::bbolt;
use quorate_etcd::snapshot::{DigestPolicy, Snapshot, SnapshotError};
use quorate_etcd::wal::{self, Tail, WalError};
use serde::Serialize;

use crate::args;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::source::{SnapshotFile, Source};

/// What was looked at and what was found wrong with it.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    sound: bool,
    checked: Vec<&'static str>,
    findings: Vec<Finding>,
    notes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    check: &'static str,
    message: String,
}

/// Exit codes that scripts rely on.
const DAMAGED: u8 = 1;
const CANNOT_TELL: u8 = 2;

pub(super) fn run(arguments: &args::Verify) -> ExitCode {
    let printer = Printer::new(arguments.output.format);
    let progress = Progress::start(printer, "verifying");
    let report = verify(arguments);
    drop(progress);
    match report.and_then(|report| report.print(printer)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DAMAGED),
        Err(error) => {
            printer.error(&error);
            ExitCode::from(CANNOT_TELL)
        }
    }
}

fn verify(arguments: &args::Verify) -> Result<Report> {
    let mut report = Report::default();
    match Source::find(&arguments.path)? {
        Source::File(path) => report.snapshot(&path, arguments.full)?,
        Source::Wal(dir) => report.log(&dir)?,
        Source::DataDir(dir) => {
            report.log(&dir.join("member/wal"))?;
            report.database(&dir.join("member/snap/db"), arguments.full)?;
        }
    }
    report.sound = report.findings.is_empty();
    Ok(report)
}

impl Report {
    fn print(&self, printer: Printer) -> Result<bool> {
        printer.lines(self, || {
            let findings = self.findings.iter().map(|finding| format!("{}: {}", finding.check, finding.message));
            let notes = self.notes.iter().map(|note| format!("note: {note}"));
            let verdict = if self.sound { "sound" } else { "damaged" };
            findings.chain(notes).chain([format!("{verdict}: checked {}", self.checked.join(", "))]).collect()
        })?;
        Ok(self.sound)
    }

    fn found(&mut self, check: &'static str, error: impl Into<Error>) {
        self.findings.push(Finding { check, message: format!("{:#}", error.into()) });
    }

    fn snapshot(&mut self, path: &Path, full: bool) -> Result<()> {
        let file = SnapshotFile::find(path)?;
        let Some(snapshot) = self.open(file.path())? else { return Ok(()) };
        let no_digest = snapshot.stored_digest().is_none();
        if no_digest && !snapshot.db.file_length().is_multiple_of(512) {
            self.found("digest", anyhow!("{} ends in the middle of its SHA-256: it is cut short", path.display()));
        } else if no_digest && !full {
            bail!("{} has no SHA-256 at its end; use --full to check its structure instead", path.display());
        }
        self.checked.push("digest");
        match snapshot.verify_digest(DigestPolicy::IfPresent) {
            Err(SnapshotError::Io { path, source }) => return Err(SnapshotError::Io { path, source }.into()),
            Err(error) => self.found("digest", error),
            Ok(()) if no_digest => {
                self.notes
                    .push("no SHA-256 at its end, so changed values inside sound pages cannot be seen".to_owned());
            }
            Ok(()) => {}
        }
        if full { self.structure(&snapshot) } else { Ok(()) }
    }

    fn database(&mut self, path: &Path, full: bool) -> Result<()> {
        match self.open(path)? {
            Some(snapshot) if full => self.structure(&snapshot),
            _ => Ok(()),
        }
    }

    /// `None`, with a finding, if the file cannot be understood.
    fn open(&mut self, path: &Path) -> Result<Option<Snapshot>> {
        self.checked.push("meta");
        match Snapshot::open(path) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(SnapshotError::Io { path, source }) => Err(SnapshotError::Io { path, source }.into()),
            Err(error) => {
                self.found("meta", error);
                Ok(None)
            }
        }
    }

    fn structure(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.checked.push("structure");
        let checked = bbolt::check(&snapshot.db, |_, _, _| {})?;
        for finding in checked.findings {
            self.found("structure", finding.error);
        }
        Ok(())
    }

    fn log(&mut self, dir: &Path) -> Result<()> {
        self.checked.push("log");
        match wal::scan_dir(dir) {
            Err(WalError::Io { path, source }) => return Err(WalError::Io { path, source }.into()),
            Err(error) => self.found("log", error),
            Ok(scan) => match scan.tail {
                Tail::Clean => {}
                Tail::Torn { segment, offset } => {
                    self.notes.push(format!("{segment} ends in a torn write at {offset}; etcd cuts it off by itself"));
                }
                Tail::Residue { segment, offset } => self
                    .notes
                    .push(format!("{segment} has data behind its end at {offset}; etcd erases it when it starts")),
            },
        }
        Ok(())
    }
}
