//! The one manifest that installs everything: definitions, rights, the admission policy, and the operator itself.

use quorate_api::crds;

/// In the order in which they are applied: the namespace before what lives in it, the policy before any agent.
const PARTS: [&str; 4] = [
    include_str!("../../../config/operator/namespace.yaml"),
    include_str!("../../../config/operator/access.yaml"),
    include_str!("../../../config/operator/admission.yaml"),
    include_str!("../../../config/operator/deployment.yaml"),
];

/// `config/install.yaml`.
pub fn install() -> Result<String, serde_saphyr::SerializeError> {
    let [namespace, rest @ ..] = PARTS;
    let mut text = String::from("# Generated: cargo run -p quorate-operator --example install config/install.yaml\n");
    text.push_str(namespace);
    for crd in crds::all() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    for part in rest {
        text.push_str("---\n");
        text.push_str(part);
    }
    Ok(text)
}
