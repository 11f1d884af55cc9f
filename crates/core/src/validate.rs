//! From the spec as written to the spec as followed.
//!
//! The API server refuses bad specs, and yet one may be there: written before an upgrade, or while rules were off. Then
//! every defect gets its own sentence, and the last spec that could be followed stays in effect.

use jiff::SignedDuration;
use quorate_api::etcd::{CompactionMode, EtcdSpec};
use quorate_api::maintenance::Spread;
use quorate_api::names::{self, annotations};
use quorate_api::not_yet::{not_supported_yet, volume_size};
use quorate_api::pod_template::PodTemplate;
use quorate_api::storage::{EphemeralMedium, RetentionPolicy, StorageSpec};
use quorate_api::tls::TlsMode;
use quorate_api::versions::{KNOWN_BAD, MAJOR, MINORS, Version};
use quorate_api::{EtcdClusterSpec, defaults};

use crate::duration;
use crate::view::View;
use quorate_api::quantity::Quantity;

/// A reason why a spec cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{field} is {value}: {allowed}")]
    Invalid { field: &'static str, value: String, allowed: String },
    #[error("{field} is not supported yet: {instead}")]
    NotYet { field: &'static str, instead: &'static str },
    #[error("{field} cannot be changed: keep the value the cluster was created with")]
    Fixed { field: &'static str },
}

impl SpecError {
    pub fn field(&self) -> &'static str {
        match self {
            Self::Invalid { field, .. } | Self::NotYet { field, .. } | Self::Fixed { field } => field,
        }
    }

    fn invalid(field: &'static str, value: impl std::fmt::Display, allowed: impl Into<String>) -> Self {
        Self::Invalid { field, value: value.to_string(), allowed: allowed.into() }
    }
}

/// A spec that can be followed. Everything built from it is infallible.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The spec this was made from.
    pub spec: EtcdClusterSpec,
    pub members: MemberCount,
    pub version: Version,
    pub storage: Storage,
    pub quota_bytes: i64,
    pub encrypted: bool,
    pub not_ready_grace: SignedDuration,
    pub unknown_grace: SignedDuration,
}

impl Desired {
    pub fn etcd(&self) -> &EtcdSpec {
        &self.spec.etcd
    }

    pub fn pod_template(&self) -> &PodTemplate {
        &self.spec.pod_template
    }

    pub fn spread(&self) -> Spread {
        self.spec.spread
    }

    pub fn volumes_go_with_cluster(&self) -> bool {
        self.spec.storage.retention.on_delete == RetentionPolicy::Delete
    }
}

/// Number of members: none, or odd and at most seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCount(u8);

impl MemberCount {
    const ALLOWED: [u8; 5] = [0, 1, 3, 5, 7];

    fn new(count: i32) -> Option<Self> {
        Self::ALLOWED.into_iter().find(|&allowed| i32::from(allowed) == count).map(Self)
    }

    pub fn get(self) -> i32 {
        i32::from(self.0)
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// Where members keep their data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    Volume { class: Option<String>, size: String },
    Ephemeral { medium: EphemeralMedium, limit: Option<String> },
}

/// What a view's spec comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The spec to follow: the present one, or the last that could be followed, or none.
    pub desired: Option<Desired>,
    /// What is wrong with the present one.
    pub defects: Vec<SpecError>,
}

/// Decides which spec to follow.
pub fn accept(view: &View) -> Accepted {
    let spec = &view.cluster.spec;
    let name_defect = check_name(view.cluster.metadata.name.as_deref().unwrap_or_default());
    if let Some(defect) = name_defect {
        return Accepted { desired: None, defects: vec![defect] };
    }
    let last_good = last_good_spec(view);
    let followed = validate(spec).and_then(|desired| {
        let defects = last_good.as_ref().map_or_else(Vec::new, |last| unsupported_changes(last, &desired));
        if defects.is_empty() { Ok(desired) } else { Err(defects) }
    });
    match followed {
        Ok(desired) => Accepted { desired: Some(desired), defects: Vec::new() },
        Err(defects) => {
            // Pausing is always heard, even from a spec that otherwise cannot be followed.
            let last_good = last_good.map(|mut last| {
                last.spec.maintenance.paused = spec.maintenance.paused;
                last
            });
            Accepted { desired: last_good, defects }
        }
    }
}

fn last_good_spec(view: &View) -> Option<Desired> {
    let name = view.cluster.metadata.name.as_deref()?;
    let set = view.stateful_set(&names::stateful_set(name))?;
    let text = set.metadata.annotations.as_ref()?.get(annotations::LAST_GOOD_SPEC)?;
    validate(&serde_json::from_str(text).ok()?).ok()
}

/// Checks a spec by itself. One error per defect.
pub fn validate(spec: &EtcdClusterSpec) -> Result<Desired, Vec<SpecError>> {
    let mut defects = Vec::new();
    let members = MemberCount::new(spec.replicas);
    if members.is_none() {
        defects.push(SpecError::invalid("spec.replicas", spec.replicas, "must be 1, 3, 5 or 7, or 0 for no members"));
    }
    let version = check_version(&spec.version, &mut defects);
    let storage = check_storage(&spec.storage, &mut defects);
    let quota_bytes = check_bytes("spec.etcd.quota", &spec.etcd.quota, defaults::MINIMUM_QUOTA, &mut defects);
    check_etcd(&spec.etcd, &mut defects);
    check_pod_template(&spec.pod_template, &mut defects);
    check_not_yet(spec, &mut defects);
    let recovery = &spec.recovery;
    let not_ready = check_duration("spec.recovery.notReadyGracePeriod", &recovery.not_ready_grace_period, &mut defects);
    let unknown = check_duration("spec.recovery.unknownGracePeriod", &recovery.unknown_grace_period, &mut defects);
    match (members, version, storage, quota_bytes, not_ready, unknown) {
        (
            Some(members),
            Some(version),
            Some(storage),
            Some(quota_bytes),
            Some(not_ready_grace),
            Some(unknown_grace),
        ) if defects.is_empty() => Ok(Desired {
            spec: spec.clone(),
            members,
            version,
            storage,
            quota_bytes,
            encrypted: spec.tls.mode != TlsMode::Disabled,
            not_ready_grace,
            unknown_grace,
        }),
        _ => Err(defects),
    }
}

fn check_name(name: &str) -> Option<SpecError> {
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

fn check_version(text: &str, defects: &mut Vec<SpecError>) -> Option<Version> {
    let Some(version) = Version::parse(text) else {
        defects.push(SpecError::invalid("spec.version", text, "must be a release such as 3.6.16"));
        return None;
    };
    if version.major != MAJOR || !MINORS.contains(&version.minor) {
        let allowed = format!("must be from {MAJOR}.{} to {MAJOR}.{}", MINORS.start(), MINORS.end());
        defects.push(SpecError::invalid("spec.version", version, allowed));
    }
    if let Some(bad) = KNOWN_BAD.iter().find(|bad| bad.covers(version)) {
        defects.push(SpecError::invalid("spec.version", version, bad.message()));
    }
    Some(version)
}

fn check_storage(spec: &StorageSpec, defects: &mut Vec<SpecError>) -> Option<Storage> {
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
            let field = "spec.storage.volumeClaimTemplate.size";
            check_bytes(field, &template.size, defaults::MINIMUM_VOLUME_SIZE, defects)?;
            Some(Storage::Volume { class: template.storage_class_name, size: template.size })
        }
    }
}

fn check_bytes(field: &'static str, text: &str, minimum: &str, defects: &mut Vec<SpecError>) -> Option<i64> {
    let at_least = Quantity::parse(minimum);
    let bytes = Quantity::parse(text).filter(|value| Some(*value) >= at_least).and_then(Quantity::whole);
    if bytes.is_none() {
        let allowed = format!("must be a quantity of bytes such as 8Gi, at least {minimum}");
        defects.push(SpecError::invalid(field, text, allowed));
    }
    bytes
}

fn check_duration(field: &'static str, text: &str, defects: &mut Vec<SpecError>) -> Option<SignedDuration> {
    let parsed = duration::parse(text);
    if parsed.is_none() {
        defects.push(SpecError::invalid(field, text, "must be a duration above zero such as 90s, 30m or 12h"));
    }
    parsed
}

fn check_etcd(etcd: &EtcdSpec, defects: &mut Vec<SpecError>) {
    for (field, port) in [("spec.etcd.clientPort", etcd.client_port), ("spec.etcd.peerPort", etcd.peer_port)] {
        if !(1024..=65_535).contains(&port) || port == defaults::AGENT_PORT {
            let allowed = format!("must be from 1024 to 65535 and not {}", defaults::AGENT_PORT);
            defects.push(SpecError::invalid(field, port, allowed));
        }
    }
    if etcd.client_port == etcd.peer_port {
        defects.push(SpecError::invalid("spec.etcd.peerPort", etcd.peer_port, "must not be the client port"));
    }
    if i64::from(etcd.election_milliseconds) < 5 * i64::from(etcd.heartbeat_milliseconds) {
        let allowed = "must be at least five times spec.etcd.heartbeatMilliseconds";
        defects.push(SpecError::invalid("spec.etcd.electionMilliseconds", etcd.election_milliseconds, allowed));
    }
    let retention = &etcd.auto_compaction.retention;
    let fits = match etcd.auto_compaction.mode {
        CompactionMode::Periodic => duration::parse(retention).is_some(),
        CompactionMode::Revision => retention.parse::<u64>().is_ok_and(|revisions| revisions > 0),
    };
    if !fits {
        let allowed = "must be a duration with mode Periodic and a number of revisions with mode Revision";
        defects.push(SpecError::invalid("spec.etcd.autoCompaction.retention", retention, allowed));
    }
}

fn check_pod_template(template: &PodTemplate, defects: &mut Vec<SpecError>) {
    let reserved = |key: &&String| key.starts_with(quorate_api::RESERVED_PREFIX);
    if let Some(key) = template.annotations.keys().find(reserved) {
        defects.push(SpecError::invalid("spec.podTemplate.annotations", key, "the prefix quorate.dev/ is reserved"));
    }
    let taken = |key: &&String| reserved(key) || key.starts_with("app.kubernetes.io/");
    if let Some(key) = template.labels.keys().find(taken) {
        let allowed = "the prefixes quorate.dev/ and app.kubernetes.io/ are reserved";
        defects.push(SpecError::invalid("spec.podTemplate.labels", key, allowed));
    }
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

fn check_not_yet(spec: &EtcdClusterSpec, defects: &mut Vec<SpecError>) {
    let used = not_supported_yet().into_iter().filter(|entry| entry.is_used_by(spec));
    defects.extend(used.map(|entry| SpecError::NotYet { field: entry.field, instead: entry.instead }));
}

/// Changes from one spec to the next that cannot be carried out.
fn unsupported_changes(last: &Desired, next: &Desired) -> Vec<SpecError> {
    let class = |storage: &Storage| match storage {
        Storage::Volume { class, .. } => Some(class.clone()),
        Storage::Ephemeral { .. } => None,
    };
    let not_yet = not_supported_yet()
        .into_iter()
        .filter(|entry| entry.is_needed_for(&last.spec, &next.spec))
        .map(|entry| SpecError::NotYet { field: entry.field, instead: entry.instead });
    let fixed = [
        ("spec.storage.volumeClaimTemplate.size", volume_size(&next.spec) < volume_size(&last.spec)),
        ("spec.storage", class(&last.storage) != class(&next.storage)),
        ("spec.tls.mode", last.encrypted != next.encrypted),
        ("spec.etcd.clientPort", last.etcd().client_port != next.etcd().client_port),
        ("spec.etcd.peerPort", last.etcd().peer_port != next.etcd().peer_port),
    ]
    .into_iter()
    .filter(|(_, changed)| *changed)
    .map(|(field, _)| SpecError::Fixed { field });
    not_yet.chain(fixed).collect()
}

#[cfg(test)]
mod tests {
    use quorate_api::storage::Ephemeral;

    use super::*;

    fn fields(change: impl FnOnce(&mut EtcdClusterSpec)) -> Vec<&'static str> {
        let mut spec = EtcdClusterSpec::default();
        change(&mut spec);
        validate(&spec).err().unwrap_or_default().iter().map(SpecError::field).collect()
    }

    #[test]
    fn the_default_spec_can_be_followed() {
        let desired = validate(&EtcdClusterSpec::default()).unwrap();
        assert_eq!((desired.members.get(), desired.quota_bytes, desired.encrypted), (3, 8 << 30, true));
    }

    #[test]
    fn each_defect_is_named_once() {
        assert_eq!(fields(|spec| spec.replicas = 2), ["spec.replicas"]);
        assert_eq!(fields(|spec| spec.version = "v3.6.16".into()), ["spec.version"]);
        assert_eq!(fields(|spec| spec.version = "3.5.1".into()), ["spec.version"]);
        assert_eq!(fields(|spec| spec.version = "4.0.0".into()), ["spec.version"]);
        assert_eq!(fields(|spec| spec.etcd.quota = "8".into()), ["spec.etcd.quota"]);
        assert_eq!(fields(|spec| spec.etcd.peer_port = 2379), ["spec.etcd.peerPort"]);
        assert_eq!(fields(|spec| spec.etcd.client_port = 2381), ["spec.etcd.clientPort"]);
        assert_eq!(fields(|spec| spec.etcd.heartbeat_milliseconds = 900), ["spec.etcd.electionMilliseconds"]);
        assert_eq!(
            fields(|spec| spec.etcd.auto_compaction.retention = "1000".into()),
            ["spec.etcd.autoCompaction.retention"]
        );
        assert_eq!(
            fields(|spec| spec.recovery.unknown_grace_period = "soon".into()),
            ["spec.recovery.unknownGracePeriod"]
        );
        assert_eq!(fields(|spec| spec.maintenance.surge = true), ["spec.maintenance.surge"]);
        assert_eq!(fields(|spec| spec.storage.ephemeral = Some(Ephemeral::default())), ["spec.storage.ephemeral"]);
        assert_eq!(
            fields(|spec| {
                spec.pod_template.annotations.insert("quorate.dev/x".into(), String::new());
            }),
            ["spec.podTemplate.annotations"]
        );
        assert_eq!(
            fields(|spec| {
                spec.replicas = -1;
                spec.etcd.quota = "much".into();
            }),
            ["spec.replicas", "spec.etcd.quota"]
        );
    }

    #[test]
    fn fixed_fields_stay_as_they_were() {
        let changed = |change: fn(&mut EtcdClusterSpec)| {
            let last = validate(&EtcdClusterSpec::default()).unwrap();
            let mut spec = EtcdClusterSpec::default();
            change(&mut spec);
            let fields = |defects: Vec<SpecError>| defects.iter().map(SpecError::field).collect::<Vec<_>>();
            fields(unsupported_changes(&last, &validate(&spec).unwrap()))
        };
        assert_eq!(changed(|_| ()), [""; 0]);
        assert_eq!(changed(|spec| spec.replicas = 5), ["a change of spec.replicas"]);
        assert_eq!(changed(|spec| spec.version = "3.6.15".into()), ["a change of spec.version"]);
        assert_eq!(changed(|spec| spec.tls.mode = TlsMode::Disabled), ["spec.tls.mode"]);
        assert_eq!(changed(|spec| spec.etcd.client_port = 9999), ["spec.etcd.clientPort"]);
        let template =
            |size: &str| quorate_api::storage::VolumeClaimTemplate { size: size.into(), ..Default::default() };
        let sized = |size: &str| {
            let mut spec = EtcdClusterSpec::default();
            spec.storage.volume_claim_template = Some(template(size));
            validate(&spec).unwrap()
        };
        assert_eq!(unsupported_changes(&sized("1024Mi"), &sized("1Gi")), []);
        assert!(matches!(unsupported_changes(&sized("1Gi"), &sized("2Gi"))[..], [SpecError::NotYet { .. }]));
        assert!(matches!(unsupported_changes(&sized("2Gi"), &sized("1Gi"))[..], [SpecError::Fixed { .. }]));
    }
}
