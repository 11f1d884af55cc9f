//! The one JSON shape of delta files, parsed in place.
//!
//! Go's encoder always writes the same field order without blanks, which a fixed sequence of comparisons reads about
//! as fast as the base64 in it can be decoded. Anything else falls back to a general parser, so this is an
//! optimisation only; the tests compare both.

use std::io::BufRead;

use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::Timestamp;
use serde::Deserialize;

use crate::events::{ChangeEvent, EventKind};

/// What stands at the front of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// An event, now in the caller's buffer, and the bytes it took.
    Event(usize),
    Incomplete,
}

/// Parses elements of the array, remembering what neighbours have in common.
#[derive(Debug, Default)]
pub(super) struct ElementParser {
    /// Events of one watch response share a stamp, and parsing it costs more than comparing it.
    last_stamp: Vec<u8>,
    last_time: Option<Timestamp>,
}

impl ElementParser {
    /// Reads one element at the front of `text` into `event`.
    pub(super) fn parse(&mut self, text: &[u8], event: &mut ChangeEvent) -> Result<Parsed, String> {
        if let Some(rest) = self.usual(text, event) {
            return Ok(Parsed::Event(text.len() - rest.len()));
        }
        match element_length(text)? {
            Some(length) => {
                *event = general(text.get(..length).unwrap_or_default())?;
                Ok(Parsed::Event(length))
            }
            None => Ok(Parsed::Incomplete),
        }
    }

    /// The order in which Go writes the fields. `None` if the text differs or ends too early.
    fn usual<'t>(&mut self, text: &'t [u8], event: &mut ChangeEvent) -> Option<&'t [u8]> {
        let text = text.strip_prefix(br#"{"etcdEvent":{"#)?;
        let (kind, text) = match text.strip_prefix(br#""type":1,"#) {
            Some(text) => (EventKind::Delete, text),
            None => (EventKind::Put, text),
        };
        event.kind = kind;
        let text = text.strip_prefix(br#""kv":{"key":""#)?;
        let text = bytes(text, &mut event.key)?;
        let text = optional_number(text, br#","create_revision":"#, &mut event.create_revision)?;
        let text = optional_number(text, br#","mod_revision":"#, &mut event.mod_revision)?;
        let text = optional_number(text, br#","version":"#, &mut event.version)?;
        event.value.clear();
        let text = match text.strip_prefix(br#","value":""#) {
            Some(text) => bytes(text, &mut event.value)?,
            None => text,
        };
        let text = optional_number(text, br#","lease":"#, &mut event.lease)?;
        let text = text.strip_prefix(br#"}},"time":""#)?;
        let (stamp, text) = up_to_quote(text)?;
        event.time = Some(self.time(stamp)?);
        text.strip_prefix(b"}")
    }

    fn time(&mut self, stamp: &[u8]) -> Option<Timestamp> {
        if self.last_time.is_none() || self.last_stamp != stamp {
            self.last_time = Some(std::str::from_utf8(stamp).ok()?.parse().ok()?);
            self.last_stamp.clear();
            self.last_stamp.extend_from_slice(stamp);
        }
        self.last_time
    }
}

/// What stands before the next quote and what follows it.
fn up_to_quote(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // For a slice this is the platform's memchr, several times faster than a loop over bytes.
    let mut rest = text;
    let length = rest.skip_until(b'"').ok()?;
    let (text, b'"') = text.get(..length)?.split_last().map(|(last, text)| (text, *last))? else { return None };
    Some((text, rest))
}

fn bytes<'t>(text: &'t [u8], out: &mut Vec<u8>) -> Option<&'t [u8]> {
    let (encoded, rest) = up_to_quote(text)?;
    decode(encoded, out).ok()?;
    Some(rest)
}

/// Replaces `out`, whose memory serves one event after another.
fn decode(encoded: &[u8], out: &mut Vec<u8>) -> Result<(), base64::DecodeError> {
    out.clear();
    BASE64_STANDARD.decode_vec(encoded, out)
}

fn optional_number<'t>(text: &'t [u8], name: &[u8], out: &mut i64) -> Option<&'t [u8]> {
    let Some(digits) = text.strip_prefix(name) else {
        *out = 0;
        return Some(text);
    };
    let length = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = digits.split_at_checked(length)?;
    if digits.first() == Some(&b'0') {
        return None;
    }
    *out = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(rest)
}

/// Length of the object at the front, `None` if it is not complete yet.
fn element_length(text: &[u8]) -> Result<Option<usize>, String> {
    match text.first() {
        None => return Ok(None),
        Some(b'{') => {}
        Some(other) => return Err(format!("expected an event, found {:?}", char::from(*other))),
    }
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for (position, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(position + 1));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

#[derive(Deserialize)]
struct Element {
    #[serde(rename = "etcdEvent")]
    event: WatchEvent,
    time: String,
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(default)]
    r#type: i64,
    kv: Stored,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stored {
    key: String,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    value: Option<String>,
    lease: i64,
}

fn general(text: &[u8]) -> Result<ChangeEvent, String> {
    let element: Element = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let decoded = |what: &str, encoded: &str| {
        BASE64_STANDARD.decode(encoded).map_err(|error| format!("the {what} is not base64: {error}"))
    };
    let kv = element.event.kv;
    Ok(ChangeEvent {
        key: decoded("key", &kv.key)?,
        value: decoded("value", kv.value.as_deref().unwrap_or_default())?,
        kind: match element.event.r#type {
            0 => EventKind::Put,
            1 => EventKind::Delete,
            other => return Err(format!("unknown event type {other}")),
        },
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
        time: Some(element.time.parse().map_err(|error: jiff::Error| error.to_string())?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &[&str] = &[
        r#"{"etcdEvent":{"kv":{"key":"YQ==","create_revision":3,"mod_revision":4,"version":2,"value":"Yg==","lease":77}},"time":"2024-01-02T03:04:05.123456789+02:00"}"#,
        r#"{"etcdEvent":{"kv":{"key":"YQ==","create_revision":4,"mod_revision":4,"version":1}},"time":"2024-01-02T03:04:05Z"}"#,
        r#"{"etcdEvent":{"type":1,"kv":{"key":"YQ==","mod_revision":5}},"time":"2024-01-02T03:04:05Z"}"#,
    ];

    fn parse(text: &str) -> Result<(Parsed, ChangeEvent), String> {
        let mut event = ChangeEvent { value: vec![1], lease: 9, version: 9, ..ChangeEvent::default() };
        Ok((ElementParser::default().parse(text.as_bytes(), &mut event)?, event))
    }

    #[test]
    fn the_fast_path_agrees_with_the_general_parser() {
        for text in USUAL {
            let mut event = ChangeEvent { value: vec![1], lease: 9, ..ChangeEvent::default() };
            let rest = ElementParser::default().usual(text.as_bytes(), &mut event).expect("the usual shape");
            assert!(rest.is_empty());
            assert_eq!(event, general(text.as_bytes()).unwrap());
        }
    }

    #[test]
    fn other_orders_blanks_and_unknown_fields_are_read_too() {
        let text = r#"{ "time": "2024-01-02T03:04:05Z", "etcdEvent": {"kv": {"mod_revision": 4, "value": null,
            "version": 1, "create_revision": 4, "key": "YQ=="}, "prev_kv": {"key": "}\"{"}, "type": 0}}"#;
        let (parsed, event) = parse(text).unwrap();
        assert_eq!(parsed, Parsed::Event(text.len()));
        assert_eq!((event.key.as_slice(), event.mod_revision, event.lease), (&b"a"[..], 4, 0));
        assert!(event.value.is_empty());
    }

    #[test]
    fn base64_that_no_encoder_writes_is_refused() {
        for key in ["Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9-", "Zm9v\\n", "Zg==="] {
            let error = parse(&USUAL[0].replace("YQ==", key)).unwrap_err();
            assert!(error.contains("the key is not base64"), "{key}: {error}");
        }
    }

    #[test]
    fn every_prefix_of_an_event_asks_for_more() {
        for text in USUAL {
            for length in 0..text.len() {
                assert_eq!(parse(&text[..length]).unwrap().0, Parsed::Incomplete, "{length} of {text}");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_refused_or_read_as_the_general_parser_reads_it() {
        for text in USUAL {
            for position in 0..text.len() {
                for replacement in *b"\0 \"{}0Z\\" {
                    let mut changed = text.as_bytes().to_vec();
                    changed[position] = replacement;
                    let mut event = ChangeEvent::default();
                    if let Ok(Parsed::Event(length)) = ElementParser::default().parse(&changed, &mut event) {
                        assert_eq!(general(&changed[..length]).unwrap(), event);
                    }
                }
            }
        }
    }
}
