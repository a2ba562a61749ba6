//! What a definition costs in a model's context: the only owner of that, for ceilings as for what people are shown.
//!
//! Tokenizers differ by model and change, while people compare: so it is an estimate, one token for each four bytes of the
//! published JSON, rounded up, unless the operator names a tokenizer; then it is what that makes of the text. Used by `merge`
//! when a catalogue is built, `ledger` and whoever shows their numbers; never on the path of a call.

#[cfg(feature = "tokenizer")]
mod exact;

use crate::config::settings::TokenizerName;

/// How tokens are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter(Option<TokenizerName>);

impl Counter {
    /// By this tokenizer; by the estimate where there is none.
    pub const fn new(tokenizer: Option<TokenizerName>) -> Self {
        Self(tokenizer)
    }

    /// What the rule is called where numbers are shown.
    pub const fn name(self) -> &'static str {
        match self.0 {
            None => "utf8-bytes/4",
            Some(tokenizer) => tokenizer.as_str(),
        }
    }

    /// The tokens of a text.
    pub fn of(self, text: &[u8]) -> usize {
        match self.0 {
            None => estimate(text.len()),
            Some(tokenizer) => exactly(tokenizer, text),
        }
    }

    /// What a definition costs in a list: with what stands between it and the next, and rounded up by itself, so that neither
    /// the whole list nor the sum of what people are shown of each is more than a ceiling.
    pub(super) fn listed(self, text: &[u8]) -> usize {
        match self.0 {
            None => estimate(text.len() + 1),
            Some(tokenizer) => exactly(tokenizer, text) + 1,
        }
    }
}

/// The approximate tokens of so many bytes of JSON.
const fn estimate(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

#[cfg(feature = "tokenizer")]
fn exactly(tokenizer: TokenizerName, text: &[u8]) -> usize {
    exact::count(tokenizer, text)
}

/// A build without tokenizers takes no configuration that names one.
#[cfg(not(feature = "tokenizer"))]
fn exactly(_: TokenizerName, text: &[u8]) -> usize {
    estimate(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_a_token() {
        let text = [b'x'; 1000];
        let of = |bytes: usize| Counter::default().of(&text[..bytes]);
        assert_eq!([0, 1, 4, 5, 1000].map(of), [0, 1, 1, 2, 250]);
        assert_eq!(Counter::default().listed(&text[..4]), 2, "with a comma");
    }
}
