//! `[search]` as written → where the sentence model is, as far as this build can run one. Called by `resolve`.

use std::path::PathBuf;

use super::fault::Note;
use super::ground::Ground;

/// The folder of a sentence model. What of it cannot be run is found out by who reads it; either way tools are found by words.
pub(super) fn model(written: Option<&str>, ground: &Ground<'_>, notes: &mut Vec<Note>) -> Option<PathBuf> {
    let base = ground.origins.get("search.model", ground.layers).map_or(ground.cwd, |(layer, _)| &layer.base);
    let folder = ground.environment.path(written?, base);
    let amiss = if !cfg!(feature = "semantic") {
        "this build cannot run a sentence model (build it with `--features semantic`)"
    } else if !folder.join("config.json").is_file() {
        "there is no `config.json` in this folder"
    } else {
        return Some(folder);
    };
    let message = format!("search.model: {amiss}; tools are found by words alone");
    notes.push(Note { place: ground.origins.place("search.model", ground.layers), message });
    None
}
