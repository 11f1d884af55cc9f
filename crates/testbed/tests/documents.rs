//! What the documents tell people to type exists.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeSet, fs, path::Path};

use clap::CommandFactory;
use quorate_testbed::args::Arguments;

fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [root.clone(), root.join("docs"), root.join("docs/adr")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let pages = files.map(|file| file.path()).filter(|path| path.extension() == Some("md".as_ref()));
    pages.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// Commands in code spans and blocks that begin with `program`, with what follows it.
fn commands<'a>(text: &'a str, program: &str) -> Vec<Vec<&'a str>> {
    let spans = text.split('`').flat_map(str::lines);
    let words = spans.map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.first() == Some(&program)).map(|words| words[1..].to_vec()).collect()
}

#[test]
fn every_make_target_that_a_document_names_is_there() {
    let makefile = include_str!("../../../Makefile");
    let targets: BTreeSet<_> = makefile.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let mut found = 0;
    for (path, text) in documents() {
        for command in commands(&text, "make") {
            let target = command.iter().find(|word| !word.contains('=')).unwrap();
            assert!(targets.contains(target), "{path}: there is no `make {target}`");
            found += 1;
        }
    }
    assert!(found > 5, "the documents were not read");
}

#[test]
fn every_link_to_a_file_leads_somewhere() {
    for (path, text) in documents() {
        let folder = Path::new(&path).parent().unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            assert!(folder.join(link).exists(), "{path}: there is no {link}");
        }
    }
}

#[test]
fn every_testbed_command_that_a_document_names_is_understood() {
    let mut found = 0;
    for (path, text) in documents() {
        for command in commands(&text, "testbed").into_iter().filter(|command| !command.is_empty()) {
            let parsed = Arguments::command().try_get_matches_from([&["testbed"], command.as_slice()].concat());
            assert!(parsed.is_ok(), "{path}: `testbed {}`: {}", command.join(" "), parsed.unwrap_err());
            found += 1;
        }
    }
    assert!(found > 10, "the documents were not read");
}
