//! `quorate`: the operator's command line.

mod args;
mod cmd;
mod printer;
mod progress;
mod source;
mod unpacked;
mod usage;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match args::Arguments::try_parse() {
        Ok(arguments) => cmd::run(arguments),
        Err(error) => usage::report(&error, std::env::args_os()),
    }
}
