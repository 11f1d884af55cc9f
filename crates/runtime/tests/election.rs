//! Two candidates and the Lease of an API server, on a clock that the tests wind.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of test functions")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use quorate_core::election::Terms;
use quorate_runtime::election::{Claim, Election};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const TERMS: Terms = Terms::of_seconds(12);
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/writer";

/// Keeps one Lease, and refuses to write over what the writer has not seen.
#[derive(Clone, Default)]
struct Server {
    lease: Arc<Mutex<Value>>,
}

/// The way of one candidate to the server.
#[derive(Clone, Default)]
struct Line {
    state: Arc<Mutex<(Duration, bool)>>,
}

impl Line {
    /// How long a request is on its way.
    fn takes(&self, delay: Duration) {
        self.state.lock().unwrap().0 = delay;
    }

    fn cut(&self, is_cut: bool) {
        self.state.lock().unwrap().1 = is_cut;
    }
}

impl Server {
    fn lease(&self) -> Value {
        self.lease.lock().unwrap().clone()
    }

    fn answer(&self, method: &Method, path: &str, mut sent: Value) -> (u16, Value) {
        let mut lease = self.lease.lock().unwrap();
        match *method {
            Method::GET if lease.is_null() => failure(404, "NotFound"),
            Method::GET => (200, lease.clone()),
            Method::POST if !lease.is_null() => failure(409, "AlreadyExists"),
            Method::PUT if lease["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] => {
                failure(409, "Conflict")
            }
            Method::POST | Method::PUT => {
                assert!(PATH.starts_with(path), "{path}");
                let version =
                    lease["metadata"]["resourceVersion"].as_str().map_or(0, |text| text.parse::<u64>().unwrap());
                sent["metadata"]["resourceVersion"] = (version + 1).to_string().into();
                *lease = sent.clone();
                (200, sent)
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }

    fn client(&self, line: &Line) -> Client {
        let (server, line) = (self.clone(), line.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, line) = (server.clone(), line.clone());
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let body = request.into_body().collect_bytes().await?;
                let sent = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
                let delay = line.state.lock().unwrap().0;
                sleep(delay).await;
                if line.state.lock().unwrap().1 {
                    return Err(tower::BoxError::from("there is no way to the API server"));
                }
                let (code, answer) = server.answer(&method, &path, sent);
                Ok(Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?)
            }
        });
        Client::new(service, "default")
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code });
    (code, status)
}

struct Candidate {
    claim: Claim,
    line: Line,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn candidate(server: &Server, name: &str, way: Duration) -> Candidate {
    let line = Line::default();
    line.takes(way);
    let (election, claim) = Election::new(server.client(&line), "default", "writer", name.to_owned(), TERMS);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(election.run(async { drop(stopped.await) }));
    Candidate { claim, line, stop, task }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_start_at_once_one_leads_and_keeps_leading() {
    let server = Server::default();
    let (mut a, b) = (candidate(&server, "a", Duration::ZERO), candidate(&server, "b", Duration::ZERO));
    a.claim.held().await;
    tokio::select! {
        () = a.claim.lost() => panic!("lost although it was renewed"),
        () = sleep(TERMS.duration() * 5) => {}
    }
    assert!(a.claim.check().is_ok() && b.claim.check().is_err());
    assert_eq!((a.claim.fencing_number(), b.claim.fencing_number()), (Some(1), None));
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_its_api_server_stops_by_itself_before_the_next_begins() {
    let server = Server::default();
    let mut a = candidate(&server, "a", Duration::ZERO);
    a.claim.held().await;
    let mut b = candidate(&server, "b", Duration::ZERO);
    a.line.cut(true);
    a.claim.lost().await;
    assert!(a.claim.check().is_err() && !b.claim.is_held());
    b.claim.held().await;
    assert_eq!(b.claim.fencing_number(), Some(2));
    a.line.cut(false);
    tokio::select! {
        () = a.claim.held() => panic!("two lead"),
        () = sleep(TERMS.duration() * 5) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_changed_while_it_was_asked_for_is_not_taken_for_an_old_one() {
    let server = Server::default();
    let mut a = candidate(&server, "a", Duration::from_millis(1));
    a.claim.held().await;
    // Its first question arrives just after the second renewal, which is the last.
    sleep(TERMS.renew_every() + Duration::from_millis(150)).await;
    let mut b = candidate(&server, "b", TERMS.renew_every().saturating_sub(Duration::from_millis(100)));
    sleep(TERMS.renew_every().saturating_sub(Duration::from_millis(120))).await;
    assert_eq!(server.lease()["spec"]["holderIdentity"], "a");
    a.line.cut(true);
    b.line.takes(Duration::from_millis(50));
    b.claim.held().await;
    assert!(!a.claim.is_held(), "two lead");
}

#[tokio::test(start_paused = true)]
async fn who_stops_gives_the_lease_back_and_the_next_need_not_wait() {
    let server = Server::default();
    let mut a = candidate(&server, "a", Duration::ZERO);
    a.claim.held().await;
    let mut b = candidate(&server, "b", Duration::ZERO);
    a.stop.send(()).unwrap();
    a.task.await.unwrap();
    assert!(a.claim.check().is_err());
    assert_eq!(server.lease()["spec"]["holderIdentity"], Value::Null);
    b.claim.held().await;
    assert_eq!(b.claim.fencing_number(), Some(2));
}

#[tokio::test]
async fn the_only_one_always_leads() {
    let mut claim = Claim::always();
    claim.held().await;
    assert!(claim.check().is_ok());
}
