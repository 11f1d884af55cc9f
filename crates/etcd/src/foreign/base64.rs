//! Standard base64 with padding, decoded straight into a reused buffer.

const INVALID: u32 = 1 << 31;

/// Bits of each character already shifted to the place it has as first, second, third or fourth of four.
static PLACES: [[u32; 256]; 4] = [places(18), places(12), places(6), places(0)];

const fn places(shift: u32) -> [u32; 256] {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [INVALID; 256];
    let mut value = 0;
    while value < alphabet.len() {
        #[expect(clippy::cast_possible_truncation, reason = "an index into 64 characters")]
        let bits = value as u32;
        table[alphabet[value] as usize] = bits << shift;
        value += 1;
    }
    table
}

fn quad(four: [u8; 4]) -> u32 {
    let bits =
        |place: usize| four.get(place).zip(PLACES.get(place)).map_or(INVALID, |(c, table)| table[usize::from(*c)]);
    bits(0) | bits(1) | bits(2) | bits(3)
}

/// Replaces `out` with the decoded text; `None` if it is not canonical padded base64.
pub(super) fn decode_into(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let (body, tail) = text.split_at(text.len().saturating_sub(4));
    out.resize(body.len() / 4 * 3, 0);
    let mut invalid = 0;
    for (four, three) in body.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<3>().0) {
        let bits = quad(*four);
        invalid |= bits;
        let [_, high, middle, low] = bits.to_be_bytes();
        *three = [high, middle, low];
    }
    if invalid & INVALID != 0 {
        return None;
    }
    let Some(&[w, x, y, z]) = tail.first_chunk::<4>() else { return Some(()) };
    let (bits, length) = match (y, z) {
        (b'=', b'=') => (quad([w, x, b'A', b'A']), 1),
        (_, b'=') => (quad([w, x, y, b'A']), 2),
        _ => (quad([w, x, y, z]), 3),
    };
    let [_, bytes @ ..] = bits.to_be_bytes();
    let (kept, dropped) = bytes.split_at(length);
    if bits & INVALID != 0 || dropped.iter().any(|byte| *byte != 0) {
        return None;
    }
    out.extend_from_slice(kept);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> Option<Vec<u8>> {
        let mut out = vec![7; 3];
        decode_into(text.as_bytes(), &mut out).map(|()| out)
    }

    #[test]
    fn the_vectors_of_rfc_4648_decode() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode("+/+/////").unwrap(), [0xfb, 0xff, 0xbf, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn what_no_encoder_writes_is_refused() {
        for text in ["Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9-", "Zm9v\n", "Zg==="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
