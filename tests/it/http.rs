//! A host that speaks HTTP, in as few words as that takes: one connection per message.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::host::{Era, MODERN_META, PATIENCE};

/// A host, of either era.
pub(crate) struct Caller {
    url: String,
    era: Era,
    /// The header of its legacy session.
    session: String,
    last: u32,
}

impl Caller {
    /// Opens a session at this address, where the era has such.
    pub(crate) fn open(url: &str, era: Era) -> Self {
        let mut caller = Self { url: url.to_owned(), era, session: String::new(), last: 0 };
        if era == Era::Legacy {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
            let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            let (head, _) = caller.post("", &message.to_string());
            let session = head.lines().find(|line| line.to_lowercase().starts_with("mcp-session-id:")).unwrap();
            caller.session = format!("{session}\r\n");
        }
        caller
    }

    /// Calls a tool; `meta` are raw members of `_meta`. The whole answer.
    pub(crate) fn call(&mut self, tool: &str, arguments: &str, meta: &str) -> Value {
        self.ask("tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#), meta, tool)
    }

    /// Asks for something; `members` are those of the params, `name` is what they name.
    pub(crate) fn ask(&mut self, method: &str, members: &str, meta: &str, name: &str) -> Value {
        self.last += 1;
        let meta = match self.era {
            Era::Modern if meta.is_empty() => MODERN_META.to_owned(),
            Era::Modern => format!("{MODERN_META},{meta}"),
            Era::Legacy => meta.to_owned(),
        };
        let modern = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n");
        let headers = if self.era == Era::Modern { modern } else { self.session.clone() };
        let comma = if members.is_empty() { "" } else { "," };
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{{members}{comma}"_meta":{{{meta}}}}}}}"#,
            self.last
        );
        self.post(&headers, &message).1
    }

    /// The head of what a message is answered, and the JSON in its body.
    fn post(&self, more: &str, body: &str) -> (String, Value) {
        let address = self.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{more}\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let message = body.find('{').map(|at| serde_json::Deserializer::from_str(&body[at..]).into_iter().next());
        (head.to_owned(), message.flatten().map_or(Value::Null, Result::unwrap))
    }
}
