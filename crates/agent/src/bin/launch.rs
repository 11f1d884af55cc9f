//! The first process of the etcd container: waits for the agent's word, then becomes etcd.
//!
//! The connection to the agent becomes etcd's standard input, which etcd never reads. So the agent sees it close at the
//! very moment etcd is gone.

use std::{
    io::{BufRead, BufReader, Write, stderr},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, ExitCode},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use quorate_api::settings::paths;
use signal_hook::{consts::SIGTERM, flag::register_conditional_shutdown};

const BEFORE_NEXT_TRY: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    // The first process of a container is deaf to signals it does not ask for, and a stopping pod would wait in vain.
    let _ = register_conditional_shutdown(SIGTERM, 0, Arc::new(AtomicBool::new(true)));
    let agent = loop {
        // The agent may not listen yet, or may be restarting: there is nothing to do but to ask again.
        match UnixStream::connect(paths::SOCKET).and_then(|agent| allowed(&agent).map(|allowed| (agent, allowed))) {
            Ok((agent, true)) => break agent,
            _ => thread::sleep(BEFORE_NEXT_TRY),
        }
    };
    let error = Command::new("etcd").args(["--config-file", paths::CONFIG]).stdin(OwnedFd::from(agent)).exec();
    let _ = writeln!(stderr(), "launch: cannot start etcd from the image's PATH: {error}");
    ExitCode::FAILURE
}

/// Waits for the answer; an agent that goes away has not allowed anything.
fn allowed(agent: &UnixStream) -> std::io::Result<bool> {
    let mut answer = String::new();
    BufReader::new(agent).read_line(&mut answer)?;
    Ok(answer.trim() == "start")
}
