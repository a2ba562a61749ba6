//! The headers of a modern request, which repeat what its body says (HDR-1 … HDR-6). The body is what counts; here is
//! only looked whether both say the same, then headers are forgotten (INV-2).

use http::HeaderName;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::gateway::Failure;
use crate::protocol::call;
use crate::protocol::headers::decode_name;
use crate::protocol::json::{self, Index};
use crate::protocol::message::{Part, pick};
use crate::protocol::method::Method;
use crate::protocol::version::{Era, Revision};

/// The revision of a request.
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The legacy session of a request.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// What was received last of a stream (legacy).
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Checks the headers of a request against its body.
pub(super) fn check(
    headers: &HeaderMap,
    line: &[u8],
    index: &Index,
    version: &str,
    method: &[u8],
    params: Option<Part>,
) -> Result<(), Failure> {
    same(headers, &VERSION, version.as_bytes(), Failure::header_mismatch)?;
    let known = Method::parse(method);
    same(headers, &METHOD, known.map_or(method, |known| known.as_str().as_bytes()), Failure::header_mismatch)?;
    let member = match known {
        Some(
            method @ (Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::TasksGet
            | Method::TasksUpdate
            | Method::TasksCancel),
        ) => call::key(method),
        _ => return Ok(()),
    };
    let named = params.and_then(|params| pick(line, index, params, [member]).ok()).and_then(|([named], _)| named);
    let named = named.and_then(|named| json::text_of(named.of(line))).unwrap_or_default();
    let mut any = false;
    for value in headers.get_all(NAME) {
        any = true;
        if decode_name(value).as_deref() != Some(&*named) {
            return Err(Failure::header_mismatch("Mcp-Name does not match the body"));
        }
    }
    if any { Ok(()) } else { Err(Failure::header_mismatch("Mcp-Name is missing")) }
}

/// A header that stands there, once or several times alike.
fn same(headers: &HeaderMap, name: &HeaderName, expected: &[u8], fault: fn(&str) -> Failure) -> Result<(), Failure> {
    let mut any = false;
    for value in headers.get_all(name) {
        any = true;
        if value.as_bytes() != expected {
            return Err(fault(&format!("{name} does not match the body")));
        }
    }
    if any { Ok(()) } else { Err(fault(&format!("{name} is missing"))) }
}

/// Whether the headers say that the request is a modern one.
pub(super) fn names_modern(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION).and_then(|value| value.to_str().ok());
    version.and_then(Revision::parse).is_some_and(|revision| revision.era() == Era::Modern)
}

/// VER-9: whether the revision in the headers, if any, is a legacy one that we know.
pub(super) fn is_legacy_version(headers: &HeaderMap) -> bool {
    headers.get_all(VERSION).iter().all(|value| {
        value.to_str().ok().and_then(Revision::parse).is_some_and(|revision| revision.era() == Era::Legacy)
    })
}

/// Whether the body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|&byte| byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// What a client takes (HTTP-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accept {
    /// Who does not say takes everything.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        /// What nearly all say, as the specification has it.
        const USUAL: &[u8] = b"application/json, text/event-stream";
        let mut accept = Self { json: false, events: false };
        let mut any = false;
        for value in headers.get_all(ACCEPT) {
            if value.as_bytes() == USUAL {
                (any, accept) = (true, Self { json: true, events: true });
                continue;
            }
            for range in value.as_bytes().split(|&byte| byte == b',') {
                let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
                let kind = parts.next().unwrap_or_default();
                if kind.is_empty() || parts.any(is_never) {
                    any |= !kind.is_empty();
                    continue;
                }
                any = true;
                let is = |other: &str| kind.eq_ignore_ascii_case(other.as_bytes());
                accept.json |= is("application/json") || is("application/*") || is("*/*");
                accept.events |= is("text/event-stream") || is("text/*") || is("*/*");
            }
        }
        if any { accept } else { Self { json: true, events: true } }
    }
}

/// `q=0`, in any of its spellings.
fn is_never(parameter: &[u8]) -> bool {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    value.is_some_and(|value| value.starts_with(b"0") && value.iter().all(|byte| matches!(byte, b'0' | b'.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http3_what_a_client_takes() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, value.parse().unwrap());
            let accept = Accept::read(&headers);
            (accept.json, accept.events)
        };
        assert_eq!(read("application/json, text/event-stream"), (true, true));
        assert_eq!(read("*/*"), (true, true));
        assert_eq!(read("Application/JSON;q=0.5"), (true, false));
        assert_eq!(read("text/event-stream"), (false, true));
        assert_eq!(read("text/html"), (false, false));
        assert_eq!(read("application/json;q=0, text/*"), (false, true));
        assert_eq!(read("application/json; q=0.0"), (false, false));
        assert_eq!(read(""), (true, true));
        assert_eq!(Accept::read(&HeaderMap::new()), Accept { json: true, events: true });
    }
}
