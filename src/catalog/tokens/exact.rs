//! Tokens as a tokenizer makes them (feature `tokenizer`).
//!
//! A catalogue is built anew whenever a server lists, and almost all of its texts are the same ones again: what was counted is
//! kept, by hash. Counting takes time in proportion to the text, whatever stands in it: it is foreign text.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::config::settings::TokenizerName;

/// So many counts are kept (2 MiB or so); then it begins anew.
const MOST: usize = 1 << 16;

type Counts = HashMap<[u8; 16], u32, foldhash::fast::RandomState>;

static KNOWN: LazyLock<Mutex<Counts>> = LazyLock::new(Mutex::default);

/// The tokens of a text.
pub(super) fn count(tokenizer: TokenizerName, text: &[u8]) -> usize {
    let hash = Sha256::new().chain_update(tokenizer.as_str()).chain_update(text).finalize();
    let mut key = [0; 16];
    key.copy_from_slice(&hash[..16]);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = known().get(&key) {
        return *count as usize;
    }
    let encoding = match tokenizer {
        TokenizerName::Cl100kBase => bpe_openai::cl100k_base(),
        TokenizerName::O200kBase => bpe_openai::o200k_base(),
    };
    let count = encoding.count(&*String::from_utf8_lossy(text));
    let mut known = known();
    if known.len() == MOST {
        known.clear();
    }
    known.insert(key, u32::try_from(count).unwrap_or(u32::MAX));
    count
}

#[cfg(test)]
mod tests {
    use super::super::Counter;
    use super::*;

    #[test]
    fn texts_are_counted_as_the_published_tokenizers_count_them() {
        // The numbers are those of tiktoken 0.14, the reference.
        for (text, cl100k, o200k) in CASES {
            for (name, expected) in [(TokenizerName::Cl100kBase, cl100k), (TokenizerName::O200kBase, o200k)] {
                // Once more it is what was kept.
                for _ in 0..2 {
                    assert_eq!(Counter::new(Some(name)).of(text.as_bytes()), *expected, "{text:?}");
                }
            }
        }
    }

    const CASES: &[(&str, usize, usize)] = &[
        ("", 0, 0),
        ("hello world", 2, 2),
        (
            r#"{"name":"files__read_file","description":"Reads a file.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}"#,
            36,
            35,
        ),
        ("größe messen – 測定する 😀", 10, 8),
        ("  \n\n\t x  12345678  I'll don't  ", 14, 12),
        ("}},{\"a\":[1,2,3]}   ", 11, 11),
    ];
}
