//! `quorate data`: etcd's files, offline.

mod compact;
mod hash;
mod inspect;
mod keys;
mod reseed;
mod restore;
mod verify;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Data;
use crate::printer::Printer;

pub(super) fn run(command: Data) -> ExitCode {
    match command {
        Data::Verify(arguments) => verify::run(&arguments),
        Data::Inspect(arguments) => finish(arguments.output.format, |printer| inspect::run(printer, &arguments)),
        Data::Hash(arguments) => finish(arguments.output.format, |printer| hash::run(printer, &arguments)),
        Data::Restore(arguments) => finish(arguments.output.format, |printer| restore::run(printer, &arguments)),
        Data::Compact(arguments) => finish(arguments.format(), |printer| compact::run(printer, &arguments)),
        Data::Reseed(arguments) => finish(arguments.output.format, |printer| reseed::run(printer, &arguments)),
        Data::Keys(arguments) => finish(arguments.output.format, |printer| keys::run(printer, &arguments)),
    }
}

fn finish(format: crate::args::Format, command: impl FnOnce(Printer) -> Result<()>) -> ExitCode {
    let printer = Printer::new(format);
    match command(printer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            printer.error(&error);
            ExitCode::FAILURE
        }
    }
}
