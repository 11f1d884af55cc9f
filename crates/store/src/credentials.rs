//! The entries of a Secret. They can be read by this crate and printed by nobody.

use std::collections::BTreeMap;
use std::fmt;

/// Key and value as the Secret has them. The crate's documentation lists the keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(BTreeMap<String, Vec<u8>>);

impl Credentials {
    pub fn new(entries: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// A value as text, without the line break that an editor leaves at the end of a file.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        let text = std::str::from_utf8(self.0.get(key)?).ok()?.trim();
        (!text.is_empty()).then_some(text)
    }

    pub(crate) fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    /// Whether there is anything by which somebody could be recognised: authorities alone are no identity.
    pub(crate) fn identify(&self) -> bool {
        self.0.keys().any(|key| key != "ca.crt")
    }

    /// What is there, for messages.
    pub(crate) fn keys(&self) -> String {
        let keys: Vec<&str> = self.0.keys().map(String::as_str).collect();
        if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_never_printed() {
        let credentials = Credentials::new([("secretAccessKey".to_owned(), b"canary".to_vec())]);
        assert_eq!(format!("{credentials:?}"), "Credentials(secretAccessKey)");
    }

    #[test]
    fn a_line_break_at_the_end_of_a_value_is_not_part_of_it() {
        let credentials = Credentials::new([("a".to_owned(), b"x\n".to_vec()), ("b".to_owned(), b" \n".to_vec())]);
        assert_eq!(credentials.text("a"), Some("x"));
        assert_eq!(credentials.text("b"), None);
        assert_eq!(credentials.text("c"), None);
    }
}
