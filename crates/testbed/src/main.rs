use std::process::ExitCode;

use clap::Parser;
use quorate_testbed::{args::Arguments, machine::tell, run::run};

fn main() -> ExitCode {
    // One TLS provider for the whole process, chosen before anything can ask for a default.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("testbed: {error}"));
            ExitCode::FAILURE
        }
    }
}
