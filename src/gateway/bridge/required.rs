//! `input_required` of a modern server, read and checked (MRT-4), and written anew for a modern host.

use bytes::Bytes;

use super::convert::{Question, question};
use crate::downstream::Answer;
use crate::gateway::Failure;
use crate::ident::ServerKey;
use crate::protocol::capability::Capabilities;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::{Body, ResultSpans};
use crate::protocol::version::Revision;

/// Questions of one result, at most.
const MAX_ENTRIES: usize = 32;
/// Longest state of a server: the sealed one must open again.
const MAX_STATE: usize = 128 << 10;

/// What a server wants to know.
pub(super) struct Required {
    pub(super) entries: Vec<Entry>,
    /// Its state, a raw string (MRT-1).
    pub(super) state: Option<String>,
    /// Other members of its result, each preceded by a comma, and what passes of its `_meta`.
    others: Vec<u8>,
    meta: Vec<u8>,
}

/// One question.
pub(super) struct Entry {
    /// Its key, raw, without quotes.
    pub(super) key: Bytes,
    pub(super) method: Method,
    pub(super) params: Option<Bytes>,
}

/// The result, when it is of this kind.
pub(super) fn spans_of(answer: &Answer) -> Option<ResultSpans> {
    match answer.reply.body {
        Body::Result(spans) => {
            let kind = spans.result_type?.value.of(&answer.reply.line);
            (kind == b"\"input_required\"").then_some(spans)
        }
        Body::Error(_) => None,
    }
}

/// Why questions are not passed on.
enum Unpassed {
    /// The host can do it, and its server may not use that (§8.1).
    Withheld,
    Invalid(&'static str),
}

impl Unpassed {
    const fn what(&self) -> &'static str {
        match self {
            Self::Withheld => "it asks for what is not passed on to it",
            Self::Invalid(what) => what,
        }
    }
}

/// Reads it. Whatever the server was not told that the host can do makes the whole of it invalid: dropping single
/// questions would have the server wait for an answer that never comes (MRT-4, LMB-6). What the host did declare, and
/// its server was not told of, is withheld (CAP-8).
pub(super) fn read(
    answer: &Answer,
    spans: ResultSpans,
    server: &ServerKey,
    (told, declared): (&Capabilities, &Capabilities),
) -> Result<Required, Failure> {
    let line = &answer.reply.line;
    let failed = |why: Unpassed| {
        tracing::warn!(%server, what = why.what(), "its input_required is not passed on");
        match why {
            Unpassed::Withheld => Failure::capability_withheld(server),
            Unpassed::Invalid(what) => Failure::invalid_result(server, what),
        }
    };
    let invalid = |what| failed(Unpassed::Invalid(what));
    let mut required = Required { entries: Vec::new(), state: None, others: Vec::new(), meta: Vec::new() };
    let mut any = false;
    for member in json::members(spans.whole.of(line)) {
        if member.is("inputRequests") && member.value.starts_with(b"{") {
            any = true;
            required.entries.extend(entries(line, member.value, (told, declared)).map_err(failed)?);
        } else if member.is("requestState") && member.value.starts_with(b"\"") {
            any = true;
            if member.value.len() > MAX_STATE {
                return Err(invalid("its requestState is too long"));
            }
            required.state = Some(String::from_utf8_lossy(member.value).into_owned());
        } else if member.is("_meta") {
            meta::push_passing(&mut required.meta, member.value);
        } else if !["resultType", "inputRequests", "requestState"].iter().any(|ours| member.is(ours)) {
            required.others.extend_from_slice(b",\"");
            required.others.extend_from_slice(member.key);
            required.others.extend_from_slice(b"\":");
            required.others.extend_from_slice(member.value);
        }
    }
    if !any {
        return Err(invalid("its resultType is input_required, and it asks nothing"));
    }
    Ok(required)
}

/// The questions of a raw `inputRequests`, a part of `line`; why it must not be passed otherwise.
fn entries(
    line: &Bytes,
    requests: &[u8],
    (told, declared): (&Capabilities, &Capabilities),
) -> Result<Vec<Entry>, Unpassed> {
    let mut entries = Vec::new();
    for entry in json::members(requests) {
        let text = |name| {
            let found = json::members(entry.value).find(|inner| inner.is(name));
            found.map(|inner| line.slice_ref(inner.value))
        };
        let method = text("method").filter(|method| method.starts_with(b"\""));
        let method = method.and_then(|method| Method::parse(&method[1..method.len() - 1]));
        let params = text("params").filter(|params| params.starts_with(b"{"));
        let can = |of: &Capabilities, method: &Method| of.permit(*method, params.as_deref()).is_ok();
        let known = method.filter(|method| can(declared, method));
        let method = known.ok_or(Unpassed::Invalid("it asks for what this host did not declare"))?;
        if !can(told, &method) {
            return Err(Unpassed::Withheld);
        }
        entries.push(Entry { key: line.slice_ref(entry.key), method, params });
        if entries.len() > MAX_ENTRIES {
            return Err(Unpassed::Invalid("it asks too many things at once"));
        }
    }
    Ok(entries)
}

/// The raw `inputRequests` of a task, a part of `line`, as its host gets it (TSK-2).
pub(in crate::gateway) fn questions(
    line: &Bytes,
    requests: &[u8],
    server: &ServerKey,
    declared: &Capabilities,
    localise: impl Fn(Method, &[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, &'static str> {
    let entries = entries(line, requests, (declared, declared)).map_err(|why| why.what())?;
    let mut out = Vec::new();
    let entries = entries.iter().map(|e| (&e.key[..], e.method, e.params.as_deref()));
    push_entries(&mut out, entries, |method, params| {
        let localised = params.and_then(|params| localise(method, params));
        // A modern host has a form for everything.
        question(method, localised.as_deref().or(params), server, Revision::LATEST_MODERN)
    });
    Ok(out)
}

/// Appends the object of the questions under these raw keys, in the words that `question` finds for them.
fn push_entries<'a>(
    out: &mut Vec<u8>,
    entries: impl Iterator<Item = (&'a [u8], Method, Option<&'a [u8]>)>,
    question: impl Fn(Method, Option<&[u8]>) -> Question,
) {
    out.push(b'{');
    for (n, (key, method, params)) in entries.enumerate() {
        out.extend_from_slice(if n == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":{\"method\":\"");
        out.extend_from_slice(method.as_str().as_bytes());
        out.push(b'"');
        if let Question::Ask(Some(params)) = question(method, params) {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(&params);
        }
        out.push(b'}');
    }
    out.push(b'}');
}

impl Required {
    /// Its questions.
    pub(super) fn asked(&self) -> impl Iterator<Item = (&[u8], Method, Option<&[u8]>)> {
        self.entries.iter().map(|entry| (&entry.key[..], entry.method, entry.params.as_deref()))
    }

    /// The result for a modern host, with what else stood beside the questions.
    pub(super) fn beside(&self, mut input: Input) -> Input {
        input.members.extend_from_slice(&self.others);
        input.meta.clone_from(&self.meta);
        input
    }
}

/// A result that asks a modern host for input, without its type and its server.
pub struct Input {
    /// Raw members, without braces.
    pub members: Vec<u8>,
    /// Raw members of `_meta`, each followed by a comma.
    pub meta: Vec<u8>,
}

impl Input {
    /// Writes the questions, under these raw keys, in the words that `question` finds for them, with our own state, a
    /// raw string.
    pub(super) fn write<'a>(
        entries: impl Iterator<Item = (&'a [u8], Method, Option<&'a [u8]>)>,
        state: &str,
        question: impl Fn(Method, Option<&[u8]>) -> Question,
    ) -> Self {
        let mut members = Vec::new();
        let mut entries = entries.peekable();
        if entries.peek().is_some() {
            members.extend_from_slice(b"\"inputRequests\":");
            push_entries(&mut members, entries, question);
            members.push(b',');
        }
        members.extend_from_slice(b"\"requestState\":");
        members.extend_from_slice(state.as_bytes());
        Self { members, meta: Vec::new() }
    }
}
