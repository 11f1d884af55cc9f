//! Restore from a snapshot that arrives as a stream, for example out of a stored backup.
//!
//! The database is written where it will lie while it is hashed, so that a restore by appending reads and writes it once.
//! Everything that is checked of a file is checked here too; only the order differs: pages and entries are looked at after
//! the database has arrived and before anything is added, because its pages come in no order that could be checked on
//! the way.

use std::io::Read;

use super::staged_member::StagedMember;
use super::{Restore, RestoreError, Restored, check_versions};
use crate::events::{Cut, EventStream};
use crate::history::check_cut;
use crate::snapshot::{Snapshot, receive};
use crate::staging::failed;
use crate::validate::require_sound;

impl Restore<'_> {
    /// As [`run`](Self::run), with the snapshot from a stream, which must bring its digest; `snapshot` is only what messages
    /// call it. An error of the stream leaves nothing behind.
    pub fn run_received(
        &self,
        snapshot: &mut dyn Read,
        events: Option<&mut dyn EventStream>,
    ) -> Result<Restored, RestoreError> {
        if !self.cluster.members().contains(self.member) {
            return Err(RestoreError::ForeignMember(self.member.id));
        }
        let staged = StagedMember::create(self.data_dir)?;
        let restored = if self.rewrite || self.compact.is_some() {
            let received = Snapshot::receive(snapshot, staged.root(), self.snapshot)?;
            self.check(&received)?;
            self.rewrite(&received, events, &staged)?
        } else {
            self.receive_and_extend(snapshot, events, &staged)?
        };
        self.publish(staged, restored)
    }

    fn check(&self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        check_versions(snapshot.schema.etcd_version(), self.target_version)?;
        check_cut(snapshot, self.cut).map_err(RestoreError::History)?;
        Ok(require_sound(snapshot)?)
    }

    fn receive_and_extend(
        &self,
        stream: &mut dyn Read,
        events: Option<&mut dyn EventStream>,
        staged: &StagedMember,
    ) -> Result<Restored, RestoreError> {
        let path = staged.path("snap", "db");
        let file = staged.create_file("snap", "db")?;
        receive(stream, &file, self.snapshot)?;
        let snapshot = Snapshot::open(&path)?;
        self.check(&snapshot)?;
        if matches!(self.cut, Cut::Revision(wanted) if wanted < snapshot.schema.revision()) {
            // A part of it is wanted, so it is only a source. Its file stays open and loses its name.
            std::fs::remove_file(&path).map_err(failed("remove", &path))?;
            return self.rewrite(&snapshot, events, staged);
        }
        file.set_len(snapshot.data_length()).map_err(failed("cut", &path))?;
        self.extend(&snapshot.schema, events, staged)
    }
}
