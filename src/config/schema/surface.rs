//! The keys of how much of a profile's tools a host is shown at once: `surface`, `max_tokens`, `trim`, `always`.
//!
//! Part of `schema`, and as free of files and layers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Patterns over the names of tools: `*` any text, `?` one character, `[ab]` one of these, `[!ab]` none of these.
#[derive(Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Tools {
    /// When given, only names that match one of these are visible; an empty list shows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Names that match one of these are hidden, whatever `allow` says.
    pub deny: Vec<String>,
    /// Tools that stay in the list where others go behind search, as long as they fit `max_tokens`.
    pub always: Vec<String>,
}

/// By what tokens are counted.
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum Tokenizer {
    /// GPT-4 and GPT-3.5 have it.
    Cl100kBase,
    /// GPT-4o and later have it.
    O200kBase,
}

/// How a host gets at the tools of a profile.
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum Surface {
    /// It is shown them all, as far as `max_tokens` allows; the others are found by search.
    #[default]
    List,
    /// It is shown those of `always`; the others are found by search.
    Search,
    /// As `list` while all of them fit `max_tokens` (10 000 where that is not said) and for hosts that put tools off themselves
    /// (`run --host-defers`), else as `search`.
    Auto,
}

/// What is left out of the definitions of tools as they are listed. What tools take and do stays the same.
#[derive(Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Trim {
    /// Descriptions, of tools and of their parameters, are cut to so many characters, at the end of a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 40, max = 100_000))]
    pub description: Option<u32>,
    /// Whether `outputSchema` is listed.
    pub output_schema: bool,
    /// Whether `examples` of schemas are listed.
    pub examples: bool,
    /// Whether `$schema` is listed where the schema means the same without it.
    pub dialect: bool,
}

impl Default for Trim {
    fn default() -> Self {
        Self { description: None, output_schema: true, examples: true, dialect: true }
    }
}
