//! The only door to standard output and standard error.

use std::io::{self, IsTerminal, Write};

use anyhow::Error;
use serde::Serialize;

use crate::args::Format;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    format: Format,
}

/// A line of facts for people: a label and what it says.
pub(crate) type Facts = Vec<(&'static str, String)>;

impl Printer {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Whether somebody watches who would like to see progress.
    pub(crate) fn shows_progress(self) -> bool {
        !self.is_json() && io::stderr().is_terminal()
    }

    /// Prints a result: as one line of JSON, or as facts under each other.
    pub(crate) fn facts(self, json: &impl Serialize, facts: impl FnOnce() -> Facts) -> Result<(), Error> {
        if self.is_json() {
            return print_json(json);
        }
        let facts = facts();
        let width = facts.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        print_lines(facts.iter().map(|(label, text)| format!("{label:width$}  {text}")))
    }

    /// Prints a result: as one line of JSON, or as lines of text.
    pub(crate) fn lines(self, json: &impl Serialize, lines: impl FnOnce() -> Vec<String>) -> Result<(), Error> {
        if self.is_json() { print_json(json) } else { print_lines(lines().into_iter()) }
    }

    /// Prints a result: as one line of JSON, or as a table. Rows are made twice, for their widths and to be printed,
    /// so that no more than one of many is held.
    pub(crate) fn table<const COLUMNS: usize, R: Iterator<Item = [String; COLUMNS]>>(
        self,
        json: &impl Serialize,
        header: [&str; COLUMNS],
        rows: impl Fn() -> R,
    ) -> Result<(), Error> {
        if self.is_json() {
            return print_json(json);
        }
        let header = header.map(str::to_owned);
        let mut widths = [0; COLUMNS];
        for row in [header.clone()].into_iter().chain(rows()) {
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = cell.len().max(*width);
            }
        }
        print_lines([header].into_iter().chain(rows()).map(|row| {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:width$} ")).collect();
            cells.concat().trim_end().to_owned()
        }))
    }

    /// Reports a failure with everything that led to it.
    pub(crate) fn error(self, error: &Error) {
        #[derive(Serialize)]
        struct Report {
            error: String,
            causes: Vec<String>,
        }
        let report =
            Report { error: error.to_string(), causes: error.chain().skip(1).map(ToString::to_string).collect() };
        let text = if self.is_json() {
            serde_json::to_string(&report).unwrap_or_default()
        } else {
            let causes = report.causes.iter().map(|cause| format!("\n  because {cause}"));
            format!("error: {}{}", report.error, causes.collect::<String>())
        };
        // Nothing can be done about a closed standard error.
        writeln!(anstream::stderr().lock(), "{text}").ok();
    }
}

fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = serde_json::to_writer(&mut out, value).map_err(io::Error::from);
    written(result.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
}

fn print_lines(mut lines: impl Iterator<Item = String>) -> Result<(), Error> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    written(lines.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()))
}

/// A compact revision for people.
pub(crate) fn compaction(revision: i64) -> String {
    if revision < 0 { "never compacted".to_owned() } else { revision.to_string() }
}

/// A size for people: exact, and as one thinks of it.
pub(crate) fn size(bytes: u64) -> String {
    format!("{bytes} ({})", indicatif::BinaryBytes(bytes))
}

/// Bytes for people.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// A reader that has seen enough, such as `head`, is no failure of ours.
fn written(result: io::Result<()>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
