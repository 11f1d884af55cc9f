//! Which members there are, and which of them a client talks to.

use std::collections::HashMap;
use std::time::Duration;

use quorate_etcd::client::{Client, Options};
use tokio::sync::watch;

use crate::load::Load;
use crate::recorder::Recorder;

/// One member, by the name that verdicts call it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub name: String,
    /// Address and TLS; the load sets its own time limits.
    pub options: Options,
}

impl Endpoint {
    pub fn new(name: impl Into<String>, options: Options) -> Self {
        Self { name: name.into(), options }
    }
}

/// The members at any moment: a fixed list, or one that a test changes while they come and go.
#[derive(Clone, Debug)]
pub struct Endpoints(watch::Receiver<Vec<Endpoint>>);

impl Endpoints {
    pub(crate) fn now(&self) -> Vec<Endpoint> {
        self.0.borrow().clone()
    }
}

impl From<watch::Receiver<Vec<Endpoint>>> for Endpoints {
    fn from(receiver: watch::Receiver<Vec<Endpoint>>) -> Self {
        Self(receiver)
    }
}

impl From<Vec<Endpoint>> for Endpoints {
    fn from(fixed: Vec<Endpoint>) -> Self {
        Self(watch::channel(fixed).1)
    }
}

/// How one client gets its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// A new connection for every request.
    pub(crate) fresh: bool,
    /// Another member for every request; otherwise one member for as long as it is among the endpoints.
    pub(crate) round: bool,
}

impl Manner {
    /// All there are, one after the other.
    pub(crate) fn nth(n: usize) -> Self {
        Self { fresh: n % 4 >= 2, round: n % 2 == 1 }
    }
}

#[derive(Debug)]
pub(crate) struct Route {
    endpoints: Endpoints,
    manner: Manner,
    limits: Load,
    turn: usize,
    pinned: Option<String>,
    kept: HashMap<String, Client>,
}

impl Route {
    pub(crate) fn new(endpoints: &Endpoints, manner: Manner, first: usize, load: &Load) -> Self {
        Self {
            endpoints: endpoints.clone(),
            manner,
            limits: load.clone(),
            turn: first,
            pinned: None,
            kept: HashMap::new(),
        }
    }

    /// The member's name and a connection to it; nothing while there are no endpoints.
    pub(crate) fn next(&mut self, recorder: &Recorder) -> Option<(String, Client)> {
        let members = self.endpoints.now();
        self.kept.retain(|address, _| members.iter().any(|member| member.options.endpoint == *address));
        let same = members.iter().find(|member| Some(&member.options.endpoint) == self.pinned.as_ref());
        let member = if let Some(member) = same {
            member
        } else {
            self.turn = self.turn.wrapping_add(1);
            members.get(self.turn.checked_rem(members.len())?)?
        };
        self.pinned = (!self.manner.round).then(|| member.options.endpoint.clone());
        if let Some(client) = self.kept.get(&member.options.endpoint) {
            return Some((member.name.clone(), client.clone()));
        }
        match self.limits.connect(&member.options) {
            Ok(client) => {
                if !self.manner.fresh {
                    self.kept.insert(member.options.endpoint.clone(), client.clone());
                }
                Some((member.name.clone(), client))
            }
            Err(error) => {
                recorder.fell_short(format!("{}: {error}", member.name));
                None
            }
        }
    }

    /// Lets go of the member to which this one is pinned, as a client does whose connection broke.
    pub(crate) fn move_on(&mut self) {
        self.pinned = None;
    }
}

/// How long a client waits before it tries again what could not be tried.
pub(crate) const BREATH: Duration = Duration::from_millis(100);
