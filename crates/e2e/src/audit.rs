//! Who wrote what, from the API server's audit log.

use std::fs;

use serde_json::Value;

use crate::bed;

/// A place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Position(usize);

/// One request that changed, or tried to change, something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    pub user: String,
    /// The pod that the token belongs to, if it belongs to one.
    pub pod: String,
    pub user_agent: String,
    pub namespace: String,
    pub resource: String,
}

/// Its end, as of now.
pub fn position() -> Position {
    Position(usize::try_from(fs::metadata(bed::testbed().log("audit")).unwrap().len()).unwrap())
}

/// All writes since then.
pub fn writes_since(Position(from): Position) -> Vec<Write> {
    let log = fs::read(bed::testbed().log("audit")).unwrap();
    let new = String::from_utf8_lossy(&log[from..]).into_owned();
    let entries = new.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .filter(|entry| ["create", "update", "patch", "delete"].iter().any(|verb| entry["verb"] == *verb))
        .map(|entry| Write {
            user: text(&entry["user"]["username"]),
            pod: text(&entry["user"]["extra"]["authentication.kubernetes.io/pod-name"][0]),
            user_agent: text(&entry["userAgent"]),
            namespace: text(&entry["objectRef"]["namespace"]),
            resource: text(&entry["objectRef"]["resource"]),
        })
        .collect()
}
