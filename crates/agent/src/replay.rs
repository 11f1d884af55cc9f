//! An etcd that applies its log alone, on data of an incarnation that has lost its quorum, and is ended then.
//!
//! Nobody is led to it and nothing is said about it: it is no member of anything any more. All that counts is the database
//! that it leaves behind.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use quorate_api::member::Ticket;
use quorate_etcd::{
    data_dir::DataDir,
    wal::{Vote, commit_all},
};
use quorate_runtime::error::chain;
use tokio::time::{sleep, timeout};

use crate::{
    config::replay_config,
    error::{Error, Result, While},
    inspect::Volume,
    launch_socket::LauncherConnection,
    local_etcd::{self, LocalEtcd},
    supervisor::MemberSupervisor,
};

/// The largest databases are applied by then. One that is not never will be.
const FOR_REPLAY: Duration = Duration::from_mins(15);
/// An etcd that is ended writes what it holds, and closes its files.
const FOR_END: Duration = Duration::from_mins(1);
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(100);
/// Below the ports that the kernel gives to connections, and not those of members, which somebody may forward to.
const FIRST_PORT: u16 = 30_000;
const PORTS: u16 = 2_000;

impl MemberSupervisor {
    /// Has etcd apply the whole log, up to this index at least, whether it was known to be committed or not.
    pub(crate) async fn replay(
        &self,
        launcher: &mut LauncherConnection,
        epoch: i64,
        vote: Vote,
        index: u64,
    ) -> Result<()> {
        let (client_port, peer_port) = free_ports()?;
        let config = replay_config(&self.name, &self.settings, &self.paths, client_port, peer_port);
        let path = self.paths.replay_config();
        let prepare = move |volume: &Volume| {
            commit_all(&DataDir::new(&volume.data).wal(), vote)?;
            fs::write(&path, config.to_string()).doing(|| format!("writing {}", path.display()))
        };
        self.volume.on(prepare).await??;
        let etcd = local_etcd::connect_to(client_port.into(), &self.settings, &self.paths)?;
        launcher.let_replay().await?;
        tracing::info!(member = self.name, index, "etcd applies its log alone");
        let outcome = tokio::select! {
            () = launcher.gone() => Err("etcd has ended; the log of its container says why".to_owned()),
            () = has_applied(&etcd, index) => Ok(()),
            () = self.is_withdrawn(epoch) => Err("the ticket was withdrawn".to_owned()),
            () = sleep(FOR_REPLAY) => Err("etcd does not answer; the log of its container may say why".to_owned()),
        };
        self.end(launcher).await?;
        outcome.map_err(Error::Replay)?;
        let applied = self.volume.on(Volume::applied_index).await??;
        if applied < index {
            return Err(Error::Replay(format!("the database ends at index {applied} and the log at {index}")));
        }
        Ok(())
    }

    /// Ends an etcd that applies its log; it is gone when this returns.
    pub(crate) async fn end(&self, launcher: &mut LauncherConnection) -> Result<()> {
        // One that cannot be told is gone already.
        if launcher.end().await.is_ok() && timeout(FOR_END, launcher.gone()).await.is_err() {
            tracing::error!(member = self.name, "etcd does not end, and is killed");
            if launcher.stop().await.is_ok() {
                launcher.gone().await;
            }
        }
        self.volume.use_becomes(false).await
    }

    /// Returns when the ticket is not one any more to recover this incarnation. No news are no change.
    async fn is_withdrawn(&self, epoch: i64) {
        let mut changes = self.changes.clone();
        let withdrawn = changes.wait_for(|member| {
            let ticket = member.as_ref().map(|member| &member.spec.ticket);
            ticket.is_some_and(|ticket| !matches!(ticket, Ticket::Recover { epoch: still, .. } if *still == epoch))
        });
        if withdrawn.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns when etcd can be read from and has applied so much.
async fn has_applied(etcd: &LocalEtcd, index: u64) {
    loop {
        match local_etcd::has_applied(&etcd.client(), index).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(error = chain(&error), "etcd does not answer yet"),
        }
        sleep(BETWEEN_QUESTIONS).await;
    }
}

/// Two of this machine that nobody listens on.
fn free_ports() -> Result<(u16, u16)> {
    let first = u16::try_from(std::process::id().wrapping_mul(61) % u32::from(PORTS)).unwrap_or_default();
    let candidates = (0..PORTS).map(|offset| FIRST_PORT + (first + offset) % PORTS);
    let mut free = candidates.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.next()
        .zip(free.next())
        .ok_or_else(|| io::Error::from(io::ErrorKind::AddrInUse))
        .doing(|| "looking for two free ports".to_owned())
}
