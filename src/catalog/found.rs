//! Finding tools in a catalogue by words: what is visible, listed or not.
//!
//! The index is made once for a catalogue and goes with it; how well a tool fits is `search`'s. Asked by `gateway`.

use super::Catalogue;
use super::merge::Searched;
use crate::ident::ServerKey;
use crate::protocol::version::Revision;
use crate::search::{Beside, Document, Index, Meant, Texts, Vectors, find};

/// From so many doublings on (a thousand calls), a tool that was called more is no more in use.
const OFTEN: f32 = 10.0;

/// A tool that was found.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The key of its server.
    pub server: &'a ServerKey,
    /// What hosts call it.
    pub exposed: &'a str,
    /// Its definition as hosts of this revision are listed it, or would be.
    pub definition: Vec<u8>,
    /// How well it fits.
    pub score: f32,
}

impl Catalogue {
    fn index(&self) -> &Searched {
        self.searched(|| {
            let positions: Box<[usize]> = self.visible_tools().collect();
            let texts: Vec<Texts> = positions.iter().map(|&at| Texts::read(&self.tool(at).2.definition)).collect();
            let document = |(&at, texts)| {
                let (key, _, item) = self.tool(at);
                let renamed = item.renamed.as_deref().unwrap_or_default();
                Document::of([&item.native, renamed], key.as_str(), texts)
            };
            let index = Index::build(positions.iter().zip(&texts).map(document));
            let uses = |&at: &usize| {
                let (key, _, item) = self.tool(at);
                self.surface().uses(key, &item.native) as f32 / OFTEN
            };
            let used: Box<[f32]> = positions.iter().map(uses).collect();
            Searched { index, positions, used: Some(used).filter(|used| used.iter().any(|used| *used > 0.0)) }
        })
    }

    /// Makes what tools are found by, where it is not there yet. Takes a while for thousands.
    pub fn prepare_search(&self) {
        self.index();
    }

    /// How many bytes that takes, about.
    pub fn search_size(&self) -> usize {
        self.index().index.size() + self.vectors().map_or(0, Vectors::size)
    }

    /// What each of those tools says of itself, for a sentence model.
    pub fn passages(&self) -> Vec<String> {
        let passage = |at| {
            let (key, _, item) = self.tool(at);
            Texts::read(&item.definition).passage(key.as_str(), &item.native)
        };
        self.visible_tools().map(passage).collect()
    }

    /// The tools that fit best, of one server or of all: by the words of a query, and by what it means where that is known.
    pub fn find(
        &self,
        (query, meant): (&str, Option<&Meant>),
        server: Option<&str>,
        limit: usize,
        revision: Revision,
    ) -> Vec<Found<'_>> {
        let Searched { index, positions, used } = self.index();
        let wanted = |n: usize| server.is_none_or(|wanted| self.tool(positions[n]).0.as_str() == wanted);
        let near = meant.and_then(|meant| self.vectors()?.near(meant));
        let beside = Beside { near: near.as_deref(), used: used.as_deref() };
        let found = find(index, query, beside, limit, wanted);
        let shown = found.into_iter().map(|hit| {
            let at = positions[hit.document];
            let (server, exposed, _) = self.tool(at);
            let mut definition = Vec::new();
            self.publish(&mut definition, at, revision);
            Found { server, exposed, definition, score: hit.score }
        });
        shown.collect()
    }

    /// The keys of the servers with visible tools, and how many each has.
    pub fn servers_with_tools(&self) -> Vec<(&ServerKey, usize)> {
        let mut servers: Vec<(&ServerKey, usize)> = Vec::new();
        for at in self.visible_tools() {
            let (key, ..) = self.tool(at);
            match servers.last_mut() {
                Some((last, count)) if *last == key => *count += 1,
                _ => servers.push((key, 1)),
            }
        }
        servers
    }
}
