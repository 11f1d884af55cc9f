//! From the spec as written to the spec as followed.
//!
//! The API server refuses bad specs, and yet one may be there: written before an upgrade, or while rules were off. Then
//! every defect gets its own sentence, and the last spec that could be followed stays in effect. What is refused here is what
//! is refused there: one table of specs, `crates/api/tests/api/specs.yaml`, is held against both.

mod changes;
mod fields;

use jiff::SignedDuration;
use quorate_api::EtcdClusterSpec;
use quorate_api::etcd::EtcdSpec;
use quorate_api::maintenance::Spread;
use quorate_api::names::{self, annotations};
use quorate_api::pod_template::PodTemplate;
use quorate_api::storage::{EphemeralMedium, RetentionPolicy};
use quorate_api::tls::TlsMode;
use quorate_api::versions::EtcdVersion;

use crate::view::View;

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
    pub version: EtcdVersion,
    pub storage: Storage,
    /// As stated, or as it follows from the size of the volume.
    pub quota_bytes: i64,
    pub encrypted: bool,
    pub not_ready_grace: SignedDuration,
    pub unknown_grace: SignedDuration,
    /// How long a node must be gone before what only it could reach is given up. Never, if nothing is said.
    pub node_lost_after: Option<SignedDuration>,
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

    /// Whether the data of a member goes when its pod goes.
    pub fn is_ephemeral(&self) -> bool {
        matches!(self.storage, Storage::Ephemeral { .. })
    }

    /// Whether the volume of a member goes when the cluster gets smaller.
    pub fn volumes_go_with_members(&self) -> bool {
        self.spec.storage.retention.on_scale_down != Some(RetentionPolicy::Retain)
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

impl Storage {
    /// How much there is, if there is a limit.
    fn size(&self) -> Option<&str> {
        match self {
            Self::Volume { size, .. } => Some(size),
            Self::Ephemeral { limit, .. } => limit.as_deref(),
        }
    }
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
    if let Some(defect) = fields::check_name(view.identity.name()) {
        return Accepted { desired: None, defects: vec![defect] };
    }
    let last_good = last_good_spec(view);
    match validate_change(last_good.as_ref().map(|last| &last.spec), spec) {
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

/// It was good when it was written: a limit that came later, with a newer operator, does not leave a running cluster
/// without care. What this operator cannot do at all, because a newer one wrote it, is another matter.
fn last_good_spec(view: &View) -> Option<Desired> {
    let set = view.stateful_set(&names::stateful_set(view.identity.name()))?;
    let text = set.metadata.annotations.as_ref()?.get(annotations::LAST_GOOD_SPEC)?;
    let (desired, defects) = read(&serde_json::from_str(text).ok()?);
    desired.filter(|_| !defects.iter().any(|defect| matches!(defect, SpecError::NotYet { .. })))
}

/// Checks a spec by itself and against the one before. One error per defect.
fn validate_change(last: Option<&EtcdClusterSpec>, next: &EtcdClusterSpec) -> Result<Desired, Vec<SpecError>> {
    let impossible = last.map_or_else(Vec::new, |last| changes::impossible(last, next));
    match validate(next) {
        Ok(desired) if impossible.is_empty() => Ok(desired),
        Ok(_) => Err(impossible),
        Err(defects) => Err(defects.into_iter().chain(impossible).collect()),
    }
}

/// Checks a spec by itself. One error per defect.
pub fn validate(spec: &EtcdClusterSpec) -> Result<Desired, Vec<SpecError>> {
    match read(spec) {
        (Some(desired), defects) if defects.is_empty() => Ok(desired),
        (_, defects) => Err(defects),
    }
}

/// What a spec asks for, as far as it can be told, and what is wrong with it.
fn read(spec: &EtcdClusterSpec) -> (Option<Desired>, Vec<SpecError>) {
    let mut defects = Vec::new();
    let members = MemberCount::new(spec.replicas);
    if members.is_none() {
        let allowed = "must be 1, 3, 5 or 7, or 0 to let the cluster sleep";
        defects.push(SpecError::invalid("spec.replicas", spec.replicas, allowed));
    }
    if members.is_some_and(MemberCount::is_zero) && spec.storage.ephemeral.is_some() {
        let allowed = "cannot be 0 with spec.storage.ephemeral: what the members hold would go with their pods; keep at \
                       least 1, or delete the EtcdCluster";
        defects.push(SpecError::invalid("spec.replicas", spec.replicas, allowed));
    }
    let version = fields::check_version(&spec.version, &mut defects);
    fields::check_image(spec.image.as_deref(), &mut defects);
    let storage = fields::check_storage(&spec.storage, &mut defects);
    let quota_bytes = fields::check_quota(spec.etcd.quota.as_deref(), storage.as_ref(), &mut defects);
    fields::check_etcd(&spec.etcd, &mut defects);
    fields::check_tls(&spec.tls, &mut defects);
    fields::check_pod_template(&spec.pod_template, &mut defects);
    fields::check_not_yet(spec, &mut defects);
    let recovery = &spec.recovery;
    let not_ready =
        fields::check_duration("spec.recovery.notReadyGracePeriod", &recovery.not_ready_grace_period, &mut defects);
    let unknown =
        fields::check_duration("spec.recovery.unknownGracePeriod", &recovery.unknown_grace_period, &mut defects);
    let node_lost = fields::check_node_lost(recovery.node_lost_after.as_deref(), storage.as_ref(), &mut defects);
    let desired = || {
        Some(Desired {
            spec: spec.clone(),
            members: members?,
            version: version?,
            storage: storage?,
            quota_bytes: quota_bytes?,
            encrypted: spec.tls.mode != TlsMode::Disabled,
            not_ready_grace: not_ready?,
            unknown_grace: unknown?,
            node_lost_after: node_lost,
        })
    };
    (desired(), defects)
}

#[cfg(test)]
#[path = "../../api/tests/api/specs.rs"]
mod specs;

#[cfg(test)]
mod tests {
    use quorate_api::storage::VolumeClaimTemplate;
    use serde_json::Value;

    use super::*;

    fn parsed(spec: &Value) -> EtcdClusterSpec {
        serde_json::from_value(spec.clone()).unwrap()
    }

    #[test]
    fn the_operator_answers_to_each_spec_as_the_table_says() {
        let mut differences = Vec::new();
        for line in specs::table() {
            let last = line.from.as_ref().map(parsed);
            for (name, spec) in line.cases() {
                let answer = match fields::check_name(name) {
                    Some(defect) => vec![defect],
                    None => validate_change(last.as_ref(), &parsed(spec)).err().unwrap_or_default(),
                };
                let sentences = answer.iter().map(ToString::to_string).collect::<Vec<_>>();
                differences.extend(line.difference(specs::Judge::Operator, (name, spec), &sentences));
            }
        }
        assert_eq!(differences, Vec::<String>::new());
    }

    #[test]
    fn the_default_spec_can_be_followed() {
        let desired = validate(&EtcdClusterSpec::default()).unwrap();
        assert_eq!((desired.members.get(), desired.quota_bytes, desired.encrypted), (3, 8 << 30, true));
    }

    #[test]
    fn a_quota_that_nobody_chose_follows_the_volume_and_a_chosen_one_stays() {
        let quota = |size: &str, quota: Option<&str>| {
            let mut spec = EtcdClusterSpec::default();
            spec.storage.volume_claim_template =
                Some(VolumeClaimTemplate { size: size.to_owned(), ..VolumeClaimTemplate::default() });
            spec.etcd.quota = quota.map(str::to_owned);
            validate(&spec).unwrap().quota_bytes
        };
        assert_eq!(quota("1Gi", None), 256 << 20);
        assert_eq!(quota("4Gi", None), 1792 << 20);
        assert_eq!(quota("100Gi", None), 8 << 30);
        assert_eq!(quota("100Gi", Some("20Gi")), 20 << 30);
    }
}
