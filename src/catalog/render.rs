//! The published form of a definition, for each revision a host may speak: raw bytes, spliced.
//!
//! Order, spelling and unknown members stay; only what a revision cannot take is changed (conversion rules for
//! tools), besides the name. Decides nothing about visibility and knows no server.
//!
//! Long, and one thing: a definition for each revision is written from the same parts.

use std::borrow::Cow;

use super::item::{Fault, Item, Member};
use super::schema::{RootType, has_booleans, is_object, measure};
use super::uri::Edits;
use super::{headers, meta};
use crate::ident::Kind;
use crate::protocol::json::{self, Entry};
use crate::protocol::version::Revision;

/// What a definition needs before some host can be shown it; nothing for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Needs(u16);

impl Needs {
    /// `execution` goes: hosts are not asked to call as a task (TSK-6, TSK-7).
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
    /// An `x-mcp-header` annotation of `inputSchema` is invalid (XMH-2).
    pub(super) const BAD_HEADER: Self = Self(1 << 8);
    /// There are such annotations; they change nothing.
    pub(super) const HEADERS: Self = Self(1 << 9);
    /// There is a `_meta`: whether something of it changes depends on all servers, see [`Published`].
    const META: Self = Self(1 << 10);

    const ALWAYS: Self = Self(
        Self::EXECUTION.0
            | Self::ADD_TYPE.0
            | Self::BAD_ICON.0
            | Self::BAD_OUTPUT.0
            | Self::BAD_HEADER.0
            | Self::META.0,
    );

    /// Looks through the members that matter, and holds the schemas to their limits.
    pub(super) fn of<'a>(kind: Kind, value: impl Fn(Member) -> Option<&'a [u8]>) -> Result<Self, Fault> {
        let mut needs = Self(0);
        match kind {
            Kind::Tool => needs.add(Self::of_tool(&value)?),
            Kind::Prompt => {}
            Kind::Resource | Kind::Template => {
                value(Member::Label).filter(|label| label.first() == Some(&b'"')).ok_or(Fault::NoName)?;
            }
        }
        if let Some(icons) = value(Member::Icons) {
            needs.add(Self::ICONS);
            if icons.first() != Some(&b'[') || json::elements(icons).any(|icon| !usable_icon(icon)) {
                needs.add(Self::BAD_ICON);
            }
        }
        if value(Member::Meta).is_some() {
            needs.add(Self::META);
        }
        Ok(needs)
    }

    /// What only tools have.
    fn of_tool<'a>(value: &impl Fn(Member) -> Option<&'a [u8]>) -> Result<Self, Fault> {
        let mut needs = Self(0);
        if value(Member::Execution).is_some() {
            needs.add(Self::EXECUTION);
        }
        let input = value(Member::InputSchema).ok_or(Fault::NoInputSchema)?;
        if !is_object(input) {
            return Err(Fault::InputSchemaNotAnObject);
        }
        let measured = measure(input)?;
        match measured.root {
            RootType::Object => {}
            RootType::Absent => needs.add(Self::ADD_TYPE),
            RootType::Other => return Err(Fault::InputSchemaType),
        }
        if measured.booleans {
            needs.add(Self::BOOLEANS);
        }
        if measured.annotated {
            needs.add(Self::HEADERS);
            if headers::strip(input).is_some() {
                needs.add(Self::BAD_HEADER);
            }
        }
        match value(Member::OutputSchema) {
            Some(output) if is_object(output) => {
                let measured = measure(output)?;
                needs.add(Self::OUTPUT);
                if measured.root != RootType::Object {
                    needs.add(Self::OPEN_OUTPUT);
                }
                if measured.booleans {
                    needs.add(Self::BOOLEANS);
                }
            }
            Some(_) => needs.add(Self::BAD_OUTPUT),
            None => {}
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

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Revisions between which no rule for tools differs, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(usize);

impl Class {
    /// How many there are.
    pub(super) const COUNT: usize = 4;

    /// All of them, newest first.
    pub(super) const ALL: [Self; Self::COUNT] = [Self(0), Self(1), Self(2), Self(3)];

    /// What each one asks for; each asks for all that the one before does.
    const ASKS: [Needs; Self::COUNT] = [
        Needs::ALWAYS,
        Needs(Needs::ALWAYS.0 | Needs::BOOLEANS.0 | Needs::OPEN_OUTPUT.0),
        Needs(Needs::ALWAYS.0 | Needs::BOOLEANS.0 | Needs::OPEN_OUTPUT.0 | Needs::ICONS.0),
        Needs(u16::MAX),
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

/// Answers what hosts shall see instead of a URI, if that is something else.
type Expose<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// How an item is published.
#[derive(Clone, Copy)]
pub(super) struct Published<'a> {
    /// Its name, URI or template towards hosts.
    pub(super) exposed: &'a str,
    /// For hosts of these revisions.
    pub(super) class: Class,
    /// What becomes of the links of its `_meta` (APP-2); `None` when nothing does.
    pub(super) expose: Option<&'a Expose<'a>>,
    /// Whether apps may not call it, unless its server says something (APP-5).
    pub(super) restrict: bool,
}

impl Published<'_> {
    /// What becomes of a `_meta`.
    fn meta(&self, raw: &[u8]) -> Change {
        let mut edits = Edits::new(raw);
        if let Some(expose) = self.expose {
            meta::links(&mut edits, raw, &mut |uri| expose(uri));
        }
        if self.restrict {
            meta::restrict(&mut edits, raw);
        }
        edits.apply().map_or(Change::Keep, Change::Replace)
    }
}

/// Appends the published form of `item`.
pub(super) fn render(out: &mut Vec<u8>, item: &Item, published: Published<'_>) {
    splice(out, item, published);
    if published.restrict && !item.needs.has(Needs::META) && out.pop() == Some(b'}') {
        // There is a member before: the name at least.
        out.push(b',');
        out.extend_from_slice(meta::restricted().as_bytes());
        out.push(b'}');
    }
}

fn splice(out: &mut Vec<u8>, item: &Item, published: Published<'_>) {
    let definition = &item.definition;
    let mut needs = item.needs.and(Class::ASKS[published.class.0]);
    let mut name = Vec::new();
    let name: &[u8] = if published.exposed == &*item.native {
        item.subject.of(definition)
    } else {
        json::push_string(&mut name, published.exposed);
        &name
    };
    if !published.restrict && (published.expose.is_none() || item.links.is_empty()) {
        needs.0 &= !Needs::META.0;
    }
    needs.0 &= !Needs::HEADERS.0;
    if needs == Needs::default() {
        out.extend_from_slice(&definition[..item.subject.start as usize]);
        out.extend_from_slice(name);
        out.extend_from_slice(&definition[item.subject.end as usize..]);
        return;
    }
    // What of the definition is dealt with, and how many members went before the first that stays: that one
    // must lose its comma.
    let mut from = 0;
    let mut gone = 0;
    for special in &item.special {
        let value = special.value.of(definition);
        let change = if special.member == Member::Subject {
            Change::Replace(name.to_vec())
        } else if special.member == Member::Meta {
            published.meta(value)
        } else {
            change(special.member, value, needs)
        };
        match change {
            Change::Keep => {}
            Change::Replace(value) => {
                out.extend_from_slice(&definition[from..special.value.start as usize]);
                out.extend_from_slice(&value);
                from = special.value.end as usize;
            }
            Change::Drop => {
                // Behind a member that went from the front this is empty.
                out.extend_from_slice(definition.get(from..special.lead as usize).unwrap_or_default());
                if special.ordinal == gone {
                    gone += 1;
                    from = special.next as usize;
                } else {
                    from = special.value.end as usize;
                }
            }
        }
    }
    out.extend_from_slice(&definition[from..]);
}

/// What becomes of a member that is published as its revision wants it, whatever its server.
fn change(member: Member, value: &[u8], needs: Needs) -> Change {
    match member {
        Member::Subject | Member::Label | Member::Meta => Change::Keep,
        Member::Execution => Change::Drop,
        Member::InputSchema => schema(value, needs),
        Member::OutputSchema => {
            let gone = Needs(Needs::BAD_OUTPUT.0 | Needs::OPEN_OUTPUT.0 | Needs::OUTPUT.0);
            if needs.has(gone) { Change::Drop } else { schema(value, needs.and(Needs::BOOLEANS)) }
        }
        Member::Icons if needs.has(Needs::ICONS) => Change::Drop,
        Member::Icons if needs.has(Needs::BAD_ICON) => Change::Replace(usable_icons(value)),
        Member::Icons => Change::Keep,
    }
}

/// What becomes of a member.
pub(super) enum Change {
    Keep,
    Drop,
    Replace(Vec<u8>),
}

/// Appends `object` with its members changed; all bytes around those that stay are kept.
pub(super) fn rewrite(out: &mut Vec<u8>, object: &[u8], mut change: impl FnMut(&Entry<'_>) -> Change) {
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

/// A schema with what is needed: invalid annotations out, type in, boolean properties as objects.
fn schema(raw: &[u8], needs: Needs) -> Change {
    let mut text = Cow::Borrowed(raw);
    if needs.has(Needs::BAD_HEADER)
        && let Some(stripped) = headers::strip(raw)
    {
        text = Cow::Owned(stripped);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::part::Part;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn publish(definition: &str, revision: Revision) -> String {
        let page = Bytes::from(format!("[{definition}]"));
        let part = Part::parse(Kind::Tool, &[page], crate::config::settings::ListLimits::default()).unwrap();
        let [item] = part.items() else { panic!("{definition}: {:?}", part.dropped()) };
        let mut out = Vec::new();
        let class = Class::of(revision);
        render(&mut out, item, Published { exposed: "s__t", class, expose: None, restrict: false });
        String::from_utf8(out).unwrap()
    }

    /// The published forms, newest revision first; the expected ones without name and input schema.
    fn check(members: &str, expected: [&str; 5]) {
        for (revision, expected) in Revision::ALL.into_iter().zip(expected) {
            let found = publish(&format!(r#"{{"name":"t","inputSchema":{{"type":"object"}}{members}}}"#), revision);
            let expected = format!(r#"{{"name":"s__t","inputSchema":{{"type":"object"}}{expected}}}"#);
            assert_eq!(found, expected, "{revision:?}");
        }
    }

    /// The same for an input schema.
    fn check_schema(schema: &str, modern: &str, legacy: &str) {
        for revision in Revision::ALL {
            let expected = if revision == Revision::V2026_07_28 { modern } else { legacy };
            let found = publish(&format!(r#"{{"inputSchema":{schema},"name":"t"}}"#), revision);
            assert_eq!(found, format!(r#"{{"inputSchema":{expected},"name":"s__t"}}"#), "{revision:?}");
        }
    }

    #[test]
    fn d046_all_else_stays_byte_for_byte() {
        let rest = r#" , "title":"T\u00e9","annotations":{"readOnlyHint":true},"_meta":{"a.b/c":[1.0,1E2,123456789012345678901234567890]}
            ,"inputSchema": { "type":"object" , "$defs":{"d":{}},"x-vendor":"\ud800" } ,"new":null "#;
        for revision in Revision::ALL {
            let found = publish(&format!(r#"{{ "name" : "t"{rest}}}"#), revision);
            assert_eq!(found, format!(r#"{{ "name" : "s__t"{rest}}}"#));
        }
    }

    #[test]
    fn execution_is_never_published() {
        check(r#","execution":{"taskSupport":"optional"},"z":1"#, [r#","z":1"#; 5]);
        check(r#" , "execution":{} , "z":1 "#, [r#" , "z":1 "#; 5]);
        check(r#", "execution":{}"#, [""; 5]);
        let first = publish(r#"{ "execution":{} , "name":"t","inputSchema":{"type":"object"}}"#, Revision::V2026_07_28);
        assert_eq!(first, r#"{"name":"s__t","inputSchema":{"type":"object"}}"#);
    }

    #[test]
    fn output_schemas_by_revision() {
        let object = r#","outputSchema":{"type":"object"}"#;
        check(object, [object, object, object, "", ""]);
        let open = r#","outputSchema":{"type":"array","items":{}}"#;
        check(open, [open, "", "", "", ""]);
        let untyped = r#","outputSchema":{"anyOf":[]}"#;
        check(untyped, [untyped, "", "", "", ""]);
        for bad in ["null", "true", "7"] {
            check(&format!(r#","outputSchema":{bad}"#), [""; 5]);
        }
        let given = r#","outputSchema":{"type":"object","properties":{"p":true}}"#;
        let legacy = r#","outputSchema":{"type":"object","properties":{"p":{}}}"#;
        check(given, [given, legacy, legacy, "", ""]);
    }

    #[test]
    fn boolean_properties_become_objects_for_legacy_hosts() {
        let given = r#"{"type":"object","properties":{ "a":true , "b":false,"c":{"properties":{"d":true}},"properties":true},"additionalProperties":false}"#;
        let legacy = r#"{"type":"object","properties":{ "a":{} , "b":{"not":{}},"c":{"properties":{"d":true}},"properties":{}},"additionalProperties":false}"#;
        check_schema(given, given, legacy);
    }

    #[test]
    fn a_missing_type_is_added() {
        check_schema("{}", r#"{"type":"object"}"#, r#"{"type":"object"}"#);
        check_schema("{ }", r#"{"type":"object" }"#, r#"{"type":"object" }"#);
        check_schema(r#"{"a":1}"#, r#"{"type":"object","a":1}"#, r#"{"type":"object","a":1}"#);
        check_schema(
            r#"{"properties":{"p":true}}"#,
            r#"{"type":"object","properties":{"p":true}}"#,
            r#"{"type":"object","properties":{"p":{}}}"#,
        );
    }

    #[test]
    fn xmh_2_invalid_header_annotations_are_not_published() {
        let good = r#"{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"}}}"#;
        check_schema(good, good, good);
        check_schema(r#"{"x-mcp-header":"R"}"#, r#"{"type":"object"}"#, r#"{"type":"object"}"#);
        let bad = good.replace("string", "number");
        let clean = r#"{"type":"object","properties":{"p":{"type":"number"}}}"#;
        check_schema(&bad, clean, clean);
        check_schema(&bad.replace("x-mcp-header", "x\\u002dmcp-header"), clean, clean);
    }

    #[test]
    fn lst_7_icons_by_scheme_and_revision() {
        let good = r#","icons":[{"src":"HTTPS://a/b"},{"src":"data:image/png;base64,x","sizes":["1x1"]}]"#;
        check(good, [good, good, "", "", ""]);
        let mixed = r#","icons":[{"src":"http://a"},{"src":"https:/\/a"} , {"src":"file:///a"},{},7,{"src":"javascript:x","src":"https://a"}]"#;
        let kept = r#","icons":[{"src":"https:/\/a"}]"#;
        check(mixed, [kept, kept, "", "", ""]);
        let none = r#","icons":[]"#;
        check(r#","icons":null"#, [none, none, "", "", ""]);
    }

    #[test]
    fn classes_without_a_difference_are_one() {
        let class = |needs, revision| Class::of(revision).simplest(needs).index();
        for revision in Revision::ALL {
            assert_eq!(class(Needs::EXECUTION, revision), 0);
        }
        assert_eq!(class(Needs::OUTPUT, Revision::V2025_06_18), 0);
        assert_eq!(class(Needs::OUTPUT, Revision::V2025_03_26), 3);
        assert_eq!(class(Needs::BOOLEANS, Revision::V2024_11_05), 1);
        assert_eq!(class(Needs::ICONS, Revision::V2024_11_05), 2);
    }

    proptest! {
        /// In whatever order the members stand, what is published is the definition less what must go.
        #[test]
        fn order_and_space_do_not_matter(
            order in Just(["name", "inputSchema", "outputSchema", "icons", "execution", "x", "y"]).prop_shuffle(),
            left_out in prop::collection::hash_set(2..7usize, 0..5),
            space in prop::sample::select(vec!["", " ", "\n\t"]),
        ) {
            let all = ["name", "inputSchema", "outputSchema", "icons", "execution", "x", "y"];
            let present = |member: &&str| !left_out.contains(&all.iter().position(|name| name == member).unwrap());
            let value = |member: &str| match member {
                "name" => r#""t""#,
                "inputSchema" | "outputSchema" => r#"{"type":"object"}"#,
                "icons" => r#"[{"src":"https://a"}]"#,
                _ => r#"{"a":[",}"]}"#,
            };
            let members: Vec<_> = order.iter().filter(|member| present(member)).copied().collect();
            let written: Vec<_> = members.iter().map(|m| format!("{space}\"{m}\"{space}:{space}{}{space}", value(m))).collect();
            for (revision, kept) in [
                (Revision::V2025_11_25, &["name", "inputSchema", "outputSchema", "icons", "x", "y"][..]),
                (Revision::V2025_06_18, &["name", "inputSchema", "outputSchema", "x", "y"]),
                (Revision::V2024_11_05, &["name", "inputSchema", "x", "y"]),
            ] {
                let published = publish(&format!("{{{}}}", written.join(",")), revision);
                prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&published).is_ok(), "{}", published);
                let found: Vec<_> = json::members(published.as_bytes())
                    .map(|entry| (entry.name().unwrap().into_owned(), String::from_utf8(entry.value.to_vec()).unwrap()))
                    .collect();
                let expected: Vec<_> = members
                    .iter()
                    .filter(|member| kept.contains(member))
                    .map(|&m| (m.to_owned(), if m == "name" { r#""s__t""# } else { value(m) }.to_owned()))
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }

        /// Whatever goes, what stays is the same JSON.
        #[test]
        fn rewriting_leaves_the_rest(
            members in prop::collection::btree_map("[a-z]{1,3}", "[\\[\\]{},:\" ]{0,4}", 0..6),
            gone in prop::collection::hash_set("[a-z]", 0..8),
            pretty in any::<bool>(),
        ) {
            let text = if pretty { serde_json::to_vec_pretty(&members) } else { serde_json::to_vec(&members) }.unwrap();
            let dropped = |key: &str| gone.contains(&key[..1]);
            let mut out = Vec::new();
            rewrite(&mut out, &text, |entry| {
                if dropped(&entry.name().unwrap()) { Change::Drop } else { Change::Keep }
            });
            let left: std::collections::BTreeMap<String, String> = serde_json::from_slice(&out).unwrap();
            let expected: std::collections::BTreeMap<_, _> =
                members.into_iter().filter(|(key, _)| !dropped(key)).collect();
            prop_assert_eq!(left, expected);
        }
    }
}
