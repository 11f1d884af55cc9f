//! The Kubernetes API in plain JSON: tests look at what is on the wire, not at what our own types make of it.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use http::{Method, Request};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Kubernetes {
    client: Client,
    config: Config,
    made: Arc<Mutex<Vec<String>>>,
}

/// Why the API server said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub message: String,
    /// One sentence for each thing that is wrong, with its field.
    pub causes: Vec<String>,
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                let causes = causes.into_iter().map(|cause| format!("{} ({})", cause.message, cause.field)).collect();
                Refusal { code: status.code, message: status.message, causes }
            }
            other => Refusal { code: 0, message: format!("{other:?}"), causes: Vec::new() },
        }
    }
}

impl Kubernetes {
    pub async fn connect(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        // What the server refuses for now, an eviction, would be asked for again until it is granted.
        config.default_retry = false;
        Kubernetes { client: Client::try_from(config.clone()).unwrap(), config, made: Arc::default() }
    }

    /// The same server, as whoever the token belongs to.
    #[must_use]
    pub fn as_token(&self, token: &str) -> Self {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
        Kubernetes { client: Client::try_from(config.clone()).unwrap(), config, made: self.made.clone() }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        Ok(self.client.request::<Value>(request).await?)
    }

    /// What is not JSON: logs.
    pub async fn text(&self, path: &str) -> Result<String, Refusal> {
        Ok(self.client.request_text(Request::get(path).body(Vec::new()).unwrap()).await?)
    }

    pub async fn try_get(&self, path: &str) -> Result<Value, Refusal> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// Nothing if there is no such object, or if the server cannot be asked.
    pub async fn find(&self, path: &str) -> Option<Value> {
        self.try_get(path).await.ok()
    }

    pub async fn get(&self, path: &str) -> Value {
        self.try_get(path).await.unwrap_or_else(|refusal| panic!("get {path}: {refusal:?}"))
    }

    /// Whether the server says that there is no such object.
    pub async fn is_absent(&self, path: &str) -> bool {
        self.try_get(path).await.is_err_and(|refusal| refusal.code == 404)
    }

    pub async fn list(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().unwrap().clone()
    }

    pub async fn try_create(&self, path: &str, object: &Value) -> Result<Value, Refusal> {
        self.send(Method::POST, path, "application/json", Some(object)).await
    }

    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.try_create(path, object).await.unwrap_or_else(|refusal| panic!("create in {path}: {refusal:?}"))
    }

    pub async fn try_patch(&self, path: &str, change: &Value) -> Result<Value, Refusal> {
        self.send(Method::PATCH, path, "application/merge-patch+json", Some(change)).await
    }

    /// Replaces one field as a whole, which a merge cannot.
    pub async fn try_replace(&self, path: &str, field: &str, value: &Value) -> Result<Value, Refusal> {
        let change = json!([{ "op": "replace", "path": field, "value": value }]);
        self.send(Method::PATCH, path, "application/json-patch+json", Some(&change)).await
    }

    pub async fn patch(&self, path: &str, change: &Value) -> Value {
        self.try_patch(path, change).await.unwrap_or_else(|refusal| panic!("patch {path}: {refusal:?}"))
    }

    pub async fn try_delete(&self, path: &str) -> Result<Value, Refusal> {
        self.send(Method::DELETE, path, "application/json", None).await
    }

    pub async fn delete(&self, path: &str) {
        self.try_delete(path).await.unwrap_or_else(|refusal| panic!("delete {path}: {refusal:?}"));
    }

    /// A namespace of a test's own, with nothing in it.
    pub async fn empty_namespace(&self, name: &str) {
        let path = format!("/api/v1/namespaces/{name}");
        if self.find(&path).await.is_some() {
            self.delete(&path).await;
            crate::eventually("the last run's namespace is gone", async || self.is_absent(&path).await.then_some(()))
                .await;
        }
        // As strict as namespaces get: member pods must fit in.
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        self.create("/api/v1/namespaces", &object).await;
        self.made.lock().unwrap().push(name.to_owned());
    }

    /// Those that were made here.
    pub fn namespaces(&self) -> Vec<String> {
        self.made.lock().unwrap().clone()
    }

    pub async fn namespaces_are_gone(&self) {
        for namespace in self.namespaces() {
            let path = format!("/api/v1/namespaces/{namespace}");
            crate::eventually("a namespace is gone", async || self.is_absent(&path).await.then_some(())).await;
        }
    }

    /// All of them. They go in the background.
    pub async fn remove_namespaces(&self) {
        for namespace in self.namespaces() {
            let _ = self.try_delete(&format!("/api/v1/namespaces/{namespace}")).await;
        }
    }
}
