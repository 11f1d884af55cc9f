//! What the API describes and the operator cannot do yet.
//!
//! Each line is refused at admission, so that nothing is accepted and then silently ignored. A capability that lands
//! removes its line.

use kube::core::Rule;

use crate::quantity::Quantity;
use crate::tls::TlsMode;
use crate::{EtcdClusterSpec, defaults, storage};

/// One use of the API that is refused for now.
#[derive(Clone, Debug)]
pub struct NotYet {
    /// The field a user would look for.
    pub field: &'static str,
    /// What to do instead.
    pub instead: &'static str,
    /// CEL over `self` (the spec), and `oldSelf` for changes: true means refused.
    refused_when: String,
    /// The same question, for objects that got past the API server.
    test: Test,
}

#[derive(Clone, Copy, Debug)]
enum Test {
    Use(fn(&EtcdClusterSpec) -> bool),
    Change(fn(&EtcdClusterSpec, &EtcdClusterSpec) -> bool),
}

impl NotYet {
    fn used(
        field: &'static str,
        refused_when: &str,
        test: fn(&EtcdClusterSpec) -> bool,
        instead: &'static str,
    ) -> Self {
        Self { field, instead, refused_when: refused_when.to_owned(), test: Test::Use(test) }
    }

    /// `test` gets the old spec first.
    fn changed(
        field: &'static str,
        refused_when: &str,
        test: fn(&EtcdClusterSpec, &EtcdClusterSpec) -> bool,
        instead: &'static str,
    ) -> Self {
        Self { field, instead, refused_when: refused_when.to_owned(), test: Test::Change(test) }
    }

    pub fn message(&self) -> String {
        format!("{} is not supported yet: {}", self.field, self.instead)
    }

    /// Whether a spec uses it.
    pub fn is_used_by(&self, spec: &EtcdClusterSpec) -> bool {
        matches!(self.test, Test::Use(test) if test(spec))
    }

    /// Whether a change of the spec needs it.
    pub fn is_needed_for(&self, old: &EtcdClusterSpec, new: &EtcdClusterSpec) -> bool {
        matches!(self.test, Test::Change(test) if test(old, new))
    }
}

/// The one list.
pub fn not_supported_yet() -> Vec<NotYet> {
    let growing = format!("!({})", storage::size_comparison("self.storage", "oldSelf.storage", "<="));
    vec![
        NotYet::used("spec.backup", "has(self.backup)", |spec| spec.backup.is_some(), "leave it out"),
        NotYet::used("spec.restoreFrom", "has(self.restoreFrom)", |spec| spec.restore_from.is_some(), "leave it out"),
        NotYet::used(
            "spec.tls.mode Secrets",
            "self.tls.mode == 'Secrets'",
            |spec| spec.tls.mode == TlsMode::Secrets,
            "use Managed or Disabled",
        ),
        NotYet::used(
            "spec.tls.mode CertManager",
            "self.tls.mode == 'CertManager'",
            |spec| spec.tls.mode == TlsMode::CertManager,
            "use Managed or Disabled",
        ),
        NotYet::used(
            "spec.maintenance.windows",
            "has(self.maintenance.windows) && size(self.maintenance.windows) > 0",
            |spec| !spec.maintenance.windows.is_empty(),
            "leave it out",
        ),
        NotYet::used("spec.maintenance.surge", "self.maintenance.surge", |spec| spec.maintenance.surge, "leave it out"),
        NotYet::used(
            "spec.etcd.defragmentation",
            "has(self.etcd.defragmentation)",
            |spec| spec.etcd.defragmentation.is_some(),
            "leave it out",
        ),
        NotYet::changed(
            "a change of spec.version",
            "self.version != oldSelf.version",
            |old, new| old.version != new.version,
            "keep the version the cluster was created with",
        ),
        NotYet::changed(
            "growing spec.storage.volumeClaimTemplate.size",
            &growing,
            |old, new| volume_size(new) > volume_size(old),
            "keep the present size",
        ),
    ]
}

/// Size of the volumes, if the cluster has volumes.
pub fn volume_size(spec: &EtcdClusterSpec) -> Option<Quantity> {
    let template = spec.storage.volume_claim_template.as_ref();
    let size = template.map_or(defaults::VOLUME_SIZE, |template| template.size.as_str());
    spec.storage.ephemeral.is_none().then(|| Quantity::parse(size)).flatten()
}

/// Adds the list to the schema of the spec.
pub(crate) fn add_rules(schema: &mut schemars::Schema) {
    let rules = not_supported_yet()
        .iter()
        .map(|entry| {
            Rule::new(format!("!({})", entry.refused_when))
                .message(entry.message().as_str())
                .reason(kube::core::Reason::FieldValueForbidden)
        })
        .collect();
    crate::schema::push_rules(schema, rules);
}
