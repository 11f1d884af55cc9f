//! A server's JSON gateway over one kept-alive connection: enough to drive workloads without an asynchronous client.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use base64::prelude::{BASE64_STANDARD, Engine};
use quorate_etcd::events::{ChangeEvent, EventKind};
use serde_json::{Value, json};

use crate::etcd_process::Running;

#[derive(Debug)]
pub(crate) struct Gateway {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Gateway {
    pub(crate) fn to(server: &Running) -> Self {
        let host = server.server.client_url.trim_start_matches("http://").to_owned();
        let stream = TcpStream::connect(&host).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), host }
    }

    /// The decoded answer, or the error text.
    pub(crate) fn try_post(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        let body = body.to_string();
        let request = format!(
            "POST /v3/{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (status, bytes) = self.response();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status != 200 {
            return Err(format!("{path}: {status} {text}"));
        }
        Ok(serde_json::from_str(&text).unwrap())
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Value {
        self.try_post(path, body).unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn response(&mut self) -> (u16, Vec<u8>) {
        let status = self.line().split(' ').nth(1).unwrap().parse().unwrap();
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            chunked |= line == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        loop {
            let size = if chunked { usize::from_str_radix(&self.line(), 16).unwrap() } else { length };
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..]).unwrap();
            if chunked {
                self.line();
            }
            if !chunked || size == 0 {
                return (status, body);
            }
        }
    }

    pub(crate) fn revision(&mut self) -> i64 {
        let answer = self.post("kv/range", &json!({ "key": base64(b"\0"), "count_only": true }));
        number(&answer["header"]["revision"])
    }

    pub(crate) fn compact(&mut self, revision: i64) {
        self.post("kv/compaction", &json!({ "revision": revision, "physical": true }));
    }

    /// The server's (hash, compact revision) at a revision; 0 is the newest.
    pub(crate) fn hash_kv(&mut self, revision: i64) -> (u32, i64) {
        let answer = self.post("maintenance/hashkv", &json!({ "revision": revision }));
        let compacted = match &answer["compact_revision"] {
            Value::Null => 0,
            value => number(value),
        };
        (u32::try_from(answer["hash"].as_u64().unwrap_or_default()).unwrap(), compacted)
    }

    /// Every key and value alive, as the server prints them.
    pub(crate) fn everything(&mut self) -> Value {
        self.post("kv/range", &json!({ "key": base64(b"\0"), "range_end": base64(b"\0") }))["kvs"].take()
    }
}

pub(crate) fn number(value: &Value) -> i64 {
    value.as_str().map_or_else(|| value.as_i64().unwrap_or_default(), |text| text.parse().unwrap())
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Reads the whole history from `first` to `last` through a watch, as a backup agent does.
pub(crate) fn watch(server: &Running, first: i64, last: i64) -> Vec<ChangeEvent> {
    let mut events = Vec::new();
    if last < first {
        return events;
    }
    let mut gateway = Gateway::to(server);
    let create = json!({ "key": base64(b"\0"), "range_end": base64(b"\0"), "start_revision": first });
    let body = json!({ "create_request": create }).to_string();
    let request =
        format!("POST /v3/watch HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}", gateway.host, body.len());
    gateway.stream.get_mut().write_all(request.as_bytes()).unwrap();
    while !gateway.line().is_empty() {}
    let mut pending = Vec::new();
    while events.last().is_none_or(|event: &ChangeEvent| event.mod_revision < last) {
        let size = usize::from_str_radix(&gateway.line(), 16).unwrap();
        let start = pending.len();
        pending.resize(start + size, 0);
        gateway.stream.read_exact(&mut pending[start..]).unwrap();
        gateway.line();
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let message: Value = serde_json::from_slice(&pending[..end]).unwrap();
            pending.drain(..=end);
            assert!(message["result"]["canceled"].is_null(), "{message}");
            for event in message["result"]["events"].as_array().into_iter().flatten() {
                events.push(read_event(event));
            }
        }
    }
    events
}

fn read_event(event: &Value) -> ChangeEvent {
    let kv = &event["kv"];
    let bytes = |name: &str| BASE64_STANDARD.decode(kv[name].as_str().unwrap_or_default()).unwrap();
    ChangeEvent {
        key: bytes("key"),
        value: bytes("value"),
        kind: if event["type"] == "DELETE" { EventKind::Delete } else { EventKind::Put },
        create_revision: number(&kv["create_revision"]),
        mod_revision: number(&kv["mod_revision"]),
        version: number(&kv["version"]),
        lease: number(&kv["lease"]),
        time: None,
    }
}
