//! Microsoft's emulator of Azure Blob, from npm: the one server of the tests that is not a Go program.

use std::path::PathBuf;

use super::{Cache, Progress};
use crate::{
    command::{command, find_program, run},
    error::{Error, Result, write_file},
};

const NAME: &str = "azurite";
/// Both files pin what is installed: the release, and the digest of every package below it.
const FILES: [(&str, &str); 2] = [
    ("package.json", include_str!("../../components/azurite/package.json")),
    ("package-lock.json", include_str!("../../components/azurite/package-lock.json")),
];

/// Installs it unless the cache has it, and returns the directory with its `node_modules`.
pub fn azurite(cache: &Cache) -> Result<PathBuf> {
    if find_program("node").is_none() || find_program("npm").is_none() {
        return Err(Error::refused(
            "Node.js is not installed, and the emulator of Azure Blob needs it",
            "install Node.js 20 or newer with npm and put both on the PATH (apt-get install nodejs npm)",
        ));
    }
    let inputs = FILES.map(|(_, content)| content.as_bytes());
    cache.get(NAME, &inputs, |dir| {
        for (name, content) in FILES {
            write_file(&dir.join(name), content)?;
        }
        let progress = Progress::begin("installing Azurite 3.35.0".to_owned(), cache.last_time(NAME));
        // No package of it may run anything here: what is installed is only ever started by a test.
        let flags = ["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"];
        run(command(["npm"]).args(flags).current_dir(dir)).map_err(explain)?;
        cache.remember_time(NAME, progress.done())
    })
}

/// What npm says about a network that is not there, turned into our words.
fn explain(error: Error) -> Error {
    let Error::Command { output, .. } = &error else { return error };
    if ["ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN"].iter().any(|word| output.contains(word)) {
        return Error::refused(
            "the npm registry cannot be reached",
            "check the network or npm's registry, and run again",
        );
    }
    if output.contains("EINTEGRITY") {
        return Error::refused(
            format!("a package of Azurite is not the one that was pinned: {output}"),
            "somebody changed a release or your registry; do not install until that is understood",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_pins_digests_and_names_no_registry() {
        let [(_, package), (_, lock)] = FILES;
        assert!(package.contains("\"azurite\": \"3.35.0\""));
        assert!(lock.contains("\"integrity\": \"sha512-") && !lock.contains("\"resolved\""));
    }

    #[test]
    fn an_unreachable_registry_is_named_with_the_next_step() {
        let output = "npm error code ENOTFOUND".to_owned();
        let said = explain(Error::Command { command: "npm ci".to_owned(), output }).to_string();
        assert!(said.contains("registry cannot be reached") && said.contains("check the network"), "{said}");
    }
}
