//! A server's answer in the language of the middle: its own bytes, and where in them the few members stand
//! that differ between the eras.

use bytes::Bytes;

use super::json::{Index, Span};
use super::message::{Duplicate, Field, Message, Part, pick, pick_fields};

/// The answer to a request, as the server sent it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The server's message.
    pub line: Bytes,
    /// What it holds.
    pub body: Body,
}

impl Reply {
    /// Reads a whole answer; `None` when it is none.
    pub fn read(line: Bytes) -> Option<Self> {
        let mut index = Index::new();
        let body = match Message::read(&line, &mut index).ok()? {
            Message::Result { result, .. } => Body::result(&line, &index, result).ok()?,
            Message::Error { error, .. } => Body::error(&line, &index, error).ok()?,
            Message::Request { .. } | Message::Notification { .. } => return None,
        };
        Some(Self { line, body })
    }
}

/// What an answer holds.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// A result object.
    Result(ResultSpans),
    /// An error object.
    Error(ErrorSpans),
}

/// A result object and its members that we look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultSpans {
    /// The whole object.
    pub whole: Span,
    /// `resultType`; absent means complete (ENV-5).
    pub result_type: Option<Field>,
    /// `ttlMs`.
    pub ttl_ms: Option<Field>,
    /// `cacheScope`.
    pub cache_scope: Option<Field>,
    /// `_meta`.
    pub meta: Option<Field>,
    /// `content`.
    pub content: Option<Field>,
    /// `structuredContent`; `null` is a value, not absence.
    pub structured: Option<Field>,
    /// Whether the object has no member at all.
    pub empty: bool,
}

/// An error object and its members.
#[derive(Clone, Copy, Debug)]
pub struct ErrorSpans {
    /// The whole object.
    pub whole: Span,
    /// `code`, a whole number.
    pub code: i64,
    /// `message`, raw; a server may have left it out.
    pub message: Option<Span>,
    /// `data`, raw.
    pub data: Option<Span>,
}

/// Why an answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// The result is no object.
    #[error("the result is not an object")]
    Result,
    /// The error is no object with a whole-numbered code.
    #[error("the error is not an object with a whole-numbered code")]
    Error,
    /// Two members of one name.
    #[error("a member of the answer stands twice")]
    Duplicate,
}

impl From<Duplicate> for BadReply {
    fn from(_: Duplicate) -> Self {
        Self::Duplicate
    }
}

impl Body {
    /// Reads a result.
    pub fn result(line: &[u8], index: &Index, part: Part) -> Result<Self, BadReply> {
        if line[part.span.start as usize] != b'{' {
            return Err(BadReply::Result);
        }
        let names = ["resultType", "ttlMs", "cacheScope", "_meta", "content", "structuredContent"];
        let ([result_type, ttl_ms, cache_scope, meta, content, structured], _) = pick_fields(line, index, part, names)?;
        let empty = index.children(part.member).next().is_none();
        let whole = part.span;
        Ok(Self::Result(ResultSpans { whole, result_type, ttl_ms, cache_scope, meta, content, structured, empty }))
    }

    /// Reads an error.
    pub fn error(line: &[u8], index: &Index, part: Part) -> Result<Self, BadReply> {
        let ([code, message, data], _) = pick(line, index, part, ["code", "message", "data"])?;
        let code = code
            .and_then(|code| std::str::from_utf8(code.of(line)).ok())
            .and_then(|code| code.parse().ok())
            .ok_or(BadReply::Error)?;
        let message = message.filter(|m| line[m.start as usize] == b'"');
        Ok(Self::Error(ErrorSpans { whole: part.span, code, message, data }))
    }
}
