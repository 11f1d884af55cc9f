//! A gate between one operator and the API server: what watches tell can be held back, and a write can be made to wait.
//!
//! So an operator can be given an old view of the world while all that it reads and writes is of now, which no freezing of
//! processes does: whoever wakes finds the news waiting. It speaks plain HTTP to the operator, of which it needs to understand
//! no more than where a request begins: each connection carries one at a time.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use kube::{
    Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::bed;

const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// What an operator has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
}

impl Request {
    /// If a request begins here.
    fn at(bytes: &[u8]) -> Option<Self> {
        let line = bytes.split(|byte| *byte == b'\r').next()?;
        let mut words = str::from_utf8(line).ok()?.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        (path.starts_with('/') && words.next() == Some("HTTP/1.1"))
            .then(|| Request { method: method.to_owned(), path: path.to_owned() })
    }

    fn watches(&self, kind: &str) -> bool {
        let (place, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        place.ends_with(&format!("/{kind}")) && query.contains("watch=true")
    }

    /// Events do not count: nothing depends on them.
    fn is_write(&self) -> bool {
        WRITES.contains(&self.method.as_str()) && !self.path.contains("/events")
    }
}

#[derive(Debug, Default)]
struct Rules {
    /// Kinds, in the plural, of which watches tell nothing.
    held: BTreeSet<&'static str>,
    /// Which write waits, from 1.
    stop_at: Option<usize>,
}

#[derive(Clone, Debug)]
struct Shared {
    rules: watch::Sender<Rules>,
    asked: Arc<Mutex<Vec<Request>>>,
    /// How many writes have come to the gate.
    writes: watch::Sender<usize>,
}

/// It goes when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Gate {
    shared: Shared,
    task: JoinHandle<()>,
    kubeconfig: PathBuf,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Gate {
    /// In front of this bed's API server, as its administrator.
    pub async fn open(name: &str) -> Self {
        let kubeconfig = Kubeconfig::read_from(bed::testbed().inner_kubeconfig("admin")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let tls = TlsConnector::from(Arc::new(config.rustls_client_config().unwrap()));
        let server = config.cluster_url.authority().unwrap().to_string();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared =
            Shared { rules: watch::Sender::default(), asked: Arc::default(), writes: watch::Sender::default() };
        let task = tokio::task::spawn_local(listen(listener, server, tls, shared.clone()));
        let path = std::env::temp_dir().join(format!("quorate-gate-{}-{name}", std::process::id()));
        std::fs::write(&path, leads_to(address)).unwrap();
        Self { shared, task, kubeconfig: path }
    }

    /// For whoever is to go through the gate.
    pub fn kubeconfig(&self) -> &PathBuf {
        &self.kubeconfig
    }

    /// From now on watches of this kind tell nothing, not even that they are there.
    pub fn hold(&self, kind: &'static str) {
        self.shared.rules.send_modify(|rules| _ = rules.held.insert(kind));
    }

    /// What was held back comes, all of it and in order.
    pub fn release(&self, kind: &'static str) {
        self.shared.rules.send_modify(|rules| _ = rules.held.remove(kind));
    }

    /// Makes a write wait, counted from 1, and whatever comes after it.
    pub fn stop_at(&self, write: usize) {
        self.shared.rules.send_modify(|rules| rules.stop_at = Some(write));
    }

    /// Until that many writes have come.
    pub async fn has_seen(&self, writes: usize) {
        self.shared.writes.subscribe().wait_for(|seen| *seen >= writes).await.unwrap();
    }

    pub fn go_on(&self) {
        self.shared.rules.send_modify(|rules| rules.stop_at = None);
    }

    /// All requests that have come so far, in order.
    pub fn asked(&self) -> Vec<Request> {
        self.shared.asked.lock().unwrap().clone()
    }
}

fn leads_to(address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "gate",
        "clusters": [{ "name": "gate", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "gate", "user": {} }],
        "contexts": [{ "name": "gate", "context": { "cluster": "gate", "user": "gate" } }],
    })
    .to_string()
}

async fn listen(listener: TcpListener, server: String, tls: TlsConnector, shared: Shared) {
    loop {
        let Ok((inside, _)) = listener.accept().await else { continue };
        let (server, tls, shared) = (server.clone(), tls.clone(), shared.clone());
        // Ends with either side; whoever has asked tries again.
        tokio::task::spawn_local(async move {
            let outside = TcpStream::connect(&server).await.ok()?;
            let host = server.rsplit_once(':')?.0.trim_matches(['[', ']']).to_owned();
            let outside = tls.connect(host.try_into().ok()?, outside).await.ok()?;
            let ((from_operator, to_operator), (from_server, to_server)) = (split(inside), split(outside));
            let current = watch::Sender::new(None);
            tokio::select! {
                () = requests(from_operator, to_server, &current, &shared) => {}
                () = answers(from_server, to_operator, &current, &shared) => {}
            }
            Some(())
        });
    }
}

type Current = watch::Sender<Option<Request>>;

async fn requests(
    mut from: ReadHalf<TcpStream>,
    mut to: WriteHalf<TlsStream<TcpStream>>,
    current: &Current,
    shared: &Shared,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if let Some(request) = Request::at(&buffer[..length]) {
            shared.asked.lock().unwrap().push(request.clone());
            current.send_replace(Some(request.clone()));
            if request.is_write() {
                shared.writes.send_modify(|seen| *seen += 1);
                let number = *shared.writes.borrow();
                let goes_on = |rules: &Rules| rules.stop_at.is_none_or(|stop| number < stop);
                let _ = shared.rules.subscribe().wait_for(goes_on).await;
            }
        }
        if to.write_all(&buffer[..length]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

async fn answers(
    mut from: ReadHalf<TlsStream<TcpStream>>,
    mut to: WriteHalf<TcpStream>,
    current: &Current,
    shared: &Shared,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let request = current.borrow().clone();
        let goes_on = |rules: &Rules| {
            !request.as_ref().is_some_and(|request| rules.held.iter().any(|kind| request.watches(kind)))
        };
        let _ = shared.rules.subscribe().wait_for(goes_on).await;
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
