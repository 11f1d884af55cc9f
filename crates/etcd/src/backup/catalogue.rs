//! What a listing of a prefix means: which objects form chains, and which are left over.
//!
//! Within one epoch etcd's history is one line, so two deltas that hold the same revision hold the same changes of it. A
//! fork is therefore never a choice between two truths, only between two writers: the one with the higher fencing
//! number is followed, and what the other one wrote from there on is shown as superseded and not used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::describe::Description;
use super::format::{Kind, ObjectError};
use super::name::{ObjectName, cluster_tag};
use crate::snapshot::Digest256;

/// What reading an object's ends adds to its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub cluster_uid: String,
    /// The true one of a full backup, whose name only says what it holds at least.
    pub last_revision: i64,
    pub compact_revision: Option<i64>,
    pub covered_through: Timestamp,
    pub auth_revision: u64,
    pub digest: Digest256,
    pub parent: Option<Digest256>,
    pub is_encrypted: bool,
}

impl Facts {
    /// Refuses an object whose ends do not fit its name.
    pub fn of(name: &ObjectName, description: &Description) -> Result<Self, ObjectError> {
        let Description { header, trailer, digest, .. } = description;
        name.check(header, trailer)?;
        Ok(Self {
            cluster_uid: header.cluster_uid.clone(),
            last_revision: trailer.last_revision,
            compact_revision: trailer.compact_revision,
            covered_through: trailer.covered(),
            auth_revision: header.auth_revision,
            digest: *digest,
            parent: header.parent_digest(),
            is_encrypted: header.is_encrypted(),
        })
    }
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Without the prefix.
    pub name: String,
    pub size: u64,
    pub modified: Timestamp,
    pub facts: Option<Facts>,
}

/// What an object is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Part of at least one chain.
    Used,
    /// Written by a writer that another one had replaced, from there on.
    Superseded { by: u64 },
    /// Everything it holds is held by another object of the chain.
    Repeated,
    /// A delta that no full backup leads to.
    Unconnected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub name: ObjectName,
    pub size: u64,
    pub modified: Timestamp,
    pub facts: Option<Facts>,
    pub standing: Standing,
}

impl Object {
    /// The revision that it leads to, as far as is known.
    pub fn last(&self) -> i64 {
        self.facts.as_ref().map_or(self.name.last, |facts| facts.last_revision)
    }

    pub fn covered_through(&self) -> Timestamp {
        match (&self.facts, self.name.kind) {
            (Some(facts), Kind::Delta) => facts.covered_through,
            _ => self.name.time(),
        }
    }
}

/// A full backup and the deltas that continue it without a hole. Numbers are places in [`Catalogue::objects`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub epoch: u64,
    pub base: usize,
    pub deltas: Vec<usize>,
    /// The last revision that can be restored from it.
    pub last: i64,
    pub covered_through: Timestamp,
}

/// All objects of one cluster under one prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// By epoch and revision.
    pub objects: Vec<Object>,
    /// One for each full backup, in the same order.
    pub chains: Vec<Chain>,
    /// Names that are none of ours; nothing is ever done with them.
    pub foreign: Vec<String>,
    /// Objects of other clusters.
    pub strangers: Vec<ObjectName>,
    /// Whether somebody said which cluster is meant.
    pub is_named: bool,
}

impl Catalogue {
    /// Of the cluster with this UID; without one, of the only cluster there is. If there are several, nothing is planned.
    pub fn new(listing: Vec<Listed>, cluster_uid: Option<&str>) -> Self {
        let mut foreign = Vec::new();
        let mut objects = Vec::new();
        for Listed { name, size, modified, facts } in listing {
            match ObjectName::parse(&name) {
                Some(name) => objects.push(Object { name, size, modified, facts, standing: Standing::Unconnected }),
                None => foreign.push(name),
            }
        }
        let mut counts = BTreeMap::<u32, usize>::new();
        for object in &objects {
            *counts.entry(object.name.cluster).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(cluster, _)| cluster);
        let cluster = cluster_uid.map(cluster_tag).or(most);
        let is_ours = |object: &Object| {
            let uid = object.facts.as_ref().map(|facts| facts.cluster_uid.as_str());
            Some(object.name.cluster) == cluster && (cluster_uid.is_none() || uid.is_none() || uid == cluster_uid)
        };
        let (mut objects, strangers): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_ours);
        objects.sort_by_key(|object| object.name);
        foreign.sort();
        let strangers = strangers.into_iter().map(|object| object.name).collect();
        let mut catalogue = Self { objects, chains: Vec::new(), foreign, strangers, is_named: cluster_uid.is_some() };
        let epochs: BTreeSet<u64> = catalogue.objects.iter().map(|object| object.name.epoch).collect();
        for epoch in epochs {
            catalogue.connect(epoch);
        }
        catalogue
    }

    /// Objects by place.
    pub fn get(&self, place: usize) -> Option<&Object> {
        self.objects.get(place)
    }

    pub fn newest_chain(&self) -> Option<&Chain> {
        self.chains.iter().max_by_key(|chain| (chain.epoch, chain.last, chain.base))
    }

    /// The highest revision that can be restored, as far as names tell.
    pub fn latest_revision(&self) -> Option<i64> {
        self.newest_chain().map(|chain| chain.last)
    }

    /// Full backups whose ends were not read yet: without them nothing is said about where a range begins.
    pub fn unread(&self) -> Vec<ObjectName> {
        let unread = self.objects.iter().filter(|object| object.name.kind.is_base() && object.facts.is_none());
        unread.map(|object| object.name).collect()
    }

    fn connect(&mut self, epoch: u64) {
        let of_epoch = |(_, object): &(usize, &Object)| object.name.epoch == epoch;
        let places = |objects: &[Object], base: bool| -> Vec<usize> {
            let found = objects.iter().enumerate().filter(of_epoch);
            found.filter(|(_, object)| object.name.kind.is_base() == base).map(|(place, _)| place).collect()
        };
        let (bases, deltas) = (places(&self.objects, true), places(&self.objects, false));
        let deltas = self.without_superseded(deltas);
        for base in bases {
            let Some(object) = self.objects.get_mut(base) else { continue };
            object.standing = Standing::Used;
            let (mut last, mut covered_through) = (object.last(), object.name.time());
            let (from, fencing) = (object.name.last, 0);
            let line = self.line(&deltas, from, fencing);
            for place in &line {
                let Some(delta) = self.objects.get_mut(*place) else { continue };
                delta.standing = Standing::Used;
                last = last.max(delta.last());
                covered_through = covered_through.max(delta.covered_through());
            }
            self.chains.push(Chain { epoch, base, deltas: line, last, covered_through });
        }
        self.mark_repeated(&deltas);
    }

    /// A writer's objects from where a later writer began on are not the chain's.
    fn without_superseded(&mut self, mut deltas: Vec<usize>) -> Vec<usize> {
        let mut began = BTreeMap::<u64, i64>::new();
        for name in deltas.iter().filter_map(|place| self.objects.get(*place)).map(|object| object.name) {
            let first = began.entry(name.fencing).or_insert(name.first);
            *first = name.first.min(*first);
        }
        deltas.retain(|place| {
            let Some(object) = self.objects.get_mut(*place) else { return false };
            let later = object.name.fencing.saturating_add(1)..;
            let by = began.range(later).find(|(_, first)| object.name.first >= **first);
            if let Some((by, _)) = by {
                object.standing = Standing::Superseded { by: *by };
            }
            by.is_none()
        });
        deltas
    }

    /// The deltas that lead on from a revision without a hole. Overlaps are allowed, a step back to an older writer is not.
    fn line(&self, deltas: &[usize], from: i64, mut fencing: u64) -> Vec<usize> {
        let names: Vec<(usize, ObjectName)> =
            deltas.iter().filter_map(|place| Some((*place, self.objects.get(*place)?.name))).collect();
        let mut by_first: Vec<(usize, ObjectName)> = names;
        by_first.sort_by_key(|(_, name)| (name.first, name.fencing, name.last, name.millis));
        let (mut line, mut reached, mut next) = (Vec::new(), from, 0);
        let mut best: Option<(usize, ObjectName)> = None;
        loop {
            while let Some((place, name)) =
                by_first.get(next).filter(|(_, name)| name.first <= reached.saturating_add(1))
            {
                next += 1;
                let useful = name.last > reached || name.is_empty() && name.first == reached + 1;
                let key = |name: &ObjectName| (name.fencing, name.last, name.millis);
                if useful && name.fencing >= fencing && best.is_none_or(|(_, best)| key(name) > key(&best)) {
                    // An empty one says only that nothing happened, so it never stands in the way of a change.
                    if name.is_empty() { line.push(*place) } else { best = Some((*place, *name)) }
                }
            }
            let Some((place, name)) = best.take() else { return line };
            (reached, fencing) = (name.last, name.fencing);
            line.push(place);
        }
    }

    /// Tells deltas that nothing needs from those that nothing leads to.
    fn mark_repeated(&mut self, deltas: &[usize]) {
        let held: Vec<(i64, i64)> = self
            .chains
            .iter()
            .filter_map(|chain| Some((chain.epoch, self.objects.get(chain.base)?.name.last, chain.last)))
            .filter(|(epoch, ..)| {
                Some(*epoch) == deltas.first().and_then(|d| self.objects.get(*d)).map(|o| o.name.epoch)
            })
            .map(|(_, from, last)| (from, last))
            .collect();
        for place in deltas {
            if let Some(object) = self.objects.get_mut(*place)
                && object.standing == Standing::Unconnected
                && held.iter().any(|(from, last)| object.name.first > *from && object.name.last <= *last)
            {
                object.standing = Standing::Repeated;
            }
        }
    }
}
