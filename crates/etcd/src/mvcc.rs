//! Bucket `key`: revisions as keys, and the stored key-value messages without copying them.

use crate::events::{ChangeEvent, EventKind};

pub const REVISION_SIZE: usize = 17;
const TOMBSTONE: u8 = b't';

/// A change: the store's revision and the position within its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    pub main: i64,
    pub sub: i64,
}

impl Revision {
    pub fn encode(self) -> [u8; REVISION_SIZE] {
        let mut bytes = [b'_'; REVISION_SIZE];
        let (main, sub) = bytes.split_at_mut(8);
        main.copy_from_slice(&self.main.to_be_bytes());
        if let Some(sub) = sub.get_mut(1..) {
            sub.copy_from_slice(&self.sub.to_be_bytes());
        }
        bytes
    }

    /// Reads the 17 bytes that also meta's compaction entries hold.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (main, rest) = bytes.split_first_chunk::<8>()?;
        let (separator, sub) = rest.split_first()?;
        let revision = Self { main: i64::from_be_bytes(*main), sub: i64::from_be_bytes(sub.try_into().ok()?) };
        (*separator == b'_' && revision.main >= 0 && revision.sub >= 0).then_some(revision)
    }
}

/// A key of bucket `key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredKey {
    pub revision: Revision,
    pub is_tombstone: bool,
}

impl StoredKey {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.get(REVISION_SIZE..)? {
            [] => Some(Self { revision: Revision::decode(bytes)?, is_tombstone: false }),
            [TOMBSTONE] => Some(Self { revision: Revision::decode(bytes.get(..REVISION_SIZE)?)?, is_tombstone: true }),
            _ => None,
        }
    }

    pub fn encode(self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.revision.encode());
        if self.is_tombstone {
            out.push(TOMBSTONE);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    #[error("not a key-value message")]
    Malformed,
    #[error("fields that etcd does not write, or not in its order")]
    Unusual,
}

/// A stored `mvccpb.KeyValue`, borrowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredValue<'a> {
    pub key: &'a [u8],
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub value: &'a [u8],
    pub lease: i64,
}

impl<'a> StoredValue<'a> {
    /// Strict: ascending fields, each at most once and never zero, as etcd's encoder writes them. That makes the
    /// encoding unique, so whatever decodes here encodes to the same bytes.
    pub fn decode(mut bytes: &'a [u8]) -> Result<Self, ValueFault> {
        let mut message = Self::default();
        let mut previous = 0;
        while let Some((&tag, rest)) = bytes.split_first() {
            bytes = rest;
            if tag >> 3 <= previous {
                return Err(ValueFault::Unusual);
            }
            previous = tag >> 3;
            match tag {
                0x0A => message.key = take_bytes(&mut bytes)?,
                0x10 => message.create_revision = take_integer(&mut bytes)?,
                0x18 => message.mod_revision = take_integer(&mut bytes)?,
                0x20 => message.version = take_integer(&mut bytes)?,
                0x2A => message.value = take_bytes(&mut bytes)?,
                0x30 => message.lease = take_integer(&mut bytes)?,
                _ => return Err(ValueFault::Unusual),
            }
        }
        Ok(message)
    }

    /// Only the user key, for passes that need nothing else.
    pub fn user_key(bytes: &'a [u8]) -> Result<&'a [u8], ValueFault> {
        match bytes.split_first() {
            Some((0x0A, mut rest)) => take_bytes(&mut rest),
            // The marker of a bumped revision has no fields at all.
            None => Ok(&[]),
            Some(_) => Self::decode(bytes).map(|message| message.key),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        put_bytes(out, 0x0A, self.key);
        put_integer(out, 0x10, self.create_revision);
        put_integer(out, 0x18, self.mod_revision);
        put_integer(out, 0x20, self.version);
        put_bytes(out, 0x2A, self.value);
        put_integer(out, 0x30, self.lease);
    }

    /// What the server stored for an event: of a deletion nothing but the key.
    pub fn of_event(event: &'a ChangeEvent) -> Self {
        match event.kind {
            EventKind::Delete => Self { key: &event.key, ..Self::default() },
            EventKind::Put => Self {
                key: &event.key,
                create_revision: event.create_revision,
                mod_revision: event.mod_revision,
                version: event.version,
                value: &event.value,
                lease: event.lease,
            },
        }
    }
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, ValueFault> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(ValueFault::Malformed)?;
        *bytes = rest;
        let part = u64::from(byte & 0x7F);
        if shift == 63 && part > 1 {
            return Err(ValueFault::Malformed);
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            // A zero last byte, or a zero at all, is not what an encoder writes.
            return if *byte == 0 { Err(ValueFault::Unusual) } else { Ok(value) };
        }
    }
    Err(ValueFault::Malformed)
}

fn take_integer(bytes: &mut &[u8]) -> Result<i64, ValueFault> {
    take_varint(bytes).map(u64::cast_signed)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], ValueFault> {
    let length = usize::try_from(take_varint(bytes)?).map_err(|_| ValueFault::Malformed)?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ValueFault::Malformed)?;
    *bytes = rest;
    Ok(taken)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low & 0x7F);
            return;
        }
        out.push(low | 0x80);
    }
}

fn put_integer(out: &mut Vec<u8>, tag: u8, value: i64) {
    if value != 0 {
        out.push(tag);
        put_varint(out, value.cast_unsigned());
    }
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    if !value.is_empty() {
        out.push(tag);
        put_varint(out, value.len() as u64);
        out.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::pb::mvcc::KeyValue;

    proptest! {
        #[test]
        fn encodes_as_protobuf_does_and_back(
            key in prop::collection::vec(any::<u8>(), 0..300), value in prop::collection::vec(any::<u8>(), 0..300),
            numbers in prop::array::uniform4(prop_oneof![Just(0_i64), any::<i64>(), 1_i64..300]),
        ) {
            let [create_revision, mod_revision, version, lease] = numbers;
            let ours = StoredValue { key: &key, create_revision, mod_revision, version, value: &value, lease };
            let mut bytes = Vec::new();
            ours.encode(&mut bytes);
            let theirs = KeyValue { key: key.clone(), create_revision, mod_revision, version, value: value.clone(), lease };
            prop_assert_eq!(&bytes, &theirs.encode_to_vec());
            prop_assert_eq!(StoredValue::decode(&bytes), Ok(ours));
            prop_assert_eq!(StoredValue::user_key(&bytes), Ok(key.as_slice()));
        }

        #[test]
        fn whatever_decodes_is_the_only_encoding_of_its_meaning(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(message) = StoredValue::decode(&bytes) {
                let mut again = Vec::new();
                message.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn keys_sort_as_their_revisions(
            a in (0..i64::MAX, 0..i64::MAX, any::<bool>()), b in (0..i64::MAX, 0..i64::MAX, any::<bool>()),
        ) {
            let [a, b] = [a, b].map(|(main, sub, is_tombstone)| StoredKey { revision: Revision { main, sub }, is_tombstone });
            let [mut left, mut right] = [Vec::new(), Vec::new()];
            a.encode(&mut left);
            b.encode(&mut right);
            prop_assert_eq!(a.cmp(&b), left.cmp(&right));
            prop_assert_eq!(StoredKey::decode(&left), Some(a));
        }
    }

    #[test]
    fn malformed_keys_are_refused() {
        let good = Revision { main: 5, sub: 0 }.encode();
        assert!(StoredKey::decode(&good[..16]).is_none());
        assert!(StoredKey::decode(&[good.as_slice(), b"x"].concat()).is_none());
        assert!(StoredKey::decode(&[good.as_slice(), b"tt"].concat()).is_none());
        let mut separator = good;
        separator[8] = b'-';
        assert!(StoredKey::decode(&separator).is_none());
        assert!(Revision::decode(&[0xFF; 17]).is_none());
    }
}
