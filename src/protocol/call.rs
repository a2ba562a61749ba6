//! A request for one item of one server, in the language of the middle: the host's own bytes, and where in them the
//! few things stand that a server must see otherwise.
//!
//! One shape for `tools/call`, `prompts/get`, `resources/read`, `resources/subscribe`, `completion/complete` and the
//! requests of tasks: each names its item once. Both eras of host make one, both eras of server are written one; see `gateway/invoke.rs` for
//! its way.
//!
//! Long, and one thing: the spans that are read of a call are those that it is written from.

use bytes::Bytes;

use super::capability::Capabilities;
use super::json::{self, Index, Span};
use super::level::LogLevel;
use super::message::{Duplicate, Part, pick};
use super::meta::{self, RequestMeta};
use super::method::Method;
use super::version::Revision;

/// The params of a request that names an item.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which request it is.
    method: Method,
    /// The host's message.
    line: Bytes,
    /// The params object.
    params: Span,
    /// The exposed name or URI, raw.
    target: Span,
    /// The object that holds it, when that is not the params: the reference of a completion.
    reference: Option<Span>,
    /// The arguments: an object, or nothing.
    arguments: Option<Span>,
    /// What a server gets instead of them.
    replaced: Option<Bytes>,
    /// `_meta`, when something stands in it that may pass.
    meta: Option<Span>,
    /// The host's progress token.
    token: Option<Span>,
    /// Whether members stand beside those above, which pass too (ENV-11).
    others: bool,
    /// It stood in the arguments of another.
    inner: bool,
}

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A tool, by its exposed name.
    Tool,
    /// A prompt, by its exposed name.
    Prompt,
    /// A resource or, for a completion, a template, by its exposed URI.
    Uri,
    /// A task of a modern server, by its exposed id.
    Task,
}

/// Why the params of a call are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCall {
    /// No params object.
    #[error("params must be an object")]
    Params,
    /// No name that is a string.
    #[error("params.name must be a string")]
    Name,
    /// No URI that is a string.
    #[error("params.uri must be a string")]
    Uri,
    /// No id of a task that is a string.
    #[error("params.taskId must be a string")]
    Task,
    /// No reference to a prompt or a resource.
    #[error("params.ref must be an object of type ref/prompt with a name, or ref/resource with a uri")]
    Reference,
    /// Arguments of another kind than an object (D052).
    #[error("params.arguments must be an object")]
    Arguments,
    /// `_meta` of another kind than an object.
    #[error("params._meta must be an object")]
    Meta,
    /// A progress token that is neither string nor number (PRG-1).
    #[error("the progress token must be a string or a number")]
    Token,
    /// Two members of one name (E-23).
    #[error("a member of params stands twice")]
    Duplicate,
}

impl From<Duplicate> for BadCall {
    fn from(_: Duplicate) -> Self {
        Self::Duplicate
    }
}

/// Members of a call's params that belong to one leg: its own task or its own rounds of input (§10.2). What a server
/// shall see of a round is in [`Leg::input`].
const LEG_ONLY: [&str; 3] = ["task", "inputResponses", "requestState"];

/// How a call is written for one server.
#[derive(Clone, Copy)]
pub struct Leg<'a> {
    /// Our token, when the host wants progress.
    pub token: Option<u64>,
    /// The revision of a modern server; `None` = legacy.
    pub modern: Option<Revision>,
    /// What the host can do, as far as this server may know (CAP-6). Unused towards a legacy one.
    pub capabilities: &'a Capabilities,
    /// Which log messages the host wants. Unused towards a legacy server.
    pub log_level: Option<LogLevel>,
    /// What answers a server's questions in this round (MRT-*).
    pub input: Option<Input<'a>>,
    /// Whether the server's revision knows the `context` of a completion (CMP-1).
    pub context: bool,
    /// Whether a legacy server takes the call as a task only (TSK-7).
    pub task: bool,
    /// The `traceparent` of our own span, where one is recorded (OBS-1).
    pub trace: Option<&'a str>,
}

/// The answers to a server's questions, and its own state; raw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input<'a> {
    /// `inputResponses`, an object.
    pub responses: Option<&'a [u8]>,
    /// `requestState`, a string, exactly as the server gave it (MRT-1).
    pub state: Option<&'a [u8]>,
}

impl Call {
    /// Reads the params of such a request from the host's message. Its method must be one that names an item.
    pub fn read(method: Method, line: &Bytes, index: &Index, params: Option<Part>) -> Result<Self, BadCall> {
        Self::read_with(method, line, index, params, None)
    }

    /// The same, where its `_meta` was read already.
    pub fn read_with(
        method: Method,
        line: &Bytes,
        index: &Index,
        params: Option<Part>,
        known: Option<&RequestMeta<'_>>,
    ) -> Result<Self, BadCall> {
        let params = params.filter(|p| line[p.span.start as usize] == b'{').ok_or(BadCall::Params)?;
        let key = key(method);
        let ([named, arguments, meta], others) = pick(line, index, params, [key, "arguments", "_meta"])?;
        let (target, reference) = match (method, named) {
            (Method::Complete, Some(reference)) => {
                once(params.span.of(line), &["argument", "context"])?;
                for entry in json::members(params.span.of(line)) {
                    if entry.is("argument") || entry.is("context") {
                        once(entry.value, &["name", "value", "arguments"])?;
                    }
                }
                (referred(line, reference)?, Some(reference))
            }
            (Method::Complete, None) => return Err(BadCall::Reference),
            (_, Some(target)) if line[target.start as usize] == b'"' => (target, None),
            _ if key == "uri" => return Err(BadCall::Uri),
            _ if key == "taskId" => return Err(BadCall::Task),
            _ => return Err(BadCall::Name),
        };
        let arguments = match arguments.map(|a| (a, line[a.start as usize])) {
            None | Some((_, b'n')) => None,
            Some((span, b'{')) => Some(span),
            Some(_) => return Err(BadCall::Arguments),
        };
        let meta = meta.filter(|m| line[m.start as usize] != b'n');
        if meta.is_some_and(|m| line[m.start as usize] != b'{') {
            return Err(BadCall::Meta);
        }
        let keys = match (known, meta) {
            (Some(known), _) => *known,
            (None, Some(meta)) => RequestMeta::read(meta.of(line)),
            (None, None) => RequestMeta::default(),
        };
        if keys.twice {
            return Err(BadCall::Duplicate);
        }
        let token = match keys.progress_token {
            None => None,
            Some(token @ [b'"' | b'-' | b'0'..=b'9', ..]) => Some(Span::within(line, token)),
            Some(_) => return Err(BadCall::Token),
        };
        let (line, params, meta) = (line.clone(), params.span, meta.filter(|_| keys.passing));
        let others = others > 0;
        Ok(Self {
            method,
            line,
            params,
            target,
            reference,
            arguments,
            replaced: None,
            meta,
            token,
            others,
            inner: false,
        })
    }

    /// Which request it is.
    pub fn method(&self) -> Method {
        self.method
    }

    /// What it names.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most methods name no item")]
    pub fn kind(&self) -> Target {
        match self.method {
            Method::ToolsCall => Target::Tool,
            Method::PromptsGet => Target::Prompt,
            Method::Complete if self.reference.is_some_and(|r| is_prompt(r.of(&self.line))) => Target::Prompt,
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Target::Task,
            _ => Target::Uri,
        }
    }

    /// The exposed name or URI, raw.
    pub fn target(&self) -> &[u8] {
        self.target.of(&self.line)
    }

    /// The arguments, a raw object.
    pub fn arguments(&self) -> Option<&[u8]> {
        self.replaced.as_deref().or_else(|| self.arguments.map(|arguments| arguments.of(&self.line)))
    }

    /// The same call with other arguments, a raw object.
    pub fn with_arguments(&self, arguments: Bytes) -> Self {
        Self { replaced: Some(arguments), ..self.clone() }
    }

    /// The call that the arguments of this one ask for, by their `name` and `arguments`: the same message, of which its
    /// server gets the inner parts, byte for byte.
    pub fn inner(&self) -> Result<Self, BadCall> {
        // Of the host's own: others are no part of its message.
        let given = self.arguments.map_or(&b"{}"[..], |arguments| arguments.of(&self.line));
        once(given, &["name", "arguments"])?;
        let target = json::member(given, "name").filter(|name| name.starts_with(b"\"")).ok_or(BadCall::Name)?;
        let arguments = match json::member(given, "arguments") {
            None | Some(b"null") => None,
            Some(object @ [b'{', ..]) => Some(Span::within(&self.line, object)),
            Some(_) => return Err(BadCall::Arguments),
        };
        Ok(Self { target: Span::within(&self.line, target), arguments, inner: true, ..self.clone() })
    }

    /// Whether it stood in the arguments of another.
    pub fn is_inner(&self) -> bool {
        self.inner
    }

    /// The arguments that a completion is about, as far as they are filled in: a raw object (CMP-1).
    pub fn completed_arguments(&self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        let mut push = |key: &[u8], value: &[u8]| {
            out.extend_from_slice(if out.len() > 1 { b",\"" } else { b"\"" });
            out.extend_from_slice(key);
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value);
        };
        for entry in json::members(self.params.of(&self.line)) {
            if entry.is("argument") {
                let find = |name| json::member(entry.value, name);
                if let (Some([b'"', name @ .., b'"']), Some(value)) = (find("name"), find("value")) {
                    push(name, value);
                }
            } else if entry.is("context") {
                let arguments = json::members(entry.value).filter(|member| member.is("arguments"));
                for member in arguments.flat_map(|arguments| json::members(arguments.value)) {
                    push(member.key, member.value);
                }
            }
        }
        out.push(b'}');
        out
    }

    /// How much of the host's message it holds.
    pub fn size(&self) -> usize {
        self.line.len()
    }

    /// The id of the host's request, raw.
    pub fn id(&self) -> Option<&[u8]> {
        json::member(&self.line, "id")
    }

    /// The `_meta` of the host's request, raw, when something stands in it that may pass.
    pub fn meta(&self) -> Option<&[u8]> {
        self.meta.map(|meta| meta.of(&self.line))
    }

    /// The host's progress token, raw.
    pub fn progress_token(&self) -> Option<&[u8]> {
        self.token.map(|token| token.of(&self.line))
    }

    /// What the host answers in this round, and the state that we gave it (MRT-3).
    pub fn input(&self) -> Input<'_> {
        let mut input = Input::default();
        if self.others {
            for entry in json::members(self.params.of(&self.line)) {
                if entry.is("inputResponses") && entry.value.starts_with(b"{") {
                    input.responses = Some(entry.value);
                } else if entry.is("requestState") && entry.value.starts_with(b"\"") {
                    input.state = Some(entry.value);
                }
            }
        }
        input
    }

    /// Appends the params as a server sees them: its own name for the item (a raw string), and what belongs to its
    /// leg.
    pub fn push_params(&self, out: &mut Vec<u8>, native: &[u8], leg: &Leg<'_>) {
        match (self.reference, self.method) {
            (Some(reference), _) => self.push_reference(out, reference, native),
            (None, Method::ResourcesRead | Method::Subscribe | Method::Unsubscribe) => {
                out.extend_from_slice(b"{\"uri\":");
                out.extend_from_slice(native);
            }
            (None, Method::TasksGet | Method::TasksUpdate | Method::TasksCancel) => {
                out.extend_from_slice(b"{\"taskId\":");
                out.extend_from_slice(native);
            }
            (None, _) => {
                out.extend_from_slice(b"{\"name\":");
                out.extend_from_slice(native);
            }
        }
        if let Some(arguments) = self.arguments() {
            out.extend_from_slice(b",\"arguments\":");
            out.extend_from_slice(arguments);
        }
        if self.others {
            self.push_others(out, leg);
        }
        if leg.task {
            push_member(out, b"task", b"{}");
        }
        if let Some(input) = leg.input {
            for (key, value) in [("inputResponses", input.responses), ("requestState", input.state)] {
                if let Some(value) = value {
                    push_member(out, key.as_bytes(), value);
                }
            }
        }
        if self.meta.is_some() || leg.modern.is_some() || leg.token.is_some() || leg.trace.is_some() {
            self.push_meta(out, leg);
        }
        out.push(b'}');
    }

    fn push_reference(&self, out: &mut Vec<u8>, reference: Span, native: &[u8]) {
        let prompt = is_prompt(reference.of(&self.line));
        let key = if prompt { "name" } else { "uri" };
        out.extend_from_slice(b"{\"ref\":{");
        for (n, entry) in json::members(reference.of(&self.line)).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(entry.key);
            out.extend_from_slice(b"\":");
            out.extend_from_slice(if entry.is(key) { native } else { entry.value });
        }
        out.push(b'}');
    }

    fn push_others(&self, out: &mut Vec<u8>, leg: &Leg<'_>) {
        let target = key(self.method);
        for entry in json::members(self.params.of(&self.line)) {
            let ours = [target, "arguments", "_meta"].iter().chain(&LEG_ONLY).any(|name| entry.is(name));
            let unknown = self.method == Method::Complete && !leg.context && entry.is("context");
            if !ours && !unknown {
                push_member(out, entry.key, entry.value);
            }
        }
    }

    fn push_meta(&self, out: &mut Vec<u8>, leg: &Leg<'_>) {
        let before = out.len();
        out.extend_from_slice(b",\"_meta\":{");
        let open = out.len();
        if let Some(meta) = self.meta {
            meta::push_passing_down(out, meta.of(&self.line), leg.trace);
        }
        if let Some(own) = leg.trace {
            meta::push_trace_parent(out, own);
        }
        if let Some(token) = leg.token {
            out.extend_from_slice(b"\"progressToken\":");
            push_number(out, token);
            out.push(b',');
        }
        if let Some(revision) = leg.modern {
            meta::push_protocol_keys(out, revision, leg.capabilities, leg.log_level);
        } else if out.len() == open {
            // Only keys of the host's leg: nothing is left to say.
            out.truncate(before);
            return;
        } else {
            out.pop();
        }
        out.push(b'}');
    }
}

/// The member of the params that names the item.
#[expect(clippy::wildcard_enum_match_arm, reason = "most methods name no item")]
pub const fn key(method: Method) -> &'static str {
    match method {
        Method::Complete => "ref",
        Method::ResourcesRead | Method::Subscribe | Method::Unsubscribe => "uri",
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => "taskId",
        _ => "name",
    }
}

fn push_member(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

/// Whether the raw reference of a completion is to a prompt.
fn is_prompt(reference: &[u8]) -> bool {
    json::members(reference).any(|entry| entry.is("type") && entry.value == b"\"ref/prompt\"")
}

/// Members that steer a decision stand once: two readers could take different ones (E-23).
fn once(object: &[u8], names: &[&str]) -> Result<(), BadCall> {
    let twice = |name: &&str| json::members(object).filter(|entry| entry.is(name)).nth(1).is_some();
    if names.iter().any(twice) { Err(BadCall::Duplicate) } else { Ok(()) }
}

/// Where the name or URI of a reference stands.
fn referred(line: &Bytes, reference: Span) -> Result<Span, BadCall> {
    let raw = reference.of(line);
    if !raw.starts_with(b"{") {
        return Err(BadCall::Reference);
    }
    let resource = json::members(raw).any(|entry| entry.is("type") && entry.value == b"\"ref/resource\"");
    let key = match (is_prompt(raw), resource) {
        (true, false) => "name",
        (false, true) => "uri",
        _ => return Err(BadCall::Reference),
    };
    let mut found = json::members(raw).filter(|entry| entry.is(key));
    match (found.next(), found.next()) {
        (Some(entry), None) if entry.value.starts_with(b"\"") => Ok(Span::within(line, entry.value)),
        (Some(_), Some(_)) => Err(BadCall::Duplicate),
        _ => Err(BadCall::Reference),
    }
}

/// Appends a number of ours.
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::super::message::Message;
    use super::*;

    fn read_as(method: Method, params: &str) -> Result<Call, BadCall> {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{params}}}"#));
        let mut index = Index::new();
        match Message::read(&line, &mut index) {
            Ok(Message::Request { params, .. }) => Call::read(method, &line, &index, params),
            other => panic!("{other:?}"),
        }
    }

    fn read(params: &str) -> Result<Call, BadCall> {
        read_as(Method::ToolsCall, params)
    }

    fn leg(token: Option<u64>, modern: Option<Revision>, none: &Capabilities) -> Leg<'_> {
        Leg { token, modern, capabilities: none, log_level: None, input: None, context: true, task: false, trace: None }
    }

    fn written(call: &Call, native: &str, leg: &Leg<'_>) -> String {
        let mut out = Vec::new();
        call.push_params(&mut out, native.as_bytes(), leg);
        String::from_utf8(out).unwrap()
    }

    fn down(params: &str, token: Option<u64>, modern: Option<Revision>) -> String {
        written(&read(params).unwrap(), r#""n""#, &leg(token, modern, &Capabilities::default()))
    }

    #[test]
    fn tsk2_tsk7_a_task_is_named_and_a_call_made_one() {
        let none = Capabilities::default();
        let call = read_as(Method::TasksUpdate, r#"{"x":1,"inputResponses":{"k":{}},"taskId":"t1.A"}"#).unwrap();
        assert_eq!((call.target(), call.kind()), (&br#""t1.A""#[..], Target::Task));
        let given = Leg { input: Some(call.input()), ..leg(None, None, &none) };
        assert_eq!(written(&call, r#""n""#, &given), r#"{"taskId":"n","x":1,"inputResponses":{"k":{}}}"#);
        assert_eq!(read_as(Method::TasksGet, r#"{"taskId":7}"#).unwrap_err(), BadCall::Task);
        let call = read(r#"{"name":"a","task":{"ttl":9},"arguments":{}}"#).unwrap();
        assert_eq!(written(&call, r#""n""#, &leg(None, None, &none)), r#"{"name":"n","arguments":{}}"#);
        let made = Leg { task: true, ..leg(None, None, &none) };
        assert_eq!(written(&call, r#""n""#, &made), r#"{"name":"n","arguments":{},"task":{}}"#);
    }

    #[test]
    fn a_call_inside_the_arguments_of_another_is_written_byte_for_byte() {
        let none = Capabilities::default();
        let inner = |arguments: &str| {
            let params = format!(
                r#"{{"_meta":{{"progressToken":7,"acme/k":1}},"x":[1],"name":"o","arguments":{arguments},"requestState":"s"}}"#
            );
            read(&params).unwrap().inner()
        };
        let call = inner(r#"{"arguments": { "a" : 1.0e2, "\u0061":"\u00f6" } ,"name":"s__\u0074","more":1}"#).unwrap();
        assert_eq!((call.target(), call.kind()), (&br#""s__\u0074""#[..], Target::Tool));
        assert_eq!(call.input().state, Some(&br#""s""#[..]));
        assert_eq!(call.progress_token(), Some(&b"7"[..]));
        let sent = written(&call, r#""t""#, &leg(Some(3), None, &none));
        let expected = r#"{"name":"t","arguments":{ "a" : 1.0e2, "\u0061":"\u00f6" },"x":[1],"_meta":{"acme/k":1,"progressToken":3}}"#;
        assert_eq!(sent, expected);
        assert_eq!(
            written(&inner(r#"{"name":"t","arguments":null}"#).unwrap(), r#""t""#, &leg(None, None, &none)),
            r#"{"name":"t","x":[1],"_meta":{"acme/k":1}}"#
        );
        for (bad, why) in [
            ("{}", BadCall::Name),
            (r#"{"name":7}"#, BadCall::Name),
            (r#"{"name":"t","arguments":"{}"}"#, BadCall::Arguments),
            (r#"{"name":"t","arguments":[]}"#, BadCall::Arguments),
            (r#"{"name":"t","n\u0061me":"u"}"#, BadCall::Duplicate),
            (r#"{"name":"t","arguments":{},"arguments":{}}"#, BadCall::Duplicate),
        ] {
            assert_eq!(inner(bad).unwrap_err(), why, "{bad}");
        }
        assert_eq!(read(r#"{"name":"o"}"#).unwrap().inner().unwrap_err(), BadCall::Name);
    }

    #[test]
    fn cmp1_a_completion_is_named_inside_its_reference() {
        let none = Capabilities::default();
        let text = r#"{"ref":{"type":"ref/prompt","name":"a__p","x":1},"argument":{"name":"v","value":""},"context":{"arguments":{}}}"#;
        let call = read_as(Method::Complete, text).unwrap();
        assert_eq!((call.target(), call.kind()), (&br#""a__p""#[..], Target::Prompt));
        let mut leg = leg(None, None, &none);
        assert_eq!(
            written(&call, r#""p""#, &leg),
            r#"{"ref":{"type":"ref/prompt","name":"p","x":1},"argument":{"name":"v","value":""},"context":{"arguments":{}}}"#
        );
        leg.context = false;
        assert!(!written(&call, r#""p""#, &leg).contains("context"));
        let call = read_as(Method::Complete, r#"{"ref":{"uri":"a:{x}","type":"ref/resource"}}"#).unwrap();
        assert_eq!((call.target(), call.kind()), (&br#""a:{x}""#[..], Target::Uri));
        assert_eq!(written(&call, r#""b""#, &leg), r#"{"ref":{"uri":"b","type":"ref/resource"}}"#);
        for twice in [
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x","v\u0061lue":"y"}}"#,
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"},"argument":{}}"#,
            r#"{"ref":{"type":"ref/prompt","name":"p"},"context":{"arguments":{},"arguments":{}}}"#,
        ] {
            assert_eq!(read_as(Method::Complete, twice).unwrap_err(), BadCall::Duplicate, "{twice}");
        }
        for bad in [r#"{}"#, r#"{"ref":"x"}"#, r#"{"ref":{"type":"ref/prompt"}}"#, r#"{"ref":{"name":"x"}}"#] {
            assert_eq!(read_as(Method::Complete, bad).unwrap_err(), BadCall::Reference, "{bad}");
        }
    }

    #[test]
    fn mrt1_answers_and_state_go_down_as_the_round_says_and_never_as_the_host_wrote_them() {
        let none = Capabilities::default();
        let text = r#"{"uri":"x:1","inputResponses":{"k":{}},"requestState":"ours"}"#;
        let call = read_as(Method::ResourcesRead, text).unwrap();
        assert_eq!(call.input().state, Some(&br#""ours""#[..]));
        let mut leg = leg(None, None, &none);
        assert_eq!(written(&call, r#""y:1""#, &leg), r#"{"uri":"y:1"}"#);
        leg.input = Some(Input { responses: call.input().responses, state: Some(br#""theirs""#) });
        assert_eq!(
            written(&call, r#""y:1""#, &leg),
            r#"{"uri":"y:1","inputResponses":{"k":{}},"requestState":"theirs"}"#
        );
        assert_eq!(read_as(Method::ResourcesRead, r#"{"name":"x"}"#).unwrap_err(), BadCall::Uri);
    }

    #[test]
    fn d052_arguments_are_an_object_or_absent() {
        assert_eq!(down(r#"{"name":"a"}"#, None, None), r#"{"name":"n"}"#);
        assert_eq!(down(r#"{"name":"a","arguments":null}"#, None, None), r#"{"name":"n"}"#);
        assert_eq!(down(r#"{"name":"a","_meta":null}"#, None, None), r#"{"name":"n"}"#);
        assert_eq!(down(r#"{"name":"a","arguments":{}}"#, None, None), r#"{"name":"n","arguments":{}}"#);
        for bad in ["[]", "\"x\"", "1", "true"] {
            assert_eq!(read(&format!(r#"{{"name":"a","arguments":{bad}}}"#)).unwrap_err(), BadCall::Arguments);
        }
    }

    #[test]
    fn env11_unknown_members_pass_and_those_of_a_leg_do_not() {
        let params = r#"{"x":[1E2],"name":"a","task":{"ttl":1},"requestState":"s","inputResponses":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        assert_eq!(down(params, None, None), r#"{"name":"n","x":[1E2]}"#);
    }

    #[test]
    fn prg1_the_token_downward_is_ours() {
        let params = r#"{"name":"a","_meta":{"progressToken":"host","acme/k":1}}"#;
        assert_eq!(down(params, Some(12), None), r#"{"name":"n","_meta":{"acme/k":1,"progressToken":12}}"#);
        assert_eq!(read(params).unwrap().progress_token(), Some(&b"\"host\""[..]));
        assert_eq!(read(r#"{"name":"a","_meta":{"progressToken":null}}"#).unwrap_err(), BadCall::Token);
    }

    #[test]
    fn a_modern_server_gets_the_keys_of_its_own_leg() {
        let sent = down(r#"{"name":"a"}"#, None, Some(Revision::V2026_07_28));
        assert!(
            sent.starts_with(r#"{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#),
            "{sent}"
        );
        assert!(sent.ends_with(r#""io.modelcontextprotocol/clientCapabilities":{}}}"#), "{sent}");
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 1234567890123456789, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
