//! Spans and their attributes: the one owner of the names that the OpenTelemetry conventions for MCP give them.
//!
//! [`Served`] is a request of a host, [`Asking`] one of ours to a server. Each ends once, as cancelled where nothing else
//! was said. How long each took is a number, too, of those that are not sampled as well. A name that nobody lists is no
//! label and no part of a span's name, nor is a method that nobody knows: what a host makes up has no bounds.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, Tracer as _,
};
use opentelemetry::{Context, KeyValue, StringValue};
use opentelemetry_sdk::trace::Span;

use super::Otlp;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::telemetry::metrics::Came;

/// In place of a method that is none of ours, as the conventions have it for other protocols.
const OTHER: &str = "_OTHER";

/// Characters of an id, a name or a URI that are told.
const MAX_ID: usize = 64;
const MAX_NAME: usize = 128;
const MAX_URI: usize = 512;

const METHOD: &str = "mcp.method.name";
const PROTOCOL: &str = "mcp.protocol.version";
const SESSION: &str = "mcp.session.id";
const URI: &str = "mcp.resource.uri";
const TOOL: &str = "gen_ai.tool.name";
const PROMPT: &str = "gen_ai.prompt.name";
const OPERATION: &str = "gen_ai.operation.name";
const REQUEST_ID: &str = "jsonrpc.request.id";
const STATUS: &str = "rpc.response.status_code";
const ERROR: &str = "error.type";
const TRANSPORT: &str = "network.transport";
const APPLICATION: &str = "network.protocol.name";
const ADDRESS: &str = "server.address";
const PORT: &str = "server.port";
/// Ours: the key of the server, what came of it, and why.
const SERVER: &str = "onegate.server";
const OUTCOME: &str = "onegate.outcome";
const REASON: &str = "onegate.reason";

/// What a request names.
#[derive(Clone, Copy)]
pub enum Named<'a> {
    /// Nothing, or nothing that is told.
    Nothing,
    /// A tool.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// A resource.
    Uri(&'a str),
}

impl Named<'_> {
    fn attribute(self) -> Option<KeyValue> {
        match self {
            Self::Nothing => None,
            Self::Tool(name) => Some(KeyValue::new(TOOL, cut(name, MAX_NAME))),
            Self::Prompt(name) => Some(KeyValue::new(PROMPT, cut(name, MAX_NAME))),
            // What stands after the path may be confidential.
            Self::Uri(uri) => {
                let shown = uri.split(['?', '#']).next().unwrap_or_default();
                Some(KeyValue::new(URI, cut(shown, MAX_URI)))
            }
        }
    }

    /// What is part of a span's name.
    const fn target(&self) -> Option<&str> {
        match self {
            Self::Tool(name) | Self::Prompt(name) => Some(name),
            Self::Nothing | Self::Uri(_) => None,
        }
    }
}

/// A request of a host.
pub struct Host<'a> {
    /// Its method; nothing for one that nobody knows.
    pub method: Option<Method>,
    /// The revision of its leg.
    pub revision: Revision,
    /// The host is on our standard streams, or on a socket of this machine.
    pub is_local: bool,
    /// Its legacy session, a number of ours.
    pub session: Option<u64>,
    /// Its id, raw.
    pub id: Option<&'a [u8]>,
    /// Its `_meta`, raw.
    pub meta: Option<&'a [u8]>,
}

/// A request to a server.
pub struct Towards<'a> {
    /// Its method.
    pub method: Method,
    /// The key of the server.
    pub server: &'a str,
    /// What the server calls the item.
    pub named: Named<'a>,
    /// The revision that it is spoken to in.
    pub revision: Revision,
    /// Its id.
    pub id: Option<u64>,
    /// Where it is, when it is behind a URL; nothing for a child on pipes.
    pub remote: Option<(&'a str, u16)>,
}

/// What both kinds have. On the heap, so that requests are not larger for spans that nobody records.
struct Open {
    otlp: Arc<Otlp>,
    span: Span,
    began: Instant,
    /// The attributes of its duration.
    labels: Vec<KeyValue>,
}

impl Open {
    fn begin(
        otlp: &Arc<Otlp>,
        kind: SpanKind,
        method: &'static str,
        target: Option<&str>,
        (labels, more): (Vec<KeyValue>, Vec<KeyValue>),
        parent: &Context,
    ) -> Box<Self> {
        let name = match target {
            Some(target) => Cow::Owned(format!("{method} {}", cut(target, MAX_NAME))),
            None => Cow::Borrowed(method),
        };
        let attributes: Vec<_> = labels.iter().cloned().chain(more).collect();
        let builder = otlp.tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        let span = otlp.tracer.build_with_context(builder, parent);
        Box::new(Self { otlp: Arc::clone(otlp), span, began: Instant::now(), labels })
    }

    /// What is wrong with it.
    fn failed(&mut self, error: impl Into<StringValue>, code: Option<i64>) {
        if let Some(code) = code {
            self.label(KeyValue::new(STATUS, code.to_string()));
        }
        self.label(KeyValue::new(ERROR, error.into()));
        // The texts of errors are others' words.
        self.span.set_status(Status::error(""));
    }

    fn label(&mut self, label: KeyValue) {
        self.span.set_attribute(label.clone());
        self.labels.push(label);
    }
}

/// The span of a request of a host.
pub struct Served {
    open: Box<Open>,
    method: &'static str,
    ended: bool,
}

/// What a request to a server is a part of.
#[derive(Clone)]
pub struct Parent {
    otlp: Arc<Otlp>,
    context: Box<SpanContext>,
}

impl Otlp {
    /// A host has asked for something.
    pub fn served(self: &Arc<Self>, host: &Host<'_>) -> Served {
        let method = host.method.map_or(OTHER, Method::as_str);
        let labels = vec![
            KeyValue::new(METHOD, method),
            KeyValue::new(PROTOCOL, host.revision.as_str()),
            KeyValue::new(TRANSPORT, if host.is_local { "pipe" } else { "tcp" }),
        ];
        let mut more = Vec::new();
        more.extend((!host.is_local).then(|| KeyValue::new(APPLICATION, "http")));
        more.extend((host.method == Some(Method::ToolsCall)).then(|| KeyValue::new(OPERATION, "execute_tool")));
        // The name that a session has towards its host proves who that is; this is a number of ours.
        more.extend(host.session.map(|session| KeyValue::new(SESSION, session.to_string())));
        more.extend(host.id.map(|id| KeyValue::new(REQUEST_ID, text_of_id(id))));
        let parent =
            host.meta.and_then(remote).map_or_else(Context::new, |of| Context::new().with_remote_span_context(of));
        let open = Open::begin(self, SpanKind::Server, method, None, (labels, more), &parent);
        Served { open, method, ended: false }
    }
}

impl Served {
    /// What requests to servers are a part of.
    pub fn parent(&self) -> Parent {
        Parent { otlp: Arc::clone(&self.open.otlp), context: Box::new(self.open.span.span_context().clone()) }
    }

    /// What it names, as the host does; whether anything of that name is there is not known yet.
    pub fn names(&mut self, named: Named<'_>) {
        if let Some(attribute) = named.attribute() {
            self.open.span.set_attribute(attribute);
        }
    }

    /// It names something that is there, at this server.
    pub fn item(&mut self, server: &str, named: Named<'_>) {
        self.open.span.set_attribute(KeyValue::new(SERVER, server.to_owned()));
        if let Some(target) = named.target() {
            let target = cut(target, MAX_NAME);
            self.open.span.update_name(format!("{} {target}", self.method));
            self.open.labels.extend(named.attribute());
        }
    }

    /// Policy refused it.
    pub fn refused(&mut self, reason: &'static str) {
        self.open.span.set_attribute(KeyValue::new(REASON, reason));
    }

    /// What came of it: the code and the reason of an error, and whether a result says of itself that it is one.
    pub fn end(mut self, came: Came, code: Option<i64>, reason: Option<&str>, is_error: bool) {
        if let Some(reason) = reason {
            self.open.span.set_attribute(KeyValue::new(REASON, reason.to_owned()));
        }
        self.close(came, code, is_error);
    }

    fn close(&mut self, came: Came, code: Option<i64>, is_error: bool) {
        self.ended = true;
        let open = &mut self.open;
        open.span.set_attribute(KeyValue::new(OUTCOME, came.word()));
        match (came, code) {
            (_, Some(code)) => open.failed(code.to_string(), Some(code)),
            (Came::Refused, None) => open.failed("tool_error", None),
            (Came::Cancelled, None) => open.failed("cancelled", None),
            (_, None) if is_error => open.failed("tool_error", None),
            (_, None) => {}
        }
        open.otlp.timings.served(open.began.elapsed(), &open.labels);
        open.span.end();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !self.ended {
            self.close(Came::Cancelled, None, false);
        }
    }
}

impl Parent {
    /// A server is asked for something.
    pub fn ask(&self, towards: &Towards<'_>) -> Asking {
        let mut labels = vec![
            KeyValue::new(METHOD, towards.method.as_str()),
            KeyValue::new(SERVER, towards.server.to_owned()),
            KeyValue::new(PROTOCOL, towards.revision.as_str()),
            KeyValue::new(TRANSPORT, if towards.remote.is_some() { "tcp" } else { "pipe" }),
        ];
        let mut more = Vec::new();
        if let Some((host, port)) = towards.remote {
            labels.push(KeyValue::new(ADDRESS, host.to_owned()));
            labels.push(KeyValue::new(PORT, i64::from(port)));
            more.push(KeyValue::new(APPLICATION, "http"));
        }
        let target = towards.named.target();
        match target {
            Some(_) => labels.extend(towards.named.attribute()),
            None => more.extend(towards.named.attribute()),
        }
        more.extend((towards.method == Method::ToolsCall).then(|| KeyValue::new(OPERATION, "execute_tool")));
        more.extend(towards.id.map(|id| KeyValue::new(REQUEST_ID, id.to_string())));
        let parent = Context::new().with_remote_span_context((*self.context).clone());
        let open = Open::begin(&self.otlp, SpanKind::Client, towards.method.as_str(), target, (labels, more), &parent);
        Asking { open, ended: false }
    }
}

/// The span of a request to a server.
pub struct Asking {
    open: Box<Open>,
    ended: bool,
}

impl Asking {
    /// The `traceparent` that the server gets; nothing where nothing is recorded, so that the host's own passes.
    pub fn traceparent(&self) -> Option<String> {
        let context = self.open.span.span_context();
        let (trace, span) = (context.trace_id(), context.span_id());
        context.is_sampled().then(|| format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8()))
    }

    /// It was answered: with this error, or with a result that says of itself whether it is one.
    pub fn answered(mut self, code: Option<i64>, is_error: bool) {
        match code {
            Some(code) => self.open.failed(code.to_string(), Some(code)),
            None if is_error => self.open.failed("tool_error", None),
            None => {}
        }
        self.close();
    }

    /// It was not answered, by this class of faults.
    pub fn failed(mut self, class: impl Into<StringValue>, code: Option<i64>) {
        self.open.failed(class, code);
        self.close();
    }

    fn close(&mut self) {
        self.ended = true;
        self.open.otlp.timings.asked(self.open.began.elapsed(), &self.open.labels);
        self.open.span.end();
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.ended {
            self.open.failed("cancelled", None);
            self.close();
        }
    }
}

/// The span that a host says its request is a part of.
fn remote(meta: &[u8]) -> Option<SpanContext> {
    let (parent, state) = meta::trace_of(meta)?;
    let mut fields = parent.split('-').skip(1);
    let trace = TraceId::from_hex(fields.next()?).ok()?;
    let span = SpanId::from_hex(fields.next()?).ok()?;
    let flags = u8::from_str_radix(fields.next()?, 16).ok()?;
    let state = state.and_then(|state| state.parse().ok()).unwrap_or_default();
    // Of the flags one means something to us.
    Some(SpanContext::new(trace, span, TraceFlags::new(flags) & TraceFlags::SAMPLED, true, state))
}

/// An id as text: a string without its quotes.
fn text_of_id(raw: &[u8]) -> String {
    match json::text_of(raw) {
        Some(text) => cut(&text, MAX_ID),
        None => cut(&String::from_utf8_lossy(raw), MAX_ID),
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obs1_of_a_uri_the_path_is_told_and_of_an_id_its_text() {
        let told = |named: Named<'_>| named.attribute().map(|one| one.value.to_string());
        assert_eq!(told(Named::Uri("file:///a/b?token=1#x")).as_deref(), Some("file:///a/b"));
        assert_eq!(told(Named::Tool(&"x".repeat(200))).map(|name| name.len()), Some(MAX_NAME));
        assert_eq!(told(Named::Nothing), None);
        assert_eq!((text_of_id(b"7"), text_of_id(br#""a\u0000b""#)), ("7".to_owned(), "ab".to_owned()));
    }

    #[test]
    fn obs1_a_host_says_what_its_request_is_a_part_of() {
        let meta = br#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03","tracestate":"a=b"}"#;
        let context = remote(meta).unwrap();
        assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id().to_string(), "b7ad6b7169203331");
        assert!(context.is_sampled() && context.is_remote());
        assert_eq!(context.trace_flags().to_u8(), 1);
        assert_eq!(context.trace_state().header(), "a=b");
        assert!(remote(br#"{"traceparent":"00-1"}"#).is_none());
        assert!(remote(b"{}").is_none());
    }
}
