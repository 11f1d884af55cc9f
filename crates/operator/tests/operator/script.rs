//! An API server that expects exactly these requests, in this order, and gives these answers.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// One request and its answer.
pub(crate) struct Exchange {
    pub(crate) request: &'static str,
    /// Looks at query and body.
    pub(crate) check: fn(&str, &Value),
    pub(crate) answer: (u16, Value),
}

pub(crate) fn expect(request: &'static str, answer: (u16, Value)) -> Exchange {
    Exchange { request, check: |_, _| {}, answer }
}

impl Exchange {
    pub(crate) fn checked(self, check: fn(&str, &Value)) -> Self {
        Self { check, ..self }
    }
}

pub(crate) fn failure(code: u16, reason: &str) -> (u16, Value) {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code,
    });
    (code, body)
}

type Called = (Request<Body>, oneshot::Sender<Response<Body>>);

/// The client, and a task that ends when all exchanges have happened. A request beyond them gets no answer but an error.
pub(crate) fn scripted(script: Vec<Exchange>) -> (Client, JoinHandle<()>) {
    let (calls, mut called) = mpsc::unbounded_channel::<Called>();
    let service = tower::service_fn(move |request: Request<Body>| {
        let calls = calls.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            calls.send((request, answer)).map_err(|_| "the script has ended")?;
            answered.await.map_err(|_| "the script has ended")
        }
    });
    let task = tokio::spawn(async move {
        for Exchange { request: expected, check, answer: (code, body) } in script {
            let (request, send) = called.recv().await.expect("the script expects another request");
            let uri = request.uri().clone();
            assert_eq!(format!("{} {}", request.method(), uri.path()), expected);
            let bytes = request.into_body().collect_bytes().await.unwrap();
            let received = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
            check(uri.query().unwrap_or_default(), &received);
            let answer = Response::builder().status(code).body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap();
            send.send(answer).expect("the client waits for its answer");
        }
    });
    (Client::new(service, "default"), task)
}
