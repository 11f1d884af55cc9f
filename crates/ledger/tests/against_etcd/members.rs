//! Three members on loopback, each of which can be killed, started, and given other data.

use std::path::Path;

use quorate_etcd::client::{Client, Options};
use quorate_ledger::Endpoint;
use tokio::sync::watch;

use crate::etcd_process::{Running, Server, free_port};

pub(crate) struct Members {
    pub(crate) servers: Vec<Server>,
    running: Vec<Option<Running>>,
    endpoints: watch::Sender<Vec<Endpoint>>,
}

impl Members {
    pub(crate) fn start(version: &str, dir: &Path) -> Self {
        let peers: Vec<(String, String)> =
            (0..3).map(|n| (format!("m{n}"), format!("http://127.0.0.1:{}", free_port()))).collect();
        let initial_cluster = peers.iter().map(|(name, url)| format!("{name}={url}")).collect::<Vec<_>>().join(",");
        let servers = peers.into_iter().map(|(name, peer_url)| Server {
            version: version.to_owned(),
            data_dir: dir.join(&name),
            client_url: format!("http://127.0.0.1:{}", free_port()),
            initial_cluster: initial_cluster.clone(),
            extra: Vec::new(),
            name,
            peer_url,
        });
        let servers: Vec<Server> = servers.collect();
        let mut members =
            Self { servers, running: (0..3).map(|_| None).collect(), endpoints: watch::channel(Vec::new()).0 };
        members.run(&[0, 1, 2]);
        members.show(&[0, 1, 2]);
        members
    }

    /// Starts them side by side: none is ready before there is a quorum.
    pub(crate) fn run(&mut self, which: &[usize]) {
        for (n, started) in self.try_run(which) {
            started.unwrap_or_else(|log| panic!("m{n} did not start:\n{log}"));
        }
    }

    /// What each of those says that end instead of starting.
    pub(crate) fn try_run(&mut self, which: &[usize]) -> Vec<(usize, Result<(), String>)> {
        let started: Vec<(usize, Result<Running, String>)> = std::thread::scope(|scope| {
            let starts: Vec<_> = which.iter().map(|n| (*n, scope.spawn(|| self.servers[*n].try_start()))).collect();
            starts.into_iter().map(|(n, start)| (n, start.join().unwrap())).collect()
        });
        let keep = |(n, started): (usize, Result<Running, String>)| {
            (n, started.map(|running| self.running[n] = Some(running)))
        };
        started.into_iter().map(keep).collect()
    }

    /// Makes it fall silent without closing anything.
    pub(crate) fn freeze(&self, n: usize) {
        self.running[n].as_ref().unwrap().freeze();
    }

    pub(crate) fn process(&self, n: usize) -> u32 {
        self.running[n].as_ref().unwrap().process()
    }

    /// By itself.
    pub(crate) fn has_ended(&mut self, n: usize) -> bool {
        self.running[n].as_mut().unwrap().has_ended()
    }

    pub(crate) fn kill(&mut self, n: usize) {
        self.running[n].take().unwrap().kill();
    }

    /// Which of them clients are to know of.
    pub(crate) fn show(&self, which: &[usize]) {
        let endpoint = |n: &usize| {
            let server = &self.servers[*n];
            Endpoint::new(&server.name, Options::new(&server.client_url))
        };
        self.endpoints.send_replace(which.iter().map(endpoint).collect());
    }

    pub(crate) fn client(&self, n: usize) -> Client {
        Client::new(Options::new(&self.servers[n].client_url)).unwrap()
    }

    /// Who leads, and the member ID of somebody else.
    pub(crate) async fn leader(&self) -> (usize, u64) {
        for (n, _) in self.running.iter().enumerate().filter(|(_, running)| running.is_some()) {
            let status = self.client(n).status().await.unwrap();
            if status.leader == status.header.unwrap().member_id {
                let all = self.client(n).member_list(true).await.unwrap().members;
                return (n, all.iter().find(|member| member.id != status.leader).unwrap().id);
            }
        }
        panic!("nobody leads");
    }

    pub(crate) fn endpoints(&self) -> watch::Receiver<Vec<Endpoint>> {
        self.endpoints.subscribe()
    }
}
