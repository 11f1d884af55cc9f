//! The commands.

mod data;

use std::process::ExitCode;

use crate::args::{Arguments, Command};

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match arguments.command {
        Command::Data(command) => data::run(command),
    }
}
