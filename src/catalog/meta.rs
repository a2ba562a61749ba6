//! What `_meta` says of user interfaces: which resource shows a tool, and who may call it (APP-2, APP-5).
//!
//! Every other key is foreign and stays (ENV-11). Knows no server and no spelling of URIs. Used for definitions, by
//! `item` and `render`, and for results, by `uri`.

use super::uri::Edits;
use crate::protocol::json::{self, Entry};

/// The key of all that, its link, and the older key of the link.
const UI: &str = "ui";
const LINK: &str = "resourceUri";
const FLAT_LINK: &str = "ui/resourceUri";
const VISIBILITY: &str = "visibility";
/// What a tool is published with that apps may not call.
const MODEL_ONLY: &str = r#""visibility":["model"]"#;

/// The values of links in a `_meta`.
fn link_values(meta: &[u8]) -> impl Iterator<Item = &[u8]> {
    json::members(meta).flat_map(|entry| {
        let inner = json::members(if entry.is(UI) { entry.value } else { b"" });
        let flat = entry.is(FLAT_LINK).then_some(entry.value);
        inner.filter(|entry| entry.is(LINK)).map(|entry: Entry<'_>| entry.value).chain(flat)
    })
}

/// The URIs that it links to.
pub(super) fn linked(meta: &[u8]) -> impl Iterator<Item = Box<str>> {
    link_values(meta).filter_map(json::text_of).map(Into::into)
}

/// Changes the links in it.
pub(super) fn links<'a>(edits: &mut Edits<'a>, meta: &'a [u8], expose: &mut dyn FnMut(&str) -> Option<String>) {
    for value in link_values(meta) {
        if let Some(new) = json::text_of(value).and_then(|uri| expose(&uri)) {
            edits.replace_string(value, &new);
        }
    }
}

/// Whether a tool is for apps alone: hosts keep it from the model (APP-5).
pub(super) fn is_for_apps_alone(meta: &[u8]) -> bool {
    let ui = json::members(meta).find(|entry| entry.is(UI));
    let said = ui.and_then(|ui| json::members(ui.value).find(|entry| entry.is(VISIBILITY)));
    let mut whose = said.into_iter().flat_map(|said| json::elements(said.value)).filter_map(json::text_of).peekable();
    whose.peek().is_some() && whose.all(|whose| whose != "model")
}

/// Says that only the model may call the tool, unless something is said.
pub(super) fn restrict<'a>(edits: &mut Edits<'a>, meta: &'a [u8]) {
    if meta.first() != Some(&b'{') {
        return;
    }
    let Some(ui) = json::members(meta).find(|entry| entry.is(UI)) else {
        edits.add_member(meta, &format!(r#""{UI}":{{{MODEL_ONLY}}}"#));
        return;
    };
    if ui.value.first() == Some(&b'{') && !json::members(ui.value).any(|entry| entry.is(VISIBILITY)) {
        edits.add_member(ui.value, MODEL_ONLY);
    }
}

/// The same as a member for a tool that has no `_meta`.
pub(super) fn restricted() -> String {
    format!(r#""_meta":{{"{UI}":{{{MODEL_ONLY}}}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restrict_only(meta: &str) -> String {
        let mut edits = Edits::new(meta.as_bytes());
        restrict(&mut edits, meta.as_bytes());
        edits.apply().map_or_else(|| meta.to_owned(), |new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn app_5_what_a_server_says_stays() {
        for said in [r#"{"ui":{"visibility":["app"]}}"#, r#"{"ui":{"visibility":null}}"#, r#"{"ui":7}"#, "null", "[]"] {
            assert_eq!(restrict_only(said), said);
        }
        assert_eq!(restrict_only("{ }"), r#"{"ui":{"visibility":["model"]} }"#);
        assert_eq!(restrict_only(r#"{"a":1}"#), r#"{"ui":{"visibility":["model"]},"a":1}"#);
        assert_eq!(restrict_only(r#"{"ui":{"x":1}}"#), r#"{"ui":{"visibility":["model"],"x":1}}"#);
    }

    #[test]
    fn app_5_a_tool_for_apps_alone_is_known() {
        for (visibility, alone) in [
            (r#"["app"]"#, true),
            (r#"["\u0061pp"]"#, true),
            (r#"["app","model"]"#, false),
            ("[]", false),
            ("null", false),
            (r#""app""#, false),
        ] {
            let meta = format!(r#"{{"ui":{{"visibility":{visibility}}}}}"#);
            assert_eq!(is_for_apps_alone(meta.as_bytes()), alone, "{meta}");
        }
        assert!(!is_for_apps_alone(b"{}"));
    }

    #[test]
    fn app_2_both_spellings_of_a_link() {
        let meta = r#"{"ui":{"resourceUri":"ui://a","resourceURI":"ui://b"},"ui/resourceUri":"ui:\/\/c","resourceUri":"ui://d"}"#;
        assert_eq!(linked(meta.as_bytes()).collect::<Vec<_>>(), ["ui://a".into(), "ui://c".into()] as [Box<str>; 2]);
    }
}
