//! `quorate data verify`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use quorate_etcd::validate::{self, FindingKind, Findings, Severity, Tier};
use serde::Serialize;

use crate::args;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::source::{SnapshotFile, Source, scratch};

/// Exit codes that scripts rely on.
const DAMAGED: u8 = 1;
const CANNOT_TELL: u8 = 2;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    sound: bool,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    name: &'static str,
    severity: &'static str,
    message: String,
}

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
    let tier = if arguments.full { Tier::Full } else { Tier::Instant };
    match Source::find(&arguments.path)? {
        Source::File(path) => snapshot(&path, tier),
        Source::DataDir(dir) => Ok(Report::of(&validate::data_dir(dir.path(), tier)?.0)),
        Source::Wal(dir) => Ok(Report::of(&validate::wal(&dir)?)),
    }
}

fn snapshot(path: &Path, tier: Tier) -> Result<Report> {
    let file = SnapshotFile::find(path, &scratch())?;
    let findings = validate::snapshot(file.path(), tier)?;
    let mut report = Report::of(&findings);
    if findings.list.iter().any(|finding| finding.kind == FindingKind::DigestMissing) {
        // Pages are multiples of 512 bytes, so any other surplus is what a cut left of the digest.
        if !std::fs::metadata(file.path())?.len().is_multiple_of(512) {
            report.add(
                FindingKind::DigestMismatch,
                Severity::Damage,
                "the file ends in the middle of its SHA-256".to_owned(),
            );
        } else if tier == Tier::Instant && report.sound {
            bail!("{} has no SHA-256 at its end; use --full to check its structure instead", path.display());
        }
    }
    Ok(report)
}

impl Report {
    fn of(findings: &Findings) -> Self {
        let mut report = Self { sound: true, findings: Vec::new() };
        for finding in &findings.list {
            report.add(finding.kind, finding.kind.severity(), finding.text.clone());
        }
        report
    }

    fn add(&mut self, kind: FindingKind, severity: Severity, message: String) {
        self.sound &= severity != Severity::Damage;
        let severity = match severity {
            Severity::Warning => "warning",
            Severity::Damage => "damage",
        };
        self.findings.push(Finding { name: kind.name(), severity, message });
    }

    fn print(&self, printer: Printer) -> Result<bool> {
        printer.lines(self, || {
            let line = |finding: &Finding| format!("{} {}: {}", finding.severity, finding.name, finding.message);
            let verdict = if self.sound { "sound" } else { "damaged" };
            self.findings.iter().map(line).chain([verdict.to_owned()]).collect()
        })?;
        Ok(self.sound)
    }
}
