//! The agent beside every etcd member.

mod beginning;
mod config;
mod discard;
mod error;
mod heartbeat;
mod http;
mod identity;
mod inspect;
mod kubernetes;
mod launch_socket;
mod local_etcd;
mod paths;
mod quarantine;
mod recovery;
mod replay;
mod reserve;
mod soundness;
mod successor;
mod supervisor;
mod verify;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use error::{Error, Result, While};
use jiff::{SignedDuration, Timestamp};
use paths::Paths;
use quorate_api::settings::{self, MemberSettings};
use quorate_core::verification;
use quorate_runtime::{error::chain, telemetry, tls};

/// The agent of one etcd member
#[derive(Debug, Parser)]
#[command(name = "agent", version)]
struct Arguments {
    #[command(flatten)]
    telemetry: telemetry::Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Copy the launcher to where the etcd container finds it
    Install { to: PathBuf },
    /// Watch over the member
    Run {
        /// Name of this member, which is the pod's
        #[arg(long, env = "QUORATE_MEMBER")]
        member: String,
        /// What the operator wants etcd to be like, as JSON
        #[arg(long, env = settings::VARIABLE)]
        settings: String,
        #[command(flatten)]
        paths: Paths,
        /// How often the whole database is read through while etcd runs
        #[arg(long, default_value_t = verification::PERIOD, hide = true)]
        verify_every: SignedDuration,
    },
}

fn main() -> ExitCode {
    let provider = tls::install_provider();
    let Arguments { telemetry, verb } = Arguments::parse();
    // Who has a logger already keeps it.
    let _ = telemetry::start(&telemetry);
    match provider.map_err(Error::from).and_then(|()| run(verb)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = chain(&error), "the agent cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Install { to } => install(&to),
        Verb::Run { member, settings, paths, verify_every } => {
            // The hook has done that, unless the kubelet was restarted at that very moment.
            install(&paths.launcher())?;
            let settings: MemberSettings = serde_json::from_str(&settings)
                .map_err(|source| Error::Settings { variable: settings::VARIABLE, source })?;
            // One member needs one thread, and the memory of one.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.doing(|| "starting the runtime".to_owned())?;
            let supervise = supervisor::supervise(member, settings, paths, Timestamp::now, verify_every);
            let ended = runtime.block_on(supervise);
            // A disk that hangs must not keep the agent from ending.
            runtime.shutdown_background();
            ended
        }
    }
}

/// The launcher lies beside the agent in its image. What is there already is left alone.
fn install(to: &std::path::Path) -> Result<()> {
    let own = std::env::current_exe().doing(|| "finding this program".to_owned())?;
    let launcher = own.with_file_name("launch");
    if let (Ok(there), Ok(wanted)) = (std::fs::read(to), std::fs::read(&launcher))
        && there == wanted
    {
        return Ok(());
    }
    // The hook of a restarted container may be at work at the same time.
    let unfinished = to.with_extension(format!("part-{}", std::process::id()));
    let copy = || std::fs::copy(&launcher, &unfinished).and_then(|_| std::fs::rename(&unfinished, to));
    copy().doing(|| format!("copying {} to {}", launcher.display(), to.display()))
}
