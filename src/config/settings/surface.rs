//! How much of a profile's tools a host is shown at once, as the other rooms see it: `surface`, `max_tokens`, `always`,
//! `trim`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ident::ServerKey;

/// How a host gets at the tools of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurfaceMode {
    /// By a list of all that fit.
    #[default]
    List,
    /// By search, but for those that are always listed.
    Search,
    /// By a list while all of them fit, else by search.
    Auto,
}

impl SurfaceMode {
    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Search => "search",
            Self::Auto => "auto",
        }
    }
}

/// A tokenizer that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerName {
    /// Of GPT-4 and GPT-3.5.
    Cl100kBase,
    /// Of GPT-4o and later.
    O200kBase,
}

impl TokenizerName {
    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cl100kBase => "cl100k_base",
            Self::O200kBase => "o200k_base",
        }
    }
}

/// How much a host is shown at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurfaceSettings {
    /// How it gets at the tools.
    pub mode: SurfaceMode,
    /// The most tokens that the list of tools costs, as it is written; what holds says [`Self::ceiling`].
    pub max_tokens: Option<usize>,
    /// Tools that stay in the list, as `<server>/<native name>`.
    pub always: Vec<String>,
    /// The same as each server has it, by native name.
    pub always_of: Vec<(ServerKey, Vec<String>)>,
    /// What was called in this last time comes first.
    pub recent: Option<Duration>,
    /// How often that was; filled in by who reads the records.
    pub uses: Uses,
    /// What is left out of definitions in the list.
    pub trim: TrimSettings,
    /// Whether a tool of ours tells which servers there are.
    pub list_servers: bool,
    /// By what tokens are counted; `None` = they are estimated.
    pub tokenizer: Option<TokenizerName>,
}

impl SurfaceSettings {
    /// What `auto` takes for the most tokens of a list where nobody says it.
    const AUTO_TOKENS: usize = 10_000;

    /// The most tokens that the list of tools costs, about; `None` = no bound.
    pub fn ceiling(&self) -> Option<usize> {
        self.max_tokens.or((self.mode == SurfaceMode::Auto).then_some(Self::AUTO_TOKENS))
    }

    /// The same for a host that puts tools off itself: what it would not load need not be kept from it.
    pub fn for_host_that_defers(mut self) -> Self {
        if self.mode == SurfaceMode::Auto {
            self.mode = SurfaceMode::List;
        }
        self
    }
}

/// How often tools were called: by server, by native name. Shows nothing of it: it is no part of what was configured.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Uses(Arc<BTreeMap<String, BTreeMap<String, u32>>>);

impl Uses {
    /// Takes what was counted.
    pub fn new(counted: BTreeMap<String, BTreeMap<String, u32>>) -> Self {
        Self(Arc::new(counted))
    }

    /// How often a tool was called, roughly: the binary logarithm, so that one call more hardly ever changes an order.
    pub fn weight(&self, server: &str, native: &str) -> u32 {
        let count = self.0.get(server).and_then(|tools| tools.get(native)).copied().unwrap_or_default();
        u32::BITS - count.leading_zeros()
    }
}

impl fmt::Debug for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Uses")
    }
}

/// What is left out of the definitions of tools as they are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimSettings {
    /// The longest description, in characters.
    pub description: Option<usize>,
    /// `outputSchema`.
    pub output_schema: bool,
    /// `examples` of schemas.
    pub examples: bool,
    /// `$schema`, where it says nothing.
    pub dialect: bool,
}

impl TrimSettings {
    /// Whether nothing is left out.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
