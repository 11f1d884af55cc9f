//! Where the launcher of the etcd container asks whether etcd may start, and hears that it must stop.
//!
//! It greets with `ask` and is told `start` or `replay`; or, after its agent was restarted, with `running` or `replaying`. Then
//! the connection is etcd's, which `stop` ends at once and `end` in order. When etcd is gone the connection closes, and who was
//! told to end it asks again.

use std::{fs, path::Path, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    time::timeout,
};

use crate::error::{Result, While};

/// A launcher greets at once.
const FOR_GREETING: Duration = Duration::from_secs(1);

pub(crate) struct LaunchSocket {
    listener: UnixListener,
}

/// What a launcher says when it connects.
pub(crate) enum Launcher {
    /// It waits for the word to start etcd.
    Asks(LauncherConnection),
    /// An earlier agent gave that word, and etcd runs.
    Runs(LauncherConnection),
    /// An earlier agent let etcd apply its log, and nobody waits for that any more.
    Replays(LauncherConnection),
}

/// Closes when etcd, or the launcher that still waits, is gone.
pub(crate) struct LauncherConnection {
    stream: BufReader<UnixStream>,
}

impl LaunchSocket {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // A socket file outlives the process that bound it.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path).doing(|| format!("listening on {}", path.display()))?;
        Ok(LaunchSocket { listener })
    }

    pub(crate) async fn next(&self) -> Result<Launcher> {
        loop {
            let (stream, _) = self.listener.accept().await.doing(|| "waiting for the launcher".to_owned())?;
            let mut stream = BufReader::new(stream);
            let mut greeting = String::new();
            let read = timeout(FOR_GREETING, stream.read_line(&mut greeting)).await;
            match (read, greeting.trim()) {
                (Ok(Ok(_)), "ask") => return Ok(Launcher::Asks(LauncherConnection { stream })),
                (Ok(Ok(_)), "running") => return Ok(Launcher::Runs(LauncherConnection { stream })),
                (Ok(Ok(_)), "replaying") => return Ok(Launcher::Replays(LauncherConnection { stream })),
                // It is gone already, or asks again.
                _ => {}
            }
        }
    }
}

impl LauncherConnection {
    /// From here on the connection is etcd's. An error means that nobody waited any more.
    pub(crate) async fn let_start(&mut self) -> Result<()> {
        self.say("start\n").await
    }

    /// As [`let_start`](Self::let_start), for an etcd that only applies its log.
    pub(crate) async fn let_replay(&mut self) -> Result<()> {
        self.say("replay\n").await
    }

    /// Ends etcd in order, with all that it has applied on disk.
    pub(crate) async fn end(&mut self) -> Result<()> {
        self.say("end\n").await
    }

    /// Ends etcd at once.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.say("stop\n").await
    }

    async fn say(&mut self, word: &str) -> Result<()> {
        self.stream.write_all(word.as_bytes()).await.doing(|| "answering the launcher".to_owned())
    }

    /// Returns when the process at the other end is gone.
    pub(crate) async fn gone(&mut self) {
        // Nothing more is ever sent; the read ends with the connection.
        let _ = self.stream.read_line(&mut String::new()).await;
    }
}
