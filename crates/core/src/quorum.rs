//! The arithmetic of majorities.

/// Fewest members of `size` that are a majority.
pub fn quorum(size: usize) -> usize {
    size / 2 + 1
}

/// Whether `ready` of `size` members can commit a write. An empty cluster cannot.
pub fn is_quorate(ready: usize, size: usize) -> bool {
    size > 0 && ready >= quorum(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half() {
        assert_eq!([1, 2, 3, 4, 5, 7].map(quorum), [1, 2, 2, 3, 3, 4]);
        assert!(is_quorate(2, 3) && !is_quorate(1, 3) && !is_quorate(0, 0));
    }

    #[test]
    fn two_majorities_always_share_a_member() {
        assert!((1..100).all(|size| 2 * quorum(size) > size));
    }
}
