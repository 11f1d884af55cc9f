//! Names that can do no harm: below the prefix, in no provider special, and the same on every one of them.

use std::fmt;
use std::str::FromStr;

/// S3 allows 1024 bytes for a whole key; a prefix and a name together stay below.
const LONGEST: usize = 480;
const LONGEST_SEGMENT: usize = 200;

/// A text that names no object here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot be {what}: {why}")]
pub struct InvalidName {
    text: String,
    what: &'static str,
    why: &'static str,
}

/// The name of an object, relative to the prefix: segments of letters, digits and `.`, `_`, `-`, joined by `/`. A segment
/// begins with a letter or a digit, so there is no `..`, and none that this crate uses for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        match check(&text) {
            Ok(()) => Ok(Self(text)),
            Err(why) => Err(InvalidName { text, what: "the name of an object", why }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ObjectName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

/// The part of a bucket that a store is confined to. Empty, or ends in `/`: `a` never covers what is below `ab`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    /// From a path with or without the `/` at its end.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let path = text.strip_suffix('/').unwrap_or(text);
        if path.is_empty() && text.is_empty() {
            return Ok(Self::default());
        }
        match check(path) {
            Ok(()) => Ok(Self(format!("{path}/"))),
            Err(why) => Err(InvalidName { text: text.to_owned(), what: "a prefix", why }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole key of an object.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.0)
    }

    /// The name of a key, if the key is one of ours.
    pub(crate) fn name_of(&self, key: &str) -> Option<ObjectName> {
        ObjectName::new(key.strip_prefix(self.as_str())?).ok()
    }
}

fn check(text: &str) -> Result<(), &'static str> {
    if text.len() > LONGEST {
        return Err("it is too long");
    }
    for segment in text.split('/') {
        if segment.is_empty() {
            return Err("it has an empty segment, or begins or ends with a slash");
        }
        if segment.len() > LONGEST_SEGMENT {
            return Err("a segment is too long");
        }
        if !segment.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return Err("a segment does not begin with a letter or a digit");
        }
        if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Err("only letters, digits, '.', '_' and '-' are allowed between slashes");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_that_leaves_the_prefix_is_a_name() {
        let harmful = [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "a/./b",
            ".hidden",
            "a/.hidden",
            "a\\b",
            "a b",
            "a?b",
            "a#1",
            "a%2e%2e",
            "ä",
            "a\0",
            "a\n",
            "-a",
            "_a",
            "a:b",
            "a*",
            "~",
        ];
        for text in harmful {
            assert!(ObjectName::new(text).is_err(), "{text:?}");
            assert!(text.is_empty() || text == "a/" || Prefix::new(text).is_err(), "{text:?}");
        }
        assert!(ObjectName::new("a".repeat(LONGEST_SEGMENT + 1)).is_err());
        assert!(ObjectName::new("ab/".repeat(LONGEST / 2)).is_err());
    }

    #[test]
    fn names_that_backups_have_are_names() {
        for text in ["a", "0", "full/00000001-00000000000000000042.q1", "Backup-1518427675/Incr-00000001-00000002.gz"] {
            assert_eq!(ObjectName::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_prefix_ends_in_a_slash_however_it_is_written() {
        assert_eq!(Prefix::new("").unwrap().as_str(), "");
        assert_eq!(Prefix::new("team/example").unwrap().as_str(), "team/example/");
        assert_eq!(Prefix::new("team/example/").unwrap().as_str(), "team/example/");
        assert!(Prefix::new("team/example//").is_err());
    }

    #[test]
    fn a_key_beside_the_prefix_is_not_ours() {
        let prefix = Prefix::new("team/example").unwrap();
        assert_eq!(prefix.name_of("team/example/a/b").unwrap().as_str(), "a/b");
        for key in
            ["team/example2/a", "team/example", "team/example/", "a", "team/example/../other/a", "team/example/.x"]
        {
            assert_eq!(prefix.name_of(key), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_what_it_was_made_from_and_stays_below_the_prefix(text in "[a-z./_\\-#]{0,12}") {
            if let Ok(name) = ObjectName::new(text.clone()) {
                let prefix = Prefix::new("p").unwrap();
                let key = prefix.key(name.as_str());
                prop_assert_eq!(prefix.name_of(&key), Some(name));
                prop_assert!(!key.split('/').any(|segment| segment.is_empty() || segment.starts_with('.')));
                prop_assert_eq!(object_store::path::Path::parse(&key).unwrap().to_string(), key);
            }
        }
    }
}
