//! What a definition is made of, as far as its reader could be misled, and the hashes of that (threat model §4).
//!
//! A facet is one such part; its hash says what of a definition changed, the hash of an entry that something did. Reads
//! definitions exactly as their server sent them; knows nothing of locks, servers or states. Called by the rest of this
//! room and by whoever compares.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::canonical::{self, NotCanonical};
use crate::ident::Kind;

/// The rules of this file, by name; another name means other hashes.
pub const FORM: &str = "mcp-pin/1";

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Of what was put into a hasher.
    pub fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// Reads the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        if hex.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let bytes = HEXLOWER.decode(hex.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// 64 lower-case digits.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A part of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Facet {
    /// What it is called; of resources the URI, of templates the template.
    Name,
    /// Title and description; of resources and templates the display name too.
    Text,
    /// The schema of a tool's arguments, the arguments of a prompt.
    Input,
    /// The schema of a tool's results.
    Output,
    /// Annotations; those of a tool with the defaults filled in.
    Annotations,
    /// Icons.
    Icons,
    /// The type of a resource.
    MimeType,
    /// `_meta`, without what belongs to a message.
    Meta,
    /// Every other member, known or not.
    Other,
}

impl Facet {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Name,
        Self::Text,
        Self::Input,
        Self::Output,
        Self::Annotations,
        Self::Icons,
        Self::MimeType,
        Self::Meta,
        Self::Other,
    ];

    /// Its name in hashes, locks and commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Text => "text",
            Self::Input => "input",
            Self::Output => "output",
            Self::Annotations => "annotations",
            Self::Icons => "icons",
            Self::MimeType => "mimeType",
            Self::Meta => "meta",
            Self::Other => "other",
        }
    }

    /// The facet of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|facet| facet.as_str() == name)
    }

    /// The facets of a kind.
    pub const fn of(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Tool => &[
                Self::Name,
                Self::Text,
                Self::Input,
                Self::Output,
                Self::Annotations,
                Self::Icons,
                Self::Meta,
                Self::Other,
            ],
            Kind::Prompt => &[Self::Name, Self::Text, Self::Input, Self::Icons, Self::Meta, Self::Other],
            Kind::Resource | Kind::Template => {
                &[Self::Name, Self::Text, Self::MimeType, Self::Annotations, Self::Icons, Self::Meta, Self::Other]
            }
        }
    }
}

impl fmt::Display for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The hashes of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Of the whole, what is ignored left out.
    pub entry: Hash,
    /// By facet; those that it has not are not here.
    pub facets: BTreeMap<Facet, Hash>,
}

impl Hashes {
    /// Of a definition. `ignore` are JSON Pointers whose values do not count.
    pub fn of(kind: Kind, definition: &Value, ignore: &[String]) -> Result<Self, NotCanonical> {
        let cut;
        let definition = if ignore.is_empty() {
            definition
        } else {
            let mut whole = definition.clone();
            ignore.iter().for_each(|pointer| leave_out(&mut whole, pointer));
            cut = whole;
            &cut
        };
        let (mut facets, mut all) = (BTreeMap::new(), BTreeMap::new());
        for (facet, part) in parts(kind, definition) {
            let hash = facet_hash(kind.as_str(), facet.as_str(), part.as_ref())?;
            all.insert(facet.as_str(), hash.hex());
            if part.is_some() {
                facets.insert(facet, hash);
            }
        }
        let mut hasher = Sha256::new();
        hasher.update(FORM);
        hasher.update([0]);
        hasher.update(kind.as_str());
        hasher.update(b"\0entry\0");
        // Plain names in their order and digits: any writer gives the canonical text of that, and this one is fast.
        hasher.update(serde_json::to_vec(&all).map_err(|error| NotCanonical::Text(error.to_string()))?);
        Ok(Self { entry: Hash::finish(hasher), facets })
    }

    /// The facets in which two definitions differ.
    pub fn differences(&self, other: &BTreeMap<Facet, Hash>) -> Vec<Facet> {
        Facet::ALL.into_iter().filter(|facet| self.facets.get(facet) != other.get(facet)).collect()
    }
}

/// The hash of one facet; of a server too, whose kind is `server`.
pub fn facet_hash(kind: &str, facet: &str, value: Option<&(impl Serialize + ?Sized)>) -> Result<Hash, NotCanonical> {
    let mut hasher = Sha256::new();
    for text in [FORM, kind, facet] {
        hasher.update(text);
        hasher.update([0]);
    }
    match value {
        Some(value) => hasher.update(canonical::text(value)?),
        // No JSON text begins so and ends there.
        None => hasher.update(b"-"),
    }
    Ok(Hash::finish(hasher))
}

/// The hash of a server's instructions; none are the empty text.
pub fn instructions_hash(text: &str) -> Hash {
    facet_hash("server", "instructions", Some(text)).expect("invariant: a string has a canonical form")
}

/// The hash of what a server says that it can do.
pub fn capabilities_hash(capabilities: &Value) -> Result<Hash, NotCanonical> {
    facet_hash("server", "capabilities", Some(capabilities))
}

/// Members of `_meta` that belong to a message and not to what it defines.
const VOLATILE: [&str; 6] = [
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/subscriptionId",
    "progressToken",
    "traceparent",
    "tracestate",
    "baggage",
];

/// The value of a facet. Large texts stay where they are: definitions are hashed by the thousand.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    One(&'a Value),
    /// These members, as an object of their own.
    Members(BTreeMap<&'a str, &'a Value>),
    Made(Value),
}

/// The facets of a definition, in their order, and their values; nothing where it has none.
fn parts(kind: Kind, definition: &Value) -> Vec<(Facet, Option<Part<'_>>)> {
    let all = definition.as_object().into_iter().flatten();
    let mut rest: BTreeMap<&str, &Value> = all.map(|(name, value)| (&**name, value)).collect();
    let subject = match kind {
        Kind::Tool | Kind::Prompt => "name",
        Kind::Resource => "uri",
        Kind::Template => "uriTemplate",
    };
    let mut found = Vec::new();
    for &facet in Facet::of(kind) {
        let part = match (facet, kind) {
            (Facet::Name, _) => rest.remove(subject).map(Part::One),
            (Facet::Text, Kind::Tool | Kind::Prompt) => group(&mut rest, &["title", "description"]),
            (Facet::Text, Kind::Resource | Kind::Template) => group(&mut rest, &["name", "title", "description"]),
            (Facet::Input, Kind::Prompt) => rest.remove("arguments").map(Part::One),
            (Facet::Input, _) => rest.remove("inputSchema").map(normalised),
            (Facet::Output, _) => rest.remove("outputSchema").map(normalised),
            (Facet::Annotations, Kind::Tool) => Some(match rest.remove("annotations") {
                None => Part::One(&UNSAID),
                Some(annotations) => Part::Made(filled(Some(annotations.clone()))),
            }),
            (Facet::Annotations, _) => rest.remove("annotations").map(Part::One),
            (Facet::Icons, _) => rest.remove("icons").map(Part::One),
            (Facet::MimeType, _) => rest.remove("mimeType").map(Part::One),
            (Facet::Meta, _) => rest.remove("_meta").cloned().and_then(lasting).map(Part::Made),
            // The last of every kind.
            (Facet::Other, _) => members(std::mem::take(&mut rest)),
        };
        found.push((facet, part));
    }
    found
}

/// These members as an object of their own.
fn group<'a>(rest: &mut BTreeMap<&'a str, &'a Value>, names: &[&str]) -> Option<Part<'a>> {
    members(names.iter().filter_map(|name| rest.remove_entry(*name)).collect())
}

/// The same, if there are any.
fn members<'a>(members: BTreeMap<&'a str, &'a Value>) -> Option<Part<'a>> {
    (!members.is_empty()).then_some(Part::Members(members))
}

/// The annotations of a tool that has none.
static UNSAID: LazyLock<Value> = LazyLock::new(|| filled(None));

/// The annotations of a tool with what the protocol says where they say nothing.
pub fn filled(annotations: Option<Value>) -> Value {
    let mut annotations = match annotations {
        None => Map::new(),
        Some(Value::Object(annotations)) => annotations,
        // Of a wrong kind: what is no object says nothing, and is a difference all the same.
        Some(other) => return other,
    };
    for (name, value) in
        [("readOnlyHint", false), ("destructiveHint", true), ("idempotentHint", false), ("openWorldHint", true)]
    {
        annotations.entry(name).or_insert_with(|| json!(value));
    }
    annotations.into()
}

/// `_meta` without what belongs to a message; nothing where nothing is left, as servers of both eras send the same
/// definition with and without it.
fn lasting(meta: Value) -> Option<Value> {
    match meta {
        Value::Object(mut meta) => {
            VOLATILE.iter().for_each(|name| drop(meta.remove(*name)));
            (!meta.is_empty()).then(|| meta.into())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => Some(other),
    }
}

/// A schema with its sets in one order: `required` and `type` at places where they are keywords, nowhere else.
fn normalised(schema: &Value) -> Part<'_> {
    if is_normal(schema) {
        return Part::One(schema);
    }
    let mut schema = schema.clone();
    normalise(&mut schema);
    Part::Made(schema)
}

/// Whether whatever could be such a set, wherever it stands, is in that order: as most schemas are.
fn is_normal(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().all(|(name, value)| match value.as_array() {
            Some(texts) if matches!(name.as_str(), "required" | "type") => texts.iter().map(Value::as_str).is_sorted(),
            _ => is_normal(value),
        }),
        Value::Array(elements) => elements.iter().all(is_normal),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn normalise(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    for (keyword, value) in schema {
        match keyword.as_str() {
            "required" | "type" => {
                if let Some(texts) = value.as_array_mut().filter(|texts| texts.iter().all(Value::is_string)) {
                    texts.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                }
            }
            "additionalProperties"
            | "additionalItems"
            | "contains"
            | "contentSchema"
            | "else"
            | "if"
            | "items"
            | "not"
            | "propertyNames"
            | "then"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "allOf"
            | "anyOf"
            | "oneOf"
            | "prefixItems" => {
                if let Some(schemas) = value.as_array_mut() {
                    schemas.iter_mut().for_each(normalise);
                } else {
                    normalise(value);
                }
            }
            "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" | "properties" => {
                if let Some(schemas) = value.as_object_mut() {
                    schemas.values_mut().for_each(normalise);
                }
            }
            _ => {}
        }
    }
}

/// Takes out what a JSON Pointer names: a member goes, an element becomes null, so that the others keep their places.
pub fn leave_out(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent) {
        Some(Value::Object(members)) => drop(members.remove(&last)),
        Some(Value::Array(elements)) => {
            if let Some(element) = last.parse::<usize>().ok().and_then(|at| elements.get_mut(at)) {
                *element = Value::Null;
            }
        }
        _ => {}
    }
}

/// Why a pointer may not be ignored, if so: what says which entry it is cannot be.
pub fn pointer_problem(kind: Kind, pointer: &str) -> Option<&'static str> {
    let subject = match kind {
        Kind::Tool | Kind::Prompt => "/name",
        Kind::Resource => "/uri",
        Kind::Template => "/uriTemplate",
    };
    if !pointer.starts_with('/') {
        return Some("a JSON Pointer begins with `/`; the whole of a definition cannot be ignored");
    }
    (pointer == subject).then_some("what names the entry cannot be ignored")
}

#[cfg(test)]
#[path = "facet_tests.rs"]
mod tests;
