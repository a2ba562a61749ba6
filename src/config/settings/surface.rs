//! How much of a profile's tools a host is shown at once, as the other rooms see it: `surface`, `max_tokens`, `always`,
//! `trim`.

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

/// How much a host is shown at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurfaceSettings {
    /// How it gets at the tools.
    pub mode: SurfaceMode,
    /// The most tokens that the list of tools costs, about; `None` = no bound.
    pub max_tokens: Option<usize>,
    /// Tools that stay in the list, as `<server>/<native name>`.
    pub always: Vec<String>,
    /// The same as each server has it, by native name.
    pub always_of: Vec<(ServerKey, Vec<String>)>,
    /// What is left out of definitions in the list.
    pub trim: TrimSettings,
    /// Whether a tool of ours tells which servers there are.
    pub list_servers: bool,
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
