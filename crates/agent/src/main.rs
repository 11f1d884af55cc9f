//! The agent beside every etcd member.

mod config;
mod door;
mod error;
mod http;
mod identity;
mod inspect;
mod kubernetes;
mod local_etcd;
mod member;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use error::{Error, Result, While};
use quorate_api::settings::{self, MemberSettings};

/// The agent of one etcd member
#[derive(Debug, Parser)]
#[command(name = "agent", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Copy the launcher to where the etcd container finds it
    Install { to: PathBuf },
    /// Guard the member
    Run {
        /// Name of this member, which is the pod's
        #[arg(long, env = "QUORATE_MEMBER")]
        member: String,
        /// What the operator wants etcd to be like, as JSON
        #[arg(long, env = settings::VARIABLE)]
        settings: String,
    },
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    // One TLS provider for the whole process, chosen before anything can ask for a default.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the agent cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Install { to } => install(&to),
        Verb::Run { member, settings } => {
            // The hook has done that, unless the kubelet was restarted at that very moment.
            install(std::path::Path::new(settings::paths::LAUNCH))?;
            let settings: MemberSettings = serde_json::from_str(&settings)
                .map_err(|source| Error::Settings { variable: settings::VARIABLE, source })?;
            // One member needs one thread, and the memory of one.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.doing(|| "starting the runtime".to_owned())?.block_on(member::guard(member, settings))
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
