//! A command line that could not be understood, reported in the format it asked for.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::args::Format;
use crate::printer::Printer;

const USAGE: u8 = 2;

/// Prints what clap has to say: help and versions as they are, errors as every other error.
pub(crate) fn report(error: &clap::Error, line: impl Iterator<Item = OsString>) -> ExitCode {
    if error.use_stderr() && asks_for_json(line) {
        Printer::new(Format::Json).error(&anyhow::anyhow!(message(error)));
        return ExitCode::from(USAGE);
    }
    // Nothing can be done about a closed standard error.
    error.print().ok();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// Whether the words that were typed contain the flag; there is no parsed line to ask.
fn asks_for_json(line: impl Iterator<Item = OsString>) -> bool {
    let mut names_format = false;
    for word in line {
        let word = word.to_string_lossy();
        if word == "--" {
            return false;
        }
        if (names_format && word == "json") || ["--output=json", "-o=json", "-ojson"].contains(&word.as_ref()) {
            return true;
        }
        names_format = word == "--output" || word == "-o";
    }
    false
}

/// The first paragraph says what is wrong; tips and usage after it are for terminals.
fn message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing; --help lists them".to_owned();
    }
    let text = error.to_string();
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    paragraph.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(line: &str) -> bool {
        asks_for_json(line.split(' ').map(OsString::from))
    }

    #[test]
    fn json_is_asked_for_in_every_spelling_clap_accepts() {
        for line in ["x --output json", "x --output=json y", "-o json", "-ojson", "-o=json", "-o f --output json"] {
            assert!(asks(line), "{line}");
        }
        for line in ["x json", "--output text", "--output=yaml", "--output", "-- --output json", "--deltas json"] {
            assert!(!asks(line), "{line}");
        }
    }
}
