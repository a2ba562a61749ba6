//! The published form of a definition, for each revision a host may speak: raw bytes, spliced.
//!
//! Order, spelling and unknown members stay; only what a revision cannot take is changed (conversion rules for
//! tools), besides the name. Decides nothing about visibility and knows no server.

use std::borrow::Cow;

use super::part::{Fault, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, ToolItem};
use crate::protocol::json::{self, Entry};
use crate::protocol::version::Revision;

/// What a definition needs before some host can be shown it; nothing for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Needs(u8);

impl Needs {
    /// `execution` goes: tasks are not bridged.
    const EXECUTION: Self = Self(1);
    /// `inputSchema` lacks its `type`.
    const ADD_TYPE: Self = Self(1 << 1);
    /// An icon is neither `https:` nor `data:` (LST-7).
    const BAD_ICON: Self = Self(1 << 2);
    /// `outputSchema` is no schema object in any revision.
    const BAD_OUTPUT: Self = Self(1 << 3);
    /// A property of a schema's root is `true` or `false`.
    const BOOLEANS: Self = Self(1 << 4);
    /// The root of `outputSchema` is not of type `object`.
    const OPEN_OUTPUT: Self = Self(1 << 5);
    /// There are icons.
    const ICONS: Self = Self(1 << 6);
    /// There is an `outputSchema`.
    const OUTPUT: Self = Self(1 << 7);

    const ALWAYS: Self = Self(Self::EXECUTION.0 | Self::ADD_TYPE.0 | Self::BAD_ICON.0 | Self::BAD_OUTPUT.0);

    /// Looks through the members that matter.
    pub(super) fn of(
        execution: bool,
        input: Option<&[u8]>,
        output: Option<&[u8]>,
        icons: Option<&[u8]>,
    ) -> Result<Self, Fault> {
        let mut needs = Self(0);
        if execution {
            needs.add(Self::EXECUTION);
        }
        let input = input.ok_or(Fault::NoInputSchema)?;
        if !is_object(input) {
            return Err(Fault::InputSchemaNotAnObject);
        }
        measure(input)?;
        match root_type(input) {
            RootType::Object => {}
            RootType::Absent => needs.add(Self::ADD_TYPE),
            RootType::Other => return Err(Fault::InputSchemaType),
        }
        if has_booleans(input) {
            needs.add(Self::BOOLEANS);
        }
        if let Some(output) = output {
            needs.add(Self::OUTPUT);
            if is_object(output) {
                measure(output)?;
                if root_type(output) != RootType::Object {
                    needs.add(Self::OPEN_OUTPUT);
                }
                if has_booleans(output) {
                    needs.add(Self::BOOLEANS);
                }
            } else {
                needs.add(Self::BAD_OUTPUT);
            }
        }
        if let Some(icons) = icons {
            needs.add(Self::ICONS);
            if icons.first() != Some(&b'[') || json::elements(icons).any(|icon| !usable_icon(icon)) {
                needs.add(Self::BAD_ICON);
            }
        }
        Ok(needs)
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Everything that any of them needs.
    pub(super) fn union(all: impl Iterator<Item = Self>) -> Self {
        Self(all.fold(0, |bits, needs| bits | needs.0))
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Revisions between which no rule for tools differs, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(usize);

impl Class {
    /// How many there are.
    pub(super) const COUNT: usize = 4;

    /// What each one asks for; each asks for all that the one before does.
    const ASKS: [Needs; Self::COUNT] = [
        Needs::ALWAYS,
        Needs(Needs::ALWAYS.0 | Needs::BOOLEANS.0 | Needs::OPEN_OUTPUT.0),
        Needs(Needs::ALWAYS.0 | Needs::BOOLEANS.0 | Needs::OPEN_OUTPUT.0 | Needs::ICONS.0),
        Needs(u8::MAX),
    ];

    /// The class of a revision.
    pub(super) const fn of(revision: Revision) -> Self {
        match revision {
            Revision::V2026_07_28 => Self(0),
            Revision::V2025_11_25 => Self(1),
            Revision::V2025_06_18 => Self(2),
            Revision::V2025_03_26 | Revision::V2024_11_05 => Self(3),
        }
    }

    /// Its position among the classes.
    pub(super) const fn index(self) -> usize {
        self.0
    }

    /// The newest class whose published form of such definitions is the same.
    pub(super) fn simplest(self, needs: Needs) -> Self {
        let asked = |class: usize| Self::ASKS[class].and(needs);
        (0..self.0).find(|&class| asked(class) == asked(self.0)).map_or(self, Self)
    }
}

/// Appends the published form of `item` under the name `exposed`.
pub(super) fn render(out: &mut Vec<u8>, item: &ToolItem, exposed: &str, class: Class) {
    let definition = &item.definition;
    let needs = item.needs.and(Class::ASKS[class.0]);
    let mut name = Vec::new();
    let name: &[u8] = if exposed == &*item.native {
        item.name.of(definition)
    } else {
        json::push_string(&mut name, exposed);
        &name
    };
    if needs == Needs::default() {
        out.extend_from_slice(&definition[..item.name.start as usize]);
        out.extend_from_slice(name);
        out.extend_from_slice(&definition[item.name.end as usize..]);
        return;
    }
    rewrite(out, definition, |entry| {
        if entry.is("name") {
            Change::Replace(name.to_vec())
        } else if entry.is("execution") {
            Change::Drop
        } else if entry.is("inputSchema") {
            schema(entry.value, needs)
        } else if entry.is("outputSchema") {
            let gone = Needs(Needs::BAD_OUTPUT.0 | Needs::OPEN_OUTPUT.0 | Needs::OUTPUT.0);
            if needs.has(gone) { Change::Drop } else { schema(entry.value, needs.and(Needs::BOOLEANS)) }
        } else if entry.is("icons") {
            if needs.has(Needs::ICONS) {
                Change::Drop
            } else if needs.has(Needs::BAD_ICON) {
                Change::Replace(usable_icons(entry.value))
            } else {
                Change::Keep
            }
        } else {
            Change::Keep
        }
    });
}

/// What becomes of a member.
enum Change {
    Keep,
    Drop,
    Replace(Vec<u8>),
}

/// Appends `object` with its members changed; all bytes around those that stay are kept.
fn rewrite(out: &mut Vec<u8>, object: &[u8], mut change: impl FnMut(&Entry<'_>) -> Change) {
    // Each member owns the bytes from the end of the one before: space, comma, key.
    let mut from = object.iter().position(|&b| b == b'{').map_or(0, |brace| brace + 1);
    out.extend_from_slice(&object[..from]);
    let mut first = true;
    for entry in json::members(object) {
        let end = entry.at + entry.value.len();
        let change = change(&entry);
        if !matches!(change, Change::Drop) {
            let lead = &object[from..entry.at];
            // The first that stays has no comma, also when it had one.
            let comma = lead.iter().position(|&b| !b.is_ascii_whitespace()).filter(|&at| first && lead[at] == b',');
            out.extend_from_slice(comma.map_or(lead, |at| lead[at + 1..].trim_ascii_start()));
            match &change {
                Change::Replace(value) => out.extend_from_slice(value),
                Change::Keep | Change::Drop => out.extend_from_slice(entry.value),
            }
            first = false;
        }
        from = end;
    }
    out.extend_from_slice(&object[from..]);
}

/// A schema with what is needed of added types and boolean properties.
fn schema(raw: &[u8], needs: Needs) -> Change {
    let mut text = Cow::Borrowed(raw);
    if needs.has(Needs::ADD_TYPE) {
        let mut typed = Vec::with_capacity(text.len() + 20);
        typed.extend_from_slice(br#"{"type":"object""#);
        if json::members(&text).next().is_some() {
            typed.push(b',');
        }
        typed.extend_from_slice(&text[1..]);
        text = Cow::Owned(typed);
    }
    if needs.has(Needs::BOOLEANS) && has_booleans(&text) {
        let mut changed = Vec::with_capacity(text.len() + 40);
        rewrite(&mut changed, &text, |entry| {
            if !entry.is("properties") {
                return Change::Keep;
            }
            let mut properties = Vec::with_capacity(entry.value.len() + 40);
            rewrite(&mut properties, entry.value, |property| match property.value {
                b"true" => Change::Replace(b"{}".to_vec()),
                b"false" => Change::Replace(br#"{"not":{}}"#.to_vec()),
                _ => Change::Keep,
            });
            Change::Replace(properties)
        });
        text = Cow::Owned(changed);
    }
    match text {
        Cow::Borrowed(_) => Change::Keep,
        Cow::Owned(changed) => Change::Replace(changed),
    }
}

/// The icons that a host may load (LST-7).
fn usable_icons(raw: &[u8]) -> Vec<u8> {
    let mut out = vec![b'['];
    for icon in json::elements(raw).filter(|icon| usable_icon(icon)) {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(icon);
    }
    out.push(b']');
    out
}

fn usable_icon(icon: &[u8]) -> bool {
    let mut sources = json::members(icon).filter(|entry| entry.is("src"));
    let (Some(source), None) = (sources.next(), sources.next()) else { return false };
    json::text_of(source.value).is_some_and(|source| {
        let scheme = source.split_once(':').map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("data"))
    })
}

fn is_object(raw: &[u8]) -> bool {
    raw.first() == Some(&b'{')
}

/// What the root of a schema says of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootType {
    Absent,
    Object,
    Other,
}

fn root_type(schema: &[u8]) -> RootType {
    let mut found = RootType::Absent;
    for entry in json::members(schema).filter(|entry| entry.is("type")) {
        let object = json::text_of(entry.value).is_some_and(|text| text == "object");
        found = if object && found != RootType::Other { RootType::Object } else { RootType::Other };
    }
    found
}

fn has_booleans(schema: &[u8]) -> bool {
    json::members(schema)
        .filter(|entry| entry.is("properties"))
        .any(|entry| json::members(entry.value).any(|property| matches!(property.value, b"true" | b"false")))
}

/// Holds a schema to the limits of depth and size (D-30); one pass over validated text.
fn measure(schema: &[u8]) -> Result<(), Fault> {
    let (mut depth, mut deepest, mut nodes) = (0usize, 0usize, 0usize);
    let mut at = 0;
    while let Some(&byte) = schema.get(at) {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                nodes += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at += 1;
                while let Some(offset) = schema.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
                    at += offset;
                    if schema[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
                let behind = schema.get(at + 1..).unwrap_or_default().trim_ascii_start();
                if behind.first() != Some(&b':') {
                    nodes += 1;
                }
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => {
                nodes += 1;
                while schema.get(at + 1).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')) {
                    at += 1;
                }
            }
        }
        at += 1;
    }
    if deepest > MAX_SCHEMA_DEPTH {
        Err(Fault::TooDeep(deepest))
    } else if nodes > MAX_SCHEMA_NODES {
        Err(Fault::TooManyNodes(nodes))
    } else {
        Ok(())
    }
}
