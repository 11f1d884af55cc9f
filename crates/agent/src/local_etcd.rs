//! The member's own etcd, asked over the loopback.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use quorate_api::{
    member::{EtcdReport, ListedMember},
    settings::MemberSettings,
    status::MemberRole,
};
use quorate_etcd::{
    client::{Client, ClientError, Code, Options, Tls},
    membership::hex_id,
    pb::rpc::{kv::RangeRequest, maintenance::StatusResponse},
};

use crate::{
    error::{Result, While},
    paths::Paths,
};

/// A healthy etcd answers within milliseconds; a frozen one never does.
const PATIENCE: Duration = Duration::from_millis(1500);
/// What a learner answers; the code depends on its version.
const REFUSED_BY_LEARNER: &str = "rpc not supported for learner";
/// Most that a report may list.
const MOST_ALARMS: usize = 16;

/// What etcd said at one moment. It may keep to itself how it is, and that is an answer too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    pub(crate) knows_leader: bool,
    /// Whether it only listens: it has no vote, and turns most callers away.
    pub(crate) learner: bool,
    pub(crate) status: Option<Status>,
}

/// What etcd said about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) report: EtcdReport,
    pub(crate) revision: i64,
    /// Applied, and on disk a moment later: etcd writes its log beside applying it.
    pub(crate) applied_index: i64,
    pub(crate) db_size: i64,
    pub(crate) db_in_use: i64,
}

/// The connection. It is made anew when the agent's certificate is, which happens long before the old one ends.
#[derive(Debug)]
pub(crate) struct LocalEtcd {
    options: Options,
    /// Where the certificate is, if there is one.
    tls_dir: Option<PathBuf>,
    /// The files as they were read, and the client that shows them.
    current: Mutex<(Option<Files>, Client)>,
}

pub(crate) fn connect(settings: &MemberSettings, paths: &Paths) -> Result<LocalEtcd> {
    connect_to(settings.client_port, settings, paths)
}

/// To an etcd that listens elsewhere than members do.
pub(crate) fn connect_to(port: i32, settings: &MemberSettings, paths: &Paths) -> Result<LocalEtcd> {
    let scheme = if settings.tls { "https" } else { "http" };
    let mut options = Options::new(format!("{scheme}://127.0.0.1:{port}"));
    options.connect_timeout = PATIENCE;
    options.call_timeout = PATIENCE;
    LocalEtcd::new(options, settings.tls.then(|| paths.tls("agent")))
}

impl LocalEtcd {
    fn new(options: Options, tls_dir: Option<PathBuf>) -> Result<Self> {
        let files = tls_dir.as_deref().map(Files::read).transpose()?;
        let client = client(&options, files.as_ref())?;
        Ok(Self { options, tls_dir, current: Mutex::new((files, client)) })
    }

    /// The client with the certificate that is there now. Files that cannot be used, perhaps because they are just being
    /// replaced, leave the one before in use.
    pub(crate) fn client(&self) -> Client {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(files)) = self.tls_dir.as_deref().map(Files::read)
            && current.0.as_ref() != Some(&files)
            && let Ok(client) = client(&self.options, Some(&files))
        {
            tracing::info!("the agent's certificate was issued anew");
            *current = (Some(files), client);
        }
        current.1.clone()
    }
}

fn client(options: &Options, files: Option<&Files>) -> Result<Client> {
    let options = options.clone();
    Ok(Client::new(match files {
        Some(files) => options.tls(files.tls()),
        None => options,
    })?)
}

/// The agent's Secret as it is mounted.
#[derive(PartialEq, Eq)]
struct Files {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    fn read(dir: &Path) -> Result<Self> {
        let read = |file: &str| fs::read(dir.join(file)).doing(|| format!("reading {}", dir.join(file).display()));
        Ok(Self { authority: read("ca.crt")?, certificate: read("tls.crt")?, key: read("tls.key")? })
    }

    fn tls(&self) -> Tls {
        let identity = Some((self.certificate.clone(), self.key.clone()));
        Tls { ca: self.authority.clone(), identity, server_name: None }
    }
}

/// etcd names them in a different order each time, which must not look like a change.
fn alarms(mut named: Vec<String>) -> Vec<String> {
    named.sort();
    named.dedup();
    named.truncate(MOST_ALARMS);
    named
}

/// With authentication on, etcd may tell its status only to those who have a right to it. It serves all the same.
pub(crate) async fn pulse(client: &Client) -> Result<Pulse> {
    match client.status().await {
        Ok(status) => Ok(Pulse {
            knows_leader: status.leader != 0,
            learner: status.is_learner,
            status: Some(read_status(status)),
        }),
        Err(error) if lacks_rights(&error) => {
            // A server that knows no leader says so before it looks at anybody's rights.
            let asked = client.requiring_leader().status().await;
            let knows_leader = match asked {
                Ok(_) => true,
                Err(error) if lacks_rights(&error) => true,
                Err(error) if error.code() == Some(Code::Unavailable) => false,
                Err(error) => return Err(error.into()),
            };
            Ok(Pulse { knows_leader, learner: is_learner(client).await?, status: None })
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether etcd has applied its log up to this index, which it says once it can be read from. To a caller without rights it
/// says no only after it has got so far that it could answer.
pub(crate) async fn has_applied(client: &Client, index: u64) -> Result<bool> {
    let read = RangeRequest { key: b"\0".to_vec(), limit: 1, keys_only: true, ..RangeRequest::default() };
    match client.range(read).await {
        Ok(_) => {}
        Err(error) if lacks_rights(&error) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    match client.status().await {
        Ok(status) => Ok(status.raft_applied_index >= index),
        Err(error) if lacks_rights(&error) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// A learner tells its status to those who may hear it, and says that it is one to whoever asks for anything else, before
/// it looks at anybody's rights.
async fn is_learner(client: &Client) -> Result<bool> {
    match client.member_list(false).await {
        Ok(_) => Ok(false),
        Err(ClientError::Refused { status, .. }) if status.message().contains(REFUSED_BY_LEARNER) => Ok(true),
        Err(error) if lacks_rights(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The answer of a live etcd to a caller without a name, with a name that it does not know, or without the right.
fn lacks_rights(error: &ClientError) -> bool {
    let codes = [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument, Code::FailedPrecondition];
    matches!(error, ClientError::Refused { status, .. } if codes.contains(&status.code()))
}

fn read_status(status: StatusResponse) -> Status {
    let header = status.header.unwrap_or_default();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let role = if status.is_learner {
        MemberRole::Learner
    } else if status.leader != 0 && status.leader == header.member_id {
        MemberRole::Leader
    } else {
        MemberRole::Member
    };
    Status {
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
        revision: header.revision,
        applied_index: number(status.raft_applied_index),
        db_size: status.db_size,
        db_in_use: status.db_size_in_use,
    }
}

/// The members as this one knows them, without asking the others.
pub(crate) async fn members(client: &Client) -> Result<Vec<ListedMember>> {
    let mut members = client.member_list(false).await?.members;
    members.sort_by_key(|member| member.id);
    let listed = members.into_iter().map(|member| {
        ListedMember::new(member.id, member.name, member.peer_urls, member.is_learner, &member.client_urls)
    });
    Ok(listed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_identity(dir: &Path) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
        for (file, content) in [("ca.crt", &certificate), ("tls.crt", &certificate), ("tls.key", &key.serialize_pem())]
        {
            fs::write(dir.join(file), content).unwrap();
        }
    }

    fn shows_what_is_there(etcd: &LocalEtcd) -> bool {
        drop(etcd.client());
        let current = etcd.current.lock().unwrap();
        current.0.as_ref() == Files::read(etcd.tls_dir.as_deref().unwrap()).ok().as_ref()
    }

    #[tokio::test]
    async fn a_certificate_that_was_issued_anew_is_shown_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        write_identity(dir.path());
        let etcd = LocalEtcd::new(Options::new("https://127.0.0.1:1"), Some(dir.path().to_owned())).unwrap();
        assert!(shows_what_is_there(&etcd));
        write_identity(dir.path());
        assert!(shows_what_is_there(&etcd));
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_leave_the_ones_before_in_use() {
        let dir = tempfile::tempdir().unwrap();
        write_identity(dir.path());
        let etcd = LocalEtcd::new(Options::new("https://127.0.0.1:1"), Some(dir.path().to_owned())).unwrap();
        fs::write(dir.path().join("tls.key"), "half a key").unwrap();
        assert!(!shows_what_is_there(&etcd));
        fs::remove_file(dir.path().join("tls.key")).unwrap();
        assert!(!shows_what_is_there(&etcd));
        write_identity(dir.path());
        assert!(shows_what_is_there(&etcd));
    }
}
