//! A small store in memory that speaks the XML that S3 and Google Cloud Storage share, with the differences that matter.
//!
//! Held against Google's documentation: `x-goog-if-generation-match: 0` creates an object only once, for an upload and for a
//! copy; in multipart uploads preconditions are refused with `400 NotImplemented`; completing one overwrites; an object under
//! a retention policy cannot be deleted (403). There is no free server that can be run here and speaks this dialect.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use bytes::Bytes;

/// Few, so that every listing has pages.
const KEYS_IN_A_PAGE: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Gcs,
    S3,
    /// An S3 that does not know the condition and takes no notice of it.
    S3ThatIgnoresConditions,
    /// An S3 that refuses what it does not know.
    S3ThatRefusesConditions,
}

#[derive(Clone)]
struct Object {
    bytes: Bytes,
    generation: u64,
    metadata: HeaderMap,
}

struct Held {
    dialect: Dialect,
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<u64, (String, HeaderMap, BTreeMap<u32, Bytes>)>,
    next: u64,
    /// How many answers to writes are replaced by an error after the work was done.
    answers_to_lose: u32,
}

#[derive(Clone)]
pub(crate) struct XmlStore {
    held: Arc<Mutex<Held>>,
    url: String,
}

impl XmlStore {
    pub(crate) async fn start(dialect: Dialect) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let held = Held { dialect, objects: BTreeMap::new(), uploads: BTreeMap::new(), next: 1, answers_to_lose: 0 };
        let store = Self { held: Arc::new(Mutex::new(held)), url };
        let router = Router::new().fallback(answer).with_state(store.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        store
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The next writes are carried out, and the client hears that the server failed.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.held.lock().unwrap().answers_to_lose = count;
    }

    pub(crate) fn unfinished_uploads(&self) -> usize {
        self.held.lock().unwrap().uploads.len()
    }

    /// What somebody else has written there.
    pub(crate) fn put(&self, key: &str, bytes: &'static [u8]) {
        let object = Object { bytes: Bytes::from_static(bytes), generation: 1, metadata: HeaderMap::new() };
        self.held.lock().unwrap().objects.insert(key.to_owned(), object);
    }
}

async fn answer(State(store): State<XmlStore>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, 64 << 20).await else { return error(StatusCode::BAD_REQUEST, "IncompleteBody", "") };
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let path = decoded(parts.uri.path());
    let path = path.trim_start_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket != "backups" {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket", "");
    }
    let mut held = store.held.lock().unwrap();
    let writes = matches!(parts.method, Method::PUT | Method::POST);
    let answer = held.answer(&parts.method, key, &query, &parts.headers, body);
    let finishes_a_write = writes && !query.contains_key("uploads") && !query.contains_key("partNumber");
    if finishes_a_write && answer.status().is_success() && held.answers_to_lose > 0 {
        held.answers_to_lose -= 1;
        return error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "");
    }
    answer
}

/// Google's keys arrive with every sign encoded.
fn decoded(text: &str) -> String {
    url::form_urlencoded::parse(text.as_bytes()).map(|(key, _)| key.into_owned()).next().unwrap_or_default()
}

fn error(status: StatusCode, code: &str, details: &str) -> Response<Body> {
    let text = format!("<Error><Code>{code}</Code><Details>{details}</Details></Error>");
    Response::builder().status(status).body(text.into()).unwrap()
}

impl Held {
    fn answer(
        &mut self,
        method: &Method,
        key: &str,
        query: &BTreeMap<String, String>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Response<Body> {
        let upload = query.get("uploadId").and_then(|id| id.parse::<u64>().ok());
        if let Some(refusal) = self.refused(method, query, headers) {
            return refusal;
        }
        match *method {
            Method::GET if key.is_empty() => self.list(query),
            Method::GET | Method::HEAD => self.get(key, headers, *method == Method::HEAD),
            Method::POST if query.contains_key("uploads") => {
                let id = self.number();
                self.uploads.insert(id, (key.to_owned(), self.metadata(headers), BTreeMap::new()));
                ok(format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"))
            }
            Method::PUT if upload.is_some() => self.part(upload.unwrap(), &query["partNumber"], body),
            Method::POST => self.complete(upload.unwrap_or_default(), headers),
            Method::DELETE if upload.is_some() => {
                self.uploads.remove(&upload.unwrap());
                Response::builder().status(204).body(Body::empty()).unwrap()
            }
            Method::PUT => self.put(key, headers, body),
            Method::DELETE => self.delete(key),
            _ => error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", ""),
        }
    }

    fn conditional(&self, headers: &HeaderMap) -> bool {
        match self.dialect {
            Dialect::Gcs => headers.get("x-goog-if-generation-match").is_some_and(|value| value == "0"),
            _ => headers.get("if-none-match").is_some_and(|value| value == "*"),
        }
    }

    fn refused(
        &self,
        method: &Method,
        query: &BTreeMap<String, String>,
        headers: &HeaderMap,
    ) -> Option<Response<Body>> {
        let multipart = query.contains_key("uploadId") || query.contains_key("uploads");
        let any = headers.contains_key("x-goog-if-generation-match") || headers.contains_key("if-none-match");
        if self.dialect == Dialect::Gcs && multipart && any {
            return Some(error(StatusCode::BAD_REQUEST, "NotImplemented", ""));
        }
        let writes = matches!(*method, Method::PUT | Method::POST);
        (self.dialect == Dialect::S3ThatRefusesConditions && writes && any)
            .then(|| error(StatusCode::NOT_IMPLEMENTED, "NotImplemented", ""))
    }

    /// Whether the condition forbids to write there.
    fn forbidden(&self, key: &str, headers: &HeaderMap) -> bool {
        let honours = matches!(self.dialect, Dialect::Gcs | Dialect::S3);
        honours && self.conditional(headers) && self.objects.contains_key(key)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn metadata(&self, headers: &HeaderMap) -> HeaderMap {
        let prefix = if self.dialect == Dialect::Gcs { "x-goog-meta-" } else { "x-amz-meta-" };
        headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    fn put(&mut self, key: &str, headers: &HeaderMap, bytes: Bytes) -> Response<Body> {
        if self.forbidden(key, headers) {
            return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "");
        }
        let generation = self.number();
        let object = match headers.get("x-goog-copy-source") {
            Some(source) => {
                let source = decoded(source.to_str().unwrap());
                let source = source.trim_start_matches('/').trim_start_matches("backups/");
                let Some(found) = self.objects.get(source) else {
                    return error(StatusCode::NOT_FOUND, "NoSuchKey", "");
                };
                Object { generation, ..found.clone() }
            }
            None => Object { bytes, generation, metadata: self.metadata(headers) },
        };
        self.objects.insert(key.to_owned(), object);
        written(generation)
    }

    fn part(&mut self, upload: u64, number: &str, bytes: Bytes) -> Response<Body> {
        let Some((_, _, parts)) = self.uploads.get_mut(&upload) else {
            return error(StatusCode::NOT_FOUND, "NoSuchUpload", "");
        };
        parts.insert(number.parse().unwrap(), bytes);
        written(upload)
    }

    fn complete(&mut self, upload: u64, headers: &HeaderMap) -> Response<Body> {
        let Some((key, metadata, parts)) = self.uploads.get(&upload).cloned() else {
            return error(StatusCode::NOT_FOUND, "NoSuchUpload", "");
        };
        if self.forbidden(&key, headers) {
            return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "");
        }
        self.uploads.remove(&upload);
        let bytes = parts.into_values().flatten().collect::<Vec<u8>>().into();
        let generation = self.number();
        self.objects.insert(key, Object { bytes, generation, metadata });
        ok(format!("<CompleteMultipartUploadResult><ETag>\"{generation}\"</ETag></CompleteMultipartUploadResult>"))
    }

    fn get(&self, key: &str, headers: &HeaderMap, head: bool) -> Response<Body> {
        let Some(object) = self.objects.get(key) else {
            return error(StatusCode::NOT_FOUND, "NoSuchKey", "");
        };
        let size = object.bytes.len();
        let mut response = Response::builder()
            .header("etag", format!("\"{}\"", object.generation))
            .header("x-goog-generation", object.generation)
            .header("last-modified", jiff::fmt::rfc2822::to_string(&jiff::Zoned::now()).unwrap());
        response.headers_mut().unwrap().extend(object.metadata.clone());
        let range = headers.get("range").map(|range| range.to_str().unwrap().trim_start_matches("bytes=").to_owned());
        let Some((start, end)) = range.as_deref().and_then(|range| range.split_once('-')) else {
            let body = if head { Bytes::new() } else { object.bytes.clone() };
            return response.header("content-length", size).body(body.into()).unwrap();
        };
        let start: usize = start.parse().unwrap();
        let end = end.parse::<usize>().map_or(size, |last| (last + 1).min(size));
        if start >= size {
            return error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", "");
        }
        let bytes = object.bytes.slice(start..end);
        response
            .status(206)
            .header("content-range", format!("bytes {start}-{}/{size}", end - 1))
            .body(bytes.into())
            .unwrap()
    }

    fn delete(&mut self, key: &str) -> Response<Body> {
        if key.ends_with("retained") {
            let details = "Object 'backups/retained' is subject to bucket's retention policy and cannot be deleted";
            return error(StatusCode::FORBIDDEN, "AccessDenied", details);
        }
        match self.objects.remove(key) {
            None if self.dialect == Dialect::Gcs => error(StatusCode::NOT_FOUND, "NoSuchKey", ""),
            _ => Response::builder().status(204).body(Body::empty()).unwrap(),
        }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Response<Body> {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let after = query.get("continuation-token").map_or("", String::as_str);
        let mut keys = self.objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
        let mut text = String::from("<ListBucketResult>");
        let mut last = None;
        for (key, object) in keys.by_ref().take(KEYS_IN_A_PAGE) {
            let (size, time) = (object.bytes.len(), jiff::Timestamp::now());
            write!(text, "<Contents><Key>{key}</Key><LastModified>{time}</LastModified>").unwrap();
            write!(text, "<ETag>x</ETag><Size>{size}</Size></Contents>").unwrap();
            last = Some(key);
        }
        if let (Some(last), Some(_)) = (last, keys.next()) {
            write!(text, "<NextContinuationToken>{last}</NextContinuationToken>").unwrap();
        }
        ok(text + "</ListBucketResult>")
    }
}

fn ok(text: String) -> Response<Body> {
    Response::new(text.into())
}

fn written(generation: u64) -> Response<Body> {
    Response::builder()
        .header("etag", format!("\"{generation}\""))
        .header("x-goog-generation", generation)
        .body(Body::empty())
        .unwrap()
}
