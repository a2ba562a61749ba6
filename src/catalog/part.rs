//! The tools of one server as it listed them: checked item by item, kept raw.
//!
//! One bad definition is dropped and named, never the list (LST-6, D045). References inside schemas are
//! neither followed nor judged: nothing here makes a request (D054). Knows nothing of names towards the host,
//! rules, or other servers. `gateway` parses a part whenever a server was listed.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::render::Needs;
use crate::protocol::json::{self, Span};

/// Largest definition (threat model §9).
pub const MAX_DEFINITION: usize = 256 * 1024;
/// Most entries of a list (D-29).
pub const MAX_ENTRIES: usize = 10_000;
/// Largest list (D-29).
pub const MAX_LIST: usize = 8 * 1024 * 1024;
/// Deepest schema (D-30).
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// Most values in a schema (D-30).
pub const MAX_SCHEMA_NODES: usize = 20_000;

/// The tools of one server.
#[derive(Debug, Default)]
pub struct ToolsPart {
    items: Vec<ToolItem>,
    dropped: Vec<Dropped>,
}

/// One tool as listed.
#[derive(Debug)]
pub(super) struct ToolItem {
    /// The definition, a slice of the message that it came in.
    pub(super) definition: Bytes,
    /// Where in it the name stands, with its quotes.
    pub(super) name: Span,
    /// The name.
    pub(super) native: Arc<str>,
    /// What must be changed before some host can be shown it.
    pub(super) needs: Needs,
    /// Hash of the definition.
    pub(super) digest: [u8; 16],
}

/// An entry that is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its position in the list.
    pub index: usize,
    /// Its name, where it has one. Foreign text.
    pub name: Option<String>,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "tool \"{}\": {}", name.escape_debug(), self.fault),
            None => write!(f, "tool at position {}: {}", self.index, self.fault),
        }
    }
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not a JSON object.
    #[error("it is not an object")]
    NotAnObject,
    /// No `name`, or one that is no text (another kind of value, a lone surrogate), or an empty one.
    #[error("it has no usable name")]
    NoName,
    /// An earlier entry has that name.
    #[error("an earlier entry has the same name")]
    DuplicateName,
    /// A member twice: readers would disagree on which counts.
    #[error("it has the member \"{}\" twice", .0.escape_debug())]
    DuplicateMember(String),
    /// No `inputSchema`.
    #[error("it has no inputSchema")]
    NoInputSchema,
    /// An `inputSchema` that is not an object.
    #[error("its inputSchema is not an object")]
    InputSchemaNotAnObject,
    /// An `inputSchema` for something else than an object.
    #[error("its inputSchema is not of type \"object\"")]
    InputSchemaType,
    /// Larger than [`MAX_DEFINITION`].
    #[error("its definition has {0} bytes, the limit is {MAX_DEFINITION}")]
    TooLarge(usize),
    /// A schema deeper than [`MAX_SCHEMA_DEPTH`].
    #[error("a schema of it is nested {0} levels deep, the limit is {MAX_SCHEMA_DEPTH}")]
    TooDeep(usize),
    /// A schema with more than [`MAX_SCHEMA_NODES`] values.
    #[error("a schema of it has {0} values, the limit is {MAX_SCHEMA_NODES}")]
    TooManyNodes(usize),
}

/// Why a list is not taken at all; the last good one is kept (D-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A page is not an array.
    #[error("the member `tools` of page {0} is not an array")]
    NotAnArray(usize),
    /// More than [`MAX_ENTRIES`].
    #[error("the list has more than {MAX_ENTRIES} entries")]
    TooMany,
    /// Larger than [`MAX_LIST`].
    #[error("the list has more than {MAX_LIST} bytes")]
    TooLarge,
}

impl ToolsPart {
    /// Reads the pages of a list: the raw text of each page's `tools`, out of validated messages, in order.
    pub fn parse(pages: &[Bytes]) -> Result<Self, ListError> {
        if pages.iter().map(Bytes::len).sum::<usize>() > MAX_LIST {
            return Err(ListError::TooLarge);
        }
        let mut part = Self::default();
        let mut names: HashSet<Arc<str>> = HashSet::new();
        let mut index = 0;
        for (number, page) in pages.iter().enumerate() {
            if page.trim_ascii_start().first() != Some(&b'[') {
                return Err(ListError::NotAnArray(number));
            }
            for raw in json::elements(page) {
                if index == MAX_ENTRIES {
                    return Err(ListError::TooMany);
                }
                match ToolItem::read(page, raw) {
                    Ok(item) if names.insert(item.native.clone()) => part.items.push(item),
                    Ok(item) => part.dropped.push(Dropped {
                        index,
                        name: Some(item.native.as_ref().to_owned()),
                        fault: Fault::DuplicateName,
                    }),
                    Err((name, fault)) => part.dropped.push(Dropped { index, name, fault }),
                }
                index += 1;
            }
        }
        Ok(part)
    }

    /// How many tools it has.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The native names, in the server's order.
    pub fn natives(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|item| item.native.as_ref())
    }

    /// The definition of that name, as the server sent it.
    pub fn definition(&self, native: &str) -> Option<&Bytes> {
        self.items.iter().find(|item| &*item.native == native).map(|item| &item.definition)
    }

    /// What was left out, for warnings.
    pub fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    /// Whether both list the same definitions in the same order, byte for byte.
    pub fn same_as(&self, other: &Self) -> bool {
        let digests = |part: &Self| part.items.iter().map(|item| item.digest).collect::<Vec<_>>();
        digests(self) == digests(other)
    }

    pub(super) fn items(&self) -> &[ToolItem] {
        &self.items
    }
}

/// The members of a definition that matter here.
#[derive(Default)]
struct Members<'a> {
    name: Option<(&'a [u8], usize)>,
    input: Option<&'a [u8]>,
    output: Option<&'a [u8]>,
    icons: Option<&'a [u8]>,
    execution: bool,
}

impl ToolItem {
    /// Checks one definition; a fault comes with the name, where there is one.
    fn read(page: &Bytes, raw: &[u8]) -> Result<Self, (Option<String>, Fault)> {
        if raw.first() != Some(&b'{') {
            return Err((None, Fault::NotAnObject));
        }
        let mut found = Members::default();
        let mut keys = Vec::with_capacity(16);
        for entry in json::members(raw) {
            let key = match entry.name() {
                Some(Cow::Owned(resolved)) => Cow::Owned(resolved),
                Some(Cow::Borrowed(_)) | None => String::from_utf8_lossy(entry.key),
            };
            match &*key {
                "name" => found.name = Some((entry.value, entry.at)),
                "inputSchema" => found.input = Some(entry.value),
                "outputSchema" => found.output = Some(entry.value),
                "icons" => found.icons = Some(entry.value),
                "execution" => found.execution = true,
                _ => {}
            }
            keys.push(key);
        }
        let Some(((literal, at), native)) = found.name.and_then(|name| Some((name, json::text_of(name.0)?))) else {
            return Err((None, Fault::NoName));
        };
        if native.is_empty() {
            return Err((None, Fault::NoName));
        }
        let fail = |fault| Err((Some(native.clone().into_owned()), fault));
        if raw.len() > MAX_DEFINITION {
            return fail(Fault::TooLarge(raw.len()));
        }
        keys.sort_unstable();
        if let Some(twin) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return fail(Fault::DuplicateMember(twin[0].clone().into_owned()));
        }
        let needs = match Needs::of(found.execution, found.input, found.output, found.icons) {
            Ok(needs) => needs,
            Err(fault) => return fail(fault),
        };
        Ok(Self {
            definition: page.slice_ref(raw),
            name: Span { start: at as u32, end: (at + literal.len()) as u32 },
            native: native.into(),
            needs,
            digest: digest(raw),
        })
    }

    /// The name as the server wrote it, a JSON string.
    pub(super) fn literal(&self) -> Bytes {
        self.definition.slice(self.name.range())
    }
}

fn digest(raw: &[u8]) -> [u8; 16] {
    let full = Sha256::digest(raw);
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    half
}
