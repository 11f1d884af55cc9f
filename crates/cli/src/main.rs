//! `quorate`: the operator's command line.

mod args;
mod cmd;
mod printer;
mod progress;
mod source;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cmd::run(args::Arguments::parse())
}
