//! What the operator wants otherwise about a tool: `[servers.*.override.*]`, in its definition and in its calls.
//!
//! A definition is rewritten once, when its server lists it, by splicing: what is not named stays as it came. The native
//! name never changes, so rules, routes and pins keep speaking of the same tool (N-15). Called by `part`; the arguments
//! of a call are put together by `gateway`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::item::{Fault, Item};
use crate::config::settings::OverrideSettings;
use crate::ident::Kind;
use crate::protocol::json;

/// What is changed about the calls of a tool.
#[derive(Debug, Default)]
pub struct Given {
    /// Arguments that are always these, raw.
    fixed: Box<[(String, String)]>,
    /// Arguments that are these where a host gives none, raw.
    defaults: Box<[(String, String)]>,
    /// How long a call may take without progress.
    pub timeout: Option<Duration>,
    /// Whether a call may be sent again when it is not known whether it ran.
    pub retry_safe: bool,
}

impl Given {
    /// What an override says of calls.
    pub fn of(wanted: &OverrideSettings) -> Self {
        Self {
            fixed: wanted.fixed.clone().into(),
            defaults: wanted.defaults.clone().into(),
            timeout: wanted.timeout,
            retry_safe: wanted.retry_safe,
        }
    }

    /// The arguments that a server gets for those of a host, a raw object or nothing; `None` when they are the host's
    /// own.
    pub fn arguments(&self, hosts: Option<&[u8]>) -> Option<Bytes> {
        if self.fixed.is_empty() && self.defaults.is_empty() {
            return None;
        }
        let hosts = hosts.unwrap_or(b"{}");
        let mut out = Vec::with_capacity(hosts.len() + 64);
        let mut members = Members::begin(&mut out);
        for entry in json::members(hosts) {
            if !self.fixed.iter().any(|(name, _)| entry.is(name)) {
                members.raw(entry.key, entry.value);
            }
        }
        for (name, value) in &self.defaults {
            if !json::members(hosts).any(|entry| entry.is(name)) {
                members.named(name, value.as_bytes());
            }
        }
        for (name, value) in &self.fixed {
            members.named(name, value.as_bytes());
        }
        members.end();
        Some(out.into())
    }

    /// Whether a host can set this argument.
    pub fn is_fixed(&self, name: &str) -> bool {
        self.fixed.iter().any(|(fixed, _)| fixed == name)
    }
}

/// The item as the operator wants it.
pub(super) fn adjusted(item: &Item, wanted: &OverrideSettings, most: usize) -> Result<Item, (Option<String>, Fault)> {
    let mut text = Vec::with_capacity(item.definition.len() + 256);
    let mut members = Members::begin(&mut text);
    let new = |value: &Option<String>| value.as_deref().map(quoted);
    let (title, description) = (new(&wanted.title), new(&wanted.description));
    let mut has = [false; 2];
    for entry in json::members(&item.definition) {
        let replaced = if entry.is("title") && title.is_some() {
            has[0] = true;
            title.clone()
        } else if entry.is("description") && description.is_some() {
            has[1] = true;
            description.clone()
        } else if entry.is("annotations") && title.is_some() {
            Some(rewritten(entry.value, |name, value| (name != "title").then(|| value.to_vec())))
        } else if entry.is("inputSchema") {
            Some(schema(entry.value, wanted))
        } else {
            None
        };
        members.raw(entry.key, replaced.as_deref().unwrap_or(entry.value));
    }
    for (name, value, has) in [("title", &title, has[0]), ("description", &description, has[1])] {
        if let Some(value) = value.as_ref().filter(|_| !has) {
            members.named(name, value);
        }
    }
    members.end();
    let page = Bytes::from(text);
    let mut changed = Item::read(Kind::Tool, &page, &page, most)?;
    // Headers repeat what the server gets, so they follow its own schema.
    changed.mirror.clone_from(&item.mirror);
    changed.renamed = wanted.name.as_deref().map(Into::into);
    changed.hide = wanted.hide;
    changed.whole.clone_from(&item.whole);
    changed.given = Some(Arc::new(Given::of(wanted)));
    Ok(changed)
}

/// A schema without what is fixed; what has a default is not asked for, and says which.
fn schema(raw: &[u8], wanted: &OverrideSettings) -> Vec<u8> {
    let fixed = |name: &str| wanted.fixed.iter().any(|(fixed, _)| fixed == name);
    let default = |name: &str| wanted.defaults.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    rewritten(raw, |key, value| {
        Some(match key {
            "properties" => rewritten(value, |name, value| match default(name) {
                _ if fixed(name) => None,
                Some(default) if value.starts_with(b"{") => Some(with_member(value, "default", default.as_bytes())),
                _ => Some(value.to_vec()),
            }),
            "required" => {
                let asked =
                    |raw: &&[u8]| json::text_of(raw).is_none_or(|name| !fixed(&name) && default(&name).is_none());
                let names: Vec<_> = json::elements(value).filter(asked).collect();
                [b"[", names.join(&b","[..]).as_slice(), b"]"].concat()
            }
            _ => value.to_vec(),
        })
    })
}

fn with_member(object: &[u8], name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + name.len() + value.len() + 8);
    let mut members = Members::begin(&mut out);
    for entry in json::members(object).filter(|entry| !entry.is(name)) {
        members.raw(entry.key, entry.value);
    }
    members.named(name, value);
    members.end();
    out
}

/// An object with other values, or without some.
fn rewritten(object: &[u8], mut change: impl FnMut(&str, &[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    if !object.starts_with(b"{") {
        return object.to_vec();
    }
    let mut out = Vec::with_capacity(object.len());
    let mut members = Members::begin(&mut out);
    for entry in json::members(object) {
        let name = entry.name().unwrap_or_default();
        if let Some(value) = change(&name, entry.value) {
            members.raw(entry.key, &value);
        }
    }
    members.end();
    out
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::push_string(&mut out, text);
    out
}

/// An object that is being written.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    any: bool,
}

impl<'a> Members<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, any: false }
    }

    /// A key as it stood in another object.
    fn raw(&mut self, key: &[u8], value: &[u8]) {
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(b"\":");
        self.out.extend_from_slice(value);
    }

    fn named(&mut self, key: &str, value: &[u8]) {
        self.comma();
        json::push_string(self.out, key);
        self.out.push(b':');
        self.out.extend_from_slice(value);
    }

    fn comma(&mut self) {
        if std::mem::replace(&mut self.any, true) {
            self.out.push(b',');
        }
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn item(definition: &str) -> Item {
        let page = Bytes::copy_from_slice(definition.as_bytes());
        Item::read(Kind::Tool, &page, &page, 4096).unwrap()
    }

    #[test]
    fn what_is_fixed_is_neither_seen_nor_set() {
        let tool = item(
            r#"{"name":"t","description":"old","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{}},"required":["a","b","c"]},"x":1}"#,
        );
        let wanted = OverrideSettings {
            native: "t".into(),
            title: Some("New \"t\"".into()),
            description: Some("new".into()),
            fixed: pairs(&[("a", r#""utf8""#)]),
            defaults: pairs(&[("b", "3")]),
            ..OverrideSettings::default()
        };
        let changed = adjusted(&tool, &wanted, 4096).unwrap();
        let expected = r#"{"name":"t","description":"new","inputSchema":{"type":"object","properties":{"b":{"type":"integer","default":3},"c":{}},"required":["c"]},"x":1,"title":"New \"t\""}"#;
        assert_eq!(String::from_utf8_lossy(&changed.definition), expected);
        assert_ne!(changed.digest, tool.digest);
        let given = changed.given.unwrap();
        let sent = |hosts: Option<&str>| {
            let sent = given.arguments(hosts.map(str::as_bytes)).unwrap();
            String::from_utf8(sent.to_vec()).unwrap()
        };
        assert_eq!(sent(None), r#"{"b":3,"a":"utf8"}"#);
        assert_eq!(sent(Some(r#"{"c":1.0}"#)), r#"{"c":1.0,"b":3,"a":"utf8"}"#);
        assert_eq!(sent(Some(r#"{"\u0061":"evil","a":2,"b": 4}"#)), r#"{"b":4,"a":"utf8"}"#);
    }

    #[test]
    fn what_is_not_named_stays_as_it_came() {
        let tool =
            item(r#"{"name":"t","inputSchema":{ "type":"object" },"annotations":{"title":"x","readOnlyHint":true}}"#);
        let renamed = OverrideSettings { name: Some("u".into()), hide: true, ..OverrideSettings::default() };
        let changed = adjusted(&tool, &renamed, 4096).unwrap();
        assert_eq!((changed.called(), &*changed.native, changed.hide), ("u", "t", true));
        assert!(
            String::from_utf8_lossy(&changed.definition).contains(r#""annotations":{"title":"x","readOnlyHint":true}"#)
        );
        assert_eq!(changed.given.unwrap().arguments(Some(b"{}")), None);
        let titled = OverrideSettings { title: Some("T".into()), ..OverrideSettings::default() };
        let changed = adjusted(&tool, &titled, 4096).unwrap();
        assert!(
            String::from_utf8_lossy(&changed.definition)
                .ends_with(r#""annotations":{"readOnlyHint":true},"title":"T"}"#)
        );
    }
}
