//! What a tool of the fake does when it is called.
//!
//! An act is an object with `do`, chosen by the scenario's `acts` (per tool) or `act` (for all):
//!
//! | `do` | then |
//! |---|---|
//! | absent | answers the text `label:tool` |
//! | `result` | answers `result` (raw, marks filled) |
//! | `error` | answers the error `error` (raw) |
//! | `lines` | writes `lines` (raw, marks filled) and nothing else |
//! | `hex` | writes the bytes `hex` with `@ID@`'s hex in it, and a line end: for what is no UTF-8 |
//! | `never` | does not answer |
//! | `gate` | answers when the file `gate` exists |
//! | `arguments` | answers with the raw arguments as `structuredContent` |
//! | `line` | answers with the request line as text |
//! | `argv`, `env`, `cwd`, `pid` | answers with a JSON text of it |
//! | `big` | answers a text of `bytes` bytes |
//! | `endless` | writes `bytes` bytes of one line and no line end |
//! | `nest` | answers `structuredContent` of `depth` arrays in one another |
//! | `exit` | writes `stderr`, ends with `code`; with `answer`, answers first |
//! | `change` | adds the tool `tool` (or takes the first away), says so, answers |
//! | `ask` | sends the client a request `method` with `params` (raw); answers with the client's answer as text |
//! | `stderr` | writes `mib` MiB to stderr, with `newline` or without, then answers |
//!
//! Each act runs in its own thread, so nothing that a tool does holds up another.

use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::server::{Request, Server, flood, lock, quoted};

/// Does the called tool's act.
pub(crate) fn call(server: &Arc<Server>, request: &Request) {
    let server = Arc::clone(server);
    let request = request.clone();
    thread::spawn(move || {
        if let Some(ms) = server.scenario.number("shuffle_ms") {
            thread::sleep(Duration::from_millis(server.roll(ms)));
        }
        let act = server.scenario.act(&request.name).unwrap_or_default();
        perform(&server, &request, &act);
    });
}

fn text(act: &Value, key: &str) -> String {
    act.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(act: &Value, key: &str) -> usize {
    act.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

fn perform(server: &Arc<Server>, request: &Request, act: &Value) {
    let say = |words: &str| {
        server.result(request, &format!(r#"{{"content":[{{"type":"text","text":{}}}]}}"#, quoted(words)));
        server.call_done();
    };
    let plain = || say(&format!("{}:{}", server.scenario.text("label").unwrap_or_default(), request.name));
    match text(act, "do").as_str() {
        "result" => {
            server.result(request, &server.filled(&text(act, "result"), request));
            server.call_done();
        }
        "error" => {
            server.error(request, &server.filled(&text(act, "error"), request));
            server.call_done();
        }
        "lines" => {
            server.noise();
            for line in act.get("lines").and_then(Value::as_array).into_iter().flatten() {
                server.line(&server.filled(line.as_str().unwrap_or_default(), request));
            }
            server.call_done();
        }
        "hex" => {
            let mut bytes = unhex(&text(act, "hex"), request);
            bytes.push(b'\n');
            server.bytes(&bytes);
        }
        "never" => {}
        "gate" => {
            crate::wait_for(Path::new(&text(act, "gate")));
            plain();
        }
        "arguments" => {
            let arguments = if request.arguments.is_empty() { "null" } else { &request.arguments };
            server.result(request, &format!(r#"{{"content":[],"structuredContent":{arguments}}}"#));
            server.call_done();
        }
        "line" => say(&request.line),
        "argv" => {
            let argv: Vec<String> = std::env::args().skip(1).collect();
            say(&Value::from(argv).to_string());
        }
        "env" => {
            let env: Map<String, Value> = std::env::vars().map(|(k, v)| (k, Value::from(v))).collect();
            say(&Value::from(env).to_string());
        }
        "cwd" => say(&std::env::current_dir().unwrap_or_default().to_string_lossy()),
        "pid" => say(&std::process::id().to_string()),
        "big" => say(&"x".repeat(number(act, "bytes"))),
        "endless" => {
            let chunk = vec![b'y'; 1 << 16];
            for _ in 0..number(act, "bytes") >> 16 {
                server.bytes(&chunk);
            }
        }
        "nest" => {
            let depth = number(act, "depth");
            let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            server.result(request, &format!(r#"{{"content":[],"structuredContent":{{"deep":{deep}}}}}"#));
            server.call_done();
        }
        "exit" => {
            if act.get("answer").is_some() {
                plain();
            }
            use std::io::Write;
            let _ = std::io::stderr().write_all(text(act, "stderr").as_bytes());
            exit(i32::try_from(number(act, "code")).unwrap_or(1));
        }
        "change" => {
            server.change(act.get("tool").and_then(Value::as_str).map(str::to_owned));
            plain();
        }
        "ask" => ask(server, act, &say),
        "stderr" => {
            flood((number(act, "mib") as u64) << 20, act.get("newline").is_some());
            plain();
        }
        _ => plain(),
    }
}

/// A request of ours to the client; its answer becomes the tool's.
fn ask(server: &Arc<Server>, act: &Value, say: &dyn Fn(&str)) {
    let (send, receive) = sync_channel(1);
    let id = format!("\"ask-{}\"", server.roll(u64::MAX));
    lock(&server.asked).insert(id.clone(), send);
    let params = act.get("params").and_then(Value::as_str);
    let params = params.map_or_else(String::new, |p| format!(r#","params":{p}"#));
    server.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}{params}}}"#, quoted(&text(act, "method"))));
    match receive.recv_timeout(Duration::from_secs(5)) {
        Ok(answer) => say(&answer),
        Err(_) => say("no answer"),
    }
}

/// Hex digits as bytes; `ID` stands for the bytes of the id.
fn unhex(text: &str, request: &Request) -> Vec<u8> {
    let id: String = request.id.bytes().map(|b| format!("{b:02x}")).collect();
    let digits = text.replace("ID", &id);
    let pair = |at: usize| digits.get(at..at + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    (0..digits.len()).step_by(2).filter_map(pair).collect()
}
