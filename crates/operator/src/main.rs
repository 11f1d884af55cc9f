//! `quorate-operator`: see the library for what it does.

use anyhow::Context;
use clap::Parser;
use quorate_operator::options::Options;
use quorate_operator::run;
use quorate_runtime::{telemetry, tls};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let provider = tls::install_provider();
    let options = Options::parse();
    telemetry::start(&options.telemetry).context("cannot start logging")?;
    provider?;
    run::run(options).await
}
