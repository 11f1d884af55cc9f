//! What etcd answers to the operator.

use quorate_core::hashes::{DataHash, HashAnswer};
use quorate_core::membership::ListAnswer;
use quorate_core::read::Endpoint;

use super::members::list_of;
use super::world::World;

impl World {
    /// What the first that answers says. A member answers only together with a quorum; a stranger answers for its own.
    pub(crate) fn ask_for_members(&self, endpoints: &[Endpoint]) -> ListAnswer {
        if !endpoints.is_empty() && endpoints.iter().all(|endpoint| self.cut_off.contains(&endpoint.member)) {
            return ListAnswer::OutOfReach;
        }
        let serving = self.serving();
        for Endpoint { member, .. } in endpoints.iter().filter(|endpoint| !self.cut_off.contains(&endpoint.member)) {
            if self.impostors.contains(member) {
                return ListAnswer::Answered { cluster_id: "another".to_owned(), members: Vec::new() };
            }
            if serving.contains(member) {
                let volume = &self.volumes[member];
                let cluster_id = volume.data.as_ref().map(|data| data.cluster_id.clone()).unwrap_or_default();
                return ListAnswer::Answered { cluster_id, members: list_of(&self.listed) };
            }
        }
        ListAnswer::Failed
    }

    /// All that serve have the same data, but for one whose volume has lost a bit, or unless a test says otherwise.
    pub(super) fn ask_for_hashes(&self, endpoints: &[Endpoint]) -> HashAnswer {
        if let Some(told) = &self.hashes {
            return told.clone();
        }
        let serving = self.serving();
        let answer = |member: &String| {
            let is_heard = serving.contains(member) && !self.cut_off.contains(member);
            let volume = &self.volumes[member];
            let data = volume.data.as_ref().filter(|_| is_heard).ok_or("no answer")?;
            let (cluster_id, member_id) = (data.cluster_id.clone(), data.member_id.clone());
            Ok(DataHash { cluster_id, member_id, revision: 1, compact_revision: 0, hash: u32::from(volume.rotten) })
        };
        let members = endpoints.iter().map(|endpoint| &endpoint.member);
        HashAnswer::Answered(members.map(|member| (member.clone(), answer(member))).collect())
    }
}
