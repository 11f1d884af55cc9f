//! As much of a Kubernetes API as one agent talks to: its `EtcdMember` and its Lease. It can be silent, or refuse.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use quorate_api::{
    EtcdMember,
    member::{DataState, EtcdMemberSpec, EtcdMemberStatus, Ticket},
    names::annotations,
};
use quorate_core::lease::Heartbeat;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{oneshot, watch},
};

use crate::pod::MEMBER;

/// Later than a member that can start from its own data waits.
const LATE: Duration = Duration::from_millis(2500);

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Answers,
    /// Takes requests and never answers.
    Silent,
    /// Answers late.
    Slow,
    /// As without the rights.
    Refuses,
    /// As while the etcd behind it is away.
    Unavailable,
}

struct Objects {
    mood: Mood,
    member: Value,
    lease: Value,
    asked: usize,
    /// The ticket that is exchanged for the present one when a member of this epoch is put on record.
    next_ticket: Option<(i64, Ticket)>,
}

#[derive(Clone)]
struct Shared {
    objects: Arc<Mutex<Objects>>,
    changed: Arc<watch::Sender<u64>>,
}

pub(crate) struct Api {
    shared: Shared,
    pub(crate) port: u16,
    /// Ends with it.
    _runtime: Runtime,
}

impl Api {
    pub(crate) fn start(ticket: Ticket) -> Self {
        let spec = EtcdMemberSpec { cluster: "db".to_owned(), ordinal: 0, ticket };
        let mut member = EtcdMember::new(MEMBER, spec);
        member.metadata.namespace = Some("default".to_owned());
        member.metadata.resource_version = Some("1".to_owned());
        let objects = Objects {
            mood: Mood::Answers,
            member: serde_json::to_value(member).unwrap(),
            lease: json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": MEMBER}}),
            asked: 0,
            next_ticket: None,
        };
        let shared = Shared { objects: Arc::new(Mutex::new(objects)), changed: Arc::new(watch::channel(1).0) };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (listening, port) = oneshot::channel();
        let router = Router::new().fallback(answer).with_state(shared.clone());
        runtime.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listening.send(listener.local_addr().unwrap().port()).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        Api { shared, port: port.blocking_recv().unwrap(), _runtime: runtime }
    }

    pub(crate) fn mood(&self, mood: Mood) {
        self.shared.objects.lock().unwrap().mood = mood;
    }

    pub(crate) fn set_ticket(&self, ticket: &Ticket) {
        self.shared.objects.lock().unwrap().member["spec"]["ticket"] = serde_json::to_value(ticket).unwrap();
        self.shared.changed.send_modify(|version| *version += 1);
    }

    /// As a user does.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        self.shared.objects.lock().unwrap().member["metadata"]["annotations"][key] = value.into();
        self.shared.changed.send_modify(|version| *version += 1);
    }

    /// Exchanges the ticket at the moment at which a member of this epoch is put on record.
    pub(crate) fn set_ticket_on_record(&self, epoch: i64, ticket: Ticket) {
        self.shared.objects.lock().unwrap().next_ticket = Some((epoch, ticket));
    }

    /// How often the agent has asked what is ordered and recorded, whatever came of it.
    pub(crate) fn asked(&self) -> usize {
        self.shared.objects.lock().unwrap().asked
    }

    pub(crate) fn report(&self) -> EtcdMemberStatus {
        let objects = self.shared.objects.lock().unwrap();
        serde_json::from_value(objects.member["status"].clone()).unwrap_or_default()
    }

    /// As if nothing had ever been reported.
    pub(crate) fn forget_report(&self) {
        self.shared.objects.lock().unwrap().member["status"] = Value::Null;
    }

    /// As if the last look at the volume had found nothing wrong.
    pub(crate) fn forget_findings(&self) {
        let data = &mut self.shared.objects.lock().unwrap().member["status"]["data"];
        data["state"] = serde_json::to_value(DataState::Valid).unwrap();
        data["reason"] = Value::Null;
    }

    /// The Lease says that its holder has got this far.
    pub(crate) fn raise_last_index(&self, index: i64) {
        self.shared.objects.lock().unwrap().lease["metadata"]["annotations"][annotations::LAST_INDEX] =
            index.to_string().into();
    }

    pub(crate) fn lease(&self) -> Heartbeat {
        let objects = self.shared.objects.lock().unwrap();
        Heartbeat::read(&serde_json::from_value::<Lease>(objects.lease.clone()).unwrap())
    }
}

async fn answer(State(shared): State<Shared>, method: Method, uri: Uri, body: Bytes) -> Response {
    let path = uri.path();
    let (mood, watches) = {
        let mut objects = shared.objects.lock().unwrap();
        objects.asked += usize::from(method == Method::GET && path.ends_with(&format!("/etcdmembers/{MEMBER}")));
        (objects.mood, uri.query().is_some_and(|query| query.contains("watch=true")))
    };
    match mood {
        Mood::Answers => {}
        Mood::Slow => tokio::time::sleep(LATE).await,
        Mood::Silent => tokio::time::sleep(Duration::from_hours(1)).await,
        Mood::Refuses => return refusal(StatusCode::FORBIDDEN, "Forbidden"),
        Mood::Unavailable => return refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
    }
    if watches {
        return watch_members(&shared);
    }
    let mut objects = shared.objects.lock().unwrap();
    let wanted = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let answer = if path.ends_with("/etcdmembers") {
        let items = [&objects.member];
        json!({"kind": "EtcdMemberList", "apiVersion": "quorate.dev/v1alpha1", "metadata": {"resourceVersion": "1"}, "items": items})
    } else if path.ends_with("/status") {
        objects.member["status"] = wanted["status"].clone();
        let epoch = wanted["status"]["data"]["epoch"].as_i64();
        if let Some((_, ticket)) = objects.next_ticket.take_if(|(awaited, _)| Some(*awaited) == epoch) {
            objects.member["spec"]["ticket"] = serde_json::to_value(ticket).unwrap();
        }
        shared.changed.send_modify(|version| *version += 1);
        objects.member.clone()
    } else if path.contains("/etcdmembers/") {
        objects.member.clone()
    } else {
        if method == Method::PATCH {
            merge(&mut objects.lease, wanted);
        }
        objects.lease.clone()
    };
    axum::response::Response::new(Body::from(answer.to_string()))
}

fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()});
    (code, status.to_string()).into_response()
}

fn watch_members(shared: &Shared) -> Response {
    let changes = stream::unfold((shared.clone(), shared.changed.subscribe()), async |(shared, mut changed)| {
        changed.changed().await.ok()?;
        let version = *changed.borrow_and_update();
        let mut member = shared.objects.lock().unwrap().member.clone();
        member["metadata"]["resourceVersion"] = version.to_string().into();
        let line = format!("{}\n", json!({"type": "MODIFIED", "object": member}));
        Some((Ok::<_, std::io::Error>(line), (shared, changed)))
    });
    Response::new(Body::from_stream(changes.boxed()))
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: Value) {
    match patch {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (value, &mut *into) {
                    (Value::Null, Value::Object(fields)) => drop(fields.remove(&name)),
                    (value, into) => merge(&mut into[name], value),
                }
            }
        }
        value => *into = value,
    }
}
