//! What can go wrong, said in one line: the object, the cause, the next step.

use std::{io, path::Path};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("`{command}` failed: {output}")]
    Command { command: String, output: String },
    #[error("{problem}; {next}")]
    Refused { problem: String, next: String },
    #[error("{what}: {source}")]
    Api { what: String, source: Box<kube::Error> },
    #[error("making a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("{what} is not valid JSON: {source}")]
    Json { what: String, source: serde_json::Error },
}

impl Error {
    /// The situation is understood and the reader has to act.
    pub fn refused(problem: impl Into<String>, next: impl Into<String>) -> Self {
        Error::Refused { problem: problem.into(), next: next.into() }
    }
}

/// Says what was being done when an operation failed.
pub trait While<T> {
    fn while_(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> While<T> for io::Result<T> {
    fn while_(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source })
    }
}

impl<T> While<T> for rustix::io::Result<T> {
    fn while_(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(io::Error::from).while_(what)
    }
}

impl<T> While<T> for kube::Result<T> {
    fn while_(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Api { what: what(), source: Box::new(source) })
    }
}

impl<T> While<T> for serde_json::Result<T> {
    fn while_(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Json { what: what(), source })
    }
}

/// Creates a directory with its parents.
pub fn create_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).while_(|| format!("creating directory {}", path.display()))
}

/// Writes a whole file, creating its directory.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    std::fs::write(path, content).while_(|| format!("writing {}", path.display()))
}

pub fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).while_(|| format!("reading {}", path.display()))
}
