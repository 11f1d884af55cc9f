//! Why something is done, or is as it is. One list for events, conditions, status and command line.

use serde::{Deserialize, Serialize};

/// How loud a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    Normal,
    Warning,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident, $severity:ident, $sentence:literal;)*) => {
        /// Every reason there is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All of them, for documentation and for bounded metric labels.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in events, conditions and status.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// What it means, for someone who reads it for the first time.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

reasons! {
    // Conditions and phases.
    Quorate, Normal, "a majority of the members is ready, so requests are served";
    QuorumLost, Warning, "fewer than a majority of the members are ready, so requests are not served";
    QuorumUnknown, Warning, "too few members have been heard of lately to tell whether requests are served";
    AllMembersReady, Normal, "all members are ready";
    NotAllMembersReady, Warning, "not all members are ready";
    NotFormed, Normal, "the cluster has not been formed yet";
    ServiceMissing, Normal, "the Service for clients does not exist, so nobody finds the members";
    NoMembersWanted, Normal, "spec.replicas is 0, so there are no members; the volumes stay";
    Waking, Normal, "the cluster is woken from its sleep, and its members are starting";
    BackupsOff, Normal, "backups are off because spec.backup is not set";
    Settled, Normal, "everything is as the spec says";
    RolloutPending, Normal, "parts of the spec are not in effect yet; status.pending names them";
    Working, Normal, "something is being changed";
    AsExpected, Normal, "nothing needs attention";
    Paused, Warning, "spec.maintenance.paused is set, so nothing is changed";
    Deleting, Normal, "the EtcdCluster is being deleted";

    // The spec.
    SpecInvalid, Warning, "the spec cannot be followed; the last one that could stays in effect";
    ChangeNotSupportedYet, Warning, "the change of the spec is not supported yet; the previous value stays in effect";
    NameTaken, Warning, "an object of a needed name belongs to somebody else and is left alone";

    // Making and repairing objects.
    ObjectMissing, Normal, "an object of the cluster did not exist and is made";
    ObjectChanged, Normal, "an object of the cluster was not as it should be and is put right";
    ObjectSuperfluous, Normal, "an object of a member that is not part of the cluster is removed";
    EvictionsStopped, Normal, "more members must stay where they are, because there are more or some are not well, so fewer may be evicted";
    EvictionsAllowed, Normal, "fewer members must stay where they are, so one at a time may be evicted";
    CertificateMissing, Normal, "a certificate did not exist and is issued";
    CertificateEdited, Normal, "the Secret of a certificate was edited by hand, so the certificate is issued anew";
    CertificateRenewed, Normal, "two thirds of a certificate's life are over, so it is issued anew";
    CertificateOutdated, Normal, "a certificate is not for what the cluster needs it for now, so it is issued anew";
    CertificateNotIssued, Warning, "a certificate is needed, or needed anew, and its authority cannot sign";
    CertificateEndsSoon, Warning, "a certificate ends within 30 days and has not been issued anew: the events and the operator's log say why";
    CertificateAnnotationsEdited, Warning, "the annotations of a certificate's Secret were edited by hand, so nobody knows when to issue it anew: put them back or, unless it is an authority, delete the Secret, and it is made again";
    AuthorityEndsSoon, Warning, "a certificate authority ends within 30 days and cannot be replaced while the cluster runs: delete the EtcdCluster and create it again on its volumes before that";
    SecretsOutOfReach, Warning, "the operator may not read Secrets in this namespace, so it can make no certificates; bind it to the ClusterRole quorate-secrets here";
    WaitingForRights, Normal, "the operator's right to read Secrets in this namespace is being made";
    AuthorityChanged, Warning, "the Secret of a certificate authority was changed by hand; members trust the one that was there, so nothing is signed until its content is put back";
    SecretTaken, Warning, "a Secret of a needed name does not belong to this EtcdCluster and is left alone; remove it or choose another name";
    AuthorityLost, Warning, "the Secret of a certificate authority is gone; members that run would not trust a new one, so none is made: put the Secret back, or delete the EtcdCluster and create it again on its volumes";

    // Forming the cluster.
    WaitingForReports, Normal, "every member must report its data directory before any may start empty";
    BootstrapIssued, Normal, "all members are empty and may start as a new cluster";
    BootstrapAllowed, Normal, "the member may start empty as part of the new cluster";
    WaitingForMembers, Normal, "members may start and have not all done so yet";
    BootstrapClosed, Normal, "no member may start empty any more";
    Formed, Normal, "the new cluster has a quorum";
    Adopted, Normal, "the volumes hold the data of this cluster, which goes on from there";
    ResumeAllowed, Normal, "the member may start from its own data";
    DataNotEmpty, Warning, "a volume holds damaged or foreign data, so no new cluster is formed over it";
    ClusterIdMismatch, Warning, "the volumes hold data of different clusters, so nothing is started over them";

    // Members.
    MemberReady, Normal, "the member is ready";
    MemberNotReady, Warning, "the member is not ready";
    MemberUnknown, Warning, "nobody has heard from the member lately";
    LeaderElected, Normal, "the members have a new leader";
    MemberDataLost, Warning, "a member has no usable data; it is replaced as soon as the others are a quorum without it";
    MemberFenced, Warning, "a member's data is older than what it is known to have had, is not its own, or is not what the other members have, so it does not start; it is replaced as soon as the others are a quorum without it, and what is on its volume is kept aside";
    MemberDiverged, Warning, "the data differs from what a majority of the members have; the member is fenced and replaced as soon as the others are a quorum without it, and its data is kept aside";
    MajorityLost, Warning, "the data of so many members is gone that the rest is no quorum, so nothing is served and nobody can be replaced";
    NoCopyLeft, Warning, "no member has usable data and there is no backup, so nothing is served and nothing begins anew by itself: put the right volumes back, or give the data up by deleting the EtcdCluster and its volumes and creating it again";
    RecoveryNeedsConsent, Warning, "spec.recovery.quorumLoss is Manual, so nothing is done; with consent all members are stopped and a new incarnation begins from the copy with the highest term and index, and what only the lost members had is missing from it";
    CopyCameBack, Warning, "a copy has come back after all seemed to be lost; others may be on their way and may be better, so nothing begins before somebody says that all are here";
    NamedCopyUnusable, Warning, "the copy that was named is not there or cannot be used, so nothing begins: name another one in the annotation, or take it away to have the best one chosen";
    SurvivorStuck, Warning, "it has the best copy that is left, and does not begin: help it, or name another copy by an annotation";
    RecoveryBegun, Warning, "the quorum is lost for good: clients are cut off, every etcd is stopped, and the copies that are left are compared";
    WaitingForCopies, Warning, "its copy may be the best, so it is waited for until it says what it has; whoever knows better can name the copy to use by an annotation";
    CopyOutOfReach, Warning, "nobody knows what copy it has, and it may be the best, so nothing begins without it: bring it back, or name the copy to use by an annotation";
    SurvivorChosen, Warning, "it has the best copy that is left, and becomes the only member of a new incarnation";
    SurvivorAllowed, Warning, "the member may begin a new incarnation from its own data, once, as its only member";
    SurvivorBegins, Warning, "it has the best copy that is left, which is checked and becomes the beginning of a new incarnation";
    QuorumRecovered, Warning, "a new incarnation has begun from its copy, at a revision that nobody has seen; the others join it";
    DataLost, Warning, "what only lost members had is missing";
    DataLossAcknowledged, Normal, "what was lost has been acknowledged";
    MembersDiffer, Warning, "the members do not have the same data and no majority agrees, so nobody can tell who is right and nobody is stopped: save a snapshot of each with etcdctl, find out which one to believe, and create the cluster again from it";
    MemberTrusted, Warning, "the data differs from what other members have, and the annotation quorate.dev/trusted-member keeps the member from being fenced";
    FenceOrdered, Warning, "the member's data differs from what a majority of the members have, so its etcd is stopped and kept from starting; its data is left as it is";
    MemberOfAnotherCluster, Warning, "a member holds the data of another cluster; a human must look at its volume";
    MemberUnreadable, Warning, "an EtcdMember cannot be read; once it is deleted, it is made again";
    AlarmRaised, Warning, "etcd has raised an alarm: with NOSPACE it refuses writes until space is freed and the alarm is disarmed, with CORRUPT the members' data differs";
    MemberCorrupt, Warning, "etcd itself has found that the member's data is not what the others have, and all members refuse most requests until that alarm is gone: they are compared at once, and if the others agree and are a quorum without it, the member is fenced and replaced and the alarm disarmed; if not, find out which one to believe";
    AlarmDisarmed, Warning, "the alarm says of a member which is gone that its data was corrupt, so it is disarmed";
    MemberHidden, Warning, "the member is silent, serves other data or has no vote yet, so clients are not led to it";
    MemberShown, Normal, "clients are led to the member";
    AccountRenewed, Normal, "the ServiceAccount was made anew, so the member's pod cannot speak to Kubernetes any more and is replaced";
    MemberDataUnreadable, Warning, "what is on a member's volume cannot be read, so nobody knows whether it is sound; it is left as it is, and the member starts once it can be read";
    VolumeFilling, Warning, "a member's volume is running full: enlarge its PersistentVolumeClaim or spec.storage.ephemeral.sizeLimit, remove what was quarantined on it, or compact and defragment the database";
    VolumeFull, Warning, "a member's volume has no room for etcd to start, and its reserve is used up: enlarge its PersistentVolumeClaim, or remove what was quarantined on it; where storage is ephemeral, delete the pod, and another member takes its place";
    MemberDataDamaged, Warning, "the database of a running member is damaged on its disk, or cannot be read; the member is left alone and may end or answer wrongly: take a backup from another member before its pod is restarted";
    ForeignVoter, Warning, "etcd lists a voter that is no pod of this cluster: somebody has added it by hand, and it counts for the quorum; it is removed ten minutes after it was first seen";
    ForeignLearner, Warning, "etcd lists a learner that is no pod of this cluster: somebody has added it by hand, and etcd takes no other learner beside it, so nobody can be added or replaced; it is removed ten minutes after it was first seen";
    StrangerKept, Warning, "somebody has added a voter by hand, and it is not removed: the members of this cluster that are ready would be no quorum without it; remove it with etcdctl member remove if you know that the others are";
    StrangerRemoved, Warning, "somebody has added the member to etcd by hand, and nobody has asked for it, so it is removed";
    VolumeEnding, Warning, "the member's PersistentVolumeClaim was deleted and goes with its data as soon as its pod ends, so the pod is not restarted; if the data is needed, take a snapshot with etcdctl and then delete the pod";
    Scaling, Normal, "members are added or removed one at a time until there are as many as spec.replicas wishes";
    ScalingBegun, Normal, "spec.replicas wishes for another number of members, which come or go one at a time";
    ScalingEnded, Normal, "there are as many members as spec.replicas wishes, and all of them have a vote";
    ScalingTakenBack, Normal, "spec.replicas wishes for what is there again";
    LearnerAdded, Normal, "the member is added to etcd; it listens and has no vote until it has caught up";
    JoinAllowed, Normal, "the member may start empty, once, and receive the data from the others";
    MemberCatchingUp, Normal, "the member receives the data that the others have, and gets a vote when it has it";
    MemberJoining, Normal, "the member is starting or catching up, and gets a vote when it has";
    MemberPromoted, Normal, "the member has caught up and gets a vote";
    MemberRemoved, Normal, "the member is not wished for any more, so it is removed from etcd before its pod goes";
    MemberReplaced, Warning, "the member's data is gone or of no use, so it is removed from etcd and joins again as a new one";
    LeaderMoved, Normal, "the member leads and is about to be removed, so another one takes over first";
    MemberNotAskedFor, Warning, "etcd lists a member that nobody has asked for: somebody has added it by hand under the name of a pod; it is removed ten minutes after it was first seen, unless spec.replicas is raised";
    WaitingForPod, Normal, "its pod must run and say what is on its volume before the member is added to etcd";
    WaitingForReadyMembers, Normal, "all members that stay must be ready before another is added or removed";
    WaitingForQuorum, Warning, "no member is removed while the others would not be a quorum without it";
    VolumeNotNeeded, Normal, "the volume of a member that was removed goes, because spec.storage.retention.onScaleDown is Delete";
    VolumesKept, Normal, "a quorum was recovered and what was lost is not acknowledged yet, so the volumes of members that are gone stay: what was put aside on them may be missed";
    NodeSilent, Warning, "the node of the member, or of its volume, is not ready; silence proves nothing, so the member is waited for: if the node is gone for good, delete its Node, or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    NodeCordoned, Warning, "the member's volume can be used only on a node that takes no pods: kubectl uncordon lets it come back";
    NodeLost, Warning, "the node is gone for good, so the member's pod is removed there and made again elsewhere";
    PodOnLostNode, Warning, "the pod's node is gone for good, and nobody else has removed it, so it is removed without asking the node";
    VolumeStranded, Warning, "the member's volume can be used only on a node that is gone for good, so the member waits: bring the node back; or, where the others are a quorum, set spec.recovery.nodeLostAfter, after which another member takes its place on a new volume";
    MemberGoesWithNode, Warning, "the member's volume can be used only on a node that is gone for good; spec.recovery.nodeLostAfter after that was seen the member is given up, and another takes its place on a new volume";
    MemberGivenUp, Warning, "the member's node is gone for good and its volume can be used nowhere else, so it is removed from etcd, and another takes its place";
    VolumeGivenUp, Warning, "the volume of a member that was given up with its node goes, so that another gets a new one; what is on it can be reached only on that node";
    PodWithoutVolume, Normal, "the pod has no node yet and its PersistentVolumeClaim is gone, so both are made again";
    NodesOutOfReach, Warning, "the operator may not read nodes and volumes, so it cannot tell whether the member's node is gone for good; bind it to the ClusterRole quorate-nodes";
    WaitingForMemberList, Normal, "a quorum of the members must confirm who they are before anything is taken from one";
    EtcdRightsMissing, Warning, "authentication is enabled, and the operator's certificate speaks for the user operator, who needs the role root: etcdctl user add operator --no-password; etcdctl user grant-role operator root";
    EtcdOutOfReach, Warning, "the members serve, and no connection of the operator to them comes about, so nobody confirms who they are and nothing that depends on it is done: add a NetworkPolicy that lets the operator in on this port";
    WaitingForOldPods, Normal, "the StatefulSet is made again once the pods of the deleted one are gone";
    MemberStuck, Warning, "the member has not been ready for longer than spec.recovery.notReadyGracePeriod; its pod is restarted";

    // Deleting.
    VolumesGoWithCluster, Normal, "spec.storage.retention.onDelete is Delete, so the volumes are removed with the cluster";
    VolumesStay, Normal, "the volumes stay";
}

impl Reason {
    /// Whether nothing gets better until a human acts. The others pass by themselves, or call for no act.
    pub fn needs_human(self) -> bool {
        use Reason as R;
        matches!(
            self,
            R::SpecInvalid
                | R::ChangeNotSupportedYet
                | R::NameTaken
                | R::SecretsOutOfReach
                | R::AuthorityChanged
                | R::AuthorityEndsSoon
                | R::AuthorityLost
                | R::CertificateAnnotationsEdited
                | R::CertificateNotIssued
                | R::SecretTaken
                | R::DataNotEmpty
                | R::ClusterIdMismatch
                | R::NoCopyLeft
                | R::RecoveryNeedsConsent
                | R::CopyOutOfReach
                | R::CopyCameBack
                | R::NamedCopyUnusable
                | R::SurvivorStuck
                | R::MembersDiffer
                | R::MemberOfAnotherCluster
                | R::MemberUnreadable
                | R::MemberDataUnreadable
                | R::AlarmRaised
                | R::MemberCorrupt
                | R::VolumeFull
                | R::MemberDataDamaged
                | R::StrangerKept
                | R::VolumeEnding
                | R::VolumeStranded
                | R::NodeCordoned
                | R::EtcdRightsMissing
                | R::EtcdOutOfReach
        )
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_a_valid_condition_reason_with_a_sentence() {
        for reason in Reason::ALL {
            let name = reason.as_str();
            assert!(name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
            assert!(reason.sentence().len() > 10 && !reason.sentence().ends_with('.'), "{name}");
        }
    }
}
