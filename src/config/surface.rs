//! `surface`, `max_tokens`, `trim` and `always` of a profile: the merged file → settings.
//!
//! Called by `serving`; finds no faults of its own, `check` has found them.

use super::schema::{Profile, Surface};
use super::settings::{ServerSettings, SurfaceMode, SurfaceSettings, TrimSettings, Uses};

/// How much a host of this profile is shown at once.
pub(super) fn settings(profile: &Profile, servers: &[ServerSettings]) -> SurfaceSettings {
    let mode = match profile.surface {
        Surface::List => SurfaceMode::List,
        Surface::Search => SurfaceMode::Search,
        Surface::Auto => SurfaceMode::Auto,
    };
    let of_server = |server: &ServerSettings| (server.key.clone(), server.always.clone());
    SurfaceSettings {
        mode,
        max_tokens: profile.max_tokens.map(|most| most as usize),
        always: profile.tools.always.clone(),
        always_of: servers.iter().filter(|server| !server.always.is_empty()).map(of_server).collect(),
        recent: profile.recent.map(|period| period.0),
        uses: Uses::default(),
        trim: TrimSettings {
            description: profile.trim.description.map(|most| most as usize),
            output_schema: !profile.trim.output_schema,
            examples: !profile.trim.examples,
            dialect: !profile.trim.dialect,
        },
        list_servers: profile.list_servers,
        // Of all profiles the same; put in by who reads `[gateway]`.
        tokenizer: None,
    }
}
