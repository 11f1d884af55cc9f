//! What can be typed. Flags that mean what etcdutl's mean are named as etcdutl names them.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use quorate_etcd::schema::MinorVersion;

/// etcd clusters on Kubernetes: look after them, and after their data.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read, verify, restore and compact etcd's files, offline and without running etcd.
    #[command(subcommand)]
    Data(Data),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Data {
    /// Show what a snapshot file, data directory or write-ahead log is and holds.
    Inspect(Inspect),
    /// Check for damage: exit code 0 is sound, 1 damaged, 2 cannot tell.
    Verify(Verify),
    /// Compute the hash by which etcd members compare their contents.
    Hash(Hash),
    /// Make a data directory from a snapshot and the delta backups after it.
    Restore(Box<Restore>),
    /// Merge a snapshot and its delta backups into one new, compacted snapshot.
    Compact(Compact),
    /// Rebuild the write-ahead log and snap file around an intact database of a single-member cluster.
    Reseed(Reseed),
    /// List the keys that were alive at a revision.
    Keys(Keys),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
    /// How to print the result and errors.
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A snapshot file, a data directory, or a directory of WAL segments.
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// A snapshot file, a data directory, or a directory of WAL segments.
    pub(crate) path: PathBuf,
    /// Also read every page of the database and check structure and meaning.
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Hash {
    /// A snapshot file or a data directory.
    pub(crate) path: PathBuf,
    /// Directory of delta backups to add, in etcd-backup-restore's layout.
    #[arg(long, value_name = "DIR")]
    pub(crate) deltas: Option<PathBuf>,
    /// Hash as of this revision instead of the last one.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) revision: Option<i64>,
    /// Hash as a server would that has compacted at this revision.
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) compact_revision: Option<i64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot file.
    pub(crate) snapshot: PathBuf,
    /// The data directory to make; it must be absent or empty.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Directory of delta backups to apply, in etcd-backup-restore's layout.
    #[arg(long, value_name = "DIR")]
    pub(crate) deltas: Option<PathBuf>,
    /// Restore the state as of this revision.
    #[arg(long, value_name = "R", conflicts_with = "time", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) revision: Option<i64>,
    /// Restore the state as of this moment, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "T", requires = "deltas")]
    pub(crate) time: Option<Timestamp>,
    /// Name of the member the directory is for.
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// All members of the cluster to start.
    #[arg(long, value_name = "NAME=URL,...", default_value = "default=http://localhost:2380")]
    pub(crate) initial_cluster: String,
    /// Token of the cluster to start; a new one keeps members of the lost cluster out.
    #[arg(long, value_name = "TOKEN", default_value = "etcd-cluster")]
    pub(crate) initial_cluster_token: String,
    /// Peer URLs of this member.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', default_value = "http://localhost:2380")]
    pub(crate) initial_advertise_peer_urls: Vec<String>,
    /// Raise the revision by this much, past whatever clients have seen.
    #[arg(long, value_name = "N", requires = "mark_compacted", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) bump_revision: Option<i64>,
    /// Mark all revisions up to the bumped one as compacted, so that clients list anew.
    #[arg(long, requires = "bump_revision")]
    pub(crate) mark_compacted: bool,
    /// Drop all history older than the restored revision.
    #[arg(long)]
    pub(crate) compact: bool,
    /// Give leases that were granted after the snapshot this time to live; delta backups do not tell theirs, and
    /// without it their keys never expire.
    #[arg(long, value_name = "SECONDS", requires = "deltas", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) lease_ttl: Option<i64>,
    /// Accept a snapshot without a SHA-256 at its end, such as a copy of a member's db file.
    #[arg(long)]
    pub(crate) skip_hash_check: bool,
    /// Release of etcd that will run on the directory; refuses what it could not start on.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) etcd_version: Option<MinorVersion>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// The snapshot file.
    pub(crate) snapshot: PathBuf,
    /// Directory of delta backups to merge, in etcd-backup-restore's layout.
    #[arg(long, value_name = "DIR")]
    pub(crate) deltas: PathBuf,
    /// The new snapshot file; and `text` or `json`, given once more, for how to print the result.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) output: Vec<PathBuf>,
    /// Accept a snapshot without a SHA-256 at its end, such as a copy of a member's db file.
    #[arg(long)]
    pub(crate) skip_hash_check: bool,
}

impl Compact {
    /// `--output` names the file here and the format everywhere else, so both are understood: `json` and `text` are
    /// formats, `./json` is a file.
    pub(crate) fn format(&self) -> Format {
        self.output.iter().rev().find_map(|value| format_named(value)).unwrap_or_default()
    }

    pub(crate) fn file(&self) -> Option<&PathBuf> {
        let mut files = self.output.iter().filter(|value| format_named(value).is_none());
        files.next().filter(|_| files.next().is_none())
    }
}

fn format_named(value: &std::path::Path) -> Option<Format> {
    match value.to_str()? {
        "json" => Some(Format::Json),
        "text" => Some(Format::Text),
        _ => None,
    }
}

#[derive(Debug, Args)]
pub(crate) struct Reseed {
    /// The data directory; etcd must not be running on it.
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// A snapshot file or a data directory.
    pub(crate) path: PathBuf,
    /// Only keys that start with this.
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// List as of this revision instead of the last one.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) revision: Option<i64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

fn version(text: &str) -> Result<MinorVersion, String> {
    MinorVersion::parse(text).ok_or_else(|| "expected a release such as 3.6 or 3.6.1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_compaction_s_output_may_name_a_file_and_a_format() {
        let parse = |outputs: &[&str]| {
            let mut line = vec!["quorate", "data", "compact", "s", "--deltas", "d"];
            line.extend(outputs.iter().flat_map(|value| ["--output", *value]));
            match Arguments::parse_from(line).command {
                Command::Data(Data::Compact(compact)) => (compact.file().cloned(), compact.format()),
                other @ Command::Data(_) => panic!("{other:?}"),
            }
        };
        assert_eq!(parse(&["new.db"]), (Some("new.db".into()), Format::Text));
        assert_eq!(parse(&["json", "new.db"]), (Some("new.db".into()), Format::Json));
        assert_eq!(parse(&["./json", "json"]), (Some("./json".into()), Format::Json));
        assert_eq!(parse(&["json"]).0, None);
        assert_eq!(parse(&["a", "b"]).0, None);
    }
}
