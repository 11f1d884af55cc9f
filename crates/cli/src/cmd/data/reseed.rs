//! `quorate data reseed`.

use std::path::Path;

use anyhow::Result;
use quorate_etcd::membership::hex_id;
use quorate_etcd::restore::reseed;
use serde::Serialize;

use crate::args;
use crate::printer::Printer;
use crate::progress::Progress;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    data_dir: &'a Path,
    revision: i64,
    member_id: String,
    cluster_id: String,
    replaced: &'a Path,
}

pub(super) fn run(printer: Printer, arguments: &args::Reseed) -> Result<()> {
    let progress = Progress::start(printer, "rebuilding the log");
    let reseeded = reseed(&arguments.data_dir)?;
    drop(progress);
    let report = Report {
        data_dir: &arguments.data_dir,
        revision: reseeded.revision,
        member_id: hex_id(reseeded.member_id),
        cluster_id: hex_id(reseeded.cluster_id),
        replaced: &reseeded.replaced,
    };
    printer.facts(&report, || {
        vec![
            ("data dir", report.data_dir.display().to_string()),
            ("revision", report.revision.to_string()),
            ("member id", report.member_id.clone()),
            ("cluster id", report.cluster_id.clone()),
            ("kept as it was in", report.replaced.display().to_string()),
        ]
    })
}
