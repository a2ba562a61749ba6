//! JSON-RPC messages: which member is what, and what is no message at all.
//!
//! Works on an [`Index`] of the text; decodes nothing but method names. Says what is wrong and leaves the
//! answer to the edge that read the message.

use super::json::{Index, Malformed, Root, Span};

/// The value of an outer member, with its position for looking at its own members.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The raw value.
    pub span: Span,
    /// The member's index, for [`Index::children`] and [`pick`].
    pub member: u32,
}

/// A message by its members.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// Has an id and a method.
    Request {
        /// The raw id: a string or a number, never touched.
        id: Span,
        /// The method, without quotes.
        method: Span,
        /// The params, whatever they are.
        params: Option<Part>,
    },
    /// Has a method and no id.
    Notification {
        /// The method, without quotes.
        method: Span,
        /// The params, whatever they are.
        params: Option<Part>,
    },
    /// Has an id and a result.
    Result {
        /// The raw id.
        id: Span,
        /// The result.
        result: Part,
    },
    /// Has an error; the id may be missing where the other side could not read it (ENV-4).
    Error {
        /// The raw id.
        id: Option<Span>,
        /// The error object.
        error: Part,
    },
}

/// Why a text is no message; where its id could be read, the other side can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMessage {
    /// The raw id, when it is of a legal kind.
    pub id: Option<Span>,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with a text that should be a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Not well-formed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A batch.
    #[error("an array, which only the 2025-03-26 protocol allows")]
    Array,
    /// JSON, but no object.
    #[error("not an object")]
    NotAnObject,
    /// No `"jsonrpc":"2.0"`.
    #[error("the member jsonrpc is not \"2.0\"")]
    Version,
    /// An id that is neither string nor number.
    #[error("the id is neither a string nor a number")]
    Id,
    /// A member that stands twice: two readers could take different ones (E-23).
    #[error("a member stands twice")]
    Duplicate,
    /// Neither method nor result nor error, or several of them.
    #[error("neither a request nor a notification nor a response")]
    Shape,
}

impl Message {
    /// Reads a message; `index` is filled with the members of `text`.
    pub fn read(text: &[u8], index: &mut Index) -> Result<Self, NoMessage> {
        let well_formed = index.read(text);
        let (parts, twice) = pick_outer(text, index, ["jsonrpc", "id", "method", "params", "result", "error"]);
        let [version, id, method, params, result, error] = parts;
        let legal = id.and_then(|part| legal_id(text, part.span));
        let refuse = |why| Err(NoMessage { id: legal, why });
        if let Err(malformed) = well_formed {
            return Err(NoMessage { id: legal.filter(|id| is_whole(text, *id)), why: Why::Malformed(malformed) });
        }
        if twice {
            return refuse(Why::Duplicate);
        }
        match index.root() {
            Root::Object => {}
            Root::Array => return refuse(Why::Array),
            Root::Other => return refuse(Why::NotAnObject),
        }
        if version.map(|part| part.span.of(text)) != Some(b"\"2.0\"") {
            return refuse(Why::Version);
        }
        if id.is_some() && legal.is_none() && error.is_none() {
            return refuse(Why::Id);
        }
        match (method, result, error, legal) {
            (Some(method), None, None, id) => {
                let quoted = method.span;
                if text[quoted.start as usize] != b'"' {
                    return refuse(Why::Shape);
                }
                let method = Span { start: quoted.start + 1, end: quoted.end - 1 };
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            (None, Some(result), None, Some(id)) => Ok(Self::Result { id, result }),
            (None, None, Some(error), id) => Ok(Self::Error { id, error }),
            _ => refuse(Why::Shape),
        }
    }
}

/// The id when it is a string or a number (ENV-1).
fn legal_id(text: &[u8], id: Span) -> Option<Span> {
    matches!(text[id.start as usize], b'"' | b'-' | b'0'..=b'9').then_some(id)
}

/// Whether an id in a text that is no JSON is surely the one that was meant: a number may be cut short there, as the
/// `1` of `17` is, and what is no UTF-8 cannot be given back.
fn is_whole(text: &[u8], id: Span) -> bool {
    let next = text.get(id.end as usize);
    let ends = text[id.start as usize] == b'"' || next.is_some_and(|next| matches!(next, b',' | b'}' | b' ' | b'\t'));
    ends && std::str::from_utf8(id.of(text)).is_ok()
}

/// The id as the number we gave it; servers that turn numbers into text are understood (D057).
pub fn own_id(raw: &[u8]) -> Option<u64> {
    let digits = raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(raw);
    // Only the spelling that we sent: `"01"` and `"+1"` are not our 1.
    if !digits.iter().all(u8::is_ascii_digit) || digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The raw id that closes a message, as in `…,"jsonrpc":"2.0","id":7}` or `…,"id":7,"jsonrpc":"2.0"}`: for messages
/// of which only the ends are known.
pub fn id_at_end(tail: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let after = tail[at + 4..].trim_ascii().strip_prefix(b":")?.strip_suffix(b"}")?.trim_ascii();
    let id = match memchr::memmem::find(after, b",") {
        Some(comma) => {
            let (id, rest) = after.split_at(comma);
            let rest: Vec<u8> = rest.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
            (rest == b",\"jsonrpc\":\"2.0\"").then(|| id.trim_ascii())?
        }
        None => after,
    };
    let number = !id.is_empty() && id.iter().all(u8::is_ascii_digit);
    let text = id.len() >= 2 && id.starts_with(b"\"") && id.ends_with(b"\"") && !id[1..id.len() - 1].contains(&b'"');
    ((number || text) && std::str::from_utf8(id).is_ok() && !id.contains(&b'\\')).then_some(id)
}

/// Two members with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate;

/// The named outer members, the first of each, and whether one stands twice.
#[inline]
fn pick_outer<const N: usize>(text: &[u8], index: &Index, names: [&str; N]) -> ([Option<Part>; N], bool) {
    let mut found = [None; N];
    let mut twice = false;
    for (at, member) in index.outer() {
        if let Some(n) = names.iter().position(|name| member.is(text, name)) {
            twice |= found[n].is_some();
            found[n].get_or_insert(Part { span: member.value, member: at });
        }
    }
    (found, twice)
}

/// The named members of the object that is `part`'s value, in the order of `names`, and how many others stand
/// beside them.
#[inline]
pub fn pick<const N: usize>(
    text: &[u8],
    index: &Index,
    part: Part,
    names: [&str; N],
) -> Result<([Option<Span>; N], usize), Duplicate> {
    let (fields, others) = pick_fields(text, index, part, names)?;
    Ok((fields.map(|field| field.map(|field| field.value)), others))
}

/// A member that may have to be taken out.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The opening quote of its key.
    pub start: u32,
    /// Its value.
    pub value: Span,
}

/// [`pick`], with the places of the keys.
#[inline]
pub fn pick_fields<const N: usize>(
    text: &[u8],
    index: &Index,
    part: Part,
    names: [&str; N],
) -> Result<([Option<Field>; N], usize), Duplicate> {
    let mut found = [None; N];
    let mut others = 0;
    for member in index.children(part.member) {
        match names.iter().position(|name| member.is(text, name)) {
            Some(n) if found[n].is_some() => return Err(Duplicate),
            Some(n) => found[n] = Some(Field { start: member.key.start - 1, value: member.value }),
            None => others += 1,
        }
    }
    Ok((found, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Message, NoMessage> {
        Message::read(text.as_bytes(), &mut Index::new())
    }

    fn why(text: &str) -> (Why, Option<&str>) {
        let no = read(text).unwrap_err();
        (no.why, no.id.map(|id| &text[id.range()]))
    }

    #[test]
    fn the_four_shapes() {
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{}}"#), Ok(Message::Request { .. })));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"m"}"#), Ok(Message::Notification { .. })));
        assert!(matches!(read(r#"{"id":1,"result":null,"jsonrpc":"2.0"}"#), Ok(Message::Result { .. })));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#), Ok(Message::Error { id: None, .. })));
    }

    #[test]
    fn d022_json_that_is_no_message() {
        for text in ["1", "null", "\"x\"", "true"] {
            assert_eq!(why(text).0, Why::NotAnObject, "{text}");
        }
        assert_eq!(why("[1,2]").0, Why::Array);
        assert_eq!(why(r#"{"level":"info","msg":"x"}"#).0, Why::Version);
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":4}"#), (Why::Shape, Some("4")));
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":4,"result":{},"error":{}}"#), (Why::Shape, Some("4")));
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":4,"method":5}"#), (Why::Shape, Some("4")));
    }

    #[test]
    fn e23_a_member_twice_is_refused_with_its_id() {
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":4,"method":"a","method":"b"}"#), (Why::Duplicate, Some("4")));
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":4,"method":"a","m\u0065thod":"b"}"#), (Why::Duplicate, Some("4")));
    }

    #[test]
    fn env1_ids_are_strings_or_numbers() {
        for id in ["null", "true", "[1]", "{}"] {
            assert_eq!(why(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)), (Why::Id, None), "{id}");
        }
        for id in ["0", "-7", "1.0", "1e3", "123456789012345678901234567890", "\"\"", "\"\\u00e9\""] {
            assert!(read(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).is_ok(), "{id}");
        }
    }

    #[test]
    fn an_id_that_may_be_cut_short_or_is_no_text_is_not_read() {
        for text in
            [r#"{"jsonrpc":"2.0","id":1"#, r#"{"jsonrpc":"2.0","id":01,"method":"m"}"#, r#"{"id":1x,"method":"m"}"#]
        {
            assert_eq!(why(text).1, None, "{text}");
        }
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":17,"method":"#).1, Some("17"));
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":17 }}"#).1, Some("17"));
        assert_eq!(why(r#"{"jsonrpc":"2.0","id":"a""#).1, Some("\"a\""));
        let no =
            Message::read(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"m\"}", &mut Index::new()).unwrap_err();
        assert_eq!(no.id, None);
        let no =
            Message::read(b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"\xff\"}", &mut Index::new()).unwrap_err();
        assert!(no.id.is_some());
    }

    #[test]
    fn the_id_of_an_over_long_message_is_found_at_its_end() {
        assert_eq!(id_at_end(br#"xxx"}]},"jsonrpc":"2.0","id":17}"#), Some(&b"17"[..]));
        assert_eq!(id_at_end(br#"xxx"}]}, "id" : "17", "jsonrpc": "2.0" } "#), Some(&b"\"17\""[..]));
        for none in [&br#"xx "id":17,"more":1}"#[..], b"nothing", br#""id":}"#, br#""id":"a"b"}"#, br#""id":1"#] {
            assert_eq!(id_at_end(none), None);
        }
    }

    #[test]
    fn d057_own_ids_come_back_as_number_or_text() {
        assert_eq!(own_id(b"17"), Some(17));
        assert_eq!(own_id(b"\"17\""), Some(17));
        for other in [&b"-1"[..], b"1.0", b"\"x\"", b"\"\"", b"\"017\"", b"\"+17\"", b"99999999999999999999999"] {
            assert_eq!(own_id(other), None);
        }
    }
}
