//! What the file of a host says of one server → [`Server`]: the words of all hosts for the same things.
//!
//! The words do not contradict each other, so they are read wherever they stand; what differs by host (the unit of a
//! deadline, what a bare `url` means) comes from its row in `hosts`. What means nothing to us is named, never its value.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::ours;
use crate::config::tree::{Entry, Node, Value};
use crate::shown::shown_str as shown;

use super::hosts::{Deadline, Host, Variables};
use super::server::{Origin, Server};
use super::text::{Piece, Text};

/// Reads one server; its program and arguments, when it is this gateway itself.
pub(super) fn server(title: &str, node: &Node, origin: Origin, host: Option<&Host>) -> Result<Server, Vec<String>> {
    let server = read(host.map_or(Variables::Any, |host| host.variables), title, node, origin, host);
    let plain = |text: &Text| text.own().text;
    let words: Vec<String> = server.command.iter().chain(&server.args).map(plain).collect();
    let is_ours = words.split_first().is_some_and(|(command, args)| ours(command, args.first().map(String::as_str)));
    if is_ours { Err(words) } else { Ok(server) }
}

/// Reads a server of no known host, whose variables are written so.
pub(super) fn server_in(variables: Variables, title: &str, node: &Node, origin: Origin) -> Server {
    read(variables, title, node, origin, None)
}

fn read(variables: Variables, title: &str, node: &Node, origin: Origin, host: Option<&Host>) -> Server {
    let server = Server::new(title, origin);
    let mut reader = Reader { variables, host, server, kind: None, unread: Vec::new(), approvals: false };
    if !matches!(node.value, Value::Table(_)) {
        reader.server.unusable = Some(format!("is {}, not a description of a server", node.kind()));
        return reader.server;
    }
    for entry in node.entries() {
        reader.take(entry);
    }
    reader.settle()
}

struct Reader<'h> {
    host: Option<&'h Host>,
    variables: Variables,
    server: Server,
    /// `type` or `transport`, in small letters.
    kind: Option<String>,
    unread: Vec<String>,
    /// It names calls that need no yes of a person.
    approvals: bool,
}

impl Reader<'_> {
    fn text(&self, text: &str) -> Text {
        Text::read(text, self.variables)
    }

    /// A text, or a number or truth as it is written.
    fn scalar(&self, node: &Node) -> Option<Text> {
        match &node.value {
            Value::Text(text) => Some(self.text(text)),
            Value::Integer(number) => Some(Text::plain(&number.to_string())),
            Value::Float(number) => Some(Text::plain(&number.to_string())),
            Value::Bool(truth) => Some(Text::plain(&truth.to_string())),
            Value::List(_) | Value::Table(_) | Value::Other(_) => None,
        }
    }

    fn list(&self, node: &Node) -> Vec<Text> {
        node.items().iter().filter_map(|item| self.scalar(item)).collect()
    }

    fn named(&self, node: &Node) -> Vec<(String, Text)> {
        node.entries().iter().filter_map(|entry| Some((entry.name.clone(), self.scalar(&entry.node)?))).collect()
    }

    fn take(&mut self, entry: &Entry) {
        let node = &entry.node;
        if matches!(node.value, Value::Other("null")) {
            return;
        }
        match entry.name.as_str() {
            // opencode: the program and its arguments in one list.
            "command" if matches!(node.value, Value::List(_)) => {
                let mut words = self.list(node).into_iter();
                self.server.command = words.next();
                self.server.args = words.chain(std::mem::take(&mut self.server.args)).collect();
            }
            "command" | "cmd" => self.server.command = self.scalar(node),
            "args" => {
                let args = self.list(node);
                self.server.args.extend(args);
            }
            "env" | "envs" | "environment" => {
                let env = self.named(node);
                self.server.env.extend(env);
            }
            // Names of variables that are handed on.
            "env_vars" | "env_keys" => {
                for name in texts(node) {
                    let kept = entry.name == "env_keys";
                    let piece = if kept { Piece::Kept(name.clone()) } else { variable(&name) };
                    if !self.server.env.iter().any(|(known, _)| *known == name) {
                        self.server.env.push((name, Text(vec![piece])));
                    }
                }
            }
            "cwd" => self.server.cwd = self.scalar(node),
            "url" | "uri" | "serverUrl" | "httpUrl" => {
                if self.server.url.is_none() || entry.name == "httpUrl" {
                    self.server.url = self.scalar(node);
                }
                if entry.name != "url" && self.kind.is_none() {
                    self.kind = Some("http".to_owned());
                }
            }
            "headers" | "http_headers" => {
                let headers = self.named(node);
                self.server.headers.extend(headers);
            }
            "requestOptions" => {
                let headers = node.get("headers").map(|node| self.named(node)).unwrap_or_default();
                self.server.headers.extend(headers);
                if node.entries().iter().any(|entry| entry.name != "headers") {
                    self.unread.push(entry.name.clone());
                }
            }
            "env_http_headers" => {
                for entry in node.entries() {
                    if let Value::Text(name) = &entry.node.value {
                        self.server.headers.push((entry.name.clone(), Text(vec![variable(name)])));
                    }
                }
            }
            "bearer_token_env_var" => {
                if let Some(name) = node.as_text() {
                    let value = Text(vec![Piece::Plain("Bearer ".to_owned()), variable(name)]);
                    self.server.headers.push(("Authorization".to_owned(), value));
                }
            }
            "type" | "transport" => self.kind = node.as_text().map(str::to_ascii_lowercase),
            "disabled" => self.server.enabled &= !matches!(node.value, Value::Bool(true)),
            "enabled" => self.server.enabled &= !matches!(node.value, Value::Bool(false)),
            "includeTools" | "enabled_tools" | "available_tools" | "allowedTools" => {
                let names = texts(node);
                // Goose means all by an empty list.
                if !(names.is_empty() && entry.name == "available_tools") {
                    self.server.allow = Some(names);
                }
            }
            // Copilot CLI: `["*"]` is all.
            "tools" if matches!(node.value, Value::List(_)) => {
                let names = texts(node);
                if names != ["*"] {
                    self.server.allow = Some(names);
                }
            }
            "excludeTools" | "disabled_tools" | "disabledTools" => self.server.deny.extend(texts(node)),
            "autoApprove" | "alwaysAllow" | "trust" => self.approvals |= !is_empty(node),
            // What only describes, or says what is so anyway.
            "name" | "description" | "display_name" | "source" | "bundled" | "version" => {}
            name => {
                if !self.deadline(name, node) {
                    self.unread.push(name.to_owned());
                }
            }
        }
    }

    /// A deadline of this host, when `name` is one.
    fn deadline(&mut self, name: &str, node: &Node) -> bool {
        let rows = self.host.map_or(&[][..], |host| host.deadlines);
        let Some((_, unit, what)) = rows.iter().find(|(known, _, _)| *known == name) else { return false };
        let unit = f64::from(u32::try_from(*unit).unwrap_or(1));
        let milliseconds = match node.value {
            #[expect(clippy::cast_precision_loss, reason = "a deadline of a host is no such number")]
            Value::Integer(number) => number as f64 * unit,
            Value::Float(number) => number * unit,
            Value::Text(_) | Value::Bool(_) | Value::List(_) | Value::Table(_) | Value::Other(_) => return false,
        };
        if milliseconds.is_nan() || milliseconds < 1.0 {
            return false;
        }
        const DAY: f64 = 24.0 * 3600.0 * 1000.0;
        let time = Duration::from_secs_f64(milliseconds.min(DAY) / 1000.0);
        match what {
            Deadline::Start => self.server.start = Some(time.clamp(Duration::from_secs(1), Duration::from_secs(3600))),
            Deadline::Call => self.server.call = Some(time.max(Duration::from_secs(1))),
        }
        true
    }

    /// Decides between program and address when all members are known.
    fn settle(mut self) -> Server {
        let kind = self.kind.as_deref();
        let server = &mut self.server;
        let remote = match (&server.command, &server.url, kind) {
            (None, None, _) => {
                // Goose keeps its own built-in things in the same map.
                server.unusable = Some(match kind {
                    Some(word @ ("builtin" | "platform" | "frontend" | "inline_python")) => {
                        format!("is a part of the host itself (`{word}`)")
                    }
                    _ => "has neither a command nor an address".to_owned(),
                });
                return self.server;
            }
            (_, None, _) => false,
            (None, Some(_), _) => true,
            (Some(_), Some(_), Some(word)) => word != "stdio" && word != "local",
            (Some(_), Some(_), None) => false,
        };
        if remote {
            server.command = None;
            server.args.clear();
            server.env.clear();
            server.cwd = None;
            match kind {
                Some("sse") => server.sse = true,
                None => server.sse = self.host.is_some_and(|host| host.url_is_sse),
                Some(word) if crate::config::STREAMABLE.contains(&word) => {}
                Some(word) => server.unusable = Some(format!("speaks `{}`, which is not known here", shown(word))),
            }
            let made = |name: &str| crate::config::is_made_by_us(name);
            for (name, _) in server.headers.iter().filter(|(name, _)| made(name)) {
                server.remarks.push(format!("the header `{}` is made by the gateway itself", shown(name)));
            }
            server.headers.retain(|(name, _)| !made(name));
        } else {
            server.url = None;
            server.headers.clear();
        }
        if self.approvals {
            let message = "what the host calls without asking is not taken over: rules are yours to write (`[policy]`)";
            server.remarks.push(message.to_owned());
        }
        if !self.unread.is_empty() {
            let names: Vec<_> = self.unread.iter().map(|name| format!("`{}`", shown(name))).collect();
            server.remarks.push(format!("not read: {}", names.join(", ")));
        }
        // In our own files all is relative to them anyway.
        if !matches!(self.variables, Variables::Ours) {
            server.relate();
        }
        let relative = |text: &Text| {
            let plain = text.beginning();
            plain.contains('/') && !plain.starts_with(['/', '~']) && !plain.contains(':')
        };
        if server.command.as_ref().is_some_and(relative) || server.cwd.as_ref().is_some_and(relative) {
            let message = "has a relative path, which here is relative to our own file; write it in full";
            server.remarks.push(message.to_owned());
        }
        self.server
    }
}

impl Server {
    /// Makes what is relative to the host's file or project whole, since here it would be relative to our own file.
    fn relate(&mut self) {
        let whole = |path: &str| path.starts_with(['/', '~', '$', '\\']) || path.get(1..2) == Some(":");
        let join =
            |folder: &Path, path: &str| folder.join(path).components().collect::<PathBuf>().display().to_string();
        let beside = self.origin.file.parent().filter(|folder| folder.is_absolute()).map(Path::to_owned);
        let named = self.env.iter_mut().chain(&mut self.headers).map(|(_, text)| text);
        let texts = named.chain(&mut self.args).chain(&mut self.command).chain(&mut self.url).chain(&mut self.cwd);
        for piece in texts.flat_map(|text| &mut text.0) {
            if let (Piece::File(path), Some(beside)) = (piece, &beside)
                && !whole(path)
            {
                *path = join(beside, path);
            }
        }
        let Some(folder) = &self.origin.folder else { return };
        for (text, is_path) in [(&mut self.command, false), (&mut self.cwd, true)] {
            // A command without a slash is looked for on the PATH.
            if let Some([Piece::Plain(path)]) = text.as_mut().map(|text| text.0.as_mut_slice())
                && (is_path || path.contains('/'))
                && !whole(path)
            {
                *path = join(folder, path);
            }
        }
    }
}

fn variable(name: &str) -> Piece {
    Piece::Variable { name: name.to_owned(), default: None }
}

/// The texts of a list; Codex also writes `{ name = "X" }`.
fn texts(node: &Node) -> Vec<String> {
    let text = |node: &Node| node.as_text().or_else(|| node.get("name").and_then(Node::as_text)).map(str::to_owned);
    node.items().iter().filter_map(text).collect()
}

fn is_empty(node: &Node) -> bool {
    matches!(node.value, Value::Bool(false)) || (matches!(node.value, Value::List(_)) && node.items().is_empty())
}
