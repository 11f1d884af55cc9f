//! Kubernetes' notation for amounts of storage.

/// Bytes in a quantity such as `1Gi`, `1.5G` or `1048576`; fractions of a byte round up.
pub(super) fn bytes(quantity: &str) -> Option<u64> {
    let split = quantity.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(split);
    let power = |base: u128, exponent: u32| Some(base.pow(exponent));
    let factor = match suffix {
        "" => Some(1),
        "k" => power(1000, 1),
        "M" => power(1000, 2),
        "G" => power(1000, 3),
        "T" => power(1000, 4),
        "P" => power(1000, 5),
        "Ki" => power(1024, 1),
        "Mi" => power(1024, 2),
        "Gi" => power(1024, 3),
        "Ti" => power(1024, 4),
        "Pi" => power(1024, 5),
        _ => None,
    }?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    u64::try_from(digits.checked_mul(factor)?.div_ceil(scale)).ok()
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn quantities_are_read_as_kubernetes_means_them() {
        for (quantity, expected) in [
            ("1Gi", Some(1 << 30)),
            ("1.5Gi", Some(3 << 29)),
            ("2G", Some(2_000_000_000)),
            ("1048576", Some(1 << 20)),
            ("0.0001k", Some(1)),
            ("1Zi", None),
            ("", None),
            ("-1Gi", None),
            ("99999999999999999999Pi", None),
        ] {
            assert_eq!(bytes(quantity), expected, "{quantity}");
        }
    }
}
