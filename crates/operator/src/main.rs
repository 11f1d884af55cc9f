//! `quorate-operator`: see the library for what it does.

use anyhow::Context;
use clap::Parser;
use quorate_operator::options::Options;
use quorate_operator::{run, telemetry};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before anything else could choose another.
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = Options::parse();
    telemetry::start(&options).context("cannot start logging")?;
    if installed.is_err() {
        anyhow::bail!("another cryptographic provider is installed already");
    }
    run::run(options).await
}
