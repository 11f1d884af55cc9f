//! Where the launcher of the etcd container asks whether etcd may start.

use std::{fs, path::Path};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use crate::error::{Result, While};

pub(crate) struct Door {
    listener: UnixListener,
}

/// A launcher that waits for an answer; once it has got one, etcd.
pub(crate) struct Caller {
    connection: UnixStream,
}

impl Door {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // A socket file outlives the process that bound it.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path).doing(|| format!("listening on {}", path.display()))?;
        Ok(Door { listener })
    }

    pub(crate) async fn next(&self) -> Result<Caller> {
        let (connection, _) = self.listener.accept().await.doing(|| "waiting for the launcher".to_owned())?;
        Ok(Caller { connection })
    }
}

impl Caller {
    /// From here on the connection is etcd's. An error means that nobody waited any more.
    pub(crate) async fn let_start(&mut self) -> Result<()> {
        self.connection.write_all(b"start\n").await.doing(|| "answering the launcher".to_owned())
    }

    /// Returns when the process at the other end is gone.
    pub(crate) async fn gone(&mut self) {
        // Nothing is ever sent; the read ends with the connection.
        let _ = self.connection.read(&mut [0; 1]).await;
    }
}
