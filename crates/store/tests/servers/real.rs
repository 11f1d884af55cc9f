//! Real servers, as processes on loopback that end with the test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use tempfile::TempDir;

use super::{KEY_ID, SECRET};

/// The account that every Azurite has, with its well-known key.
pub(crate) const ACCOUNT: &str = "devstoreaccount1";
pub(crate) const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn server(path: &str) -> PathBuf {
    let dir = std::env::var_os("QUORATE_STORE_SERVERS").unwrap_or_else(|| {
        panic!("set QUORATE_STORE_SERVERS to what `testbed store-servers` prints: a directory with s3/ and azurite/")
    });
    let path = Path::new(&dir).join(path);
    assert!(path.is_file(), "{} is missing: run `testbed store-servers`", path.display());
    path
}

/// A server and its data. Ends when dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) url: String,
    pub(crate) data: TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Process {
    fn start(scheme: &str, command: impl FnOnce(u16, &Path) -> Command) -> Self {
        let data = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(data.path().join("log")).unwrap();
        let mut command = command(port, data.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let mut process = Self { child, url: format!("{scheme}://127.0.0.1:{port}"), data };
        let deadline = Instant::now() + Duration::from_mins(1);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = std::fs::read_to_string(process.data.path().join("log")).unwrap_or_default();
            assert!(process.child.try_wait().unwrap().is_none(), "the server has ended: {log}");
            assert!(Instant::now() < deadline, "the server does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }
}

/// An S3 that checks signatures, with a bucket `backups`.
pub(crate) fn s3(tls: Option<(&str, &str)>) -> Process {
    let scheme = if tls.is_some() { "https" } else { "http" };
    Process::start(scheme, |port, data| {
        std::fs::create_dir_all(data.join("buckets/backups")).unwrap();
        std::fs::create_dir(data.join("metadata")).unwrap();
        let mut command = Command::new(server("s3/versitygw"));
        command
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet"])
            .env_clear()
            .envs([("ROOT_ACCESS_KEY_ID", KEY_ID), ("ROOT_SECRET_ACCESS_KEY", SECRET)]);
        if let Some((certificate, key)) = tls {
            let write = |name: &str, text: &str| {
                std::fs::write(data.join(name), text).unwrap();
                data.join(name)
            };
            command.arg("--cert").arg(write("cert", certificate)).arg("--key").arg(write("key", key));
        }
        // In a directory rather than in extended attributes, which not every file system has.
        command.arg("posix").arg("--sidecar").arg(data.join("metadata")).arg(data.join("buckets"));
        command
    })
}

/// A request of a bucket's owner, who is not what is tested here.
pub(crate) async fn as_owner(
    server: &Process,
    method: http::Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let mut request = HttpRequest::new(HttpRequestBody::from(body.to_owned()));
    *request.method_mut() = method;
    *request.uri_mut() = format!("{}{path}", server.url).parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(
            http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            http::HeaderValue::from_str(value).unwrap(),
        );
    }
    let credential = AwsCredential { key_id: KEY_ID.to_owned(), secret_key: SECRET.to_owned(), token: None };
    AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None).unwrap();
    send(request, body).await
}

async fn send(request: HttpRequest, body: &str) -> String {
    let (parts, _) = request.into_parts();
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let response = client
        .request(parts.method, parts.uri.to_string())
        .headers(parts.headers)
        .body(body.to_owned())
        .send()
        .await
        .unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{status} {text}");
    text
}

/// Microsoft's emulator of Azure Blob, with a container `backups`.
pub(crate) async fn azurite() -> Process {
    let process = Process::start("http", |port, data| {
        let mut command = Command::new("node");
        command
            .arg(server("azurite/node_modules/azurite/dist/src/blob/main.js"))
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--silent", "--skipApiVersionCheck"])
            .args(["--disableTelemetry", "--location"])
            .arg(data);
        command
    });
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.method_mut() = http::Method::PUT;
    *request.uri_mut() = format!("{}/{ACCOUNT}/backups?restype=container", process.url).parse().unwrap();
    request.headers_mut().insert(http::header::CONTENT_LENGTH, http::HeaderValue::from_static("0"));
    let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(ACCOUNT_KEY).unwrap());
    AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut request).unwrap();
    send(request, "").await;
    process
}
