//! LZW as Go's `compress/lzw` writes it: least significant bit first, 8-bit literals, codes of 9 to 12 bits.

use std::io::{self, BufRead, Read};

use weezl::decode::Decoder;
use weezl::{BitOrder, LzwStatus};

pub(super) struct LzwReader<R> {
    input: R,
    decoder: Decoder,
}

impl<R: BufRead> LzwReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, decoder: Decoder::new(BitOrder::Lsb, 8) }
    }
}

impl<R: BufRead> Read for LzwReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() && !self.decoder.has_ended() {
            let input = self.input.fill_buf()?;
            let at_end = input.is_empty();
            let step = self.decoder.decode_bytes(input, buffer);
            self.input.consume(step.consumed_in);
            let status = step.status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if step.consumed_out > 0 {
                return Ok(step.consumed_out);
            }
            // The decoder takes the end of its input for a pause. Only the end code ends a stream.
            if at_end && matches!(status, LzwStatus::NoProgress) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(0)
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
            let error = decode(&bytes[..length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}");
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
            assert!(out.len() <= 64 * 4096);
        }
    }
}
