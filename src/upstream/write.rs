//! Answers as a host of a revision gets them (ENV-5, §15.3): spliced out of the server's bytes.
//!
//! Content that needs more than that is changed by [`super::convert`]; nothing else is ever decoded.
//!
//! Long, and one thing: every message that a host gets, each written once.

use bytes::Bytes;

use super::convert;
use super::work::Done;
use crate::gateway::{Failure, ItemList, Outcome, Refused, TaskState};
use crate::ident::Kind;
use crate::protocol::json::{self, Span};
use crate::protocol::message::Field;
use crate::protocol::meta::{self, IMPLEMENTATION, SERVER_INFO};
use crate::protocol::method::Method;
use crate::protocol::reply::{ErrorSpans, ResultSpans};
use crate::protocol::version::{Era, Revision};
use crate::transport::upward::{LogMessage, Progress};

/// Longest error of a server that is passed whole (ERR-4, §16.2); of a longer one, so much of its message is.
const MAX_ERROR: usize = 64 << 10;
const MAX_ERROR_MESSAGE: usize = 4 << 10;

/// Longest data of a log message (LOG-3).
const MAX_LOG_DATA: usize = 8 << 10;

/// Where an answer is written.
pub(super) trait Sink {
    /// The bytes so far.
    fn bytes(&mut self) -> &mut Vec<u8>;
    /// Appends bytes that may be shared instead of copied.
    fn payload(&mut self, payload: &Bytes);
}

impl Sink for crate::transport::outbox::Message<'_> {
    fn bytes(&mut self) -> &mut Vec<u8> {
        Self::bytes(self)
    }

    fn payload(&mut self, payload: &Bytes) {
        Self::payload(self, payload);
    }
}

impl Sink for Vec<u8> {
    fn bytes(&mut self) -> &mut Vec<u8> {
        self
    }

    fn payload(&mut self, payload: &Bytes) {
        self.extend_from_slice(payload);
    }
}

/// Begins an answer; `id` is the host's own, raw.
fn open(out: &mut impl Sink, id: &[u8], member: &str) {
    let out = out.bytes();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"");
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
}

/// An error of ours; without an id where none could be read (ENV-4).
pub(super) fn failure(out: &mut impl Sink, id: Option<&[u8]>, failure: &Failure) {
    match id {
        Some(id) => open(out, id, "error"),
        None => out.bytes().extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"error\":"),
    }
    failure.push(out.bytes());
    out.bytes().push(b'}');
}

/// That nobody wants an answer to the request with this raw id any more, or will give one.
pub(super) fn cancelled(id: &[u8]) -> Vec<u8> {
    let mut out = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":".to_vec();
    out.extend_from_slice(id);
    out.extend_from_slice(b"}}");
    out
}

/// A result of ours: raw members, without braces.
pub(super) fn result(out: &mut impl Sink, id: &[u8], revision: Revision, members: &str) {
    open(out, id, "result");
    let out = out.bytes();
    out.push(b'{');
    if revision.era() == Era::Modern {
        out.extend_from_slice(b"\"resultType\":\"complete\",\"_meta\":");
        push_server_info(out, None);
        out.extend_from_slice(if members.is_empty() { b"" } else { b"," });
    }
    out.extend_from_slice(members.as_bytes());
    out.extend_from_slice(b"}}");
}

/// A call that policy refused.
fn refused_call(out: &mut impl Sink, id: &[u8], revision: Revision, refused: &Refused) {
    open(out, id, "result");
    let out = out.bytes();
    out.extend_from_slice(b"{");
    if revision.era() == Era::Modern {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    out.extend_from_slice(refused.members.as_bytes());
    out.extend_from_slice(b",\"_meta\":{");
    out.extend_from_slice(refused.meta.as_bytes());
    if revision.era() == Era::Modern {
        out.extend_from_slice(format!(",\"{SERVER_INFO}\":{IMPLEMENTATION}").as_bytes());
    }
    out.extend_from_slice(b"}}}");
}

/// Our `_meta` on a result, with what passes of the server's.
fn push_server_info(out: &mut Vec<u8>, theirs: Option<&[u8]>) {
    out.push(b'{');
    if let Some(theirs) = theirs {
        meta::push_passing(out, theirs);
    }
    out.extend_from_slice(b"\"");
    out.extend_from_slice(SERVER_INFO.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(IMPLEMENTATION.as_bytes());
    out.push(b'}');
}

/// A list (CCH-1).
pub(super) fn list(out: &mut impl Sink, id: &[u8], revision: Revision, list: &ItemList) {
    open(out, id, "result");
    let modern = revision.era() == Era::Modern;
    let bytes = out.bytes();
    bytes.extend_from_slice(if modern { b"{\"resultType\":\"complete\",\"" } else { b"{\"" });
    bytes.extend_from_slice(match list.kind {
        Kind::Tool => b"tools".as_slice(),
        Kind::Prompt => b"prompts",
        Kind::Resource => b"resources",
        Kind::Template => b"resourceTemplates",
    });
    bytes.extend_from_slice(b"\":");
    out.payload(&list.items);
    let bytes = out.bytes();
    if let Some(next) = &list.next {
        bytes.extend_from_slice(b",\"nextCursor\":");
        bytes.extend_from_slice(next);
    }
    if modern {
        bytes.extend_from_slice(format!(",\"ttlMs\":{},\"cacheScope\":\"private\",\"_meta\":", list.ttl_ms).as_bytes());
        push_server_info(bytes, None);
    }
    bytes.extend_from_slice(b"}}");
}

/// What came of a request.
pub(super) fn done(out: &mut impl Sink, id: &[u8], revision: Revision, done: &Result<Done, Failure>) {
    match done {
        Ok(Done::Outcome(method, answer)) => outcome(out, id, revision, *method, answer),
        Ok(Done::List(items)) => list(out, id, revision, items),
        Err(why) => failure(out, Some(id), why),
    }
}

/// The outcome of a call.
pub(super) fn outcome(out: &mut impl Sink, id: &[u8], revision: Revision, method: Method, outcome: &Outcome) {
    match outcome {
        Outcome::Own(members) => result(out, id, revision, members),
        Outcome::Refused(refused) => refused_call(out, id, revision, refused),
        Outcome::Result(answer, spans) => {
            open(out, id, "result");
            call_result(out, &answer.reply.line, spans, revision, method);
            out.bytes().push(b'}');
        }
        Outcome::Error(answer, error) => {
            open(out, id, "error");
            server_error(out, &answer.reply.line, error);
            out.bytes().push(b'}');
        }
        Outcome::Task(state) => {
            open(out, id, "result");
            let out = out.bytes();
            out.extend_from_slice(format!("{{\"resultType\":\"{}\",", state.kind).as_bytes());
            task(out, state);
            out.extend_from_slice(b"\"_meta\":{");
            out.extend_from_slice(&state.meta);
            out.extend_from_slice(format!("\"{SERVER_INFO}\":{IMPLEMENTATION}}}}}}}").as_bytes());
        }
        Outcome::Input(input) => {
            open(out, id, "result");
            let out = out.bytes();
            out.extend_from_slice(b"{\"resultType\":\"input_required\",");
            out.extend_from_slice(&input.members);
            out.extend_from_slice(b",\"_meta\":{");
            out.extend_from_slice(&input.meta);
            out.extend_from_slice(format!("\"{SERVER_INFO}\":{IMPLEMENTATION}}}}}}}").as_bytes());
        }
    }
}

/// The members of a task, each followed by a comma (TSK-2).
pub(super) fn task(out: &mut Vec<u8>, state: &TaskState) {
    out.extend_from_slice(&state.members);
    if let Some(result) = &state.result {
        out.extend_from_slice(b"\"result\":");
        match convert::inner(result) {
            Some(converted) => out.extend_from_slice(&converted),
            None => out.extend_from_slice(result),
        }
        out.push(b',');
    }
}

fn server_error(out: &mut impl Sink, line: &Bytes, error: &ErrorSpans) {
    if error.whole.of(line).len() <= MAX_ERROR && error.message.is_some() {
        out.payload(&line.slice(error.whole.range()));
        return;
    }
    let message = error.message.and_then(|message| json::text_of(message.of(line))).unwrap_or_default();
    let out = out.bytes();
    out.extend_from_slice(format!("{{\"code\":{},\"message\":", error.code).as_bytes());
    json::push_string(out, &message[..message.floor_char_boundary(MAX_ERROR_MESSAGE)]);
    if let Some(data) = error.data.map(|data| data.of(line)).filter(|data| data.len() <= MAX_ERROR) {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data);
    }
    out.push(b'}');
}

/// A server's result.
fn call_result(out: &mut impl Sink, line: &Bytes, spans: &ResultSpans, revision: Revision, method: Method) {
    if method == Method::ToolsCall && convert::is_needed(line, spans, revision) {
        let converted = Bytes::from(convert::result(line, spans, revision));
        out.payload(&converted);
    } else if method == Method::PromptsGet && convert::prompt_is_needed(line, spans, revision) {
        let converted = Bytes::from(convert::prompt(line, spans, revision));
        out.payload(&converted);
    } else if revision.era() == Era::Modern {
        modern_result(out, line, spans, method);
    } else {
        legacy_result(out, line, spans);
    }
}

/// Adds what a modern host must get: the result type, who answers, and how long a read holds (ENV-5, CAP-2, CCH-1,
/// RES-6).
fn modern_result(out: &mut impl Sink, line: &Bytes, spans: &ResultSpans, method: Method) {
    let bytes = out.bytes();
    bytes.push(b'{');
    if spans.result_type.is_none() {
        bytes.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    if spans.meta.is_none() {
        bytes.extend_from_slice(b"\"_meta\":");
        push_server_info(bytes, None);
        bytes.push(b',');
    }
    if method == Method::ResourcesRead {
        if spans.ttl_ms.is_none() {
            bytes.extend_from_slice(b"\"ttlMs\":0,");
        }
        if spans.cache_scope.is_none() {
            bytes.extend_from_slice(b"\"cacheScope\":\"private\",");
        }
    }
    if spans.empty {
        bytes.pop();
    }
    let mut from = spans.whole.start + 1;
    let mut changed = [spans.result_type, spans.meta];
    changed.sort_unstable_by_key(start);
    for field in changed.into_iter().flatten() {
        push_slice(out, line, Span { start: from, end: field.value.start });
        if spans.meta.is_some_and(|meta| meta.start == field.start) {
            push_server_info(out.bytes(), Some(field.value.of(line)));
        } else {
            out.bytes().extend_from_slice(b"\"complete\"");
        }
        from = field.value.end;
    }
    push_slice(out, line, Span { start: from, end: spans.whole.end });
}

/// Takes out what legacy hosts do not know (ENV-5); most results pass whole.
fn legacy_result(out: &mut impl Sink, line: &Bytes, spans: &ResultSpans) {
    let meta = spans.meta.filter(|meta| is_only_server_info(meta.value.of(line)));
    let mut gone = [spans.result_type, spans.ttl_ms, spans.cache_scope, meta];
    if gone.iter().all(Option::is_none) {
        push_slice(out, line, spans.whole);
        return;
    }
    gone.sort_unstable_by_key(start);
    for kept in without(line, spans.whole, gone.into_iter().flatten()) {
        push_slice(out, line, kept);
    }
}

/// The order of members in a line.
fn start(field: &Option<Field>) -> Option<u32> {
    field.map(|field| field.start)
}

/// Whether a result's `_meta` says nothing but who answers, on the server's own leg.
fn is_only_server_info(meta: &[u8]) -> bool {
    let mut any = false;
    json::members(meta).all(|entry| {
        any = true;
        entry.is(SERVER_INFO)
    }) && any
}

/// What is left of an object without some of its members, in order, commas as they must be.
fn without(line: &[u8], whole: Span, gone: impl Iterator<Item = Field>) -> Vec<Span> {
    let blank = |at: u32| line[at as usize].is_ascii_whitespace();
    let mut kept = Vec::with_capacity(5);
    let mut from = whole.start;
    let mut trailing_comma = false;
    for field in gone {
        kept.push(Span { start: from, end: field.start });
        from = field.value.end;
        while blank(from) {
            from += 1;
        }
        trailing_comma = line[from as usize] != b',';
        if !trailing_comma {
            from += 1;
        }
    }
    if trailing_comma {
        // The last member went: so does the comma before it.
        for span in kept.iter_mut().rev() {
            while span.end > span.start && blank(span.end - 1) {
                span.end -= 1;
            }
            if span.end > span.start {
                if line[span.end as usize - 1] == b',' {
                    span.end -= 1;
                }
                break;
            }
        }
    }
    kept.push(Span { start: from, end: whole.end });
    kept
}

fn push_slice(out: &mut impl Sink, line: &Bytes, span: Span) {
    if span.end > span.start {
        out.payload(&line.slice(span.range()));
    }
}

/// A log message, its logger under the server's key (LOG-3).
pub(super) fn log(out: &mut impl Sink, message: &LogMessage) {
    let line = &message.line;
    let bytes = out.bytes();
    bytes.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":");
    let is_long = |entry: &json::Entry<'_>| entry.is("data") && entry.value.len() > MAX_LOG_DATA;
    let edited = json::members(message.params.of(line)).any(|entry| is_long(&entry) || is_meta(&entry));
    let logger = message.logger.map(|logger| (logger, json::text_of(logger.of(line))));
    match logger {
        Some((at, Some(logger))) if !edited => {
            bytes.extend_from_slice(Span { start: message.params.start, end: at.start }.of(line));
            json::push_string(bytes, &format!("{}/{logger}", message.server));
            bytes.extend_from_slice(Span { start: at.end, end: message.params.end }.of(line));
        }
        logger => {
            bytes.extend_from_slice(b"{\"logger\":");
            match logger.and_then(|(_, logger)| logger) {
                Some(logger) => json::push_string(bytes, &format!("{}/{logger}", message.server)),
                None => json::push_string(bytes, &message.server),
            }
            for entry in json::members(message.params.of(line)).filter(|entry| !entry.is("logger")) {
                if is_meta(&entry) {
                    bytes.push(b',');
                    push_meta_of_notification(bytes, &entry);
                    continue;
                }
                bytes.extend_from_slice(b",\"");
                bytes.extend_from_slice(entry.key);
                bytes.extend_from_slice(b"\":");
                if is_long(&entry) {
                    let text = String::from_utf8_lossy(&entry.value[..MAX_LOG_DATA]);
                    json::push_string(bytes, &format!("{}…", text.trim_end_matches('\u{fffd}')));
                } else {
                    bytes.extend_from_slice(entry.value);
                }
            }
            bytes.push(b'}');
        }
    }
    bytes.push(b'}');
}

/// `_meta` of a notification: the protocol's keys in it name a stream of the server's leg (SUB-14).
fn is_meta(entry: &json::Entry<'_>) -> bool {
    entry.is("_meta") && entry.value.starts_with(b"{")
}

fn push_meta_of_notification(out: &mut Vec<u8>, entry: &json::Entry<'_>) {
    out.extend_from_slice(b"\"_meta\":{");
    let begin = out.len();
    meta::push_passing(out, entry.value);
    if out.len() > begin {
        out.pop();
    }
    out.push(b'}');
}

/// What a URL was opened for is done (LMB-2, URL-1).
pub(super) fn opened(out: &mut impl Sink, id: &[u8]) {
    let out = out.bytes();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/elicitation/complete\",");
    out.extend_from_slice(b"\"params\":{\"elicitationId\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b"}}");
}

/// A progress notification, under the host's own token.
pub(super) fn progress(out: &mut impl Sink, token: &[u8], progress: &Progress, revision: Revision) {
    let line = &progress.line;
    out.bytes().extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":");
    // PRG-6: found again with its key, which this rare host makes worth it.
    let mute = progress.message.is_some() && revision == Revision::V2024_11_05;
    let parts = match mute || json::members(progress.params.of(line)).any(|entry| is_meta(&entry)) {
        true => {
            let params = progress.params.of(line);
            let bytes = out.bytes();
            bytes.push(b'{');
            for entry in json::members(params).filter(|entry| !(mute && entry.is("message"))) {
                if is_meta(&entry) {
                    push_meta_of_notification(bytes, &entry);
                    bytes.push(b',');
                    continue;
                }
                bytes.push(b'"');
                bytes.extend_from_slice(entry.key);
                bytes.extend_from_slice(b"\":");
                bytes.extend_from_slice(if entry.is("progressToken") { token } else { entry.value });
                bytes.push(b',');
            }
            bytes.pop();
            bytes.extend_from_slice(b"}}");
            return;
        }
        false => (
            Span { start: progress.params.start, end: progress.token.start },
            Span { start: progress.token.end, end: progress.params.end },
        ),
    };
    out.bytes().extend_from_slice(parts.0.of(line));
    out.bytes().extend_from_slice(token);
    out.bytes().extend_from_slice(parts.1.of(line));
    out.bytes().push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json::Index;
    use crate::protocol::message::Message;
    use crate::protocol::reply::Body;

    fn spans(line: &Bytes) -> ResultSpans {
        let mut index = Index::new();
        match Message::read(line, &mut index) {
            Ok(Message::Result { result, .. }) => match Body::result(line, &index, result).unwrap() {
                Body::Result(spans) => spans,
                Body::Error(_) => panic!("an error"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn convert(result: &str, revision: Revision) -> String {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        let mut out = Vec::new();
        call_result(&mut out, &line, &spans(&line), revision, Method::ToolsCall);
        String::from_utf8(out).unwrap()
    }

    const OURS: &str = concat!(
        r#""io.modelcontextprotocol/serverInfo":{"name":"onegate","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}"#
    );

    #[test]
    fn env5_legacy_hosts_get_results_without_modern_members() {
        let legacy = |result: &str| convert(result, Revision::V2025_11_25);
        for same in [r#"{ "content" : [] , "x":1E2 }"#, "{}", "{ }", r#"{"content":[],"_meta":{"acme/x":1}}"#] {
            assert_eq!(legacy(same), same);
        }
        assert_eq!(legacy(r#"{"resultType":"complete","content":[]}"#), r#"{"content":[]}"#);
        assert_eq!(legacy(r#"{"content":[] , "resultType" : "complete" }"#), r#"{"content":[] }"#);
        assert_eq!(legacy(r#"{"resultType":"complete" }"#), "{}");
        assert_eq!(legacy(r#"{"resultType":"complete","ttlMs":1,"cacheScope":"x"}"#), "{}");
        assert_eq!(legacy(r#"{"a":1,"resultType":"complete","ttlMs":1}"#), r#"{"a":1}"#);
        assert_eq!(
            legacy(r#"{"a":1,"resultType":"complete","b":2,"_meta":{"io.modelcontextprotocol/serverInfo":{}},"c":3}"#),
            r#"{"a":1,"b":2,"c":3}"#
        );
    }

    #[test]
    fn env5_modern_hosts_get_the_result_type_and_our_name() {
        let modern = |result: &str| convert(result, Revision::V2026_07_28);
        assert_eq!(modern("{}"), format!(r#"{{"resultType":"complete","_meta":{{{OURS}}}}}"#));
        assert_eq!(
            modern(r#"{"content":[1.0]}"#),
            format!(r#"{{"resultType":"complete","_meta":{{{OURS}}},"content":[1.0]}}"#)
        );
        assert_eq!(
            modern(
                r#"{"resultType":"complete","content":[],"_meta":{"acme/x":1,"io.modelcontextprotocol/serverInfo":{"name":"theirs"}},"z":1}"#
            ),
            format!(r#"{{"resultType":"complete","content":[],"_meta":{{"acme/x":1,{OURS}}},"z":1}}"#)
        );
        // A legacy server's member of that name means nothing.
        assert_eq!(
            modern(r#"{"_meta":{},"resultType":"odd"}"#),
            format!(r#"{{"_meta":{{{OURS}}},"resultType":"complete"}}"#)
        );
    }

    proptest::proptest! {
        /// However members are ordered and spaced, what is left is the object without them.
        #[test]
        fn taking_members_out_leaves_the_others(
            order in proptest::sample::subsequence(vec!["resultType", "a", "ttlMs", "b", "cacheScope", "c", "content"], 0..=7),
            shuffle in proptest::prelude::any::<u64>(),
            space in "[ \n]{0,2}",
        ) {
            let mut names = order;
            fastrand::Rng::with_seed(shuffle).shuffle(&mut names);
            let members: Vec<_> = names.iter().map(|n| {
                let value = match *n { "resultType" => "\"complete\"", "content" => "[]", _ => "7" };
                format!("{space}\"{n}\"{space}:{space}{value}{space}")
            }).collect();
            let text = format!("{{{}}}", members.join(","));
            let text = if names.is_empty() { "{}".to_owned() } else { text };
            let mut expected: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
            for gone in ["resultType", "ttlMs", "cacheScope"] { expected.remove(gone); }
            let left: serde_json::Map<_, _> = serde_json::from_str(&convert(&text, Revision::V2025_11_25)).unwrap();
            proptest::prop_assert_eq!(left, expected);
        }
    }
}
