//! Which etcd releases may run, and why the others may not.

use kube::core::Rule;
/// A release of etcd, as [`release`] reads it.
pub use semver::Version as EtcdVersion;

use crate::schema::quoted;

/// `major.minor.patch` without a leading `v` and without a pre-release.
pub const RELEASE_PATTERN: &str = "^(0|[1-9][0-9]{0,3})\\.(0|[1-9][0-9]{0,3})\\.(0|[1-9][0-9]{0,3})$";
/// The only major version there is an operator for.
pub const MAJOR: u64 = 3;
/// Oldest and newest minor version of that major which this operator knows how to run.
pub const MINORS: std::ops::RangeInclusive<u64> = 5..=7;
/// Largest number that [`RELEASE_PATTERN`] lets through.
const LARGEST_NUMBER: u64 = 9_999;

/// Releases of one minor version that lose or leak data, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBad {
    pub minor: u64,
    pub first_patch: u64,
    pub last_patch: u64,
    /// Reads on after "3.5.0 to 3.5.2 are refused because".
    pub reason: &'static str,
}

/// Ranges do not overlap, so a refused version gets one reason: the gravest.
pub const KNOWN_BAD: &[KnownBad] = &[
    KnownBad {
        minor: 5,
        first_patch: 0,
        last_patch: 2,
        reason: "members can silently hold different data after a crash under load (etcd issue 13766)",
    },
    KnownBad {
        minor: 5,
        first_patch: 3,
        last_patch: 19,
        reason: "the promotion of a learner is not stored, so a member can lose its vote (etcd issue 19557)",
    },
    KnownBad {
        minor: 5,
        first_patch: 20,
        last_patch: 25,
        reason: "removed members can come back and break the upgrade to 3.6 (etcd issue 20793)",
    },
    KnownBad {
        minor: 5,
        first_patch: 26,
        last_patch: 27,
        reason: "a linearizable read can return old data after a pause (etcd issue 20418)",
    },
    KnownBad { minor: 5, first_patch: 28, last_patch: 30, reason: REFUSED_STATUS },
    KnownBad { minor: 5, first_patch: 31, last_patch: 32, reason: LEAKING_WATCH },
    KnownBad {
        minor: 6,
        first_patch: 0,
        last_patch: 4,
        reason: "defragmentation can corrupt the database (etcd pull request 20653)",
    },
    KnownBad {
        minor: 6,
        first_patch: 5,
        last_patch: 8,
        reason: "a linearizable read can return old data after a pause (etcd issue 20418), and authentication can be \
                 bypassed (CVE-2026-33413)",
    },
    KnownBad { minor: 6, first_patch: 9, last_patch: 10, reason: REFUSED_STATUS },
    KnownBad { minor: 6, first_patch: 11, last_patch: 13, reason: LEAKING_WATCH },
    KnownBad { minor: 7, first_patch: 0, last_patch: 0, reason: LEAKING_WATCH },
];

const REFUSED_STATUS: &str = "with authentication on, Status is refused to all but root, so that members which serve look \
                              as if they did not, and a watch can read beyond the rights of its user \
                              (GHSA-xg4h-6gfc-h4m8)";
const LEAKING_WATCH: &str = "with authentication on, a watch can read beyond the rights of its user \
                             (GHSA-xg4h-6gfc-h4m8), and connections without a certificate can use up memory \
                             (CVE-2026-73500)";

impl KnownBad {
    pub fn covers(&self, version: &EtcdVersion) -> bool {
        version.major == MAJOR
            && version.minor == self.minor
            && (self.first_patch..=self.last_patch).contains(&version.patch)
    }

    /// What a user reads when asking for one of these releases.
    pub fn message(&self) -> String {
        let Self { minor, first_patch, last_patch, reason } = self;
        // What follows may be bad as well, for another reason: the advice is past all of it.
        let next = KNOWN_BAD.iter().filter(|bad| bad.minor == *minor).map(|bad| bad.last_patch + 1).max().unwrap_or(0);
        let these = if first_patch == last_patch {
            format!("{MAJOR}.{minor}.{first_patch} is")
        } else {
            format!("{MAJOR}.{minor}.{first_patch} to {MAJOR}.{minor}.{last_patch} are")
        };
        format!("spec.version: {these} refused because {reason}; use {MAJOR}.{minor}.{next} or later")
    }

    fn rule(&self) -> Rule {
        let Self { minor, first_patch, last_patch, .. } = self;
        let prefix = quoted(&format!("{MAJOR}.{minor}."));
        let release = quoted(RELEASE_PATTERN);
        Rule::new(format!(
            "!self.startsWith({prefix}) || !self.matches({release}) || \
             int(self.split('.')[2]) < {first_patch} || int(self.split('.')[2]) > {last_patch}"
        ))
        .message(self.message().as_str())
    }
}

/// Reads `3.6.16`; anything else, `v3.6.16` and `3.7.0-rc.0` included, is not a release.
pub fn release(text: &str) -> Option<EtcdVersion> {
    let version = EtcdVersion::parse(text).ok()?;
    let plain = version.pre.is_empty() && version.build.is_empty();
    let short = [version.major, version.minor, version.patch].iter().all(|number| *number <= LARGEST_NUMBER);
    (plain && short).then_some(version)
}

pub(crate) const RELEASE_MESSAGE: &str =
    "spec.version must be a release such as 3.6.16: major.minor.patch without a leading v and without a pre-release";
pub(crate) const RANGE_MESSAGE: &str = "spec.version must be a 3.x release from 3.5 to 3.7";

/// The schema of `spec.version`: one rule per way of being wrong.
pub(crate) fn add_rules(schema: &mut schemars::Schema) {
    let release = quoted(RELEASE_PATTERN);
    let mut rules = vec![
        Rule::new(format!("self.matches({release})")).message(RELEASE_MESSAGE),
        Rule::new(format!(
            "!self.matches({release}) || (int(self.split('.')[0]) == {MAJOR} && int(self.split('.')[1]) >= {} \
             && int(self.split('.')[1]) <= {})",
            MINORS.start(),
            MINORS.end()
        ))
        .message(RANGE_MESSAGE),
    ];
    rules.extend(KNOWN_BAD.iter().map(KnownBad::rule));
    crate::schema::push_rules(schema, rules);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_releases_are_versions() {
        assert_eq!(release("3.6.16"), Some(EtcdVersion::new(3, 6, 16)));
        for text in
            ["v3.6.16", "3.6", "3.6.16.1", "3.6.x", "3.06.1", "", "3.6.16-rc.0", "3.6.16+x", "3..1", "3.6.12345"]
        {
            assert_eq!(release(text), None, "{text}");
        }
    }

    #[test]
    fn known_bad_ranges_are_inside_the_supported_minors_and_do_not_overlap() {
        for bad in KNOWN_BAD {
            assert!(MINORS.contains(&bad.minor) && bad.first_patch <= bad.last_patch, "{bad:?}");
            for patch in [bad.first_patch, bad.last_patch] {
                let version = EtcdVersion::new(MAJOR, bad.minor, patch);
                assert_eq!(KNOWN_BAD.iter().filter(|other| other.covers(&version)).count(), 1, "{version}");
            }
        }
    }

    #[test]
    fn nothing_below_the_floor_of_a_minor_may_run() {
        for (minor, floor) in [(5, 33), (6, 14), (7, 1)] {
            let refused = |patch| {
                let version = EtcdVersion::new(MAJOR, minor, patch);
                KNOWN_BAD.iter().any(|bad| bad.covers(&version))
            };
            assert!((0..floor).all(refused) && !refused(floor), "3.{minor}.{floor}");
        }
    }

    #[test]
    fn the_default_version_is_not_known_to_be_bad() {
        let version = release(crate::defaults::VERSION).unwrap();
        assert!(MINORS.contains(&version.minor) && !KNOWN_BAD.iter().any(|bad| bad.covers(&version)));
    }

    #[test]
    fn the_messages_name_the_supported_range() {
        assert!(RANGE_MESSAGE.contains(&format!("{MAJOR}.{} to {MAJOR}.{}", MINORS.start(), MINORS.end())));
        assert!(RELEASE_MESSAGE.contains(crate::defaults::VERSION));
    }
}
