//! The hash of how a server is launched or reached, as written (threat model §3.1): what binds an approval to the thing
//! that was approved and not to its name.
//!
//! References stay references, so no secret of a variable or file enters it.

use super::canonical;
use super::facet::Hash;
use crate::config::settings::{Reach, ServerSettings};

/// The hash; nothing for a server that cannot be reached as configured.
pub fn launch_hash(settings: &ServerSettings) -> Option<Hash> {
    let written = match settings.reach.as_ref().ok()? {
        Reach::Launch(launch) => &launch.written,
        Reach::Remote(remote) => &remote.written,
    };
    let described = canonical::read(written.reveal().as_bytes()).ok()?;
    Some(Hash::of(&canonical::text(&described).ok()?))
}
