//! The member's own etcd, asked over the loopback.

use std::{fs, path::Path, time::Duration};

use quorate_api::{
    member::EtcdReport,
    settings::{MemberSettings, paths},
    status::MemberRole,
};
use quorate_etcd::{
    client::{Client, Options, Tls},
    membership::hex_id,
};

use crate::error::{Result, While};

/// A healthy etcd answers within milliseconds; a frozen one never does.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What etcd said about itself at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    pub(crate) report: EtcdReport,
    pub(crate) knows_leader: bool,
    pub(crate) revision: i64,
    /// Applied, and on disk a moment later: etcd writes its log beside applying it.
    pub(crate) applied_index: i64,
    pub(crate) db_size: i64,
    pub(crate) db_in_use: i64,
}

pub(crate) fn connect(settings: &MemberSettings) -> Result<Client> {
    let scheme = if settings.tls { "https" } else { "http" };
    let mut options = Options::new(format!("{scheme}://127.0.0.1:{}", settings.client_port));
    options.connect_timeout = PATIENCE;
    options.call_timeout = PATIENCE;
    if settings.tls {
        options = options.tls(read_tls(Path::new(paths::TLS_AGENT))?);
    }
    Ok(Client::new(options)?)
}

fn read_tls(dir: &Path) -> Result<Tls> {
    let read = |file: &str| fs::read(dir.join(file)).doing(|| format!("reading {}", dir.join(file).display()));
    Ok(Tls { ca: read("ca.crt")?, identity: Some((read("tls.crt")?, read("tls.key")?)), server_name: None })
}

/// Most that a report may list.
const MOST_ALARMS: usize = 16;

/// etcd names them in a different order each time, which must not look like a change.
fn alarms(mut named: Vec<String>) -> Vec<String> {
    named.sort();
    named.dedup();
    named.truncate(MOST_ALARMS);
    named
}

pub(crate) async fn pulse(client: &Client) -> Result<Pulse> {
    let status = client.status().await?;
    let header = status.header.unwrap_or_default();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let role = if status.is_learner {
        MemberRole::Learner
    } else if status.leader != 0 && status.leader == header.member_id {
        MemberRole::Leader
    } else {
        MemberRole::Member
    };
    Ok(Pulse {
        report: EtcdReport {
            running: true,
            cluster_id: Some(hex_id(header.cluster_id)),
            member_id: Some(hex_id(header.member_id)),
            version: Some(status.version),
            role: Some(role),
            term: Some(number(status.raft_term)),
            alarms: alarms(status.errors),
            ..EtcdReport::default()
        },
        knows_leader: status.leader != 0,
        revision: header.revision,
        applied_index: number(status.raft_applied_index),
        db_size: status.db_size,
        db_in_use: status.db_size_in_use,
    })
}
