//! Where things are. In a pod always at the same places; elsewhere, where the arguments say.

use std::path::{Path, PathBuf};

use quorate_api::settings::paths;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Paths {
    /// The member's volume
    #[arg(long, default_value = paths::VOLUME, hide = true)]
    volume: PathBuf,
    /// Directory shared with the launcher
    #[arg(long, default_value = paths::RUN, hide = true)]
    run: PathBuf,
    /// Directory of the certificates
    #[arg(long, default_value = paths::TLS, hide = true)]
    tls: PathBuf,
}

impl Paths {
    pub(crate) fn volume(&self) -> &Path {
        &self.volume
    }

    /// A subdirectory, so that what is quarantined stays on the same volume.
    pub(crate) fn data(&self) -> PathBuf {
        self.volume.join("data")
    }

    pub(crate) fn launcher(&self) -> PathBuf {
        self.run.join("launch")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run.join(paths::SOCKET_NAME)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.run.join(paths::CONFIG_NAME)
    }

    pub(crate) fn replay_config(&self) -> PathBuf {
        self.run.join(paths::REPLAY_CONFIG_NAME)
    }

    pub(crate) fn tls(&self, whose: &str) -> PathBuf {
        self.tls.join(whose)
    }

    #[cfg(test)]
    pub(crate) fn in_a_pod() -> Self {
        Paths { volume: paths::VOLUME.into(), run: paths::RUN.into(), tls: paths::TLS.into() }
    }
}
