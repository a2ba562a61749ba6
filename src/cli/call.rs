//! `onegate call`: one tool call through the whole pipeline.

use std::borrow::Cow;
use std::io::Read as _;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;

use super::exit::Exit;
use super::progress::Starting;
use super::who::As;
use super::{Common, load, out, run, tools};
use crate::caller::Caller;
use crate::catalog::{naming, own};
use crate::daemon::Daemon;
use crate::gateway::{Failure, Gateway, Outcome, Pace};
use crate::ident::Principal;
use crate::protocol::call::Call;
use crate::protocol::json::{self, Index};
use crate::protocol::message::Message;
use crate::protocol::method::Method;
use crate::protocol::version::Revision;
use crate::shown::{shown, shown_str};
use crate::transport::upward::Upward;

/// Flags of `call`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The tool, by the name that hosts see, for example files__read_file.
    name: String,
    /// The arguments, a JSON object; - reads them from standard input.
    #[arg(value_name = "JSON|-")]
    arguments: Option<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Call as a host of this profile, instead of the default one.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    who: As,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: Args) -> anyhow::Result<Exit> {
    let arguments = match args.arguments.as_deref() {
        None => "{}".to_owned(),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("the arguments cannot be read")?;
            text
        }
        Some(text) => text.to_owned(),
    };
    let call = match request(&args.name, &arguments) {
        Ok(call) => call,
        Err(why) => {
            out::say(&format!("onegate: {why}"));
            return Ok(Exit::Usage);
        }
    };
    let mut settings = load::load(&args.common, args.json)?.settings;
    load::choose(&mut settings, args.profile.as_deref(), false)?;
    let who = args.who.principal(&settings)?;
    // Only servers that can own the name are needed.
    if let Some(name) = needed(&call, &args.name) {
        settings.servers.retain(|server| naming::may_own(&server.prefix, &name));
    }
    run::block_on(async {
        let daemon = Daemon::start(settings)?;
        Starting::new().settle(&daemon.gateway()).await;
        let exit = call_and_show(&args, call, &daemon.gateway(), who).await;
        daemon.stop(Pace::SWIFT).await;
        exit
    })?
}

/// The name whose servers are needed; nothing where all are, by a tool of ours.
fn needed(call: &Call, name: &str) -> Option<String> {
    match name {
        own::CALL => call.inner().ok().and_then(|inner| json::text_of(inner.target()).map(Cow::into_owned)),
        name if own::is_own(name) => None,
        name => Some(name.to_owned()),
    }
}

/// The call as a host would send it.
pub(super) fn request(name: &str, arguments: &str) -> Result<Call, String> {
    let mut index = Index::new();
    // By itself, so that it cannot end its own member and begin others.
    index.read(arguments.as_bytes()).map_err(|_| "the arguments are not a JSON object".to_owned())?;
    let mut line = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"#.to_vec();
    json::push_string(&mut line, name);
    line.extend_from_slice(b",\"arguments\":");
    line.extend_from_slice(arguments.trim().as_bytes());
    line.extend_from_slice(b"}}");
    let line = Bytes::from(line);
    match Message::read(&line, &mut index) {
        Ok(Message::Request { params, .. }) => {
            Call::read(Method::ToolsCall, &line, &index, params).map_err(|why| why.to_string())
        }
        _ => Err("the arguments are not a JSON object".to_owned()),
    }
}

async fn call_and_show(args: &Args, call: Call, gateway: &Gateway, principal: Principal) -> anyhow::Result<Exit> {
    let caller = Caller { principal, ..Caller::stdio(Revision::LATEST_MODERN) };
    let outcome = gateway.call(&call, &caller, Arc::new(Upward::default())).await;
    match outcome {
        Ok(Outcome::Result(answer, spans)) => {
            let result = spans.whole.of(&answer.reply.line);
            if args.json {
                out::text(&String::from_utf8_lossy(result))?;
            } else {
                show_result(result)?;
            }
            Ok(if is_error(result) { Exit::Failed } else { Exit::Fine })
        }
        Ok(Outcome::Refused(refused)) => {
            let result = format!("{{{},\"_meta\":{{{}}}}}", refused.members, refused.meta);
            if args.json {
                out::text(&result)?;
            } else {
                show_result(result.as_bytes())?;
            }
            Ok(Exit::Failed)
        }
        Ok(Outcome::Own(members)) => {
            let result = format!("{{{members}}}");
            if args.json {
                out::text(&result)?
            } else {
                show_result(result.as_bytes())?
            }
            Ok(if is_error(result.as_bytes()) { Exit::Failed } else { Exit::Fine })
        }
        // Tasks were not offered.
        Ok(Outcome::Input(_) | Outcome::Task(_)) => {
            out::say("onegate: the server asks for input, which this command does not give");
            Ok(Exit::Failed)
        }
        Ok(Outcome::Error(answer, error)) => {
            let raw = error.whole.of(&answer.reply.line);
            if args.json {
                out::text(&format!("{{\"error\":{}}}", String::from_utf8_lossy(raw)))?;
            } else {
                out::say(&format!("onegate: the server answered with an error: {}", shown(raw)));
            }
            Ok(Exit::Failed)
        }
        Err(failure) => tell_failure(args, &failure, gateway),
    }
}

fn tell_failure(args: &Args, failure: &Failure, gateway: &Gateway) -> anyhow::Result<Exit> {
    if args.json {
        let mut error = b"{\"error\":".to_vec();
        failure.push(&mut error);
        error.push(b'}');
        out::text(&String::from_utf8_lossy(&error))?;
    }
    out::say(&format!("onegate: {}", shown_str(&failure.message)));
    let unreachable = tools::tell_failed(gateway)
        || matches!(failure.reason(), Some("downstream-unavailable" | "downstream-timeout"));
    if !unreachable && failure.reason().is_none() {
        out::say("  `onegate tools` shows the names of all tools");
    }
    Ok(if unreachable { Exit::Unreachable } else { Exit::Failed })
}

/// Whether a result says of itself that the tool failed.
pub(super) fn is_error(result: &[u8]) -> bool {
    json::members(result).any(|entry| entry.is("isError") && entry.value == b"true")
}

/// The text blocks as they are; other blocks by their type.
pub(super) fn show_result(result: &[u8]) -> anyhow::Result<()> {
    let content = json::members(result).find(|entry| entry.is("content")).map_or(&b"[]"[..], |entry| entry.value);
    for block in json::elements(content) {
        let find = |name| json::members(block).find(|entry| entry.is(name)).map(|entry| entry.value);
        match (find("type"), find("text").and_then(json::text_of)) {
            (Some(b"\"text\""), Some(text)) => out::text(&text)?,
            (kind, _) => out::say(&format!("[{} block; --json shows it]", shown(kind.unwrap_or(b"unknown")))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_one_object_and_nothing_else() {
        for good in ["{}", " {\"a\":1}\n", "null"] {
            assert!(request("a__t", good).is_ok(), "{good}");
        }
        for bad in ["", "[]", "1", "{", "{},\"_meta\":{}", "{}}", "{}{}"] {
            assert!(request("a__t", bad).is_err(), "{bad}");
        }
    }
}
