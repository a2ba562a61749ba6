//! The demo's servers: `clock` speaks the modern protocol, `notes` the legacy one. Small enough to read as an
//! example of what stands behind the gateway; nothing else uses them.

use std::io::{self, BufRead as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::exit::Exit;

/// Which server.
#[derive(clap::Args)]
pub(super) struct Args {
    #[arg(value_enum)]
    server: Which,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Which {
    /// Tells the time.
    Clock,
    /// Keeps notes.
    Notes,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut notes = Vec::new();
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let Some(id) = message.get("id").cloned() else { continue };
        let answer = match (args.server, message["method"].as_str().unwrap_or_default()) {
            (Which::Clock, method) => clock(method, &message["params"]),
            (Which::Notes, method) => note(method, &message["params"], &mut notes),
        };
        let mut reply = match answer {
            Ok(result) => json!({ "result": result }),
            Err((code, text)) => json!({ "error": { "code": code, "message": text } }),
        };
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = id;
        let mut out = io::stdout().lock();
        writeln!(out, "{reply}")?;
        out.flush()?;
    }
    Ok(Exit::Fine)
}

type Answer = Result<Value, (i64, &'static str)>;

fn clock(method: &str, params: &Value) -> Answer {
    let complete = |mut result: Value| {
        result["resultType"] = "complete".into();
        Ok(result)
    };
    match method {
        "server/discover" => complete(json!({
            "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "ttlMs": 3_600_000, "cacheScope": "public",
        })),
        "tools/list" => complete(json!({
            "tools": [
                { "name": "now", "description": "Tells the time as seconds since 1970, UTC.",
                  "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } },
                { "name": "wait", "description": "Answers after a while, 10 s at most.",
                  "inputSchema": { "type": "object", "properties": { "ms": { "type": "integer", "minimum": 0 } } } },
            ],
            "ttlMs": 3_600_000, "cacheScope": "public",
        })),
        "tools/call" => {
            let arguments = &params["arguments"];
            let text = match params["name"].as_str() {
                Some("now") => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                    format!("It is {now} s after the beginning of 1970, UTC.")
                }
                Some("wait") => {
                    let ms = arguments["ms"].as_u64().unwrap_or(0).min(10_000);
                    std::thread::sleep(Duration::from_millis(ms));
                    format!("Waited {ms} ms.")
                }
                _ => return Err((-32602, "Unknown tool")),
            };
            complete(json!({ "content": [{ "type": "text", "text": text }] }))
        }
        _ => Err((-32601, "Method not found")),
    }
}

fn note(method: &str, params: &Value, notes: &mut Vec<String>) -> Answer {
    match method {
        "initialize" => Ok(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "notes", "version": env!("CARGO_PKG_VERSION") },
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": [
            { "name": "add", "description": "Keeps a note until this server ends.",
              "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] } },
            { "name": "list", "description": "Tells all notes.",
              "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } },
        ] })),
        "tools/call" => {
            let text = match (params["name"].as_str(), params["arguments"]["text"].as_str()) {
                (Some("add"), Some(text)) => {
                    notes.push(text.to_owned());
                    format!("Noted; {} so far.", notes.len())
                }
                (Some("add"), None) => return Err((-32602, "text is missing")),
                (Some("list"), _) => notes.join("\n"),
                _ => return Err((-32602, "Unknown tool")),
            };
            Ok(json!({ "content": [{ "type": "text", "text": text }] }))
        }
        _ => Err((-32601, "Method not found")),
    }
}
