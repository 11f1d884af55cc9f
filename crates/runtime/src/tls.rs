//! One TLS provider for the whole process.

/// Another one was chosen before.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("another cryptographic provider is installed already")]
pub struct ProviderChosen;

/// To be called before anything could ask for a default.
pub fn install_provider() -> Result<(), ProviderChosen> {
    rustls::crypto::aws_lc_rs::default_provider().install_default().map_err(|_| ProviderChosen)
}
