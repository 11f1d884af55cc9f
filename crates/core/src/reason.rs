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
    BackupsOff, Normal, "backups are off because spec.backup is not set";
    Settled, Normal, "everything is as the spec says";
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
    CertificateMissing, Normal, "a certificate did not exist and is issued";
    CertificateEdited, Normal, "the Secret of a certificate was edited by hand, so the certificate is issued anew";
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
    MemberDataLost, Warning, "a member of a formed cluster has no usable data and must be replaced, which is not supported yet";
    MemberFenced, Warning, "a member's data is older than what it is known to have had, or is not its own, so it does not start; a human must look at its volume";
    MemberOfAnotherCluster, Warning, "a member holds the data of another cluster; a human must look at its volume";
    MemberUnreadable, Warning, "an EtcdMember cannot be read; once it is deleted, it is made again";
    AlarmRaised, Warning, "etcd has raised an alarm: with NOSPACE it refuses writes until space is freed and the alarm is disarmed, with CORRUPT the members' data differs";
    MemberHidden, Warning, "the member is silent or serves other data, so clients are no longer led to it";
    MemberShown, Normal, "clients are led to the member again";
    AccountRenewed, Normal, "the ServiceAccount was made anew, so the member's pod cannot speak to Kubernetes any more and is replaced";
    WaitingForOldPods, Normal, "the StatefulSet is made again once the pods of the deleted one are gone";
    MemberStuck, Warning, "the member has not been ready for longer than spec.recovery.notReadyGracePeriod; its pod is restarted";

    // Deleting.
    VolumesGoWithCluster, Normal, "spec.storage.retention.onDelete is Delete, so the volumes are removed with the cluster";
    VolumesStay, Normal, "the volumes stay";
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
