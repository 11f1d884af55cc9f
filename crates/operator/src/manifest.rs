//! The manifest that installs the operator: its rights, the admission policies, and itself.
//!
//! The definitions of the custom resources are apart, in `config/crd`: whoever deletes a definition deletes every object of
//! its kind, and removing an operator must not remove its clusters.

/// In the order in which they are applied: the namespace before what lives in it, the policies before any agent.
const PARTS: [&str; 4] = [
    include_str!("../../../config/operator/namespace.yaml"),
    include_str!("../../../config/operator/access.yaml"),
    include_str!("../../../config/operator/admission.yaml"),
    include_str!("../../../config/operator/deployment.yaml"),
];

/// `config/install.yaml`.
pub fn install() -> String {
    let head = "# Generated: cargo run -p quorate-operator --example install config/install.yaml\n\
                # Apply config/crd first. To remove it, see \"Uninstall\" in docs/clusters.md.\n";
    format!("{head}{}", PARTS.join("---\n"))
}
