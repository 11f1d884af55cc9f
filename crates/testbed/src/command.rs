//! Running other programs and telling what they said when they fail.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::error::{Error, Result, While};

/// A command from its words; the first is the program.
pub fn command<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut words = words.into_iter();
    let mut command = match words.next() {
        Some(program) => Command::new(program),
        None => Command::new(""),
    };
    command.args(words).stdin(Stdio::null()).env("PATH", search_path());
    command
}

/// The caller's path and the directories of daemons and file system tools, which the path of a user who became root by
/// `su` may lack.
pub fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = std::env::split_paths(&path).collect::<Vec<_>>();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let added = system.into_iter().filter(|dir| !known.contains(dir)).collect::<Vec<_>>();
    std::env::join_paths(known.into_iter().chain(added)).unwrap_or(path)
}

/// Runs a command to its end and returns what it wrote to standard output.
pub fn run(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = command.output().while_(|| format!("starting `{line}`"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(said(&output.stdout));
    }
    let both = format!("{}\n{}", said(&output.stderr), said(&output.stdout));
    let output = match both.trim() {
        "" => output.status.to_string(),
        text => text.to_owned(),
    };
    Err(Error::Command { command: line, output })
}

/// `run` for a line without quoting: words are separated by blanks.
pub fn sh(line: &str) -> Result<String> {
    run(&mut command(line.split_whitespace()))
}

/// Where a program is on the search path, if it is there.
pub fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|dir| dir.join(name)).find(|candidate| candidate.is_file())
}

pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_reported_with_its_line_and_its_words() {
        let error = run(&mut command(["sh", "-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo no such thing >&2; exit 3` failed: no such thing");
    }

    #[test]
    fn a_silent_failure_still_names_its_exit_code() {
        let error = sh("false").unwrap_err();
        assert_eq!(error.to_string(), "`false` failed: exit status: 1");
    }
}
