//! The first process of the etcd container: waits for the agent's word, starts etcd, and stays with it.
//!
//! It passes signals on. The connection to the agent closes at the very moment etcd is gone, and through it the agent can end
//! an etcd. Then it asks again, because a container that ended would be started again ever later. It ends only when it is
//! told to, or as etcd does that has ended by itself. An agent that was restarted is told what runs.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write, stderr},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use quorate_api::settings::paths;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::{
    consts::SIGTERM,
    low_level::{exit, pipe},
};

const BEFORE_NEXT_TRY: Duration = Duration::from_millis(100);
/// After a replay that failed. The agent tries again, and must not do so all the time.
const BEFORE_NEXT_REPLAY: Duration = Duration::from_secs(1);
/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// What etcd is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// To serve.
    Ordinary,
    /// To apply its log, alone, and to be ended then.
    Replay,
}

/// What the threads know of each other.
#[derive(Default)]
struct State {
    /// Counts the etcds, so that nobody takes one for the next.
    count: u64,
    etcd: Option<Pid>,
    agent: Option<UnixStream>,
    /// Whether the agent has ended it.
    ended: bool,
    /// Whether the container is to stop.
    stopping: bool,
}

impl State {
    fn runs(&self, count: u64) -> bool {
        self.etcd.is_some() && self.count == count
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn main() -> ExitCode {
    // The directory that is shared with the agent; in a pod always the same.
    let run = std::env::args_os().nth(1).map_or_else(|| paths::RUN.into(), PathBuf::from);
    match launch(&run) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(stderr(), "launch: cannot start etcd from the image's PATH: {error}");
            ExitCode::FAILURE
        }
    }
}

fn launch(dir: &Path) -> io::Result<ExitCode> {
    let shared = Shared::default();
    // The first process of a container is deaf to signals it does not ask for, and a stopping pod would wait in vain.
    let (signals, handler) = UnixStream::pair()?;
    pipe::register(SIGTERM, handler)?;
    let told = shared.clone();
    thread::spawn(move || pass_on(signals, &told));
    let socket = dir.join(paths::SOCKET_NAME);
    loop {
        let (run, agent) = permission(&socket);
        let etcd = start(dir, &socket, run, agent, &shared)?;
        let status = reap(etcd)?;
        let (ended, stopping) = close(&shared);
        match run {
            _ if stopping => return Ok(exit_code(status, stopping)),
            _ if ended => {}
            Run::Ordinary => return Ok(exit_code(status, stopping)),
            Run::Replay => thread::sleep(BEFORE_NEXT_REPLAY),
        }
    }
}

/// Asks until etcd may start. The agent may not listen yet, or may be restarting.
fn permission(socket: &Path) -> (Run, BufReader<UnixStream>) {
    loop {
        if let Ok(mut agent) = connect(socket, "ask\n") {
            match heard(&mut agent).as_deref() {
                Ok("start") => return (Run::Ordinary, agent),
                Ok("replay") => return (Run::Replay, agent),
                _ => {}
            }
        }
        thread::sleep(BEFORE_NEXT_TRY);
    }
}

fn connect(socket: &Path, greeting: &str) -> io::Result<BufReader<UnixStream>> {
    let mut agent = UnixStream::connect(socket)?;
    agent.write_all(greeting.as_bytes())?;
    Ok(BufReader::new(agent))
}

/// The agent's next word; an agent that goes away has said nothing.
fn heard(agent: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    match agent.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim().to_owned()),
    }
}

fn start(dir: &Path, socket: &Path, run: Run, agent: BufReader<UnixStream>, shared: &Shared) -> io::Result<Pid> {
    // Held while etcd is started: a signal comes before that, or reaches it.
    let mut state = shared.lock();
    // The connection is etcd's standard input too, which etcd never reads: should this process be killed alone, the
    // agent still sees whether etcd is there.
    let stdin = OwnedFd::from(agent.get_ref().try_clone()?);
    let config = match run {
        Run::Ordinary => paths::CONFIG_NAME,
        Run::Replay => paths::REPLAY_CONFIG_NAME,
    };
    let mut etcd = Command::new("etcd");
    etcd.args([OsString::from("--config-file"), dir.join(config).into()]).stdin(stdin);
    if run == Run::Replay {
        // Until it has applied that the others are no members any more, etcd dials them. It must not hear of them, nor
        // they of it. What is on this machine is not reached through a proxy.
        etcd.env("HTTP_PROXY", NOWHERE).env("HTTPS_PROXY", NOWHERE).env_remove("NO_PROXY").env_remove("no_proxy");
    }
    let etcd = Pid::from_child(&etcd.spawn()?);
    let count = state.count + 1;
    let (ended, stopping) = (false, state.stopping);
    *state = State { count, etcd: Some(etcd), agent: Some(agent.get_ref().try_clone()?), ended, stopping };
    let (socket, shared) = (socket.to_owned(), shared.clone());
    thread::spawn(move || obey(agent, &socket, run, count, &shared));
    Ok(etcd)
}

/// etcd is gone, and the agent sees it. Whether the agent has ended it, and whether the container is to stop.
fn close(shared: &Shared) -> (bool, bool) {
    let mut state = shared.lock();
    state.etcd = None;
    if let Some(agent) = state.agent.take() {
        let _ = agent.shutdown(Shutdown::Both);
    }
    (state.ended, state.stopping)
}

fn pass_on(mut signals: UnixStream, shared: &Shared) {
    while signals.read(&mut [0; 1]).is_ok() {
        let mut state = shared.lock();
        state.stopping = true;
        match state.etcd {
            Some(etcd) => drop(kill_process(etcd, Signal::TERM)),
            None => exit(0),
        }
    }
}

/// Whatever the agent has to say while this etcd runs.
fn obey(mut agent: BufReader<UnixStream>, socket: &Path, run: Run, count: u64, shared: &Shared) {
    let greeting = match run {
        Run::Ordinary => "running\n",
        Run::Replay => "replaying\n",
    };
    loop {
        match heard(&mut agent).as_deref() {
            // Its data must not be used, so it gets no time to go on with it. etcd survives that like any crash.
            Ok("stop") => end(Signal::KILL, count, shared),
            // It has done what it was started for, and leaves everything in order.
            Ok("end") => end(Signal::TERM, count, shared),
            Ok(_) => {}
            Err(_) => {
                thread::sleep(BEFORE_NEXT_TRY);
                if !shared.lock().runs(count) {
                    return;
                }
                if let Ok(restarted) = connect(socket, greeting) {
                    let mut state = shared.lock();
                    if !state.runs(count) {
                        return;
                    }
                    state.agent = restarted.get_ref().try_clone().ok();
                    agent = restarted;
                }
            }
        }
    }
}

fn end(signal: Signal, count: u64, shared: &Shared) {
    let mut state = shared.lock();
    if let Some(etcd) = state.etcd.filter(|_| state.runs(count)) {
        state.ended = true;
        let _ = kill_process(etcd, signal);
    }
}

/// Waits for etcd. What others leave behind in this container ends up here too.
fn reap(etcd: Pid) -> io::Result<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == etcd => return Ok(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// etcd dies by the signal that stops it, unless it is the first process; stopped as told is not a failure.
fn exit_code(status: WaitStatus, stopping: bool) -> ExitCode {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        (None, Some(SIGTERM)) if stopping => ExitCode::SUCCESS,
        (None, Some(signal)) => u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from),
        (None, None) => ExitCode::FAILURE,
    }
}
