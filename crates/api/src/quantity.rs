//! Kubernetes quantities as numbers.

/// Thousandths of a unit, so that `500m` of a CPU is exact and `8Gi` of bytes still fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    milli: i128,
}

impl Quantity {
    /// Reads `8Gi`, `500m`, `1.5`, `2e3`. `None` for anything else, and for what does not fit.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || fraction.len() > 9 || whole.len() > 24
        {
            return None;
        }
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let digits = format!("{whole}{fraction}").parse::<i128>().ok()?;
        // Rounded up, as Kubernetes does: a request is never silently less than asked for.
        let milli = divide_up(digits.checked_mul(thousandths(suffix)?)?, scale.checked_mul(unit_divisor(suffix))?);
        Some(Self { milli: if negative { -milli } else { milli } })
    }

    /// Whole units, rounded down. `None` if negative or too large.
    pub fn whole(self) -> Option<i64> {
        (self.milli >= 0).then(|| i64::try_from(self.milli / 1000).ok()).flatten()
    }
}

fn divide_up(value: i128, by: i128) -> i128 {
    value / by + i128::from(value % by != 0)
}

/// How many thousandths one of this unit is; for units below a thousandth, see [`unit_divisor`].
fn thousandths(suffix: &str) -> Option<i128> {
    let binary = |power: u32| 1024_i128.checked_pow(power)?.checked_mul(1000);
    let decimal = |exponent: u32| 10_i128.checked_pow(exponent + 3);
    match suffix {
        "n" | "u" | "m" => Some(1),
        "" => Some(1000),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        other => {
            let exponent = exponent(other).filter(|exponent| (-18..=18).contains(exponent))?;
            decimal(u32::try_from(exponent).unwrap_or(0))
        }
    }
}

fn unit_divisor(suffix: &str) -> i128 {
    match suffix {
        "n" => 1_000_000,
        "u" => 1000,
        other => {
            let below_one = exponent(other).filter(|exponent| (-18..0).contains(exponent)).unwrap_or(0);
            10_i128.pow(below_one.unsigned_abs())
        }
    }
}

fn exponent(suffix: &str) -> Option<i32> {
    suffix.strip_prefix(['e', 'E'])?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Option<i64> {
        Quantity::parse(text).and_then(Quantity::whole)
    }

    #[test]
    fn quantities_of_kubernetes_are_read() {
        assert_eq!(whole("8Gi"), Some(8 << 30));
        assert_eq!(whole("1.5Ki"), Some(1536));
        assert_eq!(whole("2e3"), Some(2000));
        assert_eq!(whole("2500e-3"), Some(2));
        assert_eq!(Quantity::parse("1e-1"), Quantity::parse("100m"));
        assert_eq!(whole("2500m"), Some(2));
        assert_eq!(whole("0"), Some(0));
        assert_eq!(whole(".5"), Some(0));
        assert_eq!(Quantity::parse("1000m"), Quantity::parse("1"));
        assert_eq!(Quantity::parse("1024Mi"), Quantity::parse("1Gi"));
        assert!(Quantity::parse("1G") < Quantity::parse("1Gi"));
        assert!(Quantity::parse("1n") <= Quantity::parse("1m"), "rounded up to the smallest unit");
    }

    #[test]
    fn other_text_is_no_quantity() {
        for text in ["", ".", "Gi", "8GB", "8 Gi", "eight", "1.2.3", "--1", "1e99", "9999999999999999999999999Ei"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(whole("-1Gi"), None);
    }
}
