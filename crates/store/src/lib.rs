//! Where backups are kept: S3 and its look-alikes, Google Cloud Storage, Azure Blob or a directory, behind one type that
//! does exactly what a backup needs. Nobody above this crate sees a provider.
//!
//! A [`Store`] lists, reads, creates and deletes below one prefix. It never overwrites: an object is created whole, or not at
//! all, and of two that create the same name one is told so. Nothing outside of the prefix can be named.
//!
//! # Keys of the Secret
//!
//! A Secret as etcd-backup-restore uses it works unchanged. Without one, the identity of the environment is used: that of
//! the pod (web identity, workload identity, metadata service) or the variables that the provider's own tools read.
//!
//! | provider | keys | notes |
//! |---|---|---|
//! | S3 | `accessKeyID`, `secretAccessKey` | `sessionToken` if they are temporary |
//! | GCS | `serviceaccount.json` | the key file of a service account |
//! | Azure | `storageAccount`, `storageKey` | the account and one of its keys |
//! | Azure | `storageAccount`, `sasToken` | or a shared access signature |
//! | Azure | `storageAccount`, `tenantID`, `clientID`, `clientSecret` | or a service principal |
//! | all | `ca.crt` | the only authorities that are trusted, in PEM; without it those of the system |
//!
//! With ambient identity on Azure, `storageAccount` comes from `AZURE_STORAGE_ACCOUNT_NAME`.

mod body;
mod classify;
mod client;
mod create;
mod credentials;
mod error;
mod leftovers;
mod location;
mod name;
mod probe;
mod settings;
mod store;
mod upload;
mod wire;

pub use body::Body;
pub use credentials::Credentials;
pub use error::{Error, ErrorKind, Result};
pub use name::{InvalidName, ObjectName, Prefix};
pub use probe::{Capabilities, Conditional};
pub use settings::{Limits, Provider, Settings};
pub use store::{Entry, Store};
pub use upload::Upload;
