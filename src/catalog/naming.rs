//! Exposed names: the only place that knows how they relate to native ones.
//!
//! `exposed = <prefix>__<local>`, `local` being the native name in the alphabet `[A-Za-z0-9_-]`. A hash suffix
//! keeps apart what the alphabet, the length budget or letter case would make equal. A name depends on kind,
//! server key, prefix, native name, budget and its collision group alone (N-8): not on order, time or what
//! else is up, as long as the last known lists of all servers, hidden items included, are given.
//!
//! The way back is never computed: [`super::Catalogue`] keeps the table (N-9). Knows nothing of what a name
//! stands for.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::ident::{Kind, ServerKey};

/// What stands between prefix and local name.
pub const SEPARATOR: &str = "__";
/// Longest exposed prompt name (N-17).
pub const PROMPT_BUDGET: usize = 64;

/// Lengths of the hash, in characters: at first, and after a conflict of two hashes (N-10).
const HASH: usize = 8;
const LONG_HASH: usize = 12;
/// How often a name may evade another: plain, with hash, with long hash, with the three further windows of
/// the digest. Whoever still collides has been made to.
const LAST_STEP: u8 = 5;

/// An item that needs a name.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its server; the hash is over this.
    pub server: &'a ServerKey,
    /// What stands in front of its name: the key, or what the configuration says instead. When empty, the
    /// native name passes untouched.
    pub prefix: &'a str,
    /// What its server calls it.
    pub native: &'a str,
}

/// How one kind is named.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// The kind; part of the hash.
    pub kind: Kind,
    /// Longest exposed name (N-2).
    pub budget: usize,
    /// Whether mild substitutions (`.`, `/`, `:` and space become `_`) get a hash too, which keeps a name
    /// unchanged when a twin appears later (N-7a).
    pub suffix_mild: bool,
}

impl Scheme {
    /// Tools with this name budget.
    pub const fn tools(budget: usize) -> Self {
        Self { kind: Kind::Tool, budget, suffix_mild: false }
    }

    /// Prompts.
    pub const fn prompts() -> Self {
        Self { kind: Kind::Prompt, budget: PROMPT_BUDGET, suffix_mild: false }
    }

    /// Whether names behind this prefix fit into the budget at all: one character and the hash must.
    pub const fn fits(&self, prefix: &str) -> bool {
        prefix.is_empty() || prefix.len() + SEPARATOR.len() + 1 + 1 + HASH <= self.budget
    }

    /// The exposed names of `items`, in their order, all distinct.
    ///
    /// `None` is an item that must not be exposed because another has its name and every way around was taken
    /// too; that needs an untouched (prefix-less) server that goes for it, or twice the same item.
    pub fn expose(&self, items: &[Named<'_>]) -> Vec<Option<String>> {
        let mut drafts: Vec<Draft<'_>> = items.iter().map(|&item| Draft::new(self, item)).collect();
        loop {
            let raised = colliding(&drafts);
            if raised.is_empty() {
                break;
            }
            // All of a round at once, so that the outcome does not depend on the order of the items.
            for index in raised {
                drafts[index].evade(self);
            }
        }
        settle(drafts)
    }
}

/// Whether an exposed name could belong to the server with this prefix: who to ask, once, for a fresh list
/// when a name is not in the table (N-9). Not a way to route.
pub fn may_own(prefix: &str, exposed: &str) -> bool {
    prefix.is_empty() || exposed.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(SEPARATOR))
}

/// A name on its way.
struct Draft<'a> {
    item: Named<'a>,
    name: String,
    /// The name as case-folding consumers see it, where that differs (N-3).
    folded: Option<String>,
    step: u8,
}

impl<'a> Draft<'a> {
    fn new(scheme: &Scheme, item: Named<'a>) -> Self {
        let mut draft = Self { item, name: String::new(), folded: None, step: 0 };
        if item.prefix.is_empty() {
            draft.name = item.native.to_owned();
        } else {
            let (local, change) = sanitise(scheme.kind, item.native);
            let long = item.prefix.len() + SEPARATOR.len() + local.len() > scheme.budget;
            if long || change == Change::Lossy || (change == Change::Mild && scheme.suffix_mild) {
                draft.step = 1;
                draft.name = suffixed(scheme, item, &local, 1);
            } else {
                draft.name = [item.prefix, SEPARATOR, &local].concat();
            }
        }
        draft.fold();
        draft
    }

    fn fold(&mut self) {
        let differs = self.name.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii());
        self.folded = differs.then(|| self.name.to_lowercase());
    }

    fn folded(&self) -> &str {
        self.folded.as_deref().unwrap_or(&self.name)
    }

    fn can_evade(&self) -> bool {
        !self.item.prefix.is_empty() && self.step < LAST_STEP
    }

    fn evade(&mut self, scheme: &Scheme) {
        self.step += 1;
        let (local, _) = sanitise(scheme.kind, self.item.native);
        self.name = suffixed(scheme, self.item, &local, self.step);
        self.fold();
        if self.step > 1 {
            tracing::warn!(
                server = %self.item.server, kind = %scheme.kind, native = ?self.item.native,
                "two hashes of names are equal, a longer one is used"
            );
        }
    }
}

/// The drafts that must evade: of each group of equal names those that evaded least, so that *every* bare
/// member gets its hash (N-7c), and the whole group the long one (N-10).
fn colliding(drafts: &[Draft<'_>]) -> Vec<usize> {
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(drafts.len());
    let mut twins = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let leader = *first.entry(draft.folded()).or_insert(index);
        if leader != index {
            twins.push((leader, index));
        }
    }
    twins.sort_unstable();
    let mut raised = Vec::new();
    for group in twins.chunk_by(|a, b| a.0 == b.0) {
        let members = || std::iter::once(group[0].0).chain(group.iter().map(|twin| twin.1));
        let able = || members().filter(|&index| drafts[index].can_evade());
        if let Some(least) = able().map(|index| drafts[index].step).min() {
            raised.extend(able().filter(|&index| drafts[index].step == least));
        }
    }
    raised
}

/// Takes the names; where two are still the same, untouched names and lower keys have precedence.
fn settle(drafts: Vec<Draft<'_>>) -> Vec<Option<String>> {
    let rank = |draft: &Draft<'_>| (!draft.item.prefix.is_empty(), draft.item.server.clone());
    let mut owner: HashMap<&str, usize> = HashMap::with_capacity(drafts.len());
    let mut beaten = vec![false; drafts.len()];
    for (index, draft) in drafts.iter().enumerate() {
        let leader = owner.entry(&draft.name).or_insert(index);
        if *leader == index {
            continue;
        }
        if rank(draft) < rank(&drafts[*leader]) {
            beaten[*leader] = true;
            *leader = index;
        } else {
            beaten[index] = true;
        }
    }
    drafts.into_iter().zip(beaten).map(|(draft, beaten)| (!beaten).then_some(draft.name)).collect()
}

/// How far sanitising went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    None,
    Mild,
    Lossy,
}

/// The native name in the exposed alphabet (N-5), and how much of it was lost (N-7a).
fn sanitise(kind: Kind, native: &str) -> (String, Change) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut local = String::with_capacity(native.len().min(256));
    let mut change = Change::None;
    let mut in_run = false;
    for c in native.chars() {
        if allowed(c) {
            local.push(c);
            in_run = false;
        } else if in_run {
            change = Change::Lossy;
        } else {
            local.push('_');
            in_run = true;
            let mild = matches!(c, '.' | '/' | ':' | ' ');
            change = change.max(if mild { Change::Mild } else { Change::Lossy });
        }
    }
    let trimmed = local.trim_matches('_');
    if trimmed.len() == local.len() && !local.is_empty() {
        return (local, change);
    }
    let kept = if trimmed.is_empty() { kind.as_str() } else { trimmed };
    (kept.to_owned(), Change::Lossy)
}

/// The name with its hash, cut so that it fits (N-7b).
fn suffixed(scheme: &Scheme, item: Named<'_>, local: &str, step: u8) -> String {
    let fixed = item.prefix.len() + SEPARATOR.len() + 1;
    let (from, wanted) = match step {
        0 | 1 => (0, HASH),
        _ => (usize::from(step - 2) * LONG_HASH, LONG_HASH),
    };
    // A tight budget shortens the long hash, never below the short one.
    let length = wanted.min(scheme.budget.saturating_sub(fixed + 1)).max(HASH);
    let digest = digest(scheme.kind, item.server, item.native);
    let local = cut(local, scheme.budget.saturating_sub(fixed + length).max(1));
    [item.prefix, SEPARATOR, local, "_", &digest[from..from + length]].concat()
}

/// The hash of an item in lower-case base32, 52 characters. Over the key, not the prefix: a changed prefix
/// does not change it.
fn digest(kind: Kind, server: &ServerKey, native: &str) -> String {
    let mut hash = Sha256::new();
    for part in ["mcp-name-v1", kind.as_str(), server.as_str()] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(native);
    let mut text = data_encoding::BASE32_NOPAD.encode(&hash.finalize());
    text.make_ascii_lowercase();
    text
}

/// At most `room` characters of `local`, ending before a `_` or `-` if one of the last eight is one.
fn cut(local: &str, room: usize) -> &str {
    if local.len() <= room {
        return local;
    }
    let from = room.saturating_sub(8);
    let boundary = local.as_bytes()[from..=room].iter().rposition(|b| matches!(b, b'_' | b'-'));
    let kept = boundary.map_or("", |at| local[..from + at].trim_end_matches(['_', '-']));
    if kept.is_empty() { &local[..room] } else { kept }
}
