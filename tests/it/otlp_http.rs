//! What a collector gets of a gateway that is reached over HTTP and reaches its server so: the same spans and numbers, with
//! what the network adds to them; and that no call waits for it (OBS-1, OBS-2).

use std::net::TcpListener;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use crate::host::{Era, Host, PATIENCE, Setup};
use crate::http::Caller;
use crate::otlp::{Collector, HOST_SPAN, Manner, TRACE, hex, is_error, numbers, span};

const OPEN: &str = "[auth]\nmode = \"none\"\n[policy]\ndefault = \"allow\"";

/// A `serve`, and where it listens.
fn serve(setup: Setup) -> (Host, String) {
    let host = setup.head(OPEN).start_as(&["serve", "--listen", "127.0.0.1:0"]);
    host.wait_stderr("/mcp");
    let said = host.stderr();
    let (_, rest) = said.split_once("listening on ").unwrap();
    let url = rest.split_whitespace().next().unwrap().to_owned();
    (host, url)
}

fn end(mut host: Host) -> String {
    host.signal("TERM");
    host.wait_end(PATIENCE);
    host.last_words()
}

#[test]
fn obs1_a_call_over_http_to_a_server_behind_a_url_is_a_span_on_each_leg() {
    for era in Era::ALL {
        let (far, far_url) =
            serve(Setup::new().server("s", json!({"tool_count": 1, "acts": {"t000": {"do": "line"}}})));
        let collector = Collector::start(Manner::Takes);
        let setup = Setup::new()
            .head(&format!("{}\notlp_headers = {{ X-Key = \"${{env:KEY}}\" }}", collector.head()))
            .env("KEY", "s3cret-9")
            .raw(&format!("[servers.a]\nurl = \"{far_url}\""));
        let (near, url) = serve(setup);
        let mut host = Caller::open(&url, era);
        let parent = format!(r#""traceparent":"00-{TRACE}-{HOST_SPAN}-01""#);
        let answer = host.call("a__s__t000", "{}", &parent);
        let sent: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        let (server, told) = span(&collector, SpanKind::Server, "tools/call a__s__t000");
        let (client, asked) = span(&collector, SpanKind::Client, "tools/call s__t000");
        assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.to_owned(), HOST_SPAN.to_owned()));
        assert_eq!((&client.trace_id, &client.parent_span_id), (&server.trace_id, &server.span_id));
        // The one behind it records nothing, and hands on what it got.
        assert_eq!(sent["params"]["_meta"]["traceparent"], format!("00-{TRACE}-{}-01", hex(&client.span_id)));
        let (_, port) = far_url.strip_suffix("/mcp").unwrap().rsplit_once(':').unwrap();
        for leg in [&told, &asked] {
            assert_eq!((&*leg["network.transport"], &*leg["network.protocol.name"]), ("tcp", "http"), "{leg:?}");
            assert_eq!(&*leg["onegate.server"], "a");
        }
        assert_eq!((&*asked["server.address"], &*asked["server.port"]), ("127.0.0.1", port));
        assert_eq!(told.contains_key("mcp.session.id"), era == Era::Legacy);
        // A method that nobody knows has a span, and gives it no name.
        assert_eq!(host.ask("made/up", "", "", "-")["error"]["code"], -32601);
        let (other, told) = span(&collector, SpanKind::Server, "_OTHER");
        assert_eq!((&*told["mcp.method.name"], &*told["error.type"]), ("_OTHER", "-32601"));
        assert_eq!(&*told["rpc.response.status_code"], "-32601");
        assert!(is_error(&other));
        end(near);
        end(far);
        let numbers = numbers(&collector);
        let of_call = |name: &str, tool: &str| {
            let points = numbers[name].iter();
            let calls = points.filter(|(labels, _)| labels.get("gen_ai.tool.name").is_some_and(|known| known == tool));
            let [(labels, count)] = &calls.collect::<Vec<_>>()[..] else { panic!("{name}: {numbers:?}") };
            assert_eq!((&*labels["network.transport"], *count), ("tcp", 1.0));
            labels.get("server.port").cloned()
        };
        assert_eq!(of_call("mcp.server.operation.duration", "a__s__t000"), None);
        assert_eq!(of_call("mcp.client.operation.duration", "s__t000").as_deref(), Some(port));
        let got = collector.got.lock().unwrap();
        assert!(got.iter().any(|(path, ..)| path.ends_with("/traces")) && !got.is_empty());
        for (path, head, body) in &*got {
            assert!(head.to_lowercase().contains("x-key: s3cret-9"), "{path}");
            assert!(!String::from_utf8_lossy(body).contains("made/up"));
        }
    }
}

#[test]
fn obs1_a_collector_that_is_gone_fails_or_hangs_holds_up_no_call_over_http() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (failing, hanging) = (Collector::start(Manner::Fails), Collector::start(Manner::Hangs));
    for (what, address) in [("gone", gone), ("failing", failing.address), ("hanging", hanging.address)] {
        let setup = Setup::new().head(&format!("[telemetry]\notlp = \"http://{address}\""));
        let (near, url) = serve(setup.server("a", json!({"tool_count": 1})));
        let mut host = Caller::open(&url, Era::Modern);
        host.call("a__t000", "{}", "");
        let mut longest = Duration::ZERO;
        let mut calls = |count| {
            for _ in 0..count {
                let began = Instant::now();
                assert_eq!(host.call("a__t000", "{}", "")["result"]["content"][0]["text"], "a:t000");
                longest = longest.max(began.elapsed());
            }
        };
        calls(50);
        near.wait_stderr("the collector of telemetry.otlp takes nothing");
        calls(50);
        // A collector has five seconds for each batch.
        assert!(longest < Duration::from_secs(2), "{what}: {longest:?}");
        let said = end(near);
        assert_eq!(said.matches("takes nothing").count(), 1, "{what}: {said}");
    }
}
