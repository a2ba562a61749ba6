//! Pins of the configuration → settings, and what is wrong with their words.
//!
//! Reads no lock. Called by `resolve`; the problems by `check`.

use std::path::Path;

use super::environment::Environment;
use super::fault::nearest;
use super::layers::{Layer, Origins};
use super::schema::{self, Pin, PinTable};
use super::settings::{Additions, PinMode, PinSettings, PinsSettings};
use crate::shown::shown_str as shown;

/// The lock's name, where it is not written.
const LOCK: &str = "onegate.lock";
/// Facets that may differ: the others are what makes an entry what it is.
const TOLERABLE: [&str; 7] = ["text", "output", "annotations", "icons", "mimeType", "meta", "other"];

/// Why a text is no JSON Pointer into a definition.
pub(super) fn pointer_problem(text: &str) -> Option<String> {
    let names = ["/name", "/uri", "/uriTemplate"];
    let shaped = text.starts_with('/') && !text.replace("~0", "").replace("~1", "").contains('~');
    if !shaped {
        return Some(format!("`{}` is no JSON Pointer; write for example `/description`", shown(text)));
    }
    names.contains(&text).then(|| format!("`{text}` cannot be ignored: it says which entry it is"))
}

/// Why a text is no facet that may differ.
pub(super) fn facet_problem(text: &str) -> Option<String> {
    if TOLERABLE.contains(&text) {
        return None;
    }
    let meant = nearest(text, TOLERABLE).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
    Some(format!("`{}` is not one of {}{meant}", shown(text), TOLERABLE.join(", ")))
}

fn mode(written: schema::PinMode) -> PinMode {
    match written {
        schema::PinMode::Off => PinMode::Off,
        schema::PinMode::Warn => PinMode::Warn,
        schema::PinMode::Enforce => PinMode::Enforce,
    }
}

/// `[pins]`.
pub(super) fn pins(
    written: &schema::Pins,
    environment: &Environment,
    cwd: &Path,
    layers: &[Layer],
    origins: &Origins,
) -> PinsSettings {
    let base = match &written.lock {
        Some(_) => origins.get("pins.lock", layers).map(|(layer, _)| &layer.base),
        // Beside the configuration, which the organisation's layer is not.
        None => layers.iter().find(|layer| !layer.organisation).map(|layer| &layer.base),
    };
    let lock = written.lock.as_deref().unwrap_or(LOCK);
    let lock = environment.path(lock, base.map_or(cwd, |base| base));
    PinsSettings { mode: mode(written.mode), lock, recheck: written.recheck.0, ..PinsSettings::default() }
}

/// `servers.*.pin`.
pub(super) fn pin(written: Option<Pin>, default: PinMode) -> PinSettings {
    let table = match written {
        None => PinTable::default(),
        Some(Pin::Mode(mode)) => PinTable { mode: Some(mode), ..PinTable::default() },
        Some(Pin::Table(table)) => table,
    };
    PinSettings {
        mode: table.mode.map_or(default, mode),
        ignore: table.ignore,
        tolerate: table.tolerate,
        additions: match table.additions {
            schema::Additions::Hold => Additions::Hold,
            schema::Additions::AllowReadonlyTemplate => Additions::AllowReadonlyTemplate,
            schema::Additions::Allow => Additions::Allow,
        },
        min_level: table.min_level,
        strict_protocol: table.strict_protocol,
    }
}
