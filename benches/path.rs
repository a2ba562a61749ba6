//! The path of a call: lines, the index of a message, the call downward, and the whole way from host to server and
//! back in memory, with pins and without; the list of 1 000 tools as a host gets it, and a comparison of all of it with a lock.
//!
//! One thread, as the program runs. Both ends of the whole way are in the figure: a host that writes and reads lines and
//! a server that echoes; both do next to nothing.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onegate::config::settings::{
    EraChoice, GatewaySettings, Launch, LogFormat, PinMode, Reach, ServerSettings, Settings, Start, TelemetrySettings,
};
use onegate::gateway::{Connect, Current, EraMemory, Link, Pace};
use onegate::ident::{Kind, Secret, ServerKey};
use onegate::pins::artifact::reference;
use onegate::pins::facet::{Hashes, capabilities_hash, instructions_hash};
use onegate::pins::launch::launch_hash;
use onegate::pins::lock::{Announced, Entry, edit::Draft};
use onegate::pins::observed::{Listed, Memory, Observed};
use onegate::pins::{canonical, drift, review};
use onegate::protocol::call::{Call, Leg};
use onegate::protocol::capability::Capabilities;
use onegate::protocol::json::Index;
use onegate::protocol::message::Message;
use onegate::protocol::method::Method;
use onegate::protocol::version::{Era, Revision};
use onegate::transport::Channel;
use onegate::transport::line::{Frame, LineReader};
use onegate::upstream::stdio;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":123456,"method":"tools/call","params":{"name":"server-0__echo","arguments":{"text":"hello, how are you?","n":12}}}"#;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":123456,"result":{"content":[{"type":"text","text":"hello, how are you? fine, thank you, and how are you today?"}],"isError":false}}"#;

fn large_result() -> Vec<u8> {
    let text = "A line of text with \\\"quotes\\\" and an end.\\n".repeat((1 << 20) / 43);
    RESULT.replace("hello, how are you?", &text).into_bytes()
}

/// Gives the same block at each read, as a pipe does into which a peer writes without pause.
struct Block(Bytes);

impl AsyncRead for Block {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        // As many whole lines as there is room for.
        let lines = (out.remaining() / (REQUEST.len() + 1)).min(64);
        out.put_slice(&self.0[..lines * (REQUEST.len() + 1)]);
        Poll::Ready(Ok(()))
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn lines(reader: &mut LineReader<Block>, count: usize) {
    for _ in 0..count {
        black_box(reader.next().await.expect("it reads"));
    }
}

fn codec(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("lines");
    let small = Bytes::from(format!("{REQUEST}\n").repeat(64));
    group.throughput(Throughput::Elements(64));
    let mut reader = LineReader::new(Block(small), GatewaySettings::MAX_MESSAGE);
    group.bench_function("64-small-of-one-read", |b| b.iter(|| runtime.block_on(lines(&mut reader, 64))));
    let mut large = large_result();
    large.push(b'\n');
    group.throughput(Throughput::Bytes(large.len() as u64));
    // In reads of the kernel's size, which is what makes it costly.
    let mut at = 0;
    group.bench_function("1-MiB", |b| {
        b.iter(|| {
            at = 0;
            let mut reader = LineReader::new(Pieces(&large, &mut at), GatewaySettings::MAX_MESSAGE);
            runtime.block_on(async { black_box(reader.next().await.expect("it reads")) })
        });
    });
    group.finish();
}

/// Gives a text in pieces of 64 KiB.
struct Pieces<'a>(&'a [u8], &'a mut usize);

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let rest = &self.0[*self.1..];
        let count = rest.len().min(64 << 10).min(out.remaining());
        out.put_slice(&rest[..count]);
        *self.1 += count;
        Poll::Ready(Ok(()))
    }
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    for (name, text) in [
        (format!("request-{}-B", REQUEST.len()), REQUEST.as_bytes().to_vec()),
        (format!("result-{}-B", RESULT.len()), RESULT.as_bytes().to_vec()),
        ("result-1-MiB".to_owned(), large_result()),
    ] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        let mut index = Index::new();
        group.bench_function(name, |b| b.iter(|| index.read(black_box(&text)).expect("it is JSON")));
    }
    group.finish();

    let line = Bytes::from_static(REQUEST.as_bytes());
    let mut index = Index::new();
    let Ok(Message::Request { params, .. }) = Message::read(&line, &mut index) else { panic!("it is a request") };
    for modern in [None, Some(Revision::LATEST_MODERN)] {
        let era = modern.map_or(Era::Legacy, Revision::era);
        let mut out = Vec::with_capacity(1024);
        let none = Capabilities::default();
        c.bench_function(&format!("call/read-and-push-{}", era.as_str()), |b| {
            b.iter(|| {
                out.clear();
                let call = Call::read(Method::ToolsCall, black_box(&line), &index, params).expect("it is a call");
                let leg = Leg {
                    token: None,
                    modern,
                    capabilities: &none,
                    log_level: None,
                    input: None,
                    context: true,
                    task: false,
                    trace: None,
                };
                call.push_params(&mut out, b"\"echo\"", &leg);
                black_box(out.len())
            });
        });
    }
}

/// Servers in memory that answer at once.
struct Echo {
    era: Era,
    /// The raw array of tools.
    tools: String,
    tasks: TaskTracker,
}

impl Connect for Echo {
    fn connect(&self, _: &ServerSettings) -> Result<Link, String> {
        let (ours, theirs) = Channel::pair();
        self.tasks.spawn(echo(theirs, self.era, self.tools.clone()));
        Ok(Link::channel(ours))
    }
}

async fn echo(channel: Channel, era: Era, tools: String) {
    let mut lines = LineReader::new(channel.reader, GatewaySettings::MAX_MESSAGE);
    let mut writer = channel.writer;
    while let Ok(Some(Frame::Line(line))) = lines.next().await {
        let text = std::str::from_utf8(&line).expect("it is text");
        // The gateway's own spelling: the id stands first.
        let Some(rest) = text.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":") else { continue };
        let (id, rest) = rest.split_once(',').expect("more follows");
        let result = if rest.starts_with("\"method\":\"tools/call\"") {
            r#"{"content":[{"type":"text","text":"hello, how are you? fine, thank you"}],"isError":false}"#.to_owned()
        } else if rest.starts_with("\"method\":\"tools/list\"") {
            format!("{{\"tools\":{tools}}}")
        } else if rest.starts_with("\"method\":\"initialize\"") {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"0"}}"#
                .to_owned()
        } else if era == Era::Modern {
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}"#.to_owned()
        } else {
            "{}".to_owned()
        };
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        if writer.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn server(number: usize, era: Era) -> ServerSettings {
    let key = format!("server-{number}");
    let launch = Launch {
        program: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
        command: "Cargo.toml".to_owned(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
        identity: key.clone(),
        written: Secret::new("{}"),
        secrets: Vec::new(),
    };
    let mut server = ServerSettings::new(ServerKey::new(&key).expect("a key"), Ok(Reach::Launch(launch)));
    server.start = Start::Eager;
    server.era = if era == Era::Modern { EraChoice::Modern } else { EraChoice::Legacy };
    server
}

/// A host in front of a gateway in front of servers.
struct Way {
    runtime: Runtime,
    gateway: Arc<Current>,
    stop: CancellationToken,
    tasks: TaskTracker,
    lines: LineReader<Box<dyn AsyncRead + Send + Unpin>>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Way {
    /// All of one era; the last tool is `echo`.
    fn new(era: Era, servers: usize, tools: usize) -> Self {
        Self::pinned(era, servers, tools, None)
    }

    /// The same, all of it enforced by the lock in this folder.
    fn pinned(era: Era, servers: usize, tools: usize, lock: Option<&Path>) -> Self {
        let runtime = runtime();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let defined = definitions(tools);
        let tools = format!("[{}]", defined.join(","));
        let (ours, theirs) = Channel::pair();
        let gateway = runtime.block_on(async {
            let mut servers: Vec<_> = (0..servers).map(|number| server(number, era)).collect();
            for server in &mut servers {
                server.pin.mode = if lock.is_some() { PinMode::Enforce } else { PinMode::Off };
            }
            let telemetry =
                TelemetrySettings { log: String::new(), format: LogFormat::Pretty, audit: None, otlp: None };
            let mut settings = Settings::of(servers, lock.map(Path::to_owned).unwrap_or_default(), telemetry);
            if let Some(folder) = lock {
                settings.pins.lock = folder.join("onegate.lock");
                review_all(&settings, &defined);
            }
            let connect = Arc::new(Echo { era, tools, tasks: tasks.clone() });
            let gateway = Current::start(
                settings,
                connect,
                &EraMemory::none(),
                &tasks,
                (onegate::gateway::Sights::default(), None),
            );
            let gateway = gateway.unwrap_or_else(|faults| panic!("{faults:?}"));
            let (serving, stopping, of) = (Arc::clone(&gateway), stop.clone(), tasks.clone());
            tasks.spawn(async move { stdio::serve(serving, ours, &stopping, &of).await.finish().await });
            gateway
        });
        let mut way = Self {
            runtime,
            gateway,
            stop,
            tasks,
            lines: LineReader::new(theirs.reader, GatewaySettings::MAX_MESSAGE),
            writer: theirs.writer,
        };
        if era == Era::Legacy {
            let open = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"0"}}}"#;
            way.ask(&format!("{open}\n"), 1);
        }
        // Waits for all servers; then changes are told, if at all, before the measuring.
        way.ask(&list(era), 1);
        way
    }

    /// Writes lines, reads as many answers; the bytes of the last.
    fn ask(&mut self, lines: &str, answers: usize) -> usize {
        let Self { runtime, lines: reader, writer, .. } = self;
        runtime.block_on(async {
            writer.write_all(lines.as_bytes()).await.expect("it is written");
            let mut length = 0;
            for _ in 0..answers {
                let Ok(Some(Frame::Line(line))) = reader.next().await else { panic!("no answer") };
                debug_assert!(!line.windows(8).any(|w| w == b"\"error\":"), "{line:?}");
                length = line.len();
            }
            length
        })
    }

    fn end(self) {
        self.stop.cancel();
        self.gateway.stop(Pace::SWIFT);
        self.tasks.close();
        self.runtime.block_on(self.tasks.wait());
    }
}

const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"b","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

fn list(era: Era) -> String {
    let params = if era == Era::Modern { format!("{{{MODERN}}}") } else { "{}".to_owned() };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":\"list\",\"method\":\"tools/list\",\"params\":{params}}}\n")
}

fn call(era: Era, id: usize) -> String {
    let meta = if era == Era::Modern { format!(",{MODERN}") } else { String::new() };
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"server-0__echo\",\"arguments\":{{\"text\":\"hello, how are you?\",\"n\":12}}{meta}}}}}\n"
    )
}

fn definitions(count: usize) -> Vec<String> {
    let text = "Reads a record and gives it back with all of its fields. ".repeat(12);
    let others = (1..count).map(|n| format!("tool_{n}"));
    let all = others.chain(["echo".to_owned()]).map(|name| {
        format!(r#"{{"name":"{name}","description":"{text}","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}},"n":{{"type":"integer"}}}},"required":["text"]}}}}"#)
    });
    all.collect()
}

fn name_of(definition: &serde_json::Value) -> String {
    definition["name"].as_str().expect("it has one").to_owned()
}

/// Locks the modern servers as they will be.
fn review_all(settings: &Settings, defined: &[String]) {
    let listed = |definition: &String| {
        let definition = canonical::read(definition.as_bytes()).expect("it is canonical");
        Listed { name: name_of(&definition), definition: Ok(definition.into()), since: 0 }
    };
    let capabilities = serde_json::json!({ "tools": {} });
    let mut draft = Draft::open(&settings.pins.lock).expect("it opens");
    for server in &settings.servers {
        let reach = server.reach.as_ref().expect("it is reached");
        let observed = Observed {
            launch: launch_hash(server),
            artifact: Some(reference(reach).measure().expect("it is there")),
            announced: Some(Announced {
                protocol: Some("2026-07-28".to_owned()),
                capabilities: Some((capabilities_hash(&capabilities).expect("it is canonical"), capabilities.clone())),
                instructions: Some((instructions_hash(""), String::new())),
                ..Announced::default()
            }),
            lists: BTreeMap::from([(Kind::Tool, defined.iter().map(listed).collect())]),
        };
        draft.put(&server.key, &review::reviewed(&observed, &[], None, "2026-01-01"));
    }
    draft.write().expect("it is written");
}

/// What pins cost: a call of an enforced server, and a list that is compared with the lock, all of it hashed anew.
fn pins(c: &mut Criterion) {
    let mut group = c.benchmark_group("pins");
    let folder = tempfile::tempdir().expect("a folder");
    for (mode, lock) in [("off", None), ("enforce", Some(folder.path())), ("off-again", None)] {
        let mut way = Way::pinned(Era::Modern, 1, 1, lock);
        for at_once in [1, 16] {
            let lines: String = (1..=at_once).map(|id| call(Era::Modern, id)).collect();
            group.throughput(Throughput::Elements(at_once as u64));
            group.bench_function(format!("call-{mode}-{at_once}"), |b| b.iter(|| way.ask(&lines, at_once)));
        }
        way.end();
    }
    let defined = definitions(1000);
    let locked: Vec<_> = defined
        .iter()
        .map(|text| {
            let definition = canonical::read(text.as_bytes()).expect("it is canonical");
            Entry::of(Kind::Tool, &definition, Vec::new(), "2026-01-01").expect("it has a hash")
        })
        .collect();
    group.throughput(Throughput::Elements(1000));
    group.bench_function("compare-1000", |b| {
        b.iter(|| {
            for (text, entry) in defined.iter().zip(&locked) {
                let definition = canonical::read(text.as_bytes()).expect("it is canonical");
                let hashes = Hashes::of(Kind::Tool, &definition, &entry.ignore);
                let compared = drift::compare(Some(entry), hashes.as_ref(), &definition);
                assert_eq!(black_box(compared).finding, drift::Finding::Equal);
            }
        });
    });
    // Each is another: hashed, compared by facets, and written down for a review.
    let changed = defined.iter().map(|text| text.replace("Reads", "Writes"));
    let changed: Vec<_> = changed.collect();
    let (memory, key) = (Memory::of(folder.path(), Path::new("/onegate.lock")), ServerKey::new("a").expect("a key"));
    group.bench_function("changed-1000", |b| {
        b.iter(|| {
            let mut listed = Vec::new();
            for (text, entry) in changed.iter().zip(&locked) {
                let definition = Arc::new(canonical::read(text.as_bytes()).expect("it is canonical"));
                let hashes = Hashes::of(Kind::Tool, &definition, &entry.ignore);
                let compared = drift::compare(Some(entry), hashes.as_ref(), &definition);
                assert_eq!(black_box(compared).finding, drift::Finding::Differs);
                listed.push(Listed { name: name_of(&definition), definition: Ok(definition), since: 0 });
            }
            let lists = BTreeMap::from([(Kind::Tool, listed)]);
            memory.note(&key, &Observed { lists, ..Observed::default() }).expect("it is written");
        });
    });
    group.finish();
}

fn whole(c: &mut Criterion) {
    let mut group = c.benchmark_group("way");
    for era in [Era::Legacy, Era::Modern] {
        let mut way = Way::new(era, 1, 1);
        for at_once in [1, 16, 64] {
            group.throughput(Throughput::Elements(at_once as u64));
            let lines: String = (1..=at_once).map(|id| call(era, id)).collect();
            group.bench_function(format!("call-{}-{at_once}", era.as_str()), |b| b.iter(|| way.ask(&lines, at_once)));
        }
        way.end();
        let mut way = Way::new(era, 10, 100);
        let asked = list(era);
        let length = way.ask(&asked, 1);
        assert!(length > 800_000, "{length} bytes are no list of 1 000 tools");
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(format!("list-1000-{}", era.as_str()), |b| b.iter(|| way.ask(&asked, 1)));
        way.end();
    }
    group.finish();
}

criterion_group!(benches, codec, messages, pins, whole);
criterion_main!(benches);
