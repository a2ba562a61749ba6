//! Results for hosts of older revisions (§15.1): what a host does not know becomes what it knows.
//!
//! Off the common path: only results that hold such a thing come here.

use crate::protocol::json::{self, Entry};
use crate::protocol::meta::{RESERVED, SERVER_INFO};
use crate::protocol::reply::ResultSpans;
use crate::protocol::version::{Era, Revision};

/// Whether a result must be changed for hosts of this revision.
pub(super) fn is_needed(line: &[u8], spans: &ResultSpans, revision: Revision) -> bool {
    let structured = spans.structured.map(|field| field.value.of(line));
    // `content` is required in every revision; a result with structure alone gets one.
    if structured.is_some() && spans.content.is_none() {
        return true;
    }
    if structured.is_some_and(|value| !may_be_structured(value, revision)) {
        return true;
    }
    // Who answers is no legacy host's affair (§15.3); where `_meta` says nothing else, it is left out whole.
    let is_mixed = |meta: &[u8]| {
        let (info, other): (Vec<_>, Vec<_>) = json::members(meta).partition(|entry| entry.is(SERVER_INFO));
        !info.is_empty() && !other.is_empty()
    };
    if revision.era() == Era::Legacy && spans.meta.is_some_and(|meta| is_mixed(meta.value.of(line))) {
        return true;
    }
    revision < Revision::V2025_06_18
        && spans
            .content
            .is_some_and(|content| json::elements(content.value.of(line)).any(|b| block(b, revision).is_some()))
}

/// Whether a host of this revision takes the value as `structuredContent`.
fn may_be_structured(value: &[u8], revision: Revision) -> bool {
    match revision.era() {
        Era::Modern => true,
        Era::Legacy => revision >= Revision::V2025_06_18 && value.starts_with(b"{"),
    }
}

/// The whole result object, changed.
pub(super) fn result(line: &[u8], spans: &ResultSpans, revision: Revision) -> Vec<u8> {
    let whole = spans.whole.of(line);
    let modern = revision.era() == Era::Modern;
    let structured = spans.structured.map(|field| field.value.of(line));
    let mut out = Vec::with_capacity(whole.len() + 256);
    out.push(b'{');
    if modern {
        member(&mut out, b"resultType", b"\"complete\"");
    }
    let content = spans.content.map_or(&b"[]"[..], |field| field.value.of(line));
    out.extend_from_slice(b"\"content\":");
    push_content(&mut out, content, structured, revision);
    out.push(b',');
    for entry in json::members(whole) {
        let gone = ["content", "resultType"].iter().any(|name| entry.is(name))
            || (!modern && ["ttlMs", "cacheScope"].iter().any(|name| entry.is(name)))
            || (entry.is("structuredContent") && !may_be_structured(entry.value, revision));
        if entry.is("_meta") {
            push_meta(&mut out, &entry, modern);
        } else if !gone {
            member(&mut out, entry.key, entry.value);
        }
    }
    if modern && spans.meta.is_none() {
        let info = format!("{{\"{SERVER_INFO}\":{}}}", crate::protocol::meta::IMPLEMENTATION);
        member(&mut out, b"_meta", info.as_bytes());
    }
    out.pop();
    out.push(b'}');
    out
}

/// A raw result of a call inside of another result, for a modern host; `None` when it passes as it is.
pub(super) fn inner(whole: &[u8]) -> Option<Vec<u8>> {
    let find = |name| json::member(whole, name);
    let structured = find("structuredContent").filter(|_| find("content").is_none());
    let is_foreign = |entry: &Entry<'_>| entry.name().is_some_and(|name| name.starts_with(RESERVED));
    if structured.is_none() && !find("_meta").is_some_and(|meta| json::members(meta).any(|entry| is_foreign(&entry))) {
        return None;
    }
    let mut out = b"{".to_vec();
    if structured.is_some() {
        out.extend_from_slice(b"\"content\":");
        push_content(&mut out, b"[]", structured, Revision::LATEST_MODERN);
        out.push(b',');
    }
    for entry in json::members(whole) {
        if entry.is("_meta") {
            push_meta(&mut out, &entry, false);
        } else {
            member(&mut out, entry.key, entry.value);
        }
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
    Some(out)
}

/// The content of a prompt's message, raw.
fn message_content(message: &[u8]) -> Option<&[u8]> {
    json::member(message, "content")
}

fn messages<'a>(line: &'a [u8], spans: &ResultSpans) -> Option<&'a [u8]> {
    json::member(spans.whole.of(line), "messages")
}

/// Whether a filled-in prompt must be changed for hosts of this revision.
pub(super) fn prompt_is_needed(line: &[u8], spans: &ResultSpans, revision: Revision) -> bool {
    revision < Revision::V2025_06_18
        && messages(line, spans).is_some_and(|messages| {
            json::elements(messages).any(|m| message_content(m).is_some_and(|c| block(c, revision).is_some()))
        })
}

/// The whole result object of a prompt, changed. Its host is a legacy one, so modern members go too (ENV-5).
pub(super) fn prompt(line: &[u8], spans: &ResultSpans, revision: Revision) -> Vec<u8> {
    let mut out = vec![b'{'];
    for entry in json::members(spans.whole.of(line)) {
        if entry.is("messages") {
            let mut all = vec![b'['];
            for message in json::elements(entry.value) {
                all.push(b'{');
                for inner in json::members(message) {
                    let changed = if inner.is("content") { block(inner.value, revision) } else { None };
                    member(&mut all, inner.key, changed.as_deref().unwrap_or(inner.value));
                }
                all.pop();
                all.extend_from_slice(b"},");
            }
            all.pop();
            all.push(b']');
            member(&mut out, entry.key, &all);
        } else if !["resultType", "ttlMs", "cacheScope"].iter().any(|gone| entry.is(gone)) {
            member(&mut out, entry.key, entry.value);
        }
    }
    out.pop();
    out.push(b'}');
    out
}

fn member(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
    out.push(b',');
}

fn push_meta(out: &mut Vec<u8>, meta: &Entry<'_>, modern: bool) {
    let mut inner = Vec::new();
    crate::protocol::meta::push_passing(&mut inner, meta.value);
    if modern {
        member(&mut inner, SERVER_INFO.as_bytes(), crate::protocol::meta::IMPLEMENTATION.as_bytes());
    }
    inner.pop();
    if !inner.is_empty() || meta.value == b"{}" {
        inner.insert(0, b'{');
        inner.push(b'}');
        member(out, meta.key, &inner);
    }
}

/// The blocks, and the structure as text where the host would not see it otherwise.
fn push_content(out: &mut Vec<u8>, content: &[u8], structured: Option<&[u8]>, revision: Revision) {
    let mut has_text = false;
    out.push(b'[');
    for raw in json::elements(content) {
        has_text |= json::members(raw).any(|entry| entry.is("type") && entry.value == b"\"text\"");
        out.extend_from_slice(block(raw, revision).as_deref().unwrap_or(raw));
        out.push(b',');
    }
    if let Some(structured) = structured {
        let lost = !may_be_structured(structured, revision);
        // Where structure is no object, servers could not be asked to repeat it as text: always add it.
        let needed = if revision >= Revision::V2025_06_18 { lost } else { !has_text };
        if needed || content == b"[]" && !has_text {
            let text = String::from_utf8_lossy(structured);
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
            json::push_string(out, &text);
            out.extend_from_slice(b"},");
        }
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b']');
}

/// What a block that the host does not know becomes; `None` for all others.
fn block(raw: &[u8], revision: Revision) -> Option<Vec<u8>> {
    let find = |name| json::member(raw, name);
    let text = |name| find(name).and_then(json::text_of).unwrap_or_default();
    let shown = match find("type")? {
        b"\"audio\"" if revision < Revision::V2025_03_26 => {
            // Base64: four characters for three bytes.
            let data = text("data");
            let bytes = data.trim_end_matches('=').len() * 3 / 4;
            format!("[audio {}, {bytes} bytes omitted]", text("mimeType"))
        }
        b"\"resource_link\"" if revision < Revision::V2025_06_18 => format!("{}: {}", text("name"), text("uri")),
        _ => return None,
    };
    let mut out = br#"{"type":"text","text":"#.to_vec();
    json::push_string(&mut out, &shown);
    out.push(b'}');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json::Index;
    use crate::protocol::message::Message;
    use crate::protocol::reply::Body;

    fn check(revision: Revision, result_text: &str, expected: Option<&str>) {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result_text}}}"#);
        let line = line.as_bytes();
        let mut index = Index::new();
        let Ok(Message::Result { result: part, .. }) = Message::read(line, &mut index) else { panic!("no result") };
        let Ok(Body::Result(spans)) = Body::result(line, &index, part) else { panic!("no result") };
        let changed =
            is_needed(line, &spans, revision).then(|| String::from_utf8(result(line, &spans, revision)).unwrap());
        assert_eq!(changed.as_deref(), expected, "{result_text}");
    }

    #[test]
    fn structure_that_is_no_object() {
        check(
            Revision::V2025_11_25,
            r#"{"resultType":"complete","content":[{"type":"text","text":"Created"}],"structuredContent":[7]}"#,
            Some(r#"{"content":[{"type":"text","text":"Created"},{"type":"text","text":"[7]"}]}"#),
        );
        check(
            Revision::V2025_06_18,
            r#"{"content":[],"structuredContent":null,"isError":false}"#,
            Some(r#"{"content":[{"type":"text","text":"null"}],"isError":false}"#),
        );
        check(Revision::V2026_07_28, r#"{"content":[],"structuredContent":[7]}"#, None);
        check(Revision::V2025_11_25, r#"{"content":[],"structuredContent":{"a":1.0}}"#, None);
    }

    #[test]
    fn structure_for_hosts_that_know_none() {
        check(
            Revision::V2025_03_26,
            r#"{"content":[{"type":"text","text":"a"}],"structuredContent":{"a":1}}"#,
            Some(r#"{"content":[{"type":"text","text":"a"}]}"#),
        );
        check(
            Revision::V2025_03_26,
            r#"{"content":[{"type":"image","data":"","mimeType":"x"}],"structuredContent":{"a":1}}"#,
            Some(r#"{"content":[{"type":"image","data":"","mimeType":"x"},{"type":"text","text":"{\"a\":1}"}]}"#),
        );
    }

    #[test]
    fn structure_alone_gets_the_content_that_is_required() {
        check(
            Revision::V2025_11_25,
            r#"{"structuredContent":{"a":1}}"#,
            Some(r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}"#),
        );
        check(Revision::V2025_11_25, r#"{"vendor":1}"#, None);
    }

    #[test]
    fn blocks_that_older_hosts_do_not_know() {
        let audio = r#"{"content":[{"type":"audio","data":"AAAA","mimeType":"audio/wav"}]}"#;
        check(
            Revision::V2024_11_05,
            audio,
            Some(r#"{"content":[{"type":"text","text":"[audio audio/wav, 3 bytes omitted]"}]}"#),
        );
        check(Revision::V2025_03_26, audio, None);
        let link = r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"}]}"#;
        check(Revision::V2025_03_26, link, Some(r#"{"content":[{"type":"text","text":"n: a:b"}]}"#));
        check(Revision::V2025_06_18, link, None);
    }
}
