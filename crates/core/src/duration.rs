//! Durations as the API writes them: `90s`, `30m`, `1h30m`.

use jiff::SignedDuration;
use quorate_api::schema::LONGEST_DURATION;

/// `None` for anything but numbers with a unit of `h`, `m`, `s` or `ms`, for zero, and for what is too long.
pub(crate) fn parse(text: &str) -> Option<SignedDuration> {
    // jiff reads more than Go does: signs, fractions, words, spaces.
    let plain = text.bytes().all(|c| c.is_ascii_digit() || b"hms".contains(&c));
    let duration = if plain { text.parse::<SignedDuration>().ok()? } else { return None };
    (duration > SignedDuration::ZERO && duration <= LONGEST_DURATION).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_the_api_are_read() {
        assert_eq!(parse("1h30m"), Some(SignedDuration::from_secs(5400)));
        assert_eq!(parse("500ms"), Some(SignedDuration::from_millis(500)));
    }
}
