//! Encryption of objects: a key per object, derived from one of several that are known by name.
//!
//! Each object has a random salt, so its key is its own and a counter is enough of a nonce. The counter and the mark of
//! the last chunk make removing, moving and adding chunks show; the header is authenticated with every chunk, so none
//! fits another object.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use super::format::{Header, ObjectError};
use crate::snapshot::Digest256;

pub(crate) const SALT_SIZE: usize = 32;
pub(crate) const TAG_SIZE: usize = 16;
const KEY_SIZE: usize = 32;
const CHECK_SIZE: usize = 16;
const INFO: &[u8] = b"quorate.dev/backup/1";
const LONGEST_ID: usize = 253;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("key `{id}` has {found} bytes; it must be 32 random bytes")]
    Size { id: String, found: usize },
    #[error("`{id}` cannot name a key: 1 to 253 letters, digits, `-`, `_` and `.`")]
    Id { id: String },
    #[error("key `{id}`, which is to be used for new objects, is not among the keys")]
    NoActive { id: String },
}

/// 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_SIZE]);

impl Key {
    pub fn new(id: &str, bytes: &[u8]) -> Result<Self, KeyError> {
        bytes.try_into().map(Self).map_err(|_| KeyError::Size { id: id.to_owned(), found: bytes.len() })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys that objects may be encrypted with, by name. Rotation adds one and makes it the active one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    keys: BTreeMap<String, Key>,
    active: Option<String>,
}

impl Keyring {
    /// For objects that are not encrypted.
    pub fn none() -> Self {
        Self::default()
    }

    /// With `active`, new objects are encrypted with the key of that name.
    pub fn new(keys: BTreeMap<String, Key>, active: Option<String>) -> Result<Self, KeyError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        for id in keys.keys() {
            if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(plain) {
                return Err(KeyError::Id { id: id.clone() });
            }
        }
        match &active {
            Some(id) if !keys.contains_key(id) => Err(KeyError::NoActive { id: id.clone() }),
            _ => Ok(Self { keys, active }),
        }
    }

    /// Completes the header of a new object.
    pub(crate) fn seal(&self, header: &mut Header) -> Result<Option<Sealer>, ObjectError> {
        let mut salt = [0; SALT_SIZE];
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| ObjectError::Crypto)?;
        // Without encryption too: no two objects begin alike, so no frame of one fits another.
        header.salt = salt.to_vec();
        let Some((id, key)) = self.active.as_ref().and_then(|id| self.keys.get_key_value(id)) else {
            return Ok(None);
        };
        let (sealer, check) = Sealer::derive(key, &salt)?;
        header.key_id.clone_from(id);
        header.key_check = check.to_vec();
        Ok(Some(sealer))
    }

    /// The key of an object that was read.
    pub(crate) fn open(&self, header: &Header) -> Result<Option<Sealer>, ObjectError> {
        let id = &header.key_id;
        if id.is_empty() {
            return Ok(None);
        }
        let key = self.keys.get(id).ok_or_else(|| ObjectError::MissingKey { id: id.clone() })?;
        let (sealer, check) = Sealer::derive(key, &header.salt)?;
        if header.key_check != check {
            return Err(ObjectError::WrongKey { id: id.clone() });
        }
        Ok(Some(sealer))
    }
}

#[derive(Clone, Copy)]
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// One object's key.
#[derive(Debug)]
pub(crate) struct Sealer {
    key: LessSafeKey,
}

/// Which chunk of which object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) binding: &'a Digest256,
    pub(crate) sequence: u64,
    pub(crate) is_last: bool,
    pub(crate) head: &'a [u8],
}

impl Place<'_> {
    fn nonce(&self) -> Nonce {
        let mut nonce = [0; 12];
        let (counter, last) = (self.sequence.to_be_bytes(), u8::from(self.is_last));
        for (to, from) in nonce.iter_mut().skip(3).zip(counter.into_iter().chain([last])) {
            *to = from;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    fn associated(&self) -> Aad<Vec<u8>> {
        Aad::from([self.binding.as_slice(), self.head].concat())
    }
}

impl Sealer {
    fn derive(key: &Key, salt: &[u8]) -> Result<(Self, [u8; CHECK_SIZE]), ObjectError> {
        let prk = Salt::new(HKDF_SHA256, salt).extract(&key.0);
        let expand = |label: &[u8], out: &mut [u8]| {
            let info = [INFO, label];
            let expanded = prk.expand(&info, Length(out.len())).and_then(|okm| okm.fill(out));
            expanded.map_err(|_| ObjectError::Crypto)
        };
        let (mut secret, mut check) = ([0; KEY_SIZE], [0; CHECK_SIZE]);
        expand(b"/key", &mut secret)?;
        expand(b"/check", &mut check)?;
        let key = UnboundKey::new(&AES_256_GCM, &secret).map_err(|_| ObjectError::Crypto)?;
        Ok((Self { key: LessSafeKey::new(key) }, check))
    }

    /// Encrypts in place and appends the tag.
    pub(crate) fn seal(&self, place: Place<'_>, chunk: &mut Vec<u8>) -> Result<(), ObjectError> {
        let sealed = self.key.seal_in_place_separate_tag(place.nonce(), place.associated(), chunk);
        chunk.extend_from_slice(sealed.map_err(|_| ObjectError::Crypto)?.as_ref());
        Ok(())
    }

    /// Decrypts in place; `None` if anything about the chunk or its place is not as it was sealed.
    pub(crate) fn open<'c>(&self, place: Place<'_>, chunk: &'c mut [u8]) -> Option<&'c [u8]> {
        self.key.open_in_place(place.nonce(), place.associated(), chunk).ok().map(|plain| &*plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(id: &str, byte: u8) -> Keyring {
        let keys = BTreeMap::from([(id.to_owned(), Key::new(id, &[byte; 32]).unwrap())]);
        Keyring::new(keys, Some(id.to_owned())).unwrap()
    }

    #[test]
    fn a_key_that_is_missing_and_one_that_is_wrong_are_told_apart_before_anything_is_decrypted() {
        let mut header = Header::default();
        ring("k1", 1).seal(&mut header).unwrap().unwrap();
        assert!(ring("k1", 1).open(&header).unwrap().is_some());
        assert!(matches!(ring("k1", 2).open(&header), Err(ObjectError::WrongKey { id }) if id == "k1"));
        assert!(matches!(ring("k2", 1).open(&header), Err(ObjectError::MissingKey { id }) if id == "k1"));
    }

    #[test]
    fn a_chunk_opens_only_in_its_place() {
        let mut header = Header::default();
        let sealer = ring("k1", 1).seal(&mut header).unwrap().unwrap();
        let place = Place { binding: &[7; 32], sequence: 3, is_last: false, head: b"head" };
        let mut chunk = b"secret".to_vec();
        sealer.seal(place, &mut chunk).unwrap();
        assert_eq!(chunk.len(), 6 + TAG_SIZE);
        assert_eq!(sealer.open(place, &mut chunk.clone()), Some(b"secret".as_slice()));
        for wrong in [
            Place { binding: &[8; 32], ..place },
            Place { sequence: 4, ..place },
            Place { is_last: true, ..place },
            Place { head: b"hea", ..place },
        ] {
            assert_eq!(sealer.open(wrong, &mut chunk.clone()), None, "{wrong:?}");
        }
    }

    #[test]
    fn keys_never_show_and_must_be_whole() {
        let key = Key::new("k", &[65; 32]).unwrap();
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert!(matches!(Key::new("k", b"short"), Err(KeyError::Size { found: 5, .. })));
        let named = |id: &str| Keyring::new(BTreeMap::from([(id.to_owned(), key.clone())]), None);
        assert!(matches!(named("a/b"), Err(KeyError::Id { .. })));
        assert!(matches!(Keyring::new(BTreeMap::new(), Some("x".into())), Err(KeyError::NoActive { .. })));
    }
}
