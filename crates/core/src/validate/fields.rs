//! What each field may say.

use jiff::SignedDuration;
use quorate_api::etcd::{CompactionMode, EtcdSpec};
use quorate_api::not_yet::not_supported_yet;
use quorate_api::pod_template::PodTemplate;
use quorate_api::quantity::Quantity;
use quorate_api::schema::{MAX_OBJECT_NAME, MAX_PATH, MAX_SHORT_TEXT};
use quorate_api::storage::{EphemeralMedium, StorageSpec};
use quorate_api::tls::{TlsMode, TlsSpec};
use quorate_api::versions::{self, EtcdVersion, KNOWN_BAD, MAJOR, MINORS};
use quorate_api::{EtcdClusterSpec, defaults, names, quota};

use super::{SpecError, Storage};
use crate::duration;

pub(super) fn check_name(name: &str) -> Option<SpecError> {
    let label = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !name.ends_with('-');
    (!label || name.len() > names::MAX_CLUSTER_NAME).then(|| {
        let allowed = format!(
            "must be at most {} lower-case letters, digits and dashes, starting with a letter",
            names::MAX_CLUSTER_NAME
        );
        SpecError::invalid("metadata.name", name, allowed)
    })
}

pub(super) fn check_version(text: &str, defects: &mut Vec<SpecError>) -> Option<EtcdVersion> {
    let Some(version) = versions::release(text) else {
        defects.push(SpecError::invalid("spec.version", text, "must be a release such as 3.6.16"));
        return None;
    };
    if version.major != MAJOR || !MINORS.contains(&version.minor) {
        let allowed = format!("must be from {MAJOR}.{} to {MAJOR}.{}", MINORS.start(), MINORS.end());
        defects.push(SpecError::invalid("spec.version", &version, allowed));
    }
    if let Some(bad) = KNOWN_BAD.iter().find(|bad| bad.covers(&version)) {
        defects.push(SpecError::invalid("spec.version", &version, bad.message()));
    }
    Some(version)
}

pub(super) fn check_image(image: Option<&str>, defects: &mut Vec<SpecError>) {
    if let Some(image) = image.filter(|image| !is_repository(image)) {
        let allowed = "must be a repository such as registry.example.com:5000/coreos/etcd, without tag or digest";
        defects.push(SpecError::invalid("spec.image", image, allowed));
    }
}

/// A registry with an optional port, then lower-case path segments.
fn is_repository(text: &str) -> bool {
    let made_of = |text: &str, first: fn(&u8) -> bool, others: &[u8]| {
        text.as_bytes().first().is_some_and(first) && text.bytes().all(|c| first(&c) || others.contains(&c))
    };
    let segment = |text: &str| made_of(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), b"-._");
    let host = |text: &str| made_of(text, u8::is_ascii_alphanumeric, b"-.");
    let port = |text: &str| text.len() <= 5 && made_of(text, u8::is_ascii_digit, b"");
    let registry = |text: &str| text.split_once(':').map_or_else(|| host(text), |(name, end)| host(name) && port(end));
    let mut path = text.split('/');
    let first = path.next().unwrap_or_default();
    let more = text.contains('/');
    text.len() <= MAX_PATH as usize && (segment(first) || (more && registry(first))) && path.all(segment)
}

pub(super) fn check_storage(spec: &StorageSpec, defects: &mut Vec<SpecError>) -> Option<Storage> {
    match (&spec.volume_claim_template, &spec.ephemeral) {
        (Some(_), Some(_)) => {
            let allowed = "give either volumeClaimTemplate or ephemeral";
            defects.push(SpecError::invalid("spec.storage", "both", allowed));
            None
        }
        (None, Some(ephemeral)) => {
            if let Some(limit) = &ephemeral.size_limit {
                let field = "spec.storage.ephemeral.sizeLimit";
                check_bytes(field, limit, defaults::MINIMUM_VOLUME_SIZE, defects)?;
            } else if ephemeral.medium == EphemeralMedium::Memory {
                let allowed = "is required with medium Memory";
                defects.push(SpecError::invalid("spec.storage.ephemeral.sizeLimit", "absent", allowed));
            }
            Some(Storage::Ephemeral { medium: ephemeral.medium, limit: ephemeral.size_limit.clone() })
        }
        (template, None) => {
            let template = template.clone().unwrap_or_default();
            let class = template.storage_class_name;
            check_object_name("spec.storage.volumeClaimTemplate.storageClassName", class.as_deref(), defects);
            let field = "spec.storage.volumeClaimTemplate.size";
            check_bytes(field, &template.size, defaults::MINIMUM_VOLUME_SIZE, defects)?;
            Some(Storage::Volume { class, size: template.size })
        }
    }
}

/// The quota in bytes, as stated or as it follows from the size of the storage.
pub(super) fn check_quota(
    stated: Option<&str>,
    storage: Option<&Storage>,
    defects: &mut Vec<SpecError>,
) -> Option<i64> {
    let field = "spec.etcd.quota";
    let size = storage.and_then(Storage::size);
    let volume = size.and_then(Quantity::parse).and_then(Quantity::whole);
    let Some(stated) = stated else { return Some(quota::default(volume)) };
    let bytes = check_bytes(field, stated, defaults::MINIMUM_QUOTA, defects)?;
    if let (Some(size), Some(volume)) = (size, volume)
        && bytes > quota::largest(volume)
    {
        defects.push(SpecError::invalid(field, stated, quota::too_large(size)));
    }
    Some(bytes)
}

fn check_bytes(field: &'static str, text: &str, minimum: &str, defects: &mut Vec<SpecError>) -> Option<i64> {
    let at_least = Quantity::parse(minimum);
    let quantity = Quantity::parse(text).filter(|value| Some(*value) >= at_least && is_short(text));
    let bytes = quantity.and_then(Quantity::whole);
    if bytes.is_none() {
        let allowed = format!("must be a quantity of bytes such as 8Gi, at least {minimum}");
        defects.push(SpecError::invalid(field, text, allowed));
    }
    bytes
}

pub(super) fn check_duration(field: &'static str, text: &str, defects: &mut Vec<SpecError>) -> Option<SignedDuration> {
    let parsed = duration::parse(text).filter(|_| is_short(text));
    if parsed.is_none() {
        defects.push(SpecError::invalid(field, text, "must be a duration above zero such as 90s, 30m or 12h"));
    }
    parsed
}

/// How long a node must be gone, as stated or as it follows from the storage. A volume may be all that is left of a member,
/// so only somebody who says so lets it go.
pub(super) fn check_node_lost(
    stated: Option<&str>,
    storage: Option<&Storage>,
    defects: &mut Vec<SpecError>,
) -> Option<SignedDuration> {
    match (stated, storage) {
        (Some(stated), _) => check_duration("spec.recovery.nodeLostAfter", stated, defects),
        (None, Some(Storage::Ephemeral { .. })) => duration::parse(defaults::NODE_LOST_AFTER),
        (None, _) => None,
    }
}

fn is_short(text: &str) -> bool {
    text.len() <= MAX_SHORT_TEXT as usize
}

fn check_object_name(field: &'static str, name: Option<&str>, defects: &mut Vec<SpecError>) {
    let alphanumeric = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = |name: &str| {
        let (first, last) = (name.as_bytes().first(), name.as_bytes().last());
        first.is_some_and(alphanumeric)
            && last.is_some_and(alphanumeric)
            && name.bytes().all(|c| alphanumeric(&c) || b"-.".contains(&c))
            && name.len() <= MAX_OBJECT_NAME as usize
    };
    if let Some(name) = name.filter(|name| !is_name(name)) {
        let allowed = "must be a name: lower-case letters, digits, dashes and dots";
        defects.push(SpecError::invalid(field, name, allowed));
    }
}

pub(super) fn check_etcd(etcd: &EtcdSpec, defects: &mut Vec<SpecError>) {
    let (heartbeat, election) = (i64::from(etcd.heartbeat_milliseconds), i64::from(etcd.election_milliseconds));
    for (field, value, (least, most)) in [
        ("spec.etcd.snapshotCount", etcd.snapshot_count, (100, 10_000_000)),
        ("spec.etcd.heartbeatMilliseconds", heartbeat, (10, 5_000)),
        ("spec.etcd.electionMilliseconds", election, (50, 50_000)),
        ("spec.etcd.clientPort", i64::from(etcd.client_port), (1_024, 65_535)),
        ("spec.etcd.peerPort", i64::from(etcd.peer_port), (1_024, 65_535)),
    ] {
        if !(least..=most).contains(&value) {
            defects.push(SpecError::invalid(field, value, format!("must be from {least} to {most}")));
        }
    }
    for (field, port) in [("spec.etcd.clientPort", etcd.client_port), ("spec.etcd.peerPort", etcd.peer_port)] {
        if port == defaults::AGENT_PORT {
            defects.push(SpecError::invalid(field, port, "must not be the port of the agent"));
        }
    }
    if etcd.client_port == etcd.peer_port {
        defects.push(SpecError::invalid("spec.etcd.peerPort", etcd.peer_port, "must not be the client port"));
    }
    if election < 5 * heartbeat {
        let allowed = "must be at least five times spec.etcd.heartbeatMilliseconds";
        defects.push(SpecError::invalid("spec.etcd.electionMilliseconds", election, allowed));
    }
    let retention = &etcd.auto_compaction.retention;
    let fits = match etcd.auto_compaction.mode {
        CompactionMode::Periodic => duration::parse(retention).is_some() && is_short(retention),
        CompactionMode::Revision => is_count(retention),
    };
    if !fits {
        let allowed = "must be a duration with mode Periodic and a number of revisions with mode Revision";
        defects.push(SpecError::invalid("spec.etcd.autoCompaction.retention", retention, allowed));
    }
}

/// A number of at most ten digits, without a sign and above zero.
fn is_count(text: &str) -> bool {
    (1..=10).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit()) && !text.starts_with('0')
}

pub(super) fn check_tls(tls: &TlsSpec, defects: &mut Vec<SpecError>) {
    for (field, given, mode, allowed) in [
        ("spec.tls.secrets", tls.secrets.is_some(), TlsMode::Secrets, "belongs to mode Secrets"),
        ("spec.tls.certManager", tls.cert_manager.is_some(), TlsMode::CertManager, "belongs to mode CertManager"),
    ] {
        if given != (tls.mode == mode) {
            let value = if given { "given" } else { "absent" };
            defects.push(SpecError::invalid(field, value, format!("{allowed}, and to no other")));
        }
    }
}

pub(super) fn check_pod_template(template: &PodTemplate, defects: &mut Vec<SpecError>) {
    let reserved = |key: &&String| key.starts_with(quorate_api::RESERVED_PREFIX);
    if let Some(key) = template.annotations.keys().find(reserved) {
        defects.push(SpecError::invalid("spec.podTemplate.annotations", key, "the prefix quorate.dev/ is reserved"));
    }
    let taken = |key: &&String| reserved(key) || key.starts_with("app.kubernetes.io/");
    if let Some(key) = template.labels.keys().find(taken) {
        let allowed = "the prefixes quorate.dev/ and app.kubernetes.io/ are reserved";
        defects.push(SpecError::invalid("spec.podTemplate.labels", key, allowed));
    }
    check_object_name("spec.podTemplate.priorityClassName", template.priority_class_name.as_deref(), defects);
    let containers = [
        ("spec.podTemplate.resources.etcd", &template.resources.etcd),
        ("spec.podTemplate.resources.agent", &template.resources.agent),
    ];
    for (field, resources) in containers {
        let resources = resources.clone().unwrap_or_default();
        let amounts = [resources.limits, resources.requests].into_iter().flatten().flatten();
        for (name, amount) in amounts.filter(|(_, amount)| Quantity::parse(&amount.0).is_none()) {
            defects.push(SpecError::invalid(field, format!("{name}: {}", amount.0), "must be a quantity"));
        }
    }
}

pub(super) fn check_not_yet(spec: &EtcdClusterSpec, defects: &mut Vec<SpecError>) {
    let used = not_supported_yet().into_iter().filter(|entry| entry.is_used_by(spec));
    defects.extend(used.map(|entry| SpecError::NotYet { field: entry.field, instead: entry.instead }));
}
