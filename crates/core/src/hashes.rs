//! Whether the members hold the same data: hashes over it, and what they prove together.
//!
//! A hash says something only beside another one over the same part of history, of the same cluster. Whoever could not be
//! asked, was behind, had compacted meanwhile or refused is not comparable, which is never the same as different.

use std::collections::{BTreeMap, BTreeSet};

use crate::quorum;

/// What the members answered when they were asked for hashes over their data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashAnswer {
    #[default]
    NotAsked,
    /// They were asked, and are still working it out.
    Pending,
    /// Nobody could be asked.
    Failed(String),
    /// Whoever asks may not know: authentication is enabled. In etcd's words.
    Refused(String),
    /// Each member that was asked, by name: its hash, or why there is none.
    Answered(BTreeMap<String, Result<DataHash, String>>),
}

/// A hash over the data of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataHash {
    /// Identifiers of the cluster and of the member that answered, in hexadecimal.
    pub cluster_id: String,
    pub member_id: String,
    /// Over everything up to this revision that was left by a compaction at that one.
    pub revision: i64,
    pub compact_revision: i64,
    pub hash: u32,
}

/// What hashes prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison<'a> {
    /// All voters have the same data.
    Same { revision: i64 },
    /// A majority of all voters has the same data, and these have other data.
    Differ { revision: i64, members: Vec<Found<'a>> },
    /// These do not have the same data, and no majority of all voters agrees.
    Undecided { revision: i64, members: Vec<Found<'a>> },
    /// Of those that could be compared, all have the same data. The others, and why.
    Incomplete { same: Vec<Found<'a>>, cause: String },
}

/// A member, by the name that it was asked by, and what it answered.
pub(crate) type Found<'a> = (&'a str, &'a DataHash);

/// Compares the answers of a cluster with so many voters.
pub(crate) fn compare<'a>(
    answers: &'a BTreeMap<String, Result<DataHash, String>>,
    cluster_id: &str,
    voters: usize,
) -> Comparison<'a> {
    let mut causes = Vec::new();
    let mut speakers = BTreeSet::new();
    let mut parts = BTreeMap::<(i64, i64), Vec<Found<'a>>>::new();
    for (name, answer) in answers {
        match answer {
            Ok(found) if !speakers.insert(&found.member_id) => {
                causes
                    .push(format!("{name} is answered for by member {}, which has answered already", found.member_id));
            }
            Ok(found) if found.cluster_id == cluster_id => {
                parts.entry((found.revision, found.compact_revision)).or_default().push((name, found));
            }
            Ok(found) => causes.push(format!("{name} answered for cluster {}", found.cluster_id)),
            Err(cause) => causes.push(format!("{name}: {cause}")),
        }
    }
    // The part of history that most can tell of; the latest of several.
    let largest = parts.iter().max_by_key(|(part, members)| (members.len(), **part)).map(|(part, _)| *part);
    let compared = largest.and_then(|part| parts.remove(&part)).unwrap_or_default();
    let others = parts.into_values().flatten();
    causes.extend(others.map(|(name, found)| {
        format!("{name} answered for revision {} after compaction {}", found.revision, found.compact_revision)
    }));
    judge(largest.map_or(0, |(revision, _)| revision), compared, voters, &causes)
}

fn judge<'a>(revision: i64, compared: Vec<Found<'a>>, voters: usize, causes: &[String]) -> Comparison<'a> {
    let mut counts = BTreeMap::<u32, usize>::new();
    for (_, found) in &compared {
        *counts.entry(found.hash).or_default() += 1;
    }
    let majority = counts.iter().find(|(_, count)| quorum::is_quorate(**count, voters)).map(|(hash, _)| *hash);
    match majority {
        _ if counts.len() <= 1 && compared.len() == voters => Comparison::Same { revision },
        _ if counts.len() <= 1 => {
            let cause = format!("{} of {voters} members could be compared; {}", compared.len(), causes.join("; "));
            Comparison::Incomplete { same: compared, cause }
        }
        Some(hash) => {
            let members = compared.into_iter().filter(|(_, found)| found.hash != hash).collect();
            Comparison::Differ { revision, members }
        }
        None => Comparison::Undecided { revision, members: compared },
    }
}
