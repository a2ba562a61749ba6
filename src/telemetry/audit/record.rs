//! One record: begun with a request, filled in by what is decided, handed over with its outcome.
//!
//! The members of its line are written one after the other into one piece of memory; number and chain are put before them
//! by who writes the file. A record that is dropped before its end says that the request was cancelled.

use std::io::Write as _;
use std::time::{Instant, SystemTime};

use super::Audit;
use super::shape::{Found, shape};
use crate::caller::Caller;
use crate::moment;
use crate::shown::hidden;

/// Characters of a principal or group: more than any has, so that no two are one.
const MAX_NAME: usize = 300;
/// Groups of a principal.
const MAX_GROUPS: usize = 256;
/// Characters of an item's name, or of the place of a rule.
const MAX_TEXT: usize = 500;
/// Bytes of one value that was named.
const MAX_VALUE: usize = 1024;
/// Arguments up to this size are asked for values: it is done while others wait.
const MAX_SEARCHED: usize = 256 << 10;
/// What most lines need.
const USUAL: usize = 768;

/// What is asked for.
pub struct Asked<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The method.
    pub method: &'a str,
    /// What the host calls the item, where it names one.
    pub exposed: Option<&'a str>,
}

/// What was decided.
pub struct Verdict<'a> {
    /// `allow`, `refuse`, `hidden`, `unknown` or `shadow`.
    pub word: &'static str,
    /// Why, where it was refused or would have been.
    pub reason: Option<&'a str>,
    /// Where the rule or limit stands that decided.
    pub rule: Option<&'a str>,
    /// Which policy decided.
    pub policy: Option<&'a str>,
    /// How its pin stands, where it has one.
    pub pin: Option<&'a str>,
    /// The arguments that were decided about, a raw object.
    pub arguments: Option<&'a [u8]>,
}

/// What came of it.
#[derive(Clone, Copy)]
pub struct Ended<'a> {
    /// `ok`, `is_error`, `error`, `input`, `task`, `refused`, `declined` or `cancelled`.
    pub word: &'static str,
    /// The code of the error.
    pub code: Option<i64>,
    /// The reason of an error of ours.
    pub reason: Option<&'a str>,
}

/// A record that is being filled in.
pub struct Record<'a> {
    audit: &'a Audit,
    began: Instant,
    line: Vec<u8>,
    named: bool,
    decided: bool,
    refused: bool,
}

impl Audit {
    /// Begins a record.
    pub fn begin(&self, asked: &Asked<'_>) -> Record<'_> {
        let mut line = Vec::with_capacity(USUAL);
        line.extend_from_slice(b"\"time\":\"");
        moment::push(&mut line, SystemTime::now());
        line.extend_from_slice(b"\",\"principal\":");
        push_text(&mut line, asked.caller.principal.as_str(), MAX_NAME);
        line.extend_from_slice(b",\"groups\":");
        push_texts(&mut line, asked.caller.principal.groups());
        // Keys have none.
        if asked.caller.principal.scopes().next().is_some() {
            line.extend_from_slice(b",\"scopes\":");
            push_texts(&mut line, asked.caller.principal.scopes());
        }
        line.extend_from_slice(b",\"session\":\"");
        line.extend_from_slice(self.process.as_bytes());
        if let Some(session) = asked.caller.session {
            // Writing into memory cannot fail.
            let _ = write!(line, "-{session}");
        }
        line.extend_from_slice(b"\",\"method\":");
        push_text(&mut line, asked.method, MAX_NAME);
        push_member(&mut line, "exposed", asked.exposed);
        Record { audit: self, began: Instant::now(), line, named: false, decided: false, refused: false }
    }
}

fn push_texts<'a>(line: &mut Vec<u8>, texts: impl Iterator<Item = &'a str>) {
    line.push(b'[');
    for (n, text) in texts.take(MAX_GROUPS).enumerate() {
        if n > 0 {
            line.push(b',');
        }
        push_text(line, text, MAX_NAME);
    }
    line.push(b']');
}

impl Record<'_> {
    /// Whose item it is, and what that calls it.
    pub fn item(&mut self, server: &str, kind: &str, native: &str) {
        if !std::mem::replace(&mut self.named, true) {
            push_member(&mut self.line, "server", Some(server));
            push_member(&mut self.line, "kind", Some(kind));
            push_member(&mut self.line, "native", Some(native));
        }
    }

    /// What was decided; the first decision is the one of the request.
    pub fn decided(&mut self, verdict: &Verdict<'_>) {
        if std::mem::replace(&mut self.decided, true) {
            return;
        }
        self.refused = matches!(verdict.word, "refuse" | "hidden" | "unknown");
        if !std::mem::replace(&mut self.named, true) {
            self.line.extend_from_slice(br#","server":null,"kind":null,"native":null"#);
        }
        push_member(&mut self.line, "verdict", Some(verdict.word));
        push_member(&mut self.line, "reason", verdict.reason);
        push_member(&mut self.line, "rule", verdict.rule);
        push_member(&mut self.line, "policy", verdict.policy);
        push_member(&mut self.line, "pin", verdict.pin);
        match verdict.arguments {
            None => self.line.extend_from_slice(b",\"shape\":null"),
            Some(arguments) => {
                self.line.extend_from_slice(b",\"shape\":\"");
                self.line.extend_from_slice(shape(arguments).as_bytes());
                self.line.push(b'"');
                self.values(arguments);
            }
        }
    }

    /// The values that the operator named; which of them cannot be told.
    fn values(&mut self, arguments: &[u8]) {
        if self.audit.values.is_empty() {
            return;
        }
        let line = &mut self.line;
        line.extend_from_slice(b",\"values\":{");
        let mut comma = false;
        let mut omitted = Vec::new();
        for named in &self.audit.values {
            let found = if arguments.len() > MAX_SEARCHED { Found::Twice } else { named.find(arguments) };
            match found {
                Found::Nothing => {}
                Found::Value(value) if value.len() <= MAX_VALUE && is_readable(value) => {
                    if std::mem::replace(&mut comma, true) {
                        line.push(b',');
                    }
                    push_text(line, named.pointer(), MAX_TEXT);
                    line.push(b':');
                    push_raw(line, value);
                }
                Found::Value(_) | Found::Twice => omitted.push(named),
            }
        }
        line.push(b'}');
        if !omitted.is_empty() {
            line.extend_from_slice(b",\"omitted\":[");
            for (n, named) in omitted.into_iter().enumerate() {
                if n > 0 {
                    line.push(b',');
                }
                push_text(line, named.pointer(), MAX_TEXT);
            }
            line.push(b']');
        }
    }

    /// What came of it; the record is handed over.
    pub fn end(mut self, ended: &Ended<'_>) {
        self.close(ended);
    }

    fn close(&mut self, ended: &Ended<'_>) {
        if !self.decided {
            let verdict = Verdict { word: "none", reason: None, rule: None, policy: None, pin: None, arguments: None };
            self.decided(&verdict);
        }
        let mut line = std::mem::take(&mut self.line);
        // An error is how some requests are told that they are refused.
        let word = if self.refused && matches!(ended.word, "error" | "declined") { "refused" } else { ended.word };
        push_member(&mut line, "outcome", Some(word));
        match ended.code {
            // Writing into memory cannot fail.
            Some(code) => _ = write!(line, ",\"code\":{code}"),
            None => line.extend_from_slice(b",\"code\":null"),
        }
        push_member(&mut line, "error", ended.reason);
        let took = self.began.elapsed();
        let _ = write!(line, ",\"duration_ms\":{}.{:03}", took.as_millis(), took.subsec_micros() % 1000);
        self.audit.queue.push(line);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.close(&Ended { word: "cancelled", code: None, reason: None });
        }
    }
}

/// Appends `,"name":"text"`, or `null`.
pub(super) fn push_member(line: &mut Vec<u8>, name: &str, text: Option<&str>) {
    line.extend_from_slice(b",\"");
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b"\":");
    match text {
        Some(text) => push_text(line, text, MAX_TEXT),
        None => line.extend_from_slice(b"null"),
    }
}

/// Appends a text as JSON: cut, and with nothing in it that is not seen (T-35).
pub(super) fn push_text(line: &mut Vec<u8>, text: &str, most: usize) {
    line.push(b'"');
    for (count, c) in text.chars().enumerate() {
        if count == most {
            line.extend_from_slice("…".as_bytes());
            break;
        }
        match c {
            '"' => line.extend_from_slice(b"\\\""),
            '\\' => line.extend_from_slice(b"\\\\"),
            _ if hidden(c) => push_escape(line, c),
            _ => line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    line.push(b'"');
}

/// Whether whoever reads the record can read it: a lone surrogate or a number beyond all numbers would hide its line.
fn is_readable(value: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(value).is_ok()
}

/// Appends a raw value on one line, and with nothing in it that is not seen.
fn push_raw(line: &mut Vec<u8>, raw: &[u8]) {
    let mut inside = false;
    let mut escaped = false;
    // Messages were looked at when they were read.
    for c in String::from_utf8_lossy(raw).chars() {
        if !inside && c.is_ascii_whitespace() {
            continue;
        }
        if c == '"' && !escaped {
            inside = !inside;
        }
        escaped = c == '\\' && !escaped;
        if hidden(c) {
            push_escape(line, c);
        } else {
            line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

fn push_escape(line: &mut Vec<u8>, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing into memory cannot fail.
        let _ = write!(line, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t35_nothing_unseen_stands_in_a_record() {
        let mut line = Vec::new();
        push_text(&mut line, "a\"b\\c\n\u{1b}[31m\u{202e}\u{e0041}é", 100);
        assert_eq!(std::str::from_utf8(&line).unwrap(), r#""a\"b\\c\u000a\u001b[31m\u202e\udb40\udc41é""#);
        assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), "a\"b\\c\n\u{1b}[31m\u{202e}\u{e0041}é");
        line.clear();
        push_text(&mut line, &"x".repeat(600), MAX_TEXT);
        assert_eq!(serde_json::from_slice::<String>(&line).unwrap().chars().count(), MAX_TEXT + 1);
        line.clear();
        push_raw(&mut line, "{ \"a\\\" b\" :\n[ 1 , \"\u{202e}\\\\\" ] }".as_bytes());
        assert_eq!(std::str::from_utf8(&line).unwrap(), r#"{"a\" b":[1,"\u202e\\"]}"#);
    }
}
