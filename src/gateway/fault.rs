//! What hosts are told when something fails: the one owner of wire error codes and texts (§16, ERR-*).
//!
//! Short and without detail: a host learns the code, the server's key and the reason (I-42); people find the
//! rest in the log and in `onegate tools`.

use std::time::Duration;

use crate::downstream::Fault;
use crate::ident::ServerKey;
use crate::pins::drift::Hold;
use crate::policy::Refusal;
use crate::protocol::call::{BadCall, Call, Target};
use crate::protocol::capability::TASKS;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::message::Why;
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};

/// So much of a server's error is repeated in one of ours (ERR-4).
const MAX_MESSAGE: usize = 4 << 10;
const MAX_DATA: usize = 64 << 10;
const HEADERS_REFUSED: &str = "it says that the headers of the request do not fit its body";

/// An error of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The JSON-RPC code.
    pub code: i64,
    /// One short sentence, shown to people and models.
    pub message: String,
    /// The raw `data`, when there is any.
    pub data: Option<String>,
}

impl Failure {
    fn plain(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// A message that is none.
    pub fn no_message(why: Why) -> Self {
        let code = match why {
            Why::Malformed(json::Malformed::TooDeep(_)) => code::INVALID_REQUEST,
            Why::Malformed(_) => code::PARSE_ERROR,
            Why::Array | Why::NotAnObject | Why::Version | Why::Id | Why::Duplicate | Why::Shape => {
                code::INVALID_REQUEST
            }
        };
        Self::plain(code, format!("Invalid message: {why}"))
    }

    /// A message past the limit.
    pub fn message_too_long(length: u64, limit: usize) -> Self {
        Self::plain(code::INVALID_REQUEST, format!("The message has {length} bytes, the limit is {limit}"))
    }

    /// An id that is in use (ENV-3).
    pub fn id_in_use() -> Self {
        Self::plain(code::INVALID_REQUEST, "A request with this id is still running")
    }

    /// `initialize` where it cannot be.
    pub fn misplaced_initialize() -> Self {
        Self::plain(code::INVALID_REQUEST, "initialize must not be part of a batch")
    }

    /// A method that is not served (§4.1).
    pub fn unknown_method(method: &str) -> Self {
        Self::plain(code::METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    /// A request of neither era (VER-3).
    pub fn no_era() -> Self {
        let message = "Send initialize first, or the modern _meta keys (io.modelcontextprotocol/protocolVersion and \
                       io.modelcontextprotocol/clientCapabilities) with each request";
        Self::plain(code::INVALID_PARAMS, message)
    }

    /// A header that says something else than the body (HDR-2).
    pub fn header_mismatch(why: &str) -> Self {
        Self::plain(code::HEADER_MISMATCH, format!("Header mismatch: {why}"))
    }

    /// A request over HTTP that is not looked at (HTTP-1).
    pub fn forbidden(why: &str) -> Self {
        Self::plain(code::INVALID_REQUEST, format!("Forbidden: {why}"))
    }

    /// A legacy request over HTTP outside of a session (SES-2).
    pub fn no_session() -> Self {
        let message = "Send initialize first and then Mcp-Session-Id, or the modern _meta keys \
                       (io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities)";
        Self::plain(code::INVALID_REQUEST, message)
    }

    /// A session that has ended, is another's, or never was (SES-2).
    pub fn unknown_session() -> Self {
        Self::plain(code::INVALID_REQUEST, "Session not found: send initialize again")
    }

    /// A version in the headers of a legacy request that is none of ours (VER-9).
    pub fn unknown_version_header() -> Self {
        Self::plain(code::INVALID_REQUEST, "MCP-Protocol-Version is not a version of a legacy session")
    }

    /// An event that can no longer be gone on from (SES-7).
    pub fn unknown_event() -> Self {
        Self::plain(code::INVALID_REQUEST, "The stream of this Last-Event-ID is not kept")
    }

    /// A modern request without one of its keys (VER-4).
    pub fn missing_meta(key: &str) -> Self {
        Self::plain(code::INVALID_PARAMS, format!("Missing _meta key {key}"))
    }

    /// A modern request of a revision that is not served (VER-5); `requested` is the raw string.
    pub fn unsupported_version(requested: &[u8]) -> Self {
        let date = json::text_of(requested).unwrap_or_default();
        // A legacy revision cannot be reached through the modern envelope, so none is offered to who asks for one.
        let legacy = Revision::parse(&date).is_some();
        let supported: Vec<_> = Revision::ALL
            .iter()
            .filter(|revision| !legacy || revision.era() == Era::Modern)
            .map(|revision| format!("\"{}\"", revision.as_str()))
            .collect();
        let requested = String::from_utf8_lossy(requested);
        let data = format!(r#"{{"supported":[{}],"requested":{requested}}}"#, supported.join(","));
        Self { data: Some(data), ..Self::plain(code::UNSUPPORTED_VERSION, "Unsupported protocol version") }
    }

    /// Params of a call that cannot be read.
    pub fn bad_call(why: BadCall) -> Self {
        Self::plain(code::INVALID_PARAMS, format!("Invalid params: {why}"))
    }

    /// Params of another method that cannot be read.
    pub fn bad_params(why: &str) -> Self {
        Self::plain(code::INVALID_PARAMS, format!("Invalid params: {why}"))
    }

    /// A cursor that was never ours (PAG-4).
    pub fn bad_cursor() -> Self {
        Self::plain(code::INVALID_PARAMS, "Invalid or expired cursor")
    }

    /// Something unknown, or something that must not be known (ERR-3, INV-8); a resource in the words of the host's
    /// era (RES-3).
    pub(super) fn unknown(call: &Call, name: &str, revision: Revision) -> Self {
        let shown: String = name.chars().take(200).collect();
        match call.kind() {
            Target::Tool => Self::plain(code::INVALID_PARAMS, format!("Unknown tool: {shown}")),
            Target::Prompt => Self::plain(code::INVALID_PARAMS, format!("Unknown prompt: {shown}")),
            Target::Task => Self::unknown_task(),
            Target::Uri => {
                let legacy = revision.era() == Era::Legacy && call.method() != Method::Complete;
                let code = if legacy { code::RESOURCE_NOT_FOUND } else { code::INVALID_PARAMS };
                let mut data = b"{\"uri\":".to_vec();
                json::push_string(&mut data, name);
                data.push(b'}');
                let data = String::from_utf8_lossy(&data).into_owned();
                Self { data: Some(data), ..Self::plain(code, format!("Resource not found: {shown}")) }
            }
        }
    }

    /// A task that never was, is gone, is another's, or whose tool must not be known any more (TSK-1, TSK-5).
    pub(super) fn unknown_task() -> Self {
        Self::plain(code::INVALID_PARAMS, "Task not found")
    }

    /// A request about tasks of a host that did not declare that it takes them (TSK-3).
    pub fn undeclared_tasks() -> Self {
        let data = Some(format!(r#"{{"requiredCapabilities":{{"extensions":{{"{TASKS}":{{}}}}}}}}"#));
        Self { data, ..Self::plain(code::MISSING_CAPABILITY, "Missing required client capability") }
    }

    /// A server's error within a result, cut to what is passed (ERR-4).
    pub(super) fn within(code: i64, message: &str, data: Option<&[u8]>) -> Self {
        let message = &message[..message.floor_char_boundary(MAX_MESSAGE)];
        let data = data.filter(|data| data.len() <= MAX_DATA).map(|data| String::from_utf8_lossy(data).into_owned());
        Self { data, ..Self::plain(code, message) }
    }

    /// What a server of the legacy era says that it did not find, in the code of the modern one (RES-3).
    pub(super) fn not_found(message: &str, data: Option<&[u8]>) -> Self {
        Self::within(code::INVALID_PARAMS, message, data)
    }

    /// A resource that nobody tells of (SUB-10).
    pub fn not_subscribed(uri: &str) -> Self {
        let mut data = b"{\"uri\":".to_vec();
        json::push_string(&mut data, uri);
        data.push(b'}');
        let data = String::from_utf8_lossy(&data).into_owned();
        Self { data: Some(data), ..Self::plain(code::INVALID_PARAMS, "Changes of this resource are not told") }
    }

    /// A bound of ours that is about no server.
    pub fn limit(message: &str) -> Self {
        let data = Some(r#"{"reason":"limit"}"#.to_owned());
        Self { data, ..Self::plain(code::INTERNAL_ERROR, message) }
    }

    /// The gateway that had a request has left; nobody knows what came of it.
    pub fn gateway_gone() -> Self {
        let data = Some(data("downstream-unavailable", None, None));
        let message = "The gateway that served this request has ended; whether it was carried out is not known";
        Self { data, ..Self::plain(code::INTERNAL_ERROR, message) }
    }

    /// Something that policy refuses and that is no call of a tool (contract §4).
    pub(super) fn refused(server: &ServerKey, refusal: &Refusal, message: String) -> Self {
        let code = if refusal.reason().is_of_limit() { code::LIMITED } else { code::INTERNAL_ERROR };
        Self { data: Some(Self::refusal_data(server, refusal)), ..Self::plain(code, message) }
    }

    /// What programs can read of a refusal, a raw object.
    pub(super) fn refusal_data(server: &ServerKey, refusal: &Refusal) -> String {
        data(refusal.reason().code(), Some(server), refusal.retry_after())
    }

    /// Something that is not as it was reviewed (contract §4). Says nothing of what it is now (§5).
    pub(super) fn held(call: &Call, name: &str, server: &ServerKey, hold: &Hold) -> Self {
        let shown: String = name.chars().take(200).collect();
        let what = match call.kind() {
            Target::Tool => "Unknown tool",
            Target::Prompt => "Unknown prompt",
            Target::Uri => "Resource not found",
            Target::Task => "Task not found",
        };
        let why = match hold {
            Hold::Changed(_) => "it was changed and waits for a review by the operator (onegate diff, onegate approve)",
            Hold::Pending | Hold::Blocked => {
                "it is new and waits for a review by the operator (onegate diff, onegate approve)"
            }
            Hold::Quarantined => "its server waits for a review by the operator (onegate status, onegate lock)",
        };
        let mut data = data(hold.code(), Some(server), None);
        if let Hold::Changed(facets) = hold {
            let facets: Vec<_> = facets.iter().map(|facet| format!("\"{facet}\"")).collect();
            data.truncate(data.len() - 1);
            data.push_str(&format!(",\"facets\":[{}]}}", facets.join(",")));
        }
        Self { data: Some(data), ..Self::plain(code::INVALID_PARAMS, format!("{what}: {shown} ({why})")) }
    }

    /// Too many requests that were refused before this one (D-32).
    pub(super) fn flood(after: Duration) -> Self {
        let data = Some(data("rate-limited", None, Some(after)));
        Self { data, ..Self::plain(code::LIMITED, "Too many refused requests; wait before the next one") }
    }

    /// A server's failure (ERR-1).
    pub(super) fn of_server(server: &ServerKey, fault: &Fault) -> Self {
        let (reason, message, retry_after) = match fault {
            Fault::Unavailable { retry_after, .. } => {
                ("downstream-unavailable", format!("Server {server} is not available: {fault}"), *retry_after)
            }
            Fault::SessionLost => {
                ("downstream-unavailable", format!("Server {server} is not available: {fault}"), None)
            }
            Fault::SignIn { .. } => {
                let remedy = "its operator must configure them (headers of the server)";
                let message = format!("Server {server} wants a sign-in: {fault}; {remedy}");
                ("downstream-auth-required", message, None)
            }
            Fault::Timeout(_) => {
                ("downstream-timeout", format!("Server {server} did not answer in time: {fault}"), None)
            }
            Fault::Invalid(_) | Fault::Refused { .. } => {
                ("invalid-downstream-result", format!("Server {server} gave an invalid answer: {fault}"), None)
            }
            Fault::TooLarge { .. } => {
                ("result-too-large", format!("Server {server} gave too large an answer: {fault}"), None)
            }
            Fault::Limit(_) => ("limit", format!("Server {server} is busy: {fault}"), None),
        };
        Self::with_reason(reason, server, message, retry_after)
    }

    /// An answer that breaks the protocol (ENV-6).
    pub(super) fn invalid_result(server: &ServerKey, what: &str) -> Self {
        let message = format!("Server {server} gave an invalid answer: {what}");
        Self::with_reason("invalid-downstream-result", server, message, None)
    }

    /// A server wants what this host's request did not offer it (CAP-8).
    pub(super) fn capability_withheld(server: &ServerKey) -> Self {
        let message = format!("Server {server} needs a client capability that is not passed on to it");
        Self::with_reason("capability-withheld", server, message, None)
    }

    /// A server wants what this host's request did not declare (CAP-8); `required` is a raw object.
    pub(super) fn missing_capability(server: &ServerKey, required: &[u8], to: Revision) -> Self {
        let message = format!("Server {server} needs a client capability that this client did not declare");
        let code = if to.era() == Era::Modern { code::MISSING_CAPABILITY } else { code::INTERNAL_ERROR };
        let required = String::from_utf8_lossy(required);
        Self { data: Some(format!(r#"{{"requiredCapabilities":{required}}}"#)), ..Self::plain(code, message) }
    }

    /// The host refused what a server needs to know (LMB-4); the text says what.
    pub(super) fn input_refused(server: &ServerKey, text: String) -> Self {
        Self::with_reason("input-refused", server, text, None)
    }

    /// A server asks again and again (LMB-5, MLB-6).
    pub(super) fn too_many_rounds(server: &ServerKey) -> Self {
        let message = format!("Server {server} asked back too often during one call");
        Self::with_reason("limit", server, message, None)
    }

    /// More calls wait for input than one caller may have (MLB-3).
    pub(super) fn too_many_suspended(server: &ServerKey) -> Self {
        let message = format!("Server {server} asks for input, and too many calls wait for input already");
        Self::with_reason("limit", server, message, None)
    }

    /// A `requestState` that was never given to this caller for this call (MRT-2).
    pub(super) fn foreign_state() -> Self {
        Self::plain(code::INVALID_PARAMS, "requestState does not belong to this request")
    }

    /// A `requestState` whose time is over, or whose call is (MLB-4).
    pub(super) fn expired_state() -> Self {
        let data = Some(r#"{"reason":"request-state-expired"}"#.to_owned());
        Self { data, ..Self::plain(code::INVALID_PARAMS, "requestState is unknown or has expired") }
    }

    /// A `requestState` of a call that is open in another process, or was in one that has ended (MLB-9).
    pub(super) fn state_of_another_process() -> Self {
        let message = "The call of this requestState is not open in this process: it is open in another one behind the \
                       same address, which needs stickiness by caller, or its process has ended; begin the call anew";
        Self { message: message.to_owned(), ..Self::expired_state() }
    }

    /// A server says that headers and body of what we sent do not fit (HDR-9).
    pub(super) fn headers_refused(server: &ServerKey) -> Self {
        Self::invalid_result(server, HEADERS_REFUSED)
    }

    /// Whether its server went away while it worked on the request; one that cannot be started says when it is tried
    /// again.
    pub(super) fn is_lost(&self) -> bool {
        self.reason() == Some("downstream-unavailable")
            && !self.data.as_deref().is_some_and(|data| data.contains("retryAfterMs"))
    }

    /// Whether it is that.
    pub(super) fn is_of_headers(&self) -> bool {
        self.code == code::INTERNAL_ERROR && self.message.ends_with(HEADERS_REFUSED)
    }

    fn with_reason(reason: &str, server: &ServerKey, message: String, retry_after: Option<Duration>) -> Self {
        let data = Some(data(reason, Some(server), retry_after));
        Self { data, ..Self::plain(code::INTERNAL_ERROR, message) }
    }

    /// The stable word for what happened, from `data`.
    pub fn reason(&self) -> Option<&str> {
        self.data.as_deref()?.strip_prefix("{\"reason\":\"")?.split('"').next()
    }

    /// Appends the error object.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"code\":{},\"message\":", self.code).as_bytes());
        json::push_string(out, &self.message);
        if let Some(data) = &self.data {
            out.extend_from_slice(b",\"data\":");
            out.extend_from_slice(data.as_bytes());
        }
        out.push(b'}');
    }
}

/// `data` of an error: what happened, where, and when it may be tried again.
fn data(reason: &str, server: Option<&ServerKey>, retry_after: Option<Duration>) -> String {
    let server = server.map_or_else(String::new, |server| format!(",\"server\":\"{server}\""));
    // Never too early: the time is cut to whole milliseconds upwards.
    let retry = retry_after
        .map_or_else(String::new, |after| format!(",\"retryAfterMs\":{}", after.as_nanos().div_ceil(1_000_000)));
    format!(r#"{{"reason":"{reason}"{server}{retry}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ver5_a_legacy_date_in_the_modern_envelope_is_offered_modern_ones_only() {
        let data = |requested: &[u8]| Failure::unsupported_version(requested).data.unwrap();
        assert_eq!(data(br#""2025-06-18""#), r#"{"supported":["2026-07-28"],"requested":"2025-06-18"}"#);
        assert!(data(br#""2099-01-01""#).starts_with(r#"{"supported":["2026-07-28","2025-11-25","#));
    }

    #[test]
    fn err1_failures_carry_reason_and_server() {
        let key = ServerKey::new("files").unwrap();
        let fault = Fault::Unavailable { detail: "it has ended".into(), retry_after: Some(Duration::from_secs(3)) };
        let failure = Failure::of_server(&key, &fault);
        assert_eq!(failure.code, -32603);
        assert_eq!(failure.reason(), Some("downstream-unavailable"));
        let mut out = Vec::new();
        failure.push(&mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["data"]["server"], "files");
        assert_eq!(value["data"]["retryAfterMs"], 3000);
    }
}
