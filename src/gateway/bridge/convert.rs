//! A server's question in the words of a host (§15.4, CAP-7, MRT-5): spliced, and nothing decoded that need not be.
//!
//! Pure. What an older host has no form for is said so; the bridge answers for it then.

use std::borrow::Cow;

use bytes::Bytes;

use crate::ident::ServerKey;
use crate::protocol::capability::is_url;
use crate::protocol::form;
use crate::protocol::json::{self, Entry};
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};

/// A question as a host gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// With these params.
    Ask(Option<Bytes>),
    /// The host's revision has no form for it: nobody is asked, and the answer is a cancellation.
    Cancel,
}

/// The question for a host of this revision.
pub(super) fn question(method: Method, params: Option<&[u8]>, server: &ServerKey, to: Revision) -> Question {
    let Some(params) = params else { return Question::Ask(None) };
    let secret = form::secret(Some(params)).filter(|_| method == Method::Elicit);
    if let Some(secret) = &secret {
        tracing::warn!(%server, secret, "a form of it seems to ask for a secret");
    }
    let mut out = b"{".to_vec();
    for entry in json::members(params) {
        // `task` belongs to the other leg, and we declare no tasks.
        if entry.is("task") {
            continue;
        }
        if entry.is("_meta") {
            let mut passing = Vec::new();
            meta::push_passing(&mut passing, entry.value);
            if passing.pop().is_some() {
                passing.insert(0, b'{');
                passing.push(b'}');
                push(&mut out, entry.key, &passing);
            }
            continue;
        }
        let value = if method == Method::Elicit {
            match elicited(&entry, server, secret.as_deref(), to) {
                Some(Ok(value)) => value,
                Some(Err(Unasked)) => return Question::Cancel,
                None => continue,
            }
        } else if method == Method::Sample {
            sampled(&entry, to)
        } else {
            Cow::Borrowed(entry.value)
        };
        push(&mut out, entry.key, &value);
    }
    // LMB-2: a name for the URL, where the revision asks for one.
    let named = json::members(params).any(|entry| entry.is("elicitationId"));
    if method == Method::Elicit && to == Revision::V2025_11_25 && is_url(Some(params)) && !named {
        push(&mut out, b"elicitationId", format!("\"{}\"", uuid()).as_bytes());
    }
    if out.len() == 1 && method == Method::Roots {
        return Question::Ask(None);
    }
    out.push(b'}');
    Question::Ask(Some(out.into()))
}

fn push(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

/// The host's revision has no form for it.
struct Unasked;

/// A member of an elicitation; nothing when it is left out.
fn elicited<'a>(
    entry: &Entry<'a>,
    server: &ServerKey,
    secret: Option<&str>,
    to: Revision,
) -> Option<Result<Cow<'a, [u8]>, Unasked>> {
    let old = to < Revision::V2025_11_25;
    if entry.is("message") && entry.value.starts_with(b"\"") {
        // The host knows us alone, so the text says who asks. The rest of it stays as the server spelled it.
        let careful = secret.map(|secret| format!("(Careful, this form seems to ask for a secret: {secret}.) "));
        let careful = careful.as_deref().unwrap_or_default().as_bytes();
        return Some(Ok(Cow::Owned([b"\"[", server.as_str().as_bytes(), b"] ", careful, &entry.value[1..]].concat())));
    }
    if (entry.is("mode") && old) || (entry.is("elicitationId") && to.era() == Era::Modern) {
        return None;
    }
    if entry.is("requestedSchema") && old {
        return Some(form(entry.value).map(Cow::Owned));
    }
    Some(Ok(Cow::Borrowed(entry.value)))
}

/// A form as 2025-06-18 has them: choices are `enum` with `enumNames`, only booleans have a default, and nothing is
/// chosen several times.
fn form(schema: &[u8]) -> Result<Vec<u8>, Unasked> {
    let mut out = b"{".to_vec();
    for entry in json::members(schema) {
        if !entry.is("properties") {
            push(&mut out, entry.key, entry.value);
            continue;
        }
        let mut properties = b"{".to_vec();
        for property in json::members(entry.value) {
            push(&mut properties, property.key, &field(property.value)?);
        }
        properties.push(b'}');
        push(&mut out, entry.key, &properties);
    }
    out.push(b'}');
    Ok(out)
}

fn field(schema: &[u8]) -> Result<Vec<u8>, Unasked> {
    let is_type = |name: &[u8]| json::members(schema).any(|entry| entry.is("type") && entry.value == name);
    if is_type(b"\"array\"") {
        return Err(Unasked);
    }
    let mut out = b"{".to_vec();
    for entry in json::members(schema) {
        if entry.is("oneOf") {
            let part = |name| {
                let values = json::elements(entry.value)
                    .filter_map(|choice| json::members(choice).find(|entry| entry.is(name)).map(|entry| entry.value));
                let values: Vec<_> = values.collect();
                [b"[", &values.join(&b","[..])[..], b"]"].concat()
            };
            push(&mut out, b"enum", &part("const"));
            push(&mut out, b"enumNames", &part("title"));
        } else if !entry.is("default") || is_type(b"\"boolean\"") {
            push(&mut out, entry.key, entry.value);
        }
    }
    out.push(b'}');
    Ok(out)
}

/// A member of a sampling request.
fn sampled<'a>(entry: &Entry<'a>, to: Revision) -> Cow<'a, [u8]> {
    if entry.is("includeContext") {
        // The context of "this server" would be that of all servers here (CAP-7).
        return Cow::Borrowed(b"\"none\"");
    }
    if !entry.is("messages") || to >= Revision::V2025_11_25 {
        return Cow::Borrowed(entry.value);
    }
    // One message per block: older hosts know one block alone.
    let mut messages = Vec::new();
    for message in json::elements(entry.value) {
        let content = json::members(message).find(|entry| entry.is("content"));
        let Some(content) = content else {
            messages.push(message.to_vec());
            continue;
        };
        let blocks: Vec<_> =
            if content.value.starts_with(b"[") { json::elements(content.value).collect() } else { vec![content.value] };
        for block in blocks {
            let mut out = b"{".to_vec();
            for member in json::members(message) {
                push(&mut out, member.key, if member.is("content") { plain(block, to) } else { member.value });
            }
            out.push(b'}');
            messages.push(out);
        }
    }
    Cow::Owned([b"[", &messages.join(&b","[..])[..], b"]"].concat())
}

/// A block as the oldest hosts know it: sound came with 2025-03-26.
fn plain(block: &[u8], to: Revision) -> &[u8] {
    let audio = json::members(block).any(|entry| entry.is("type") && entry.value == b"\"audio\"");
    if audio && to < Revision::V2025_03_26 { br#"{"type":"text","text":"[audio]"}"# } else { block }
}

/// A random name for a URL that the host is told to open.
fn uuid() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("invariant: the system gives random bytes");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, params: &str, to: Revision) -> String {
        match question(method, Some(params.as_bytes()), &ServerKey::new("gh").unwrap(), to) {
            Question::Ask(Some(params)) => String::from_utf8(params.to_vec()).unwrap(),
            Question::Ask(None) => "nothing".to_owned(),
            Question::Cancel => "cancel".to_owned(),
        }
    }

    const MODERN: Revision = Revision::V2026_07_28;
    const LAST: Revision = Revision::V2025_11_25;
    const OLD: Revision = Revision::V2025_06_18;

    #[test]
    fn mrt5_the_text_says_which_server_asks_and_nothing_else_changes() {
        let params = r#"{"mode":"form","message":"\ud800 Which?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.50}}}}"#;
        let expected = params.replace(r#""\ud800"#, r#""[gh] \ud800"#);
        assert_eq!(asked(Method::Elicit, params, MODERN), expected);
        assert_eq!(asked(Method::Elicit, params, LAST), expected);
    }

    #[test]
    fn url6_who_is_asked_for_a_secret_is_warned() {
        let params = r#"{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"apiKey":{"type":"string"}}}}"#;
        for to in [MODERN, LAST, OLD] {
            let sent = asked(Method::Elicit, params, to);
            assert!(
                sent.contains(r#""message":"[gh] (Careful, this form seems to ask for a secret: api key.) Who?""#),
                "{sent}"
            );
        }
        assert!(!asked(Method::Elicit, &params.replace("apiKey", "name"), MODERN).contains("Careful"));
    }

    #[test]
    fn what_belongs_to_one_leg_is_left_out() {
        let params = r#"{"_meta":{"progressToken":1},"task":{},"message":"a","mode":"url","url":"https://x/?y","elicitationId":"e"}"#;
        assert_eq!(asked(Method::Elicit, params, MODERN), r#"{"message":"[gh] a","mode":"url","url":"https://x/?y"}"#);
        assert!(asked(Method::Elicit, params, LAST).ends_with(r#""elicitationId":"e"}"#));
        assert_eq!(asked(Method::Roots, r#"{"_meta":{"progressToken":1}}"#, MODERN), "nothing");
        assert_eq!(asked(Method::Roots, r#"{"_meta":{"acme/x":1}}"#, LAST), r#"{"_meta":{"acme/x":1}}"#);
    }

    #[test]
    fn lmb2_a_url_gets_an_id_where_the_revision_asks_for_one() {
        let params = r#"{"mode":"url","message":"m","url":"https://x"}"#;
        let sent: serde_json::Value = serde_json::from_str(&asked(Method::Elicit, params, LAST)).unwrap();
        let id = sent["elicitationId"].as_str().unwrap();
        assert_eq!((id.len(), &id[14..15]), (36, "4"));
    }

    #[test]
    fn older_hosts_get_the_forms_that_they_know() {
        let params = r#"{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"Y"}],"default":"x"},"b":{"type":"boolean","default":true}},"required":["a"]}}"#;
        assert_eq!(
            asked(Method::Elicit, params, OLD),
            r#"{"message":"[gh] m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","enum":["x","y"],"enumNames":["X","Y"]},"b":{"type":"boolean","default":true}},"required":["a"]}}"#
        );
        let several = r#"{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x"]}}}}}"#;
        assert_eq!(asked(Method::Elicit, several, OLD), "cancel");
        assert_ne!(asked(Method::Elicit, several, LAST), "cancel");
    }

    #[test]
    fn cap7_no_context_of_other_servers_is_asked_for() {
        let params = r#"{"messages":[],"includeContext":"allServers","maxTokens":5}"#;
        assert_eq!(asked(Method::Sample, params, MODERN), r#"{"messages":[],"includeContext":"none","maxTokens":5}"#);
    }

    #[test]
    fn older_hosts_get_one_block_per_message() {
        let params = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"audio","data":"","mimeType":"a/b"}]},{"role":"assistant","content":{"type":"text","text":"c"}}],"maxTokens":5}"#;
        assert_eq!(asked(Method::Sample, params, LAST), params);
        assert_eq!(
            asked(Method::Sample, params, OLD),
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"user","content":{"type":"audio","data":"","mimeType":"a/b"}},{"role":"assistant","content":{"type":"text","text":"c"}}],"maxTokens":5}"#
        );
        assert!(asked(Method::Sample, params, Revision::V2024_11_05).contains(r#"{"type":"text","text":"[audio]"}"#));
    }
}
