//! An estimate of what a definition costs in a model's context: the only one, for ceilings as for what people are shown.
//!
//! Deliberately knows no tokenizer: those differ by model and change, while people compare. The rule is one
//! token for each four bytes of the published JSON, rounded up. Used by `surface`, `ledger` and whoever shows their
//! numbers.

/// What the rule is called where numbers are shown.
pub const NAME: &str = "utf8-bytes/4";

/// The approximate tokens of so many bytes of JSON.
pub const fn estimate(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_a_token() {
        assert_eq!([0, 1, 4, 5, 1000].map(estimate), [0, 1, 1, 2, 250]);
    }
}
