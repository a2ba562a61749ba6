//! What a collector gets: spans of both legs and numbers, by OTLP over HTTP; and that one which is gone or hangs costs
//! nobody anything (OBS-1, OBS-2).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message as _;
use serde_json::{Value, json};

use crate::host::{CELLS, Era, Host, PATIENCE, Setup, until};

pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const HOST_SPAN: &str = "b7ad6b7169203331";
/// What must never leave us.
const PRIVATE: &str = "9-private-words-9";

/// What a collector does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Takes,
    Refuses,
    Fails,
    Hangs,
}

/// One request: its path, its head, its body.
pub(crate) type Got = (String, String, Vec<u8>);

/// A collector on loopback.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    pub(crate) got: Arc<Mutex<Vec<Got>>>,
}

impl Collector {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Got>>>::default());
        let taken = Arc::clone(&got);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, taken) = (stream.unwrap(), Arc::clone(&taken));
                thread::spawn(move || serve(&stream, manner, &taken));
            }
        });
        Self { address, got }
    }

    /// The configuration that sends there.
    pub(crate) fn head(&self) -> String {
        format!("[telemetry]\notlp = \"http://{}/base/\"", self.address)
    }

    pub(crate) fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let got = self.got.lock().unwrap();
        got.iter().filter(|(known, ..)| known == path).map(|(.., body)| body.clone()).collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.bodies("/base/v1/traces").into_iter();
        let requests = requests.map(|body| ExportTraceServiceRequest::decode(&*body).unwrap());
        let resources = requests.flat_map(|request| request.resource_spans);
        resources.flat_map(|of| of.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// Everything that was sent, as text.
    pub(crate) fn all(&self) -> String {
        let got = self.got.lock().unwrap();
        got.iter().map(|(path, head, body)| format!("{path}{head}{}", String::from_utf8_lossy(body))).collect()
    }
}

/// Reads requests off a connection.
fn serve(stream: &TcpStream, manner: Manner, taken: &Mutex<Vec<Got>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).ok()? > 2 {
            head.push_str(&line);
            line.clear();
        }
        let path = head.split(' ').nth(1)?.to_owned();
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok())?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if manner == Manner::Hangs {
            thread::sleep(Duration::from_secs(60));
            return None;
        }
        taken.lock().unwrap().push((path, head, body));
        let status = match manner {
            Manner::Takes => "200 OK",
            Manner::Fails => "500 Internal Server Error",
            Manner::Refuses | Manner::Hangs => "400 Bad Request",
        };
        write!(&mut &*stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().unwrap().value.as_ref().unwrap();
        if let Any::StringValue(text) = value {
            return text.clone();
        }
        let Any::IntValue(number) = value else { panic!("{value:?}") };
        number.to_string()
    };
    all.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The spans of that kind and name, once as many have come.
pub(crate) fn spans(collector: &Collector, kind: SpanKind, name: &str, count: usize) -> Vec<Span> {
    let named = || {
        let all = collector.spans().into_iter();
        all.filter(|span| span.kind == kind as i32 && span.name == name).collect::<Vec<_>>()
    };
    until(&format!("{count} spans {name}"), PATIENCE, || named().len() >= count);
    let found = named();
    assert_eq!(found.len(), count, "{name}");
    found
}

pub(crate) fn span(collector: &Collector, kind: SpanKind, name: &str) -> (Span, BTreeMap<String, String>) {
    let found = spans(collector, kind, name, 1).remove(0);
    let told = attributes(&found.attributes);
    (found, told)
}

pub(crate) fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32)
}

#[test]
fn obs1_a_call_is_a_span_on_each_leg_and_the_server_gets_the_inner_one() {
    for (host_era, era) in CELLS {
        let collector = Collector::start(Manner::Takes);
        let mut host = Setup::new()
            .head(&collector.head())
            .server("a", json!({"tool_count": 1, "era": era.word(), "acts": {"t000": {"do": "line"}}}))
            .open(host_era);
        host.tools_count(1);
        let parent = format!(r#""traceparent":"00-{TRACE}-{HOST_SPAN}-01","tracestate":"a=b","baggage":"who=me""#);
        let members = format!(r#""name":"a__t000","arguments":{{"x":"{PRIVATE}"}}"#);
        let id = host.post_meta("tools/call", &members, &parent);
        let sent: Value = serde_json::from_str(&host.answer(&id).text()).unwrap();
        let (server, told) = span(&collector, SpanKind::Server, "tools/call a__t000");
        let (client, asked) = span(&collector, SpanKind::Client, "tools/call t000");
        // Host, we, server.
        assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.to_owned(), HOST_SPAN.to_owned()));
        assert_eq!((&client.trace_id, &client.parent_span_id), (&server.trace_id, &server.span_id));
        let meta = &sent["params"]["_meta"];
        assert_eq!(meta["traceparent"], format!("00-{TRACE}-{}-01", hex(&client.span_id)), "{sent}");
        assert_eq!((&meta["tracestate"], meta.get("baggage")), (&json!("a=b"), None));
        assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
        assert!(client.end_time_unix_nano <= server.end_time_unix_nano);

        let revision = |era| if era == Era::Modern { "2026-07-28" } else { "2025-11-25" };
        let own = sent["id"].to_string();
        for (told, expected) in [
            (
                &told,
                vec![
                    ("mcp.method.name", "tools/call"),
                    ("gen_ai.tool.name", "a__t000"),
                    ("gen_ai.operation.name", "execute_tool"),
                    ("jsonrpc.request.id", id.trim_matches('"')),
                    ("mcp.protocol.version", revision(host_era)),
                    ("network.transport", "pipe"),
                    ("onegate.server", "a"),
                    ("onegate.outcome", "ok"),
                ],
            ),
            (
                &asked,
                vec![
                    ("mcp.method.name", "tools/call"),
                    ("gen_ai.tool.name", "t000"),
                    ("gen_ai.operation.name", "execute_tool"),
                    ("jsonrpc.request.id", &own),
                    ("mcp.protocol.version", revision(era)),
                    ("network.transport", "pipe"),
                    ("onegate.server", "a"),
                ],
            ),
        ] {
            for (key, value) in expected {
                assert_eq!(told.get(key).map(String::as_str), Some(value), "{key}: {told:?}");
            }
            assert_eq!((told.get("error.type"), told.get("rpc.response.status_code")), (None, None));
        }
        assert_eq!(told.contains_key("mcp.session.id"), host_era == Era::Legacy);
        assert!(!is_error(&server) && !is_error(&client));
        // What is answered where it is read, and lists.
        for name in ["initialize", "tools/list"].into_iter().skip(usize::from(host_era == Era::Modern)) {
            until(name, PATIENCE, || collector.spans().iter().any(|span| span.name == name));
        }
        host.finish();
        let all = collector.all();
        assert!(all.contains("a__t000") && !all.contains(PRIVATE), "arguments and results stay among us");
    }
}

#[test]
fn obs1_what_is_refused_or_fails_is_an_error_of_its_kind() {
    let collector = Collector::start(Manner::Takes);
    let policy = r#"
[policy]
default = "deny"
[[policy.rule]]
effect = "allow"
target = ["a/tool/t000", "a/tool/t001", "a/tool/t002", "a/tool/t004"]
[[policy.rule]]
effect = "allow"
target = ["a/tool/t003"]
where = [{ pointer = "/x", one_of = [2] }]
"#;
    let error = format!(r#"{{"code":7,"message":"{PRIVATE}","data":"{PRIVATE}"}}"#);
    let failed = format!(r#"{{"content":[{{"type":"text","text":"{PRIVATE}"}}],"isError":true}}"#);
    let mut host = Setup::new()
        .head(&collector.head())
        .server_with(
            "a",
            json!({"tool_count": 5, "acts": {
                "t000": {"do": "error", "error": error},
                "t001": {"do": "result", "result": failed},
                "t002": {"do": "never"},
                "t004": {"do": "exit", "code": 3},
            }}),
            "timeouts = { call = \"300ms\" }",
        )
        .raw(policy)
        .open(Era::Modern);
    host.tools_count(5);
    for name in ["a__t000", "a__t001", "a__t002", "a__t004", "a__nobody"] {
        host.call(name, "{}");
    }
    let refused = host.call("a__t003", r#"{"x":1}"#);
    assert!(refused.text().contains("argument-not-allowed"), "{}", refused.result());
    for (name, inner, expected) in [
        ("a__t000", "t000", [("7", Some("7")), ("7", Some("7"))]),
        ("a__t001", "t001", [("tool_error", None), ("tool_error", None)]),
        ("a__t002", "t002", [("-32603", Some("-32603")), ("timeout", None)]),
        ("a__t004", "t004", [("-32603", Some("-32603")), ("unavailable", None)]),
    ] {
        let server = span(&collector, SpanKind::Server, &format!("tools/call {name}"));
        let client = span(&collector, SpanKind::Client, &format!("tools/call {inner}"));
        for ((span, told), (class, code)) in [server, client].into_iter().zip(expected) {
            assert_eq!(told.get("error.type").map(String::as_str), Some(class), "{name}: {told:?}");
            assert_eq!(told.get("rpc.response.status_code").map(String::as_str), code, "{name}: {told:?}");
            assert!(is_error(&span), "{name}");
        }
    }
    let (span_of_refused, told) = span(&collector, SpanKind::Server, "tools/call a__t003");
    assert!(is_error(&span_of_refused));
    assert_eq!((&*told["onegate.outcome"], &*told["onegate.reason"]), ("refused", "argument-not-allowed"));
    assert_eq!(told["error.type"], "tool_error");
    // Who is unknown gives no span its name.
    let (_, told) = span(&collector, SpanKind::Server, "tools/call");
    assert_eq!((&*told["gen_ai.tool.name"], &*told["error.type"]), ("a__nobody", "-32602"));
    assert!(collector.spans().iter().all(|span| span.name != "tools/call t003"), "it never reached the server");
    host.finish();
    assert!(!collector.all().contains(PRIVATE));
}

#[test]
fn obs1_what_the_host_does_not_sample_is_not_sent_and_its_context_passes() {
    let collector = Collector::start(Manner::Takes);
    let mut host = Setup::new()
        .head(&collector.head())
        .server("a", json!({"tool_count": 1, "acts": {"t000": {"do": "line"}}}))
        .open(Era::Modern);
    host.tools_count(1);
    let parent = format!("00-{TRACE}-{HOST_SPAN}-00");
    let id = host.post_meta("tools/call", r#""name":"a__t000""#, &format!(r#""traceparent":"{parent}""#));
    let sent: Value = serde_json::from_str(&host.answer(&id).text()).unwrap();
    assert_eq!(sent["params"]["_meta"]["traceparent"], parent);
    // One of ours, after which nothing of the other is to come.
    host.call("a__t000", "{}");
    spans(&collector, SpanKind::Client, "tools/call t000", 1);
    host.finish();
    let of_host = collector.spans().into_iter().filter(|span| hex(&span.trace_id) == TRACE).count();
    assert_eq!(of_host, 0);
}

/// The data points of a number: labels and value, or the count of a histogram.
pub(crate) type Points = Vec<(BTreeMap<String, String>, f64)>;

/// The numbers that were sent last, by name.
pub(crate) fn numbers(collector: &Collector) -> BTreeMap<String, Points> {
    let mut found = BTreeMap::new();
    let Some(last) = collector.bodies("/base/v1/metrics").pop() else { return found };
    let request = ExportMetricsServiceRequest::decode(&*last).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
    for metric in scopes.flat_map(|scope| scope.metrics) {
        let value = |point: &number_data_point::Value| match point {
            number_data_point::Value::AsInt(number) => *number as f64,
            number_data_point::Value::AsDouble(number) => *number,
        };
        let all = |points: Vec<NumberDataPoint>| -> Points {
            points.into_iter().map(|point| (attributes(&point.attributes), value(&point.value.unwrap()))).collect()
        };
        let points = match metric.data.unwrap() {
            metric::Data::Sum(sum) => {
                assert!(sum.is_monotonic, "{}", metric.name);
                all(sum.data_points)
            }
            metric::Data::Gauge(gauge) => all(gauge.data_points),
            metric::Data::Histogram(histogram) => {
                let points = histogram.data_points.into_iter();
                points.map(|point| (attributes(&point.attributes), point.count as f64)).collect()
            }
            other @ (metric::Data::ExponentialHistogram(_) | metric::Data::Summary(_)) => panic!("{other:?}"),
        };
        found.insert(metric.name, points);
    }
    found
}

#[test]
fn obs2_numbers_are_sent_under_their_names_and_at_the_end() {
    let collector = Collector::start(Manner::Takes);
    let mut host = Setup::new()
        .head(&format!("{}\notlp_headers = {{ X-Key = \"${{env:KEY}}\" }}", collector.head()))
        .env("KEY", "s3cret-9")
        .env("OTEL_SERVICE_NAME", "gate-7")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-other=two")
        .server("a", json!({"tool_count": 1}))
        .open(Era::Legacy);
    host.tools_count(1);
    host.call("a__t000", "{}");
    host.call("a__nobody", "{}");
    let stderr = host.stderr();
    host.finish();
    let numbers = numbers(&collector);
    let contract = [
        "onegate_requests_total",
        "onegate_request_seconds",
        "onegate_overhead_seconds",
        "onegate_in_flight",
        "onegate_server_state",
        "onegate_restarts_total",
        "onegate_catalogue_items",
        "onegate_catalogue_tokens",
        "onegate_pin_drift",
        "mcp.server.operation.duration",
        "mcp.client.operation.duration",
        "otel.sdk.processor.span.processed",
    ];
    for name in contract {
        assert!(numbers.contains_key(name), "{name}: {:?}", numbers.keys());
    }
    let one = |name: &str, labels: &[(&str, &str)]| {
        let fits = |known: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| known.get(*key).is_some_and(|known| known == value))
        };
        numbers[name].iter().find(|(known, _)| fits(known)).map(|(_, value)| *value)
    };
    let ok = [("server", "a"), ("method", "tools/call"), ("outcome", "ok")];
    assert_eq!(one("onegate_requests_total", &ok), Some(1.0));
    assert_eq!(one("onegate_request_seconds", &[("server", "a")]), Some(1.0));
    assert_eq!(one("onegate_catalogue_items", &[("profile", "default"), ("kind", "tool")]), Some(1.0));
    let call = [("mcp.method.name", "tools/call"), ("gen_ai.tool.name", "a__t000"), ("network.transport", "pipe")];
    assert_eq!(one("mcp.server.operation.duration", &call), Some(1.0));
    let failed = [("mcp.method.name", "tools/call"), ("error.type", "-32602")];
    assert_eq!(one("mcp.server.operation.duration", &failed), Some(1.0));
    let asked = [("mcp.method.name", "tools/call"), ("gen_ai.tool.name", "t000"), ("onegate.server", "a")];
    assert_eq!(one("mcp.client.operation.duration", &asked), Some(1.0));
    // What a host makes up is no label.
    assert!(numbers.values().flatten().all(|(labels, _)| labels.values().all(|value| value != "a__nobody")));
    let all = collector.all();
    assert!(all.contains("gate-7"));
    let heads: Vec<_> = collector.got.lock().unwrap().iter().map(|(_, head, _)| head.to_lowercase()).collect();
    assert!(heads.iter().all(|head| head.contains("x-key: s3cret-9") && head.contains("x-other: two")), "{heads:?}");
    assert!(!stderr.contains("s3cret"), "{stderr}");
}

/// Calls through a gateway whose collector is of no use, and its end: none of them may take long.
fn served(address: SocketAddr, calls: usize) -> (Duration, Duration) {
    let mut host: Host = Setup::new()
        .head(&format!("[telemetry]\notlp = \"http://{address}\""))
        .server("a", json!({"tool_count": 1}))
        .open(Era::Modern);
    host.tools_count(1);
    let began = Instant::now();
    for _ in 0..calls {
        host.call("a__t000", "{}").result();
    }
    let called = began.elapsed();
    let began = Instant::now();
    host.close_input();
    assert!(host.wait_end(PATIENCE).success());
    let ended = began.elapsed();
    host.all_gone(PATIENCE);
    (called, ended)
}

#[test]
fn obs1_a_collector_that_is_gone_refuses_or_hangs_holds_up_nothing() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (refusing, hanging) = (Collector::start(Manner::Refuses), Collector::start(Manner::Hangs));
    for (what, address) in [("gone", gone), ("refusing", refusing.address), ("hanging", hanging.address)] {
        let (called, ended) = served(address, 200);
        assert!(called < Duration::from_secs(10), "{what}: {called:?}");
        assert!(ended < Duration::from_secs(5), "{what}: {ended:?}");
    }
}

#[test]
fn obs1_that_nothing_is_taken_is_said_once() {
    let collector = Collector::start(Manner::Refuses);
    let mut host = Setup::new().head(&collector.head()).server("a", json!({"tool_count": 1})).open(Era::Modern);
    host.tools_count(1);
    host.call("a__t000", "{}");
    host.wait_stderr("the collector of telemetry.otlp takes nothing: it answers 400");
    host.call("a__t000", "{}");
    until("another try", PATIENCE, || collector.bodies("/base/v1/traces").len() > 1);
    let said = host.last_words();
    assert_eq!(said.matches("takes nothing").count(), 1, "{said}");
}
