//! What servers say of themselves, as far as their pins let it be shown: what they offer, and their words to the model.
//!
//! Foreign text, cut to a bound and put under its server's key. Asked by the gateway for its fronts.

use super::{Lists, Sight};
use crate::downstream::Offers;

/// Longest instructions of one server, and of all (CAP-3).
const MAX_INSTRUCTIONS: usize = 2 << 10;
const MAX_ALL_INSTRUCTIONS: usize = 16 << 10;

impl Lists {
    /// What each server that a profile shows said that it offers; `None` for those that said nothing yet.
    pub(in crate::gateway) fn offers(&self, sight: Sight) -> Vec<Option<Offers>> {
        let view = self.show(sight);
        let parts = self.parts();
        let shown = (0..parts.len()).filter(|&server| view.shows(server) && !self.places[server].gone);
        shown.map(|server| parts[server].offers[1].clone()).collect()
    }

    /// What a server offers, when it has said so.
    pub(in crate::gateway) fn offers_of(&self, server: usize) -> Option<Offers> {
        self.parts()[server].offers[1].clone()
    }

    /// What the servers say, to the letter: of a front that has one.
    pub(in crate::gateway) fn instructions_of_all(&self, sight: Sight) -> String {
        let view = self.show(sight);
        let parts = self.parts();
        let shown = parts.iter().enumerate().filter(|(server, _)| view.shows(*server));
        shown.filter_map(|(_, part)| part.instructions[1].as_deref()).collect()
    }

    /// What a server says of itself, as far as it may be shown.
    pub(in crate::gateway) fn introduction(&self, server: usize) -> Option<String> {
        self.parts()[server].instructions[1].clone()
    }

    /// What is known of the servers' instructions, each under its key (CAP-3), after the operator's.
    pub(in crate::gateway) fn instructions(&self, sight: Sight, own: Option<&str>) -> String {
        let view = self.show(sight);
        let mut text = own.unwrap_or_default().trim_end().to_owned();
        let parts = self.parts();
        let mut shown: Vec<_> =
            parts.iter().zip(&self.places).enumerate().filter(|(server, _)| view.shows(*server)).collect();
        // Whenever it was that each of them came.
        shown.sort_by(|(_, (_, a)), (_, (_, b))| a.key.cmp(&b.key));
        for (_, (part, place)) in shown {
            let Some(theirs) = part.instructions[1].as_deref().map(str::trim).filter(|theirs| !theirs.is_empty())
            else {
                continue;
            };
            let theirs = cut(theirs, MAX_INSTRUCTIONS);
            if text.len() + theirs.len() > MAX_ALL_INSTRUCTIONS {
                break;
            }
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&format!("## {}\n{theirs}", place.key));
        }
        text
    }
}

/// At most `length` bytes of a text, whole characters.
fn cut(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}
