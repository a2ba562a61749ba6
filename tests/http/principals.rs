//! Two principals on one gateway, each with a host of either era, at servers of either era; all of it at once and in any
//! order (INV-6, CON-3, SEC-2, SES-1).
//!
//! What a principal sends, and what a server answers for it, holds its mark. So whatever reaches a host is searched for the
//! other's mark, and the servers (`marked.rs`) look whether what they get is of one principal. Beside that each tries what
//! it knows of the other: sessions, request states, cursors, URIs, ids of requests, questions and events.
//!
//! `ONEGATE_TEST_SEED` repeats a run as far as the machine does, `ONEGATE_TEST_STEPS` says how long it is.
//!
//! Long, and one thing: one random run, its steps and what they look for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{Client, Head, notification, request};
use super::front::{Front, Setup, key};
use super::marked::{MARK, OWNERS, Shared, TASKS, lock, mark, owners, serve};
use super::world::{World, server};

const STEPS: usize = 10_000;
/// Requests of a host at the same time.
const AT_ONCE: usize = 4;
/// Longest time for anything.
const LONGEST: Duration = Duration::from_secs(30);
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// One of four hosts.
#[derive(Clone)]
struct Host {
    owner: usize,
    modern: bool,
    address: SocketAddr,
    book: Shared,
    /// The name of the legacy session.
    session: Arc<str>,
    /// Another one, in which nothing runs: whatever it knows the ids of is the other principal's.
    spare: Arc<str>,
    ids: Arc<AtomicUsize>,
    busy: Arc<AtomicUsize>,
    /// Whether servers may end in the middle of something.
    crashes: bool,
}

fn capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// How an answer came.
struct Answer {
    status: u16,
    /// The answer itself, or nothing.
    message: Value,
}

impl Host {
    fn authorization(&self) -> (&'static str, &'static str) {
        ("Authorization", if self.owner == 0 { "Bearer secret-of-one" } else { "Bearer secret-of-two" })
    }

    /// Longest time for anything; a server that ends again and again is not started for a minute.
    fn longest(&self) -> Duration {
        if self.crashes { 20 * LONGEST } else { LONGEST }
    }

    /// The ids of all hosts are the same: 1, 2, 3…
    fn id(&self) -> usize {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn wrong(&self, what: impl std::fmt::Display) {
        let era = if self.modern { "modern" } else { "legacy" };
        lock(&self.book).wrong(format!("the {era} host of {}: {what}", OWNERS[self.owner]));
    }

    /// Whatever comes is of nobody else.
    fn look(&self, text: &str) {
        if owners(text).iter().any(|owner| *owner != self.owner) {
            self.wrong(format!("it sees what is the other's: {text:.600}"));
        }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Posts a message, as the owner of this host, in this session.
    async fn post(&self, client: &mut Client, session: &str, message: &Value) {
        let (key, value) = self.authorization();
        let method = message["method"].as_str().unwrap_or("-");
        let named = ["name", "uri", "taskId"].iter().find_map(|name| message["params"][*name].as_str());
        let name = named.unwrap_or("-");
        let modern = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name)];
        let legacy = [("Mcp-Session-Id", session)];
        let headers = if self.modern { &modern[..] } else { &legacy[..] };
        client.post("/mcp", &[&[(key, value)], headers].concat(), message).await;
    }

    /// The params of a request, with a mark in `_meta`.
    fn params(&self, mut params: Value, mark: &str) -> Value {
        let token = mark.len() % 3;
        params["_meta"] = if self.modern {
            let mut capabilities = capabilities();
            capabilities["extensions"] = json!({TASKS: {}});
            json!({VERSION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": capabilities,
                "io.modelcontextprotocol/logLevel": "debug", "progressToken": token, MARK: mark})
        } else {
            json!({"progressToken": token, MARK: mark})
        };
        params
    }

    /// Asks and waits; what comes before the answer is looked at, and questions are answered: a modern host does so in
    /// rounds. A question may come with any request of a host whose call asked one (REL-2).
    async fn ask(&self, method: &str, params: Value, mark: &str) -> Answer {
        let mut again = params.clone();
        for _ in 0..8 {
            let message = request(self.id(), method, self.params(again, mark));
            let answer = self.exchange(&self.session, &message).await;
            let result = &answer.message["result"];
            if result["resultType"] != "input_required" {
                return answer;
            }
            let state = result["requestState"].as_str().unwrap_or_default().to_owned();
            lock(&self.book).states[self.owner].push((method.to_owned(), params.clone(), state.clone()));
            again = params.clone();
            let asked = result["inputRequests"].as_object().into_iter().flatten();
            let replies = asked.map(|(key, asked)| (key.clone(), reply(asked["method"].as_str().unwrap_or(""), mark)));
            again["inputResponses"] = Value::Object(replies.collect());
            again["requestState"] = json!(state);
            // Others come in between.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        Answer { status: 0, message: Value::Null }
    }

    async fn exchange(&self, session: &str, message: &Value) -> Answer {
        let mut client = self.client().await;
        self.post(&mut client, session, message).await;
        match timeout(self.longest(), self.answer(client, &message["id"])).await {
            Ok(answer) => answer,
            Err(_) => {
                self.wrong(format!("no answer to {message:.400}"));
                Answer { status: 0, message: Value::Null }
            }
        }
    }

    async fn answer(&self, mut client: Client, id: &Value) -> Answer {
        let head = client.head().await;
        self.rest(client, head, id).await
    }

    /// An answer whose head was read.
    async fn rest(&self, mut client: Client, head: Head, id: &Value) -> Answer {
        self.look(&format!("{head:?}"));
        let status = head.status;
        if head.get("content-type") != "text/event-stream" {
            let body = String::from_utf8(client.body(&head).await).unwrap();
            self.look(&body);
            return Answer { status, message: serde_json::from_str(&body).unwrap_or_default() };
        }
        let mut events = client.events();
        while let Some(event) = events.next().await {
            if let Some(id) = event.id {
                lock(&self.book).events[self.owner].push(id);
            }
            let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
            self.look(&data);
            let message: Value = serde_json::from_str(&data).unwrap();
            if message["id"] == *id && message.get("method").is_none() {
                return Answer { status, message };
            }
            self.told(&message).await;
        }
        Answer { status, message: Value::Null }
    }

    /// What comes beside an answer.
    async fn told(&self, message: &Value) {
        let count = |what| lock(&self.book).did(what);
        match message["method"].as_str().unwrap_or_default() {
            "notifications/progress" => count("progress"),
            "notifications/message" => count("log"),
            "notifications/resources/updated" => count("updated"),
            "notifications/tools/list_changed" => count("list changed"),
            method if message.get("id").is_some() => {
                lock(&self.book).questions[self.owner].push(message["id"].clone());
                let mark = mark(self.owner, 0);
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": reply(method, &mark)});
                let mut client = self.client().await;
                self.post(&mut client, &self.session, &answer).await;
                client.head().await;
                count("a question");
            }
            _ => {}
        }
    }

    /// The answer is a result that holds this.
    fn expect(&self, what: &'static str, answer: &Answer, part: &str) -> bool {
        if answer.message["result"].to_string().contains(part) {
            lock(&self.book).did(what);
            return true;
        }
        if !self.crashes {
            self.wrong(format!("{what}: {part} is not in {} {:.600}", answer.status, answer.message));
        }
        false
    }

    /// The answer is a refusal.
    fn refused(&self, what: &'static str, answer: &Answer) {
        if answer.status == 404 || answer.message.get("error").is_some() {
            lock(&self.book).did(what);
        } else {
            self.wrong(format!("{what}: {} {:.600}", answer.status, answer.message));
        }
    }

    async fn call(&self, at: &str, what: &str, mark: &str, more: Value) -> Answer {
        let mut arguments = json!({"mark": mark, "do": what});
        for (name, value) in more.as_object().into_iter().flatten() {
            arguments[name] = value.clone();
        }
        self.ask("tools/call", json!({"name": format!("{at}__t"), "arguments": arguments}), mark).await
    }

    /// A call that asks back.
    async fn question(&self, at: &str, kind: &str, mark: &str) {
        let answer = self.call(at, "ask", mark, json!({"kind": kind})).await;
        self.expect("asked back", &answer, mark);
    }

    /// A call that never ends, and is given up.
    async fn hold(&self, at: &str, mark: &str) {
        let arguments = json!({"mark": mark, "do": "hold"});
        let params = self.params(json!({"name": format!("{at}__t"), "arguments": arguments}), mark);
        let id = self.id();
        let mut client = self.client().await;
        self.post(&mut client, &self.session, &request(id, "tools/call", params)).await;
        let seen = async || {
            while !lock(&self.book).held.contains(mark) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Where servers end, it may have gone with one.
        let longest = if self.crashes { Duration::from_millis(200) } else { LONGEST };
        if timeout(longest, seen()).await.is_err() && !self.crashes {
            self.wrong("a call did not arrive");
        }
        lock(&self.book).given_up.insert(mark.to_owned());
        if !self.modern {
            let cancel = notification("notifications/cancelled", json!({"requestId": id}));
            let mut other = self.client().await;
            self.post(&mut other, &self.session, &cancel).await;
            other.head().await;
        }
        drop(client);
        let gone = async || {
            while lock(&self.book).held.contains(mark) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(self.longest(), gone()).await.is_err() {
            self.wrong(format!("{mark} was not cancelled"));
        }
    }

    /// A call that becomes a task, and what came of it (TSK-1).
    async fn task(&self, mark: &str) {
        let made = self.call("m", "task", mark, Value::Null).await;
        let Some(id) = made.message["result"]["taskId"].as_str() else {
            if !self.crashes {
                self.wrong(format!("no task: {:.300}", made.message));
            }
            return;
        };
        lock(&self.book).tasks[self.owner].push(id.to_owned());
        let came = self.ask("tasks/get", json!({"taskId": id}), mark).await;
        self.expect("a task", &came, mark);
    }

    /// A page, and the next one.
    async fn pages(&self, mark: &str) {
        let first = self.ask("prompts/list", json!({}), mark).await;
        let Some(cursor) = first.message["result"]["nextCursor"].as_str() else {
            if !self.crashes {
                self.wrong("there is no second page");
            }
            return;
        };
        lock(&self.book).cursors[self.owner].push(cursor.to_owned());
        let next = self.ask("prompts/list", json!({"cursor": cursor}), mark).await;
        self.expect("a second page", &next, "\"prompts\"");
    }

    /// Reads what it learned, and hears of it.
    async fn resources(&self, at: usize, mark: &str) {
        let key = ["l", "m"][at];
        let uri = format!("x-{key}://{mark}/doc");
        let learned = self.call(key, "learn", mark, json!({"uri": uri})).await;
        if !self.expect("learned", &learned, &uri) {
            return;
        }
        lock(&self.book).learned[self.owner].push((uri.clone(), at));
        let read = self.ask("resources/read", json!({"uri": uri}), mark).await;
        self.expect("read", &read, mark);
        if self.modern {
            let filter = json!({"notifications": {"resourceSubscriptions": [uri]}});
            let listen = request(self.id(), "subscriptions/listen", self.params(filter, mark));
            let mut client = self.client().await;
            self.post(&mut client, "", &listen).await;
            // Until it has heard something, or nothing comes.
            let _ = timeout(Duration::from_millis(100), self.answer(client, &listen["id"])).await;
        } else {
            let agreed = self.ask("resources/subscribe", json!({"uri": uri}), mark).await;
            self.expect("subscribed", &agreed, "{}");
            self.ask("resources/unsubscribe", json!({"uri": uri}), mark).await;
        }
    }

    /// Tries something that is the other's.
    async fn trespass(&self, which: usize, pick: usize, other: &Host, mark: &str) {
        let theirs = 1 - self.owner;
        let of = |count: usize| (count > 0).then(|| count - 1 - pick % count.min(16));
        match which {
            0 => {
                let message = request(self.id(), "tools/list", self.params(json!({}), mark));
                if !self.modern && !other.session.is_empty() {
                    self.refused("their session", &self.exchange(&other.session, &message).await);
                }
            }
            1 => {
                let found = {
                    let book = lock(&self.book);
                    of(book.states[theirs].len()).map(|at| book.states[theirs][at].clone())
                };
                // An error of another method may say the URI again.
                let of_call = found.filter(|(method, _, _)| self.modern && method == "tools/call");
                if let Some((method, mut params, state)) = of_call {
                    params["requestState"] = json!(state);
                    params["inputResponses"] = json!({});
                    // With their own arguments, else it is for those that it is refused; so the mark is of nobody.
                    let answer = self.ask(&method, params, "").await;
                    self.refused("their state", &answer);
                }
            }
            2 => {
                let found = {
                    let book = lock(&self.book);
                    of(book.cursors[theirs].len()).map(|at| book.cursors[theirs][at].clone())
                };
                if let Some(cursor) = found {
                    let answer = self.ask("prompts/list", json!({"cursor": cursor}), mark).await;
                    self.refused("their cursor", &answer);
                }
            }
            3 => {
                let found = {
                    let book = lock(&self.book);
                    of(book.learned[theirs].len()).map(|at| book.learned[theirs][at].clone())
                };
                if let Some((uri, _)) = found {
                    // What I said myself comes back in the refusal, so it is not looked for here but by the server.
                    let quiet = Self { owner: theirs, ..self.clone() };
                    let method =
                        if pick.is_multiple_of(2) || self.modern { "resources/read" } else { "resources/subscribe" };
                    let message = request(self.id(), method, self.params(json!({"uri": uri}), mark));
                    let mut client = self.client().await;
                    self.post(&mut client, &self.session, &message).await;
                    self.refused("their resource", &quiet.answer(client, &message["id"]).await);
                }
            }
            4 if !self.modern => {
                let id = other.ids.load(Ordering::Relaxed).saturating_sub(1 + pick % AT_ONCE);
                self.tell(&notification("notifications/cancelled", json!({"requestId": id}))).await;
                lock(&self.book).did("their request");
            }
            5 if !self.modern => {
                let found = {
                    let book = lock(&self.book);
                    of(book.questions[theirs].len()).map(|at| book.questions[theirs][at].clone())
                };
                if let Some(id) = found {
                    let result = reply("elicitation/create", mark);
                    self.tell(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
                    lock(&self.book).did("their question");
                }
            }
            7 if self.modern => {
                let found = {
                    let book = lock(&self.book);
                    of(book.tasks[theirs].len()).map(|at| book.tasks[theirs][at].clone())
                };
                if let Some(id) = found {
                    let answer = self.ask("tasks/get", json!({"taskId": id}), mark).await;
                    self.refused("their task", &answer);
                }
            }
            6 if !self.modern => {
                let found = {
                    let book = lock(&self.book);
                    of(book.events[theirs].len()).map(|at| book.events[theirs][at].clone())
                };
                if let Some(event) = found {
                    let headers = [
                        self.authorization(),
                        ("Mcp-Session-Id", &*self.spare),
                        ("Last-Event-ID", &event),
                        ("Accept", "text/event-stream"),
                    ];
                    let mut client = self.client().await;
                    client.send("GET", "/mcp", &headers, b"").await;
                    // It is a refusal or a stream; what is on one comes at once.
                    match timeout(self.longest(), client.head()).await {
                        Ok(head) => {
                            let rest = self.rest(client, head, &Value::Null);
                            let _ = timeout(Duration::from_millis(20), rest).await;
                            lock(&self.book).did("their events");
                        }
                        Err(_) => self.wrong("no answer to a stream that goes on".to_owned()),
                    }
                }
            }
            _ => {}
        }
    }

    /// Says something that gets no answer, where nothing of its own can be meant.
    async fn tell(&self, message: &Value) {
        let mut client = self.client().await;
        self.post(&mut client, &self.spare, message).await;
        let answer = self.answer(client, &Value::Null).await;
        if answer.status != 202 {
            self.wrong(format!("{} for {message:.300}", answer.status));
        }
    }

    /// One of the things that a host does.
    async fn act(self, step: Step, other: Self) {
        let said = mark(self.owner, step.number);
        let at = ["l", "m"][step.server];
        match step.act {
            0..12 => {
                let what = ["echo", "progress", "log"][step.pick % 3];
                let answer = self.call(at, what, &said, Value::Null).await;
                self.expect("called", &answer, &said);
            }
            12..22 => {
                let kind = ["elicitation", "sampling", "roots"][step.pick % 3];
                self.question(at, kind, &said).await;
            }
            // A question of another call may suspend this one (REL-2, MLB-8), and then only time would end it.
            22..28 => self.hold(if self.modern { "m" } else { at }, &said).await,
            28..30 => self.pages(&said).await,
            30..36 => self.resources(step.server, &said).await,
            36..40 => {
                let name = format!("{at}__p0");
                let got = self.ask("prompts/get", json!({"name": name, "arguments": {"mark": said}}), &said).await;
                self.expect("got", &got, &said);
            }
            40..44 => {
                let reference = json!({"type": "ref/prompt", "name": format!("{at}__p0")});
                let params = json!({"ref": reference, "argument": {"name": "mark", "value": said}});
                let completed = self.ask("completion/complete", params, &said).await;
                // CMP-4: on a busy machine it may be too slow, and is nothing then.
                if completed.message["result"]["completion"]["values"] != json!([]) {
                    self.expect("completed", &completed, &said);
                }
            }
            44..48 => {
                let answer = self.call(at, "error", &said, Value::Null).await;
                if answer.message["error"]["message"] == *said {
                    lock(&self.book).did("an error");
                } else if !self.crashes {
                    self.wrong(format!("no error of it: {:.300}", answer.message));
                }
            }
            48..50 => {
                let answer = self.call(at, "change", &said, Value::Null).await;
                self.expect("changed", &answer, &said);
            }
            50..52 if self.crashes => {
                self.call(at, "crash", &said, Value::Null).await;
                lock(&self.book).did("crashed");
            }
            62..66 if self.modern => self.task(&said).await,
            _ => self.trespass(step.pick / 3 % 8, step.pick / 24, &other, &said).await,
        }
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A host's answer to a question.
fn reply(method: &str, mark: &str) -> Value {
    match method {
        "roots/list" => json!({"roots": [{"uri": format!("file:///{mark}")}]}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "content": {"type": "text", "text": mark}, "model": "m"})
        }
        _ => json!({"action": "accept", "content": {"mark": mark}}),
    }
}

/// What is done next; all of it is drawn beforehand, so that a seed says it.
struct Step {
    host: usize,
    server: usize,
    act: usize,
    pick: usize,
    number: usize,
}

/// The stream of a legacy session, for as long as it is there.
async fn follow(host: Host) {
    let mut client = host.client().await;
    let headers = [host.authorization(), ("Mcp-Session-Id", &*host.session), ("Accept", "text/event-stream")];
    client.send("GET", "/mcp", &headers, b"").await;
    host.answer(client, &Value::Null).await;
}

/// Waits for one of those that run; where servers end, what all wait for is over soon.
async fn one(running: &mut JoinSet<()>, crashes: bool) -> Option<Result<(), tokio::task::JoinError>> {
    loop {
        match timeout(Duration::from_millis(300), running.join_next()).await {
            Ok(ended) => return ended,
            Err(_) if crashes => skip(Duration::from_secs(10)).await,
            Err(_) => {}
        }
    }
}

/// This much time is over.
async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "shown when it fails: how to repeat it")]
fn play(steps: usize, crashes: bool) {
    let seed = number("ONEGATE_TEST_SEED", fastrand::u64(..));
    let told = format!("ONEGATE_TEST_SEED={seed}");
    println!("{told}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let book = Shared::default();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(vec![server("l"), server("m")]);
        let mut servers = JoinSet::new();
        servers.spawn(serve(world.links("l"), false, Arc::clone(&book), random.u64(..)));
        servers.spawn(serve(world.links("m"), true, Arc::clone(&book), random.u64(..)));
        world.gateway.settle().await;
        let keys = Some(vec![key("one", "secret-of-one"), key("two", "secret-of-two")]);
        let front = Front::over(world, Setup { keys, ..Setup::default() }).await;
        let mut hosts = Vec::new();
        let mut streams = JoinSet::new();
        for owner in 0..OWNERS.len() {
            for modern in [false, true] {
                let mut host = Host {
                    owner,
                    modern,
                    address: front.address,
                    book: Arc::clone(&book),
                    session: "".into(),
                    spare: "".into(),
                    ids: Arc::new(AtomicUsize::new(1)),
                    busy: Arc::default(),
                    crashes,
                };
                if !modern {
                    let key = [host.authorization()];
                    host.session = front.open_with("2025-11-25", &key, capabilities()).await.into();
                    host.spare = front.open_with("2025-11-25", &key, capabilities()).await.into();
                    streams.spawn(follow(host.clone()));
                }
                hosts.push(host);
            }
        }
        let mut running = JoinSet::new();
        for at in 0..steps {
            let step = Step {
                host: random.usize(..hosts.len()),
                server: random.usize(..2),
                act: random.usize(..66),
                pick: random.usize(..1 << 20),
                number: at + 1,
            };
            let (host, other) = (hosts[step.host].clone(), hosts[(step.host + 2) % hosts.len()].clone());
            while host.busy.load(Ordering::Relaxed) >= AT_ONCE {
                one(&mut running, crashes).await.unwrap().unwrap_or_else(|error| panic!("{error}; {told}"));
            }
            host.busy.fetch_add(1, Ordering::Relaxed);
            running.spawn(host.act(step, other));
            while let Some(ended) = running.try_join_next() {
                ended.unwrap_or_else(|error| panic!("{error}; {told}"));
            }
            assert!(lock(&book).errors.is_empty(), "step {at}, {told}: {:#?}", lock(&book).errors);
            if crashes && at % 100 == 99 {
                // Servers that end too often are not started for a while, which is over now.
                while let Some(ended) = one(&mut running, crashes).await {
                    ended.unwrap_or_else(|error| panic!("{error}; {told}"));
                }
                skip(Duration::from_secs(150)).await;
            }
        }
        while let Some(ended) = one(&mut running, crashes).await {
            ended.unwrap_or_else(|error| panic!("{error}; {told}"));
        }
        streams.shutdown().await;
        front.end().await;
        servers.join_all().await;
        let book = lock(&book);
        assert!(book.errors.is_empty(), "{told}: {:#?}", book.errors);
        println!("{:#?}", book.done);
        // Each of it has really happened.
        let mut expected = vec![
            "called",
            "asked back",
            "a question",
            "answered on a legacy connection",
            "answered by a modern host or for one",
            "progress",
            "log",
            "cancelled",
            "a second page",
            "learned",
            "read",
            "subscribed",
            "updated",
            "got",
            "completed",
            "an error",
            "changed",
            "list changed",
            "their session",
            "their state",
            "their cursor",
            "their resource",
            "their request",
            "their question",
            "their events",
            "a task",
            "their task",
        ];
        if crashes {
            expected.push("crashed");
        }
        for what in expected.into_iter().filter(|_| steps >= 2000) {
            let count = book.done.get(what).copied().unwrap_or_default();
            assert!(count > steps / 1000, "{what}: only {count} times in {steps} steps; {told}");
        }
    });
}

#[test]
fn inv6_nothing_of_one_principal_reaches_the_other() {
    play(usize::try_from(number("ONEGATE_TEST_STEPS", STEPS as u64)).unwrap(), false);
}

#[test]
fn inv6_nothing_of_one_principal_reaches_the_other_when_servers_die() {
    play(usize::try_from(number("ONEGATE_TEST_STEPS", STEPS as u64)).unwrap() / 4, true);
}
