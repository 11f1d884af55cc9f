//! LZW as Go's `compress/lzw` writes it: least significant bit first, 8-bit literals, codes of 9 to 12 bits.

use std::io::{self, BufRead, Read};

const CLEAR: u16 = 256;
const END: u16 = 257;
const FIRST_WIDTH: u32 = 9;
const LAST_WIDTH: u32 = 12;
const FULL: u16 = 1 << LAST_WIDTH;
const CODES: usize = FULL as usize;

/// A code stands for the string of `prefix` followed by one byte.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    prefix: u16,
    suffix: u8,
}

#[derive(Debug)]
pub(super) struct LzwReader<R> {
    input: R,
    bits: u32,
    bit_count: u32,
    width: u32,
    /// The code the next table entry gets; until then, the string may refer to it before it is complete.
    next: u16,
    last: Option<u16>,
    table: Vec<Entry>,
    /// Decoded bytes not yet handed out, reversed.
    pending: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> LzwReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            bits: 0,
            bit_count: 0,
            width: FIRST_WIDTH,
            next: END,
            last: None,
            table: vec![Entry::default(); CODES],
            pending: Vec::with_capacity(CODES),
            ended: false,
        }
    }

    fn code(&mut self) -> io::Result<u16> {
        while self.bit_count < self.width {
            let byte = *self.input.fill_buf()?.first().ok_or(io::ErrorKind::UnexpectedEof)?;
            self.input.consume(1);
            self.bits |= u32::from(byte) << self.bit_count;
            self.bit_count += 8;
        }
        let code = self.bits & ((1 << self.width) - 1);
        self.bits >>= self.width;
        self.bit_count -= self.width;
        u16::try_from(code).map_err(io::Error::other)
    }

    fn entry(&self, code: u16) -> Entry {
        self.table.get(usize::from(code)).copied().unwrap_or_default()
    }

    /// Pushes the string of `code`, last byte first, and returns its first byte.
    fn expand(&mut self, code: u16) -> io::Result<u8> {
        let mut code = code;
        while code > END {
            let entry = self.entry(code);
            self.pending.push(entry.suffix);
            if self.pending.len() > CODES {
                return Err(invalid());
            }
            code = entry.prefix;
        }
        let first = u8::try_from(code).map_err(|_| invalid())?;
        self.pending.push(first);
        Ok(first)
    }

    fn first_byte(&self, code: u16) -> io::Result<u8> {
        let mut code = code;
        for _ in 0..CODES {
            if code < CLEAR {
                break;
            }
            code = self.entry(code).prefix;
        }
        u8::try_from(code).map_err(|_| invalid())
    }

    /// Decodes one code into `pending`.
    fn decode(&mut self) -> io::Result<()> {
        let code = self.code()?;
        if code == END {
            self.ended = true;
            return Ok(());
        }
        if code == CLEAR {
            (self.width, self.next, self.last) = (FIRST_WIDTH, END, None);
            return Ok(());
        }
        let first = match self.last {
            Some(last) if code == self.next => {
                // The string being defined right now: the last one followed by its own first byte.
                let first = self.first_byte(last)?;
                self.pending.push(first);
                self.expand(last)?
            }
            _ if code < CLEAR || code < self.next => self.expand(code)?,
            _ => return Err(invalid()),
        };
        if let (Some(last), Some(entry)) = (self.last, self.table.get_mut(usize::from(self.next))) {
            *entry = Entry { prefix: last, suffix: first };
        }
        self.last = Some(code);
        if u32::from(self.next) + 1 < 1 << self.width {
            self.next += 1;
        } else if self.width < LAST_WIDTH {
            self.next += 1;
            self.width += 1;
        } else {
            // The table is full and stays as it is until the writer clears it.
            (self.next, self.last) = (FULL, None);
        }
        Ok(())
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "invalid LZW code")
}

impl<R: BufRead> Read for LzwReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        for slot in buffer.iter_mut() {
            while self.pending.is_empty() && !self.ended {
                self.decode()?;
            }
            let Some(byte) = self.pending.pop() else { break };
            *slot = byte;
            written += 1;
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        LzwReader::new(bytes).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn a_stream_of_go_that_fills_the_table_and_clears_it_is_read() {
        let expected: Vec<u8> = (0..10_000).flat_map(|number| format!("{number} ").into_bytes()).collect();
        assert_eq!(decode(include_bytes!("testdata/numbers.Z")).unwrap(), expected);
    }

    #[test]
    fn a_code_may_refer_to_the_string_it_defines() {
        assert_eq!(decode(include_bytes!("testdata/repeats.Z")).unwrap(), [b'a'; 5000]);
    }

    #[test]
    fn a_stream_without_its_end_is_refused() {
        let bytes = include_bytes!("testdata/repeats.Z");
        for length in 0..bytes.len() - 1 {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_stay_bounded() {
        let mut state = 1_u32;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..64)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    state.to_be_bytes()[0]
                })
                .collect();
            let mut out = Vec::new();
            LzwReader::new(bytes.as_slice()).read_to_end(&mut out).ok();
            assert!(out.len() <= 64 * CODES);
        }
    }
}
