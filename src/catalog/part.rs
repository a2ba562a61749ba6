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
use crate::shown::shown_str;

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
    /// The members that this is about, and the name, in the order of the text; empty when nothing must.
    pub(super) special: Box<[Special]>,
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
            Some(name) => write!(f, "tool \"{}\": {}", shown_str(name), self.fault),
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

/// A member of a definition that may be published otherwise than it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    /// Which one.
    pub(super) member: Member,
    /// How many members stand before it.
    pub(super) ordinal: u32,
    /// Where the member before it ends: what follows is space, a comma and its key.
    pub(super) lead: u32,
    /// Its value.
    pub(super) value: Span,
    /// Where the key of the next member begins; the end of its value, if it is the last.
    pub(super) next: u32,
}

/// Which member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Name,
    InputSchema,
    OutputSchema,
    Icons,
    Execution,
}

impl Member {
    fn of(key: &str) -> Option<Self> {
        Some(match key {
            "name" => Self::Name,
            "inputSchema" => Self::InputSchema,
            "outputSchema" => Self::OutputSchema,
            "icons" => Self::Icons,
            "execution" => Self::Execution,
            _ => return None,
        })
    }
}

impl ToolItem {
    /// Checks one definition; a fault comes with the name, where there is one.
    fn read(page: &Bytes, raw: &[u8]) -> Result<Self, (Option<String>, Fault)> {
        if raw.first() != Some(&b'{') {
            return Err((None, Fault::NotAnObject));
        }
        let mut special: Vec<Special> = Vec::with_capacity(4);
        let mut keys = Vec::with_capacity(16);
        let mut lead = 1;
        for entry in json::members(raw) {
            let start = raw[lead..].iter().position(|&b| b == b'"').map_or(lead, |quote| lead + quote);
            let ordinal = keys.len() as u32;
            if let Some(last) = special.last_mut().filter(|last| last.ordinal + 1 == ordinal) {
                last.next = start as u32;
            }
            let key = match entry.name() {
                Some(Cow::Owned(resolved)) => Cow::Owned(resolved),
                Some(Cow::Borrowed(_)) | None => String::from_utf8_lossy(entry.key),
            };
            let end = entry.at + entry.value.len();
            if let Some(member) = Member::of(&key) {
                let value = Span { start: entry.at as u32, end: end as u32 };
                special.push(Special { member, ordinal, lead: lead as u32, value, next: end as u32 });
            }
            keys.push(key);
            lead = end;
        }
        let value = |member| special.iter().rfind(|found| found.member == member).map(|found| found.value);
        let name = value(Member::Name).and_then(|span| Some((span, json::text_of(span.of(raw))?)));
        let Some((name, native)) = name.filter(|(_, native)| !native.is_empty()) else {
            return Err((None, Fault::NoName));
        };
        let fail = |fault| (Some(native.clone().into_owned()), fault);
        if raw.len() > MAX_DEFINITION {
            return Err(fail(Fault::TooLarge(raw.len())));
        }
        keys.sort_unstable();
        if let Some(twin) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(fail(Fault::DuplicateMember(twin[0].clone().into_owned())));
        }
        let needs = Needs::of(|member| value(member).map(|span| span.of(raw))).map_err(fail)?;
        if needs == Needs::default() {
            special.clear();
        }
        let definition = page.slice_ref(raw);
        Ok(Self { definition, name, native: native.into(), needs, special: special.into(), digest: digest(raw) })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pages: &[&str]) -> ToolsPart {
        let pages: Vec<_> = pages.iter().map(|page| Bytes::copy_from_slice(page.as_bytes())).collect();
        ToolsPart::parse(&pages).unwrap()
    }

    /// What becomes of one definition between two good ones.
    fn check(definition: &str, expected: Result<&str, (Option<&str>, Fault)>) {
        let good = |name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let part = parse(&[&format!("[{}, {definition} ,{}]", good("first"), good("last"))]);
        let natives: Vec<_> = part.natives().collect();
        match expected {
            Ok(name) => {
                assert_eq!(natives, ["first", name, "last"]);
                assert_eq!(part.definition(name).unwrap(), definition.as_bytes(), "kept as it came");
                assert!(part.dropped().is_empty());
            }
            Err((name, fault)) => {
                assert_eq!(natives, ["first", "last"], "{definition}");
                assert_eq!(part.dropped(), [Dropped { index: 1, name: name.map(str::to_owned), fault }]);
            }
        }
    }

    #[test]
    fn d045_good_and_odd_definitions_stay() {
        check(r#"{"name":"t","inputSchema":{"type":"object"}}"#, Ok("t"));
        check(r#"{ "inputSchema" : { } , "name" : "t" }"#, Ok("t"));
        check(
            r#"{"name":"t","inputSchema":{"$schema":"urn:odd","type":"object","x":[1E2,"}"]},"new":{"a":1}}"#,
            Ok("t"),
        );
        check(r#"{"name":"t\u00f6","inputSchema":{"type":"\u006fbject"}}"#, Ok("tö"));
        check(r#"{"n\u0061me":"t","inputSchema":{"type":"object"}}"#, Ok("t"));
        check(
            r#"{"name":"t","inputSchema":{"type":"object","properties":{"p":{"$ref":"https://x.invalid/a"}}}}"#,
            Ok("t"),
        );
    }

    #[test]
    fn d045_invalid_ones_are_dropped_and_named() {
        let schema = r#""inputSchema":{"type":"object"}"#;
        for odd in ["7", "null", "\"t\"", "[]"] {
            check(odd, Err((None, Fault::NotAnObject)));
        }
        for name in ["", r#""name":"","#, r#""name":7,"#, r#""name":null,"#, r#""name":"\ud800","#] {
            check(&format!("{{{name}{schema}}}"), Err((None, Fault::NoName)));
        }
        check(r#"{"name":"t"}"#, Err((Some("t"), Fault::NoInputSchema)));
        for value in ["null", "true", "[]", "\"object\""] {
            let definition = format!(r#"{{"name":"t","inputSchema":{value}}}"#);
            check(&definition, Err((Some("t"), Fault::InputSchemaNotAnObject)));
        }
        for kind in [r#""string""#, r#"["object"]"#, "null", r#""object","type":"string""#] {
            let definition = format!(r#"{{"name":"t","inputSchema":{{"type":{kind}}}}}"#);
            check(&definition, Err((Some("t"), Fault::InputSchemaType)));
        }
        let twice = format!(r#"{{"name":"t",{schema},"n\u0061me":"u"}}"#);
        check(&twice, Err((Some("u"), Fault::DuplicateMember("name".into()))));
        check(&format!(r#"{{"name":"first",{schema}}}"#), Err((Some("first"), Fault::DuplicateName)));
    }

    #[test]
    fn d_30_schemas_have_limits() {
        let tool = |schema: &str| format!(r#"{{"name":"t","inputSchema":{{"type":"object","a":{schema}}}}}"#);
        let deep = |levels: usize| tool(&format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1)));
        check(&deep(MAX_SCHEMA_DEPTH), Ok("t"));
        check(&deep(65), Err((Some("t"), Fault::TooDeep(65))));
        // The schema itself, its type and the array are three.
        let wide = |nodes: usize| tool(&format!("[{}]", vec!["1"; nodes - 3].join(",")));
        check(&wide(MAX_SCHEMA_NODES), Ok("t"));
        check(&wide(20_001), Err((Some("t"), Fault::TooManyNodes(20_001))));
        let output = deep(65).replace("inputSchema", r#"inputSchema":{"type":"object"},"outputSchema"#);
        check(&output, Err((Some("t"), Fault::TooDeep(65))));
        let sized = |bytes: usize| {
            let empty = r#"{"name":"t","inputSchema":{"type":"object"},"d":""}"#.len();
            tool("").replace(r#","a":}"#, &format!(r#"}},"d":"{}""#, "x".repeat(bytes - empty)))
        };
        check(&sized(MAX_DEFINITION), Ok("t"));
        check(&sized(MAX_DEFINITION + 1), Err((Some("t"), Fault::TooLarge(MAX_DEFINITION + 1))));
    }

    #[test]
    fn a_schema_is_counted_by_its_values() {
        // Keys are not values, whatever stands in them; strings hide brackets, quotes and colons.
        check(
            r#"{"name":"t","inputSchema":{"type" : "object","d\"]":"[[[\\\"{:","e":-1.5e+3,"f":[true,{"":null}]}}"#,
            Ok("t"),
        );
    }

    #[test]
    fn d_29_a_list_has_limits() {
        let one = r#"{"name":"t","inputSchema":{}}"#;
        let pages = |count: usize| [Bytes::from(format!("[{}]", vec![one; count].join(",")))];
        let part = ToolsPart::parse(&pages(MAX_ENTRIES)).unwrap();
        assert_eq!((part.len(), part.dropped().len()), (1, MAX_ENTRIES - 1));
        assert_eq!(ToolsPart::parse(&pages(MAX_ENTRIES + 1)).unwrap_err(), ListError::TooMany);
        let page = Bytes::from(format!("[\"{}\"]", "x".repeat(MAX_LIST / 2)));
        assert_eq!(ToolsPart::parse(&[page.clone(), page]).unwrap_err(), ListError::TooLarge);
        let odd = [Bytes::from_static(b"[]"), Bytes::from_static(b"null")];
        assert_eq!(ToolsPart::parse(&odd).unwrap_err(), ListError::NotAnArray(1));
    }

    #[test]
    fn pages_are_read_in_order_and_names_are_unique_over_all() {
        let tool = |name, more| format!(r#"{{"name":"{name}","inputSchema":{{}}{more}}}"#);
        let part = parse(&[
            &format!("[{},{}]", tool("b", ""), tool("a", "")),
            "[ ]",
            &format!("[{},{}]", tool("b", r#","late":1"#), tool("c", "")),
        ]);
        assert_eq!(part.natives().collect::<Vec<_>>(), ["b", "a", "c"]);
        assert_eq!(part.dropped().len(), 1);
        assert_eq!(part.dropped()[0].index, 2);
        assert_eq!(part.definition("b").unwrap(), tool("b", "").as_bytes(), "the first stays");
        assert_eq!(part.dropped()[0].to_string(), "tool \"b\": an earlier entry has the same name");
    }

    #[test]
    fn definitions_are_slices_of_their_page() {
        let page = Bytes::from(r#"[{"name":"t","inputSchema":{}}]"#.to_owned());
        let part = ToolsPart::parse(std::slice::from_ref(&page)).unwrap();
        assert!(page.as_ptr_range().contains(&part.definition("t").unwrap().as_ptr()));
        assert!(part.same_as(&ToolsPart::parse(&[page]).unwrap()));
        assert!(!part.same_as(&parse(&[r#"[{"name":"t","inputSchema":{ }}]"#])));
    }
}
