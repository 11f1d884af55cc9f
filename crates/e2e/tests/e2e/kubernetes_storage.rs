//! A Kubernetes whose storage is a cluster of ours: what its API server and its informers remember stays true.

use std::{cell::RefCell, collections::BTreeMap, path::Path, rc::Rc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use quorate_api::{names, status::MemberHealth};
use quorate_e2e::{
    Cluster,
    bed::{self, Bed, aside},
    beside_others,
    cluster::Kind,
    eventually, faults,
};
use quorate_testbed::supervisor::plan_of;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::scaling::scale;

const IMAGE: &str = "docker.io/quorate/kube-apiserver:test";
const TOKEN: &str = "for-this-test-alone";
const PORT: u16 = 6443;
/// How many objects are written to, over and over.
const OBJECTS: usize = 20;
/// An API server whose storage is away keeps a request for a minute.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `kube-apiserver` in a pod beside the cluster, as those do who host control planes.
async fn api_server(bed: &Bed, cluster: &Cluster) -> Client {
    let testbed = bed::testbed();
    aside(|| {
        let plan = plan_of(&bed::testbed()).unwrap();
        let archive = bed::testbed().dir().join("kube-apiserver.tar");
        let program = format!("/kube-apiserver={}", plan.kube.display());
        let archive = archive.display().to_string();
        bed::command(&["image", &archive, "--reference", IMAGE, "--program", &program]);
        bed::command(&["load-image", &archive]);
        std::fs::remove_file(archive).unwrap();
    })
    .await;
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let secret = json!({
        "metadata": { "name": "kube-apiserver" },
        "stringData": {
            "tokens.csv": format!("{TOKEN},admin,admin,system:masters"),
            "accounts.key": read(&testbed.pki("service-accounts.key")),
            "accounts.pub": read(&testbed.pki("service-accounts.pub")),
        },
    });
    bed.kubernetes.create(&cluster.all(Kind::Secret), &secret).await;
    bed.kubernetes.create(&cluster.all(Kind::Pod), &pod(cluster)).await;
    let address = eventually("the API server's pod has an address", async || {
        let pod = cluster.find(Kind::Pod, "kube-apiserver").await?;
        Some(pod["status"]["podIP"].as_str()?.to_owned())
    })
    .await;
    let host = if address.contains(':') { format!("[{address}]") } else { address };
    let mut config = Config::new(format!("https://{host}:{PORT}").parse().unwrap());
    // It makes its certificate itself.
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = Some(TOKEN.to_owned().into());
    let client = Client::try_from(config).unwrap();
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    eventually("the API server serves", async || namespaces.get("default").await).await;
    client
}

fn pod(cluster: &Cluster) -> serde_json::Value {
    let service = format!("{}.{}.svc", names::client_service(&cluster.name), cluster.namespace);
    let arguments = [
        "kube-apiserver".to_owned(),
        format!("--etcd-servers=https://{service}:2379"),
        "--etcd-cafile=/etc/etcd/ca.crt".to_owned(),
        "--etcd-certfile=/etc/etcd/tls.crt".to_owned(),
        "--etcd-keyfile=/etc/etcd/tls.key".to_owned(),
        "--cert-dir=/run/certificates".to_owned(),
        format!("--secure-port={PORT}"),
        "--service-cluster-ip-range=192.0.2.0/24".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-account-key-file=/etc/kube/accounts.pub".to_owned(),
        "--service-account-signing-key-file=/etc/kube/accounts.key".to_owned(),
        "--token-auth-file=/etc/kube/tokens.csv".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    json!({
        "metadata": { "name": "kube-apiserver" },
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "kube-apiserver",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "args": arguments,
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [
                    { "name": "etcd", "mountPath": "/etc/etcd" },
                    { "name": "kube", "mountPath": "/etc/kube" },
                    { "name": "certificates", "mountPath": "/run/certificates" },
                ],
            }],
            "volumes": [
                { "name": "etcd", "secret": { "secretName": names::secrets::client(&cluster.name) } },
                { "name": "kube", "secret": { "secretName": "kube-apiserver" } },
                { "name": "certificates", "emptyDir": {} },
            ],
        },
    })
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// Objects by name, with the number that was last written into each and the identity of the object.
type Seen = BTreeMap<String, (String, u64)>;

fn seen(object: &ConfigMap) -> Option<(String, (String, u64))> {
    let number = object.data.as_ref()?.get("number")?.parse().ok()?;
    Some((object.metadata.name.clone()?, (object.metadata.uid.clone()?, number)))
}

/// One that holds on to its watch, or one that begins anew again and again, as clients that restart do.
struct Informer {
    cache: Rc<RefCell<Seen>>,
    /// What went backwards within one object's life, on one watch.
    stale: Rc<RefCell<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Informer {
    fn start(client: &Client, restarts: Option<Duration>) -> Self {
        let (cache, stale) = (Rc::new(RefCell::new(Seen::new())), Rc::new(RefCell::new(Vec::new())));
        let (api, kept, wrong) = (config_maps(client), cache.clone(), stale.clone());
        let task = tokio::task::spawn_local(async move {
            loop {
                let watch = watch(api.clone(), &kept, &wrong);
                match restarts {
                    None => watch.await,
                    Some(after) => drop(tokio::time::timeout(after, watch).await),
                }
            }
        });
        Self { cache, stale, task }
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(api: Api<ConfigMap>, cache: &RefCell<Seen>, stale: &RefCell<Vec<String>>) {
    let mut listed = Seen::new();
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed_local();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => listed.extend(seen(&object)),
            // What it held before is replaced: all that is missing here was deleted meanwhile.
            Ok(watcher::Event::InitDone) => *cache.borrow_mut() = std::mem::take(&mut listed),
            Ok(watcher::Event::Apply(object)) => {
                let Some((name, now)) = seen(&object) else { continue };
                let before = cache.borrow_mut().insert(name.clone(), now.clone());
                if let Some(before) = before.filter(|before| before.0 == now.0 && before.1 > now.1) {
                    stale.borrow_mut().push(format!("{name}: {} after {}", now.1, before.1));
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                cache.borrow_mut().remove(object.metadata.name.as_deref().unwrap_or_default());
            }
            Err(_) => {}
        }
    }
}

/// Writes numbers that only rise, and from time to time removes an object and makes it anew.
#[derive(Debug, Default)]
struct Written {
    /// The highest number that was acknowledged, and the highest that was tried, by object.
    numbers: BTreeMap<String, (u64, u64)>,
    acknowledged: usize,
}

impl Written {
    fn last(&self) -> u64 {
        self.numbers.values().map(|(_, tried)| *tried).max().unwrap_or_default()
    }
}

struct Writer {
    written: Rc<RefCell<Written>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Numbers go on where another writer has stopped.
    fn start(client: &Client, after: u64) -> Self {
        let written = Rc::new(RefCell::new(Written::default()));
        let (api, noted) = (config_maps(client), written.clone());
        let task = tokio::task::spawn_local(async move {
            for number in after + 1.. {
                let name = format!("object-{}", number % OBJECTS as u64);
                noted.borrow_mut().numbers.entry(name.clone()).or_default().1 = number;
                let is_done = tokio::time::timeout(PATIENCE, write(&api, &name, number)).await;
                if matches!(is_done, Ok(Ok(()))) {
                    let mut noted = noted.borrow_mut();
                    noted.numbers.entry(name).or_default().0 = number;
                    noted.acknowledged += 1;
                }
            }
        });
        Self { written, task }
    }

    async fn has_written(&self, more: usize) {
        let enough = self.written.borrow().acknowledged + more;
        eventually("the API server takes writes", async || {
            (self.written.borrow().acknowledged >= enough).then_some(())
        })
        .await;
    }

    /// Returns what was written when the last attempt has ended.
    async fn stop(self) -> Rc<RefCell<Written>> {
        self.task.abort();
        let _ = self.task.await;
        self.written
    }
}

/// In one request where that is possible. One object in seven is deleted first.
async fn write(api: &Api<ConfigMap>, name: &str, number: u64) -> kube::Result<()> {
    let data = Some(BTreeMap::from([("number".to_owned(), number.to_string())]));
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mut wanted = ConfigMap { metadata, data, ..ConfigMap::default() };
    let mut found = api.get_opt(name).await?;
    if number % 7 == 0 && found.take().is_some() {
        api.delete(name, &DeleteParams::default()).await?;
    }
    let params = PostParams::default();
    match found {
        Some(found) => {
            wanted.metadata.resource_version = found.metadata.resource_version;
            api.replace(name, &params, &wanted).await.map(drop)
        }
        None => api.create(&params, &wanted).await.map(drop),
    }
}

/// All that was acknowledged is there, and both informers hold exactly what a quorum says, without having gone back meanwhile.
async fn all_agree(client: &Client, informers: &[Informer], written: &Written) {
    let api = config_maps(client);
    let listed = async || {
        let list = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        Ok::<Seen, String>(list.items.iter().filter_map(seen).collect())
    };
    let truth = eventually("the API server lists", listed).await;
    for (name, (acknowledged, tried)) in &written.numbers {
        match truth.get(name) {
            Some((_, number)) => assert!((acknowledged..=tried).contains(&number), "{name}: {number}, {written:?}"),
            // The last attempt may have ended between deletion and creation.
            None => assert!(tried > acknowledged, "{name} is missing"),
        }
    }
    for informer in informers {
        eventually("the informer knows what is", async || {
            let cache = informer.cache.borrow();
            (*cache == truth).then_some(()).ok_or_else(|| format!("{cache:?} and not {truth:?}"))
        })
        .await;
        assert_eq!(*informer.stale.borrow(), Vec::<String>::new());
    }
}

#[test]
fn the_informers_of_a_kubernetes_on_our_storage_miss_nothing_while_members_come_go_and_are_recovered() {
    beside_others(async |bed| {
        let cluster = Cluster::create(&bed, "kube-storage", json!({ "replicas": 1 })).await;
        cluster.is_whole().await;
        let client = api_server(&bed, &cluster).await;
        let informers = [Informer::start(&client, None), Informer::start(&client, Some(Duration::from_secs(7)))];

        let writer = Writer::start(&client, 0);
        writer.has_written(50).await;
        scale(&cluster, 3).await;
        eventually("there are three members", async || {
            let status = cluster.status().await;
            (status.cluster_size == Some(3) && status.ready_replicas == 3).then_some(())
        })
        .await;
        writer.has_written(50).await;
        let before = cluster.member_status(1).await.unwrap().id;
        faults::wipe(&cluster, 1).await;
        eventually("another member has taken its place", async || {
            let now = cluster.member_status(1).await?;
            (now.id != before && now.status == MemberHealth::Ready).then_some(())
        })
        .await;
        writer.has_written(50).await;
        let written = writer.stop().await;
        all_agree(&client, &informers, &written.borrow()).await;

        // What was acknowledged within the last moments may be lost with a majority, so it is not asked for.
        let writer = Writer::start(&client, written.borrow().last());
        writer.has_written(50).await;
        tokio::join!(faults::wipe(&cluster, 0), faults::wipe(&cluster, 1));
        eventually("the quorum is recovered", async || cluster.status().await.data_loss).await;
        cluster.is_whole().await;
        let before = writer.stop().await;
        let writer = Writer::start(&client, before.borrow().last());
        writer.has_written(3 * OBJECTS).await;
        let written = writer.stop().await;
        all_agree(&client, &informers, &written.borrow()).await;
    });
}
