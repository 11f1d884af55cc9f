//! Durations as the API writes them: `90s`, `30m`, `1h30m`.

use jiff::SignedDuration;

/// `None` for anything but numbers with a unit of `ms`, `s`, `m` or `h`, and for zero.
pub(crate) fn parse(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = SignedDuration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|&end| (1..=6).contains(&end))?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let number = number.parse::<i64>().ok()?;
        let part = match unit {
            "ms" => SignedDuration::from_millis(number),
            "s" => SignedDuration::from_secs(number),
            "m" => SignedDuration::from_secs(number.checked_mul(60)?),
            "h" => SignedDuration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = after;
    }
    (total > SignedDuration::ZERO).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_the_api_are_read() {
        assert_eq!(parse("1h30m"), Some(SignedDuration::from_secs(5400)));
        assert_eq!(parse("500ms"), Some(SignedDuration::from_millis(500)));
        for text in ["", "0s", "5", "-5m", "1d", "5 m", "m", "1234567s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
