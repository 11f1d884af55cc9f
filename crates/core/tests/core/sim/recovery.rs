//! A new incarnation from what one member has, and whether that was right.

use std::collections::BTreeSet;

use quorate_api::member::{EtcdReport, LogEnd, RecoveredFrom};
use quorate_core::quorum;
use quorate_core::record::recovered_report;
use quorate_core::start::Identity;

use super::etcd::{Beginning, StartRecord, Volume};
use super::members::{Listed, Members, founder_id};
use super::world::World;

/// What recoveries came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recoveries {
    /// How many there were.
    pub(crate) count: usize,
    /// Volumes that were wiped, damaged or exchanged since the present incarnation began.
    pub(crate) harmed: BTreeSet<String>,
    /// What was wrong with one. Must stay empty.
    pub(crate) wrong: Vec<String>,
}

impl World {
    /// The copy becomes the only member. Everything that only others had is lost, and that has been declared.
    pub(super) fn begin_from_copy(&mut self, name: &str, volume: &mut Volume, epoch: i64, token: &str, raise_to: i64) {
        let Some(data) = volume.data.clone() else { return };
        self.judge_recovery(name, &data);
        let own = Identity {
            cluster_id: format!("cluster-of-{token}"),
            member_id: founder_id(name, token),
            epoch,
            boot_count: 1,
            last_index: data.last_index,
        };
        self.listed = Members::from([(name.to_owned(), Listed::founder(own.member_id.clone()))]);
        token.clone_into(&mut self.listed_of);
        let begins_at = raise_to.max(volume.revision + 1);
        self.judge_raise(name, begins_at);
        self.acknowledged = data.last_index;
        self.revision = self.revision.max(begins_at);
        self.recoveries.count += 1;
        self.recoveries.harmed.clear();
        self.leader = None;
        let (member, id) = (name.to_owned(), own.member_id.clone());
        self.note_start(StartRecord { member, id, epoch, how: Beginning::FromCopy, latch: self.latch_state() });
        let from = RecoveredFrom { epoch, revision: volume.revision, raised_to: begins_at };
        self.report(name, Some(recovered_report(&own, from)), EtcdReport::default());
        *volume = Volume {
            members: self.listed.clone(),
            data: Some(own),
            owner: Some(name.to_owned()),
            revision: begins_at,
            log_term: self.term,
            ..Volume::default()
        };
    }

    /// It is right only if the voters whose volumes nobody has touched are no quorum, and if none of those knows more.
    fn judge_recovery(&mut self, survivor: &str, data: &Identity) {
        let voters = self.listed.iter().filter(|(_, listed)| !listed.learner).map(|(name, _)| name.clone());
        let voters = voters.collect::<Vec<_>>();
        let unharmed = voters.iter().filter(|name| !self.recoveries.harmed.contains(*name)).collect::<Vec<_>>();
        let mut wrong = Vec::new();
        if quorum::is_quorate(unharmed.len(), voters.len()) {
            wrong.push(format!("{unharmed:?} of {voters:?} were sound when {survivor} began anew"));
        }
        if !self.serving().is_empty() {
            wrong.push(format!("{:?} served when {survivor} began anew", self.serving()));
        }
        let better = self.listed.iter().filter(|(name, _)| !self.recoveries.harmed.contains(*name));
        let better = better.filter(|(name, listed)| {
            let own = self.volumes.get(*name).and_then(|volume| volume.data.as_ref());
            own.is_some_and(|own| own.member_id == listed.id && own.last_index > data.last_index)
        });
        wrong.extend(better.map(|(name, _)| format!("{name} had more than {survivor}, which began anew")));
        self.recoveries.wrong.extend(wrong);
    }
}

/// Where the log ends, with what was appended and never acknowledged.
pub(super) fn log_end(volume: &Volume, data: &Identity) -> LogEnd {
    LogEnd { term: volume.log_term, index: data.last_index + volume.unacknowledged }
}
