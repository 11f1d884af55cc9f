//! What a member's Lease says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use quorate_api::names::annotations;
use quorate_api::status::MemberRole;

/// How long a renewal is good for. Agents renew every three seconds: one renewal may be late, and a dead member is
/// noticed, and clients are led away from it, within ten seconds.
pub const DURATION_SECONDS: i32 = 8;

/// What an agent last said about its member. It renews only while its etcd serves and knows a leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Identifier and role from `holderIdentity`, `<id>:<role>`.
    pub member_id: Option<String>,
    pub role: Option<MemberRole>,
    /// When the agent renewed it, by the agent's clock.
    pub renewed: Option<Timestamp>,
    pub expires: Option<Timestamp>,
    /// How long a renewal is good for.
    pub duration: SignedDuration,
    pub term: Option<i64>,
    pub boot_count: Option<i64>,
    pub last_index: Option<i64>,
    /// The revision of its data.
    pub revision: Option<i64>,
    /// The size of its database, in bytes.
    pub db_size: Option<i64>,
}

impl Heartbeat {
    pub fn read(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let (member_id, role) = spec.holder_identity.as_deref().map_or((None, None), parse_holder);
        let renewed = spec.renew_time.map(|time| time.0);
        let duration = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(DURATION_SECONDS).into());
        let expires = renewed.and_then(|at| at.checked_add(duration).ok());
        let number = |key: &str| lease.metadata.annotations.as_ref()?.get(key)?.parse::<i64>().ok();
        Self {
            member_id,
            role,
            renewed,
            expires,
            duration,
            term: number(annotations::TERM),
            boot_count: number(annotations::BOOT_COUNT),
            last_index: number(annotations::LAST_INDEX),
            revision: number(annotations::REVISION),
            db_size: number(annotations::DB_SIZE),
        }
    }

    /// Counts from when the renewal was heard of, by the listener's clock: two machines' clocks are never compared.
    #[must_use]
    pub fn heard_at(self, heard: Timestamp) -> Self {
        let expires = self.renewed.and_then(|_| heard.checked_add(self.duration).ok());
        Self { expires, ..self }
    }

    /// A Lease that was never renewed is not alive.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| now < expires)
    }

    /// Whether etcd was ever started on this member's volume, as far as is recorded outside of the volume.
    pub fn has_started(&self) -> bool {
        self.boot_count.is_some_and(|count| count > 0)
    }
}

fn parse_holder(holder: &str) -> (Option<String>, Option<MemberRole>) {
    let (id, role) = holder.split_once(':').unwrap_or((holder, ""));
    ((!id.is_empty()).then(|| id.to_owned()), MemberRole::parse(role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_names_the_member_and_its_role() {
        assert_eq!(parse_holder("8e9e:Leader"), (Some("8e9e".to_owned()), Some(MemberRole::Leader)));
        assert_eq!(parse_holder("8e9e"), (Some("8e9e".to_owned()), None));
        assert_eq!(parse_holder(""), (None, None));
        assert_eq!(parse_holder(":King"), (None, None));
    }

    #[test]
    fn a_fresh_lease_is_not_alive() {
        assert!(!Heartbeat::read(&Lease::default()).is_alive(Timestamp::UNIX_EPOCH));
    }
}
