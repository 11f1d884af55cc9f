//! Answers on the control socket.

use std::{fs, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

use super::{Supervisor, process::Process};
use crate::{
    control::{Answer, Phase, Request},
    error::{Error, Result, While},
};

pub(super) fn listen(supervisor: Arc<Supervisor>) -> Result<JoinHandle<()>> {
    let path = supervisor.bed.control_socket();
    // A socket file outlives the process that bound it.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).while_(|| format!("listening on {}", path.display()))?;
    Ok(tokio::spawn(async move {
        loop {
            if let Some(caller) = accepted(listener.accept().await).await {
                let supervisor = supervisor.clone();
                // A caller that hangs up early misses the answer; there is nobody else to tell.
                tokio::spawn(async move { supervisor.serve(caller).await.ok() });
            }
        }
    }))
}

impl Supervisor {
    async fn serve(&self, mut caller: UnixStream) -> std::io::Result<()> {
        let (reading, mut writing) = caller.split();
        let mut line = String::new();
        BufReader::new(reading).read_line(&mut line).await?;
        match serde_json::from_str(&line) {
            Ok(Request::Follow) => self.follow(&mut writing).await,
            Ok(request) => {
                let answer = self.answer(request).await;
                send(&mut writing, &answer.unwrap_or_else(|error| Answer::Failed { error: error.to_string() })).await
            }
            Err(error) => {
                let error = format!("the bed was started by another version of this program ({error})");
                send(&mut writing, &Answer::Failed { error }).await
            }
        }
    }

    async fn answer(&self, request: Request) -> Result<Answer> {
        Ok(match request {
            Request::Status | Request::Follow => Answer::State(Box::new(self.state().await)),
            Request::Node { number, action } => Answer::Done { what: self.nodes.act(number, action).await? },
            Request::Component { name, start } => {
                let names = || self.components.iter().map(Process::name).collect::<Vec<_>>().join(", ");
                let component = self.components.iter().find(|component| component.name() == name).ok_or_else(|| {
                    Error::refused(format!("there is no component {name}"), format!("there are {}", names()))
                })?;
                component.want(start).await?;
                Answer::Done { what: format!("{name} is {}", if start { "running" } else { "stopped" }) }
            }
            Request::LoadImage { file } => {
                let (incoming, kept) = (self.bed.incoming_dir().join(&file), self.bed.images_dir().join(&file));
                let what = self.nodes.load_image(&incoming).await?;
                // Kept with the bed, so that a node whose disk was lost gets it again when it boots.
                fs::rename(&incoming, &kept).while_(|| format!("keeping {}", kept.display()))?;
                Answer::Done { what }
            }
        })
    }

    async fn follow(&self, writing: &mut (impl AsyncWriteExt + Unpin)) -> std::io::Result<()> {
        let mut changes = self.state.subscribe();
        loop {
            let state = changes.borrow_and_update().clone();
            send(writing, &Answer::State(Box::new(state.clone()))).await?;
            if state.phase != Phase::Starting || changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Out of descriptors passes, but not by asking again at once.
async fn accepted<T, A>(accept: std::io::Result<(T, A)>) -> Option<T> {
    if accept.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    accept.ok().map(|(caller, _)| caller)
}

async fn send(writing: &mut (impl AsyncWriteExt + Unpin), answer: &Answer) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    writing.write_all(&line).await
}
