//! What the API describes and the operator cannot do yet.
//!
//! Each line is refused at admission, so that nothing is accepted and then silently ignored. A capability that lands
//! removes its line.

use kube::core::Rule;

use crate::storage;

/// One use of the API that is refused for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotYet {
    /// The field a user would look for.
    pub field: &'static str,
    /// CEL over `self` (the spec), and `oldSelf` for changes: true means refused.
    refused_when: String,
    /// What to do instead.
    pub instead: &'static str,
}

impl NotYet {
    fn new(field: &'static str, refused_when: impl Into<String>, instead: &'static str) -> Self {
        Self { field, refused_when: refused_when.into(), instead }
    }

    pub fn message(&self) -> String {
        format!("{} is not supported yet: {}", self.field, self.instead)
    }
}

/// The one list.
pub fn not_supported_yet() -> Vec<NotYet> {
    let growing = format!("!({})", storage::size_comparison("self.storage", "oldSelf.storage", "<="));
    vec![
        NotYet::new("spec.backup", "has(self.backup)", "leave it out"),
        NotYet::new("spec.restoreFrom", "has(self.restoreFrom)", "leave it out"),
        NotYet::new("spec.tls.mode Secrets", "self.tls.mode == 'Secrets'", "use Managed or Disabled"),
        NotYet::new("spec.tls.mode CertManager", "self.tls.mode == 'CertManager'", "use Managed or Disabled"),
        NotYet::new(
            "spec.maintenance.windows",
            "has(self.maintenance.windows) && size(self.maintenance.windows) > 0",
            "leave it out",
        ),
        NotYet::new("spec.maintenance.surge", "self.maintenance.surge", "leave it out"),
        NotYet::new("spec.etcd.defragmentation", "has(self.etcd.defragmentation)", "leave it out"),
        NotYet::new("spec.recovery.quorumLoss Manual", "self.recovery.quorumLoss == 'Manual'", "use Automatic"),
        NotYet::new(
            "a change of spec.replicas",
            "oldSelf.replicas != 0 && self.replicas != oldSelf.replicas",
            "keep the number of members the cluster was created with",
        ),
        NotYet::new(
            "a change of spec.version",
            "self.version != oldSelf.version",
            "keep the version the cluster was created with",
        ),
        NotYet::new("growing spec.storage.volumeClaimTemplate.size", growing, "keep the present size"),
    ]
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
