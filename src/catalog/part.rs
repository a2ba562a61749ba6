//! What one server listed of one kind: checked entry by entry, kept raw.
//!
//! One bad definition is dropped and named, never the list (LST-6, D045). References inside schemas are
//! neither followed nor judged: nothing here makes a request (D054). Knows nothing of names towards the host,
//! rules, or other servers. `gateway` parses a part whenever a server was listed.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::adjust;
use super::item::{Fault, Item};
use crate::config::settings::{ListLimits, OverrideSettings};
use crate::ident::Kind;
use crate::pins::drift::Hold;
use crate::protocol::json;
use crate::shown::shown_str;

/// What one server listed of one kind.
#[derive(Clone, Debug)]
pub struct Part {
    kind: Kind,
    limits: ListLimits,
    items: Vec<Item>,
    dropped: Vec<Dropped>,
}

/// An entry that is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// What it is.
    pub kind: Kind,
    /// Its position in the list.
    pub index: usize,
    /// Its name or URI, where it has one. Foreign text.
    pub name: Option<String>,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} \"{}\": {}", self.kind, shown_str(name), self.fault),
            None => write!(f, "{} at position {}: {}", self.kind, self.index, self.fault),
        }
    }
}

/// What pins say of an entry.
#[derive(Clone, Debug)]
pub enum Pin {
    /// It is served as it was listed.
    Live,
    /// It is served as it was reviewed: this definition.
    Locked(Bytes),
    /// It is not served.
    Held(Arc<Hold>),
}

/// Why a list is not taken at all; the last good one is kept (D-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A page is not an array.
    #[error("the list on page {0} is not an array")]
    NotAnArray(usize),
    /// More than so many.
    #[error("the list has more than {0} entries")]
    TooMany(usize),
    /// Larger than so many bytes.
    #[error("the list has more than {0} bytes")]
    TooLarge(usize),
}

impl Part {
    /// Reads the pages of a list: the raw text of each page's array, out of validated messages, in order.
    pub fn parse(kind: Kind, pages: &[Bytes], limits: ListLimits) -> Result<Self, ListError> {
        if pages.iter().map(Bytes::len).sum::<usize>() > limits.list {
            return Err(ListError::TooLarge(limits.list));
        }
        let mut part = Self { kind, limits, items: Vec::new(), dropped: Vec::new() };
        let mut known: HashSet<Arc<str>> = HashSet::new();
        let mut index = 0;
        for (number, page) in pages.iter().enumerate() {
            if page.trim_ascii_start().first() != Some(&b'[') {
                return Err(ListError::NotAnArray(number));
            }
            for raw in json::elements(page) {
                if index == limits.entries {
                    return Err(ListError::TooMany(limits.entries));
                }
                match Item::read(kind, page, raw, limits.definition) {
                    Ok(item) if known.insert(item.native.clone()) => part.items.push(item),
                    Ok(item) => {
                        let named = matches!(kind, Kind::Tool | Kind::Prompt);
                        let fault = if named { Fault::DuplicateName } else { Fault::DuplicateUri };
                        part.dropped.push(Dropped { kind, index, name: Some(item.native.as_ref().to_owned()), fault });
                    }
                    Err((name, fault)) => part.dropped.push(Dropped { kind, index, name, fault }),
                }
                index += 1;
            }
        }
        Ok(part)
    }

    /// Changes what the operator wants otherwise; what cannot be read then is left out as any bad definition.
    pub fn adjust(&mut self, overrides: &[OverrideSettings]) {
        if self.kind != Kind::Tool {
            return;
        }
        for wanted in overrides {
            let Some(at) = self.items.iter().position(|item| *item.native == *wanted.native) else { continue };
            match adjust::adjusted(&self.items[at], wanted, self.limits.definition) {
                Ok(item) => {
                    let hold = self.items[at].hold.take();
                    self.items[at] = Item { hold, ..item };
                }
                Err((name, fault)) => {
                    // Shown as it was, it would take what is fixed.
                    self.items.remove(at);
                    self.dropped.push(Dropped { kind: self.kind, index: at, name, fault });
                }
            }
        }
    }

    /// The entries: native names and definitions, and what tells definitions from each other.
    pub fn entries(&self) -> impl Iterator<Item = (&Arc<str>, &Bytes, [u8; 16])> {
        self.items.iter().map(|item| (&item.native, &item.definition, item.digest))
    }

    /// The same list as pins have it, entry by entry.
    pub fn pinned(&self, pins: impl IntoIterator<Item = Pin>) -> Self {
        let (kind, limits) = (self.kind, self.limits);
        let mut pinned = Self { kind, limits, items: Vec::with_capacity(self.items.len()), dropped: Vec::new() };
        for (item, pin) in self.items.iter().zip(pins) {
            let held = |hold| Item { hold: Some(hold), ..item.clone() };
            pinned.items.push(match pin {
                Pin::Live => item.clone(),
                Pin::Held(hold) => held(hold),
                Pin::Locked(reviewed) => match Item::read(kind, &reviewed, &reviewed, limits.definition) {
                    Ok(reviewed) if reviewed.native == item.native => reviewed,
                    // What was reviewed is no definition: nothing is served in its place.
                    Ok(_) | Err(_) => held(Arc::new(Hold::Pending)),
                },
            });
        }
        pinned
    }

    /// Whether there is something in it, and nothing of that is served.
    pub fn is_held(&self) -> bool {
        !self.items.is_empty() && self.items.iter().all(|item| item.hold.is_some())
    }

    /// What it lists.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The native names, URIs or templates, in the server's order.
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

    /// The tools with an invalid header annotation: of a server that is reached by HTTP they are not published, for
    /// warnings (XMH-2).
    pub fn badly_annotated(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter(|item| item.is_badly_annotated()).map(|item| item.native.as_ref())
    }

    /// Whether both list the same definitions in the same order, byte for byte.
    pub fn same_as(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.items.len() == other.items.len()
            && self.items.iter().zip(&other.items).all(|(a, b)| a.digest == b.digest && a.hold == b.hold)
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::{MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES};
    use super::*;

    fn parse(pages: &[&str]) -> Part {
        let pages: Vec<_> = pages.iter().map(|page| Bytes::copy_from_slice(page.as_bytes())).collect();
        Part::parse(Kind::Tool, &pages, ListLimits::default()).unwrap()
    }

    /// A list that a server does not offer is empty, and nothing is held by that: results of such a server need no look.
    #[test]
    fn an_empty_list_holds_nothing_back() {
        assert!(!parse(&["[]"]).is_held());
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
                assert_eq!(
                    part.dropped(),
                    [Dropped { kind: Kind::Tool, index: 1, name: name.map(str::to_owned), fault }]
                );
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
        let most = 256 << 10;
        check(&sized(most), Ok("t"));
        check(&sized(most + 1), Err((Some("t"), Fault::TooLarge(most + 1, most))));
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
        let small = ListLimits { definition: one.len(), entries: 7, list: 500 };
        for limits in [ListLimits::default(), small] {
            let most = limits.entries;
            let part = Part::parse(Kind::Tool, &pages(most), limits).unwrap();
            assert_eq!((part.len(), part.dropped().len()), (1, most - 1));
            assert_eq!(Part::parse(Kind::Tool, &pages(most + 1), limits).unwrap_err(), ListError::TooMany(most));
            let page = Bytes::from(format!("[\"{}\"]", "x".repeat(limits.list / 2)));
            let too_large = ListError::TooLarge(limits.list);
            assert_eq!(Part::parse(Kind::Tool, &[page.clone(), page], limits).unwrap_err(), too_large);
        }
        let longer = ListLimits { definition: one.len() - 1, ..small };
        let part = Part::parse(Kind::Tool, &pages(1), longer).unwrap();
        assert_eq!((part.len(), &part.dropped()[0].fault), (0, &Fault::TooLarge(one.len(), one.len() - 1)));
        let odd = [Bytes::from_static(b"[]"), Bytes::from_static(b"null")];
        assert_eq!(Part::parse(Kind::Tool, &odd, ListLimits::default()).unwrap_err(), ListError::NotAnArray(1));
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
        let part = Part::parse(Kind::Tool, std::slice::from_ref(&page), ListLimits::default()).unwrap();
        assert!(page.as_ptr_range().contains(&part.definition("t").unwrap().as_ptr()));
        assert!(part.same_as(&Part::parse(Kind::Tool, &[page], ListLimits::default()).unwrap()));
        assert!(!part.same_as(&parse(&[r#"[{"name":"t","inputSchema":{ }}]"#])));
    }
}
