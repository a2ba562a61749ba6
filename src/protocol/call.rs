//! A tool call in the language of the middle: the host's own bytes, and where in them the few things stand
//! that a server must see otherwise.
//!
//! Both eras of host make one, both eras of server are written one; see `gateway/invoke.rs` for its way.

use bytes::Bytes;

use super::json::{self, Index, Span};
use super::message::{Duplicate, Part, pick};
use super::meta::{self, RequestMeta};
use super::version::Revision;

/// The params of a `tools/call`.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The host's message.
    line: Bytes,
    /// The params object.
    params: Span,
    /// The exposed name, raw.
    name: Span,
    /// The arguments: an object, or nothing.
    arguments: Option<Span>,
    meta: Option<Span>,
    /// Whether members stand beside those above, which pass too (ENV-11).
    others: bool,
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

/// Members of a call's params that belong to one leg: its own task or its own rounds of input. They are not
/// bridged, and a server that never declared them must not see them (§10.2).
const LEG_ONLY: [&str; 3] = ["task", "inputResponses", "requestState"];

impl ToolCall {
    /// Reads the params of a call from the host's message.
    pub fn read(line: &Bytes, index: &Index, params: Option<Part>) -> Result<Self, BadCall> {
        let params = params.filter(|p| line[p.span.start as usize] == b'{').ok_or(BadCall::Params)?;
        let ([name, arguments, meta], others) = pick(line, index, params, ["name", "arguments", "_meta"])?;
        let name = name.filter(|n| line[n.start as usize] == b'"').ok_or(BadCall::Name)?;
        let arguments = match arguments.map(|a| (a, line[a.start as usize])) {
            None | Some((_, b'n')) => None,
            Some((span, b'{')) => Some(span),
            Some(_) => return Err(BadCall::Arguments),
        };
        let meta = meta.filter(|m| line[m.start as usize] != b'n');
        if meta.is_some_and(|m| line[m.start as usize] != b'{') {
            return Err(BadCall::Meta);
        }
        let call = Self { line: line.clone(), params: params.span, name, arguments, meta, others: others > 0 };
        let keys = meta.map(|meta| RequestMeta::read(meta.of(line))).unwrap_or_default();
        match keys.progress_token {
            _ if keys.twice => Err(BadCall::Duplicate),
            Some([b'"' | b'-' | b'0'..=b'9', ..]) | None => Ok(call),
            Some(_) => Err(BadCall::Token),
        }
    }

    /// The exposed name, raw.
    pub fn name(&self) -> &[u8] {
        self.name.of(&self.line)
    }

    /// How much of the host's message it holds.
    pub fn size(&self) -> usize {
        self.line.len()
    }

    /// The host's progress token, raw.
    pub fn progress_token(&self) -> Option<&[u8]> {
        RequestMeta::read(self.meta?.of(&self.line)).progress_token
    }

    /// Appends the params as a server sees them: its own name for the tool (a raw string), our token when the
    /// host wants progress, and the protocol keys of that leg, modern only.
    pub fn push_params(&self, out: &mut Vec<u8>, native: &[u8], token: Option<u64>, modern: Option<Revision>) {
        out.extend_from_slice(b"{\"name\":");
        out.extend_from_slice(native);
        if let Some(arguments) = self.arguments {
            out.extend_from_slice(b",\"arguments\":");
            out.extend_from_slice(arguments.of(&self.line));
        }
        if self.others {
            self.push_others(out);
        }
        if self.meta.is_some() || modern.is_some() {
            self.push_meta(out, token, modern);
        }
        out.push(b'}');
    }

    fn push_others(&self, out: &mut Vec<u8>) {
        for entry in json::members(self.params.of(&self.line)) {
            let ours = ["name", "arguments", "_meta"].iter().chain(&LEG_ONLY).any(|name| entry.is(name));
            if !ours {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(entry.key);
                out.extend_from_slice(b"\":");
                out.extend_from_slice(entry.value);
            }
        }
    }

    fn push_meta(&self, out: &mut Vec<u8>, token: Option<u64>, modern: Option<Revision>) {
        let before = out.len();
        out.extend_from_slice(b",\"_meta\":{");
        let open = out.len();
        if let Some(meta) = self.meta {
            meta::push_passing(out, meta.of(&self.line));
        }
        if let Some(token) = token {
            out.extend_from_slice(b"\"progressToken\":");
            push_number(out, token);
            out.push(b',');
        }
        if let Some(revision) = modern {
            meta::push_protocol_keys(out, revision);
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

    fn read(params: &str) -> Result<ToolCall, BadCall> {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#));
        let mut index = Index::new();
        match Message::read(&line, &mut index) {
            Ok(Message::Request { params, .. }) => ToolCall::read(&line, &index, params),
            other => panic!("{other:?}"),
        }
    }

    fn down(params: &str, token: Option<u64>, modern: Option<Revision>) -> String {
        let mut out = Vec::new();
        read(params).unwrap().push_params(&mut out, br#""n""#, token, modern);
        String::from_utf8(out).unwrap()
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
