//! Names of stored backups. A listing of them alone says what there is; headers and trailers then prove it.
//!
//! `e<epoch>-r<last>-<kind>-<first>-<time>-f<fencing>-c<cluster>.qrb`, numbers padded with zeros, so that names sort as the
//! history does: by epoch, then by the revision an object leads to.

use std::fmt;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::format::{Header, Kind, ObjectError, Trailer, timestamp};

const SUFFIX: &str = ".qrb";
const MILLISECOND: i64 = 1_000_000;

/// The order is that of the names as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub epoch: u64,
    /// A delta's last revision. What a full backup holds at least: its name is given before its content is known.
    pub last: i64,
    pub kind: Kind,
    /// A delta's first revision; of others, the same as `last`.
    pub first: i64,
    /// Milliseconds since 1970. A delta covers everything up to then, a full backup nothing that came later.
    pub millis: i64,
    pub fencing: u64,
    /// Stands for the UID of the cluster.
    pub cluster: u32,
}

/// The part of a name that keeps two clusters on one prefix apart.
pub fn cluster_tag(uid: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(uid.as_bytes()).into();
    digest.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

impl ObjectName {
    /// For a base: when its first chunk had come, and a revision that the member had reached before.
    pub fn base(header: &Header) -> Self {
        let kind = header.known_kind().filter(|kind| kind.is_base()).unwrap_or(Kind::Full);
        Self::of(header, kind, header.first_revision, header.created)
    }

    /// For a delta that ends with `last` and covers everything up to `covered_through`.
    pub fn delta(header: &Header, last: i64, covered_through: Timestamp) -> Self {
        Self::of(header, Kind::Delta, last, super::format::nanoseconds(covered_through))
    }

    fn of(header: &Header, kind: Kind, last: i64, nanoseconds: i64) -> Self {
        Self {
            epoch: header.epoch,
            last,
            kind,
            first: header.first_revision,
            millis: nanoseconds.div_euclid(MILLISECOND),
            fencing: header.fencing,
            cluster: cluster_tag(&header.cluster_uid),
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(SUFFIX)?.split('-');
        let mut part = |prefix: &str| parts.next()?.strip_prefix(prefix);
        let (epoch, last, kind, first) = (number(part("e")?, 10)?, number(part("r")?, 19)?, part("")?, part("")?);
        let (millis, fencing, cluster) = (number(part("t")?, 15)?, number(part("f")?, 10)?, part("c")?);
        let parsed = Self {
            epoch,
            last: i64::try_from(last).ok()?,
            kind: [Kind::Full, Kind::Delta, Kind::Compacted].into_iter().find(|known| known.name() == kind)?,
            first: i64::try_from(number(first, 19)?).ok()?,
            millis: i64::try_from(millis).ok()?,
            fencing,
            cluster: u32::from_str_radix(cluster, 16).ok()?,
        };
        // One name per object: whatever would be written otherwise is not ours.
        (parsed.is_sensible() && parsed.to_string() == name).then_some(parsed)
    }

    fn is_sensible(&self) -> bool {
        match self.kind {
            Kind::Delta => self.first >= 1 && self.first - 1 <= self.last,
            Kind::Full | Kind::Compacted => self.first >= 1 && self.first == self.last,
        }
    }

    /// Whether a delta has no changes, only the word that there were none.
    pub fn is_empty(&self) -> bool {
        self.kind == Kind::Delta && self.first > self.last
    }

    pub fn time(&self) -> Timestamp {
        timestamp(self.millis.saturating_mul(MILLISECOND))
    }

    /// The moment by which everything in a full backup was committed; names leave out what is below a millisecond.
    pub fn taken_by(&self) -> Timestamp {
        timestamp(self.millis.saturating_mul(MILLISECOND).saturating_add(MILLISECOND - 1))
    }

    /// Refuses an object that is not what its name says.
    pub fn check(&self, header: &Header, trailer: &Trailer) -> Result<(), ObjectError> {
        let differs = |reason| Err(ObjectError::Name { reason });
        if header.known_kind() != Some(self.kind) {
            return differs("its kind is another one");
        }
        if cluster_tag(&header.cluster_uid) != self.cluster {
            return differs("it is of another cluster");
        }
        if (header.epoch, header.fencing) != (self.epoch, self.fencing) {
            return differs("it is of another epoch or writer");
        }
        if header.first_revision != self.first {
            return differs("it begins with another revision");
        }
        let millis = |nanoseconds: i64| nanoseconds.div_euclid(MILLISECOND);
        match self.kind {
            Kind::Delta if trailer.last_revision != self.last => differs("it ends with another revision"),
            Kind::Delta if millis(trailer.covered_through) < self.millis => differs("it covers less time"),
            Kind::Full | Kind::Compacted if trailer.last_revision < self.last => differs("it holds less"),
            Kind::Full | Kind::Compacted if millis(header.created) != self.millis => differs("its time is another one"),
            _ => Ok(()),
        }
    }
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let strict = text.len() >= digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if strict { text.parse().ok() } else { None }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, last, kind, first, millis, fencing, cluster } = self;
        let kind = kind.name();
        write!(f, "e{epoch:010}-r{last:019}-{kind}-{first:019}-t{millis:015}-f{fencing:010}-c{cluster:08x}{SUFFIX}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str =
        "e0000000001-r0000000000000004711-delta-0000000000000004700-t001795000000000-f0000000003-c0badcafe.qrb";

    #[test]
    fn names_are_taken_whole_or_not_at_all() {
        let name = ObjectName::parse(NAME).unwrap();
        assert_eq!((name.epoch, name.first, name.last, name.fencing), (1, 4700, 4711, 3));
        assert_eq!(name.to_string(), NAME);
        for (from, to) in [
            ("e0000000001", "e1"),
            ("e0000000001", "e00000000001"),
            ("4711", "4698"),
            ("delta", "full"),
            ("delta", "Delta"),
            ("-t", "-"),
            ("0badcafe", "0BADCAFE"),
            ("0badcafe", "+badcafe"),
            (".qrb", ".qrb.part"),
            (".qrb", "-1.qrb"),
            ("r0", "r-"),
        ] {
            assert_eq!(ObjectName::parse(&NAME.replacen(from, to, 1)), None, "{from} {to}");
        }
    }

    #[test]
    fn names_sort_as_text_the_way_they_sort_as_numbers() {
        let name = ObjectName::parse(NAME).unwrap();
        let later = [
            ObjectName { epoch: 2, last: 5, first: 5, kind: Kind::Full, ..name },
            ObjectName { last: 10_000, ..name },
            ObjectName { fencing: 12, ..name },
        ];
        for later in later {
            assert!(later > name && later.to_string() > name.to_string(), "{later}");
        }
    }
}
