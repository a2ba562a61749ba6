//! Who shares a connection with whom: callers of several principals, sessions and profiles, straight at the gateway.
//!
//! Long, and one thing: each test is a pair that may, or may not, share.

use std::sync::Arc;
use std::time::Duration;

use onegate::caller::Caller;
use onegate::config::settings::{EraChoice, ServerSettings, Sharing};
use onegate::gateway::Outcome;
use onegate::ident::Principal;
use onegate::protocol::call::Call;
use onegate::protocol::capability::Capabilities;
use onegate::protocol::json::Index;
use onegate::protocol::level::LogLevel;
use onegate::protocol::message::Message;
use onegate::protocol::method::Method;
use onegate::protocol::version::Revision;
use onegate::transport::upward::{AskAnswer, Happening, Upward};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::end::{End, list_of, text};
use super::world::{World, server};

const LEGACY: Revision = Revision::V2025_11_25;
const MODERN: Revision = Revision::V2026_07_28;
const ROOTS: &str = r#"{"roots":{}}"#;
const FORM: &str = r#"{"elicitation":{}}"#;

fn caller(name: &str, revision: Revision, capabilities: &str, session: Option<u64>) -> Caller {
    Caller {
        principal: Principal::key(name),
        capabilities: Capabilities::read(capabilities.as_bytes()),
        session,
        ..Caller::stdio(revision)
    }
}

/// A call on its way, and what passes beside it.
struct Running {
    upward: Arc<Upward>,
    answer: JoinHandle<Value>,
}

impl Running {
    async fn answer(self) -> Value {
        self.answer.await.unwrap()
    }

    /// The next question to its host; answers it.
    async fn asked(&self, answer: &str) -> String {
        let Happening::Ask(ask) = self.upward.happening().await else { panic!("no question") };
        ask.reply.send(AskAnswer::Result(answer.to_owned().into())).unwrap();
        ask.params.map_or_else(String::new, |params| String::from_utf8(params.to_vec()).unwrap())
    }
}

fn call_with(world: &World, caller: &Caller, params: &Value) -> Running {
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let line = bytes::Bytes::from(line);
    let mut index = Index::new();
    let Ok(Message::Request { params, .. }) = Message::read(&line, &mut index) else { panic!("no request") };
    let call = Call::read(Method::ToolsCall, &line, &index, params).unwrap();
    let upward = Arc::new(Upward::default());
    let (gateway, caller, beside) = (Arc::clone(&world.gateway), caller.clone(), Arc::clone(&upward));
    let answer = world.tasks.spawn(async move {
        match gateway.call(&call, &caller, beside).await {
            Ok(Outcome::Result(answer, spans)) => serde_json::from_slice(spans.whole.of(&answer.reply.line)).unwrap(),
            Ok(Outcome::Input(input)) => serde_json::from_slice(&[b"{", &input.members[..], b"}"].concat()).unwrap(),
            Ok(Outcome::Task(_)) => panic!("a task that was not offered"),
            Ok(Outcome::Refused(refused)) => {
                serde_json::from_str(&format!("{{{},\"_meta\":{{{}}}}}", refused.members, refused.meta)).unwrap()
            }
            Ok(Outcome::Own(members)) => serde_json::from_str(&format!("{{{members}}}")).unwrap(),
            Ok(Outcome::Error(answer, error)) => {
                json!({"error": serde_json::from_slice::<Value>(error.whole.of(&answer.reply.line)).unwrap()})
            }
            Err(failure) => {
                let mut out = Vec::new();
                failure.push(&mut out);
                json!({"error": serde_json::from_slice::<Value>(&out).unwrap()})
            }
        }
    });
    Running { upward, answer }
}

fn call(world: &World, caller: &Caller) -> Running {
    call_with(world, caller, &json!({"name": "a__t", "arguments": {}}))
}

async fn legacy(settings: ServerSettings) -> (World, End) {
    let mut world = World::new(vec![settings]);
    let mut base = world.accept("a").await;
    base.legacy(&["t"]).await;
    (world, base)
}

/// Answers the call that runs on this connection now.
async fn serve(server: &mut End, said: &str) {
    let asked = server.expect("tools/call").await;
    server.result(&asked, text(said)).await;
}

fn said(answer: &Value) -> &str {
    answer["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test(start_paused = true)]
async fn con1_con3_two_principals_never_share_a_legacy_connection() {
    let (mut world, mut base) = legacy(server("a")).await;
    let (one, two) = (caller("one", LEGACY, "{}", Some(1)), caller("two", LEGACY, "{}", Some(2)));
    let first = call(&world, &one);
    let asked = base.expect("tools/call").await;
    let second = call(&world, &two);
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    serve(&mut own, "two").await;
    base.result(&asked, text("one")).await;
    assert_eq!((said(&first.answer().await), said(&second.answer().await)), ("one", "two"));
    // Another session of the first is where the first is.
    let third = call(&world, &caller("one", LEGACY, "{}", Some(3)));
    serve(&mut base, "three").await;
    assert_eq!(said(&third.answer().await), "three");
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn con2_a_modern_server_is_shared_and_told_each_time_what_the_host_can_do() {
    let mut world = World::new(vec![ServerSettings { era: EraChoice::Modern, ..server("a") }]);
    let mut base = world.accept("a").await;
    base.modern(&["t"]).await;
    for (name, revision, capabilities) in [("one", LEGACY, ROOTS), ("two", MODERN, FORM), ("three", MODERN, "{}")] {
        let running = call(&world, &caller(name, revision, capabilities, None));
        let asked = base.expect("tools/call").await;
        let told = &asked["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(told.to_string(), capabilities);
        base.result(&asked, text(name)).await;
        assert_eq!(said(&running.answer().await), name);
    }
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn con2_a_server_that_names_the_modern_era_alone_is_tried_in_the_legacy_one() {
    // What it does at `initialize`; whether its host is then served there, and whether it is tried again.
    for (case, there, again) in [("speaks it", true, true), ("refuses", false, false), ("dies", false, true)] {
        let mut world = World::new(vec![server("a")]);
        let mut base = world.accept("a").await;
        base.modern(&["t"]).await;
        let first = call(&world, &caller("one", LEGACY, FORM, None));
        let mut own = world.accept("a").await;
        match case {
            "speaks it" => assert_eq!(own.leased("2025-11-25").await.to_string(), FORM),
            "refuses" => {
                let opening = own.expect("initialize").await;
                own.error(&opening, -32601).await;
                let probe = own.expect("server/discover").await;
                own.result(&probe, json!({"supportedVersions": ["2026-07-28"], "capabilities": {}})).await;
            }
            _ => {
                own.expect("initialize").await;
            }
        }
        let mut own = (case != "dies").then_some(own);
        serve(own.as_mut().filter(|_| there).unwrap_or(&mut base), case).await;
        assert_eq!(said(&first.answer().await), case);
        // Who cannot be asked anything is where all are.
        let second = call(&world, &caller("two", LEGACY, "{}", None));
        serve(&mut base, "base").await;
        assert_eq!(said(&second.answer().await), "base");
        let third = call(&world, &caller("three", LEGACY, FORM, None));
        if again {
            let mut other = world.accept("a").await;
            other.leased("2025-11-25").await;
            serve(&mut other, "own").await;
        } else {
            serve(&mut base, "own").await;
            assert!(!world.is_started("a"), "{case}");
        }
        assert_eq!(said(&third.answer().await), "own");
        world.end().await;
    }
}

/// CON-5.
#[tokio::test(start_paused = true)]
async fn con4_a_hundred_sessions_of_one_principal_start_no_hundred_children() {
    let (mut world, _base) = legacy(server("a")).await;
    let mut runs = Vec::new();
    for session in 0..100 {
        runs.push(call(&world, &caller("one", LEGACY, ROOTS, Some(session))));
    }
    let mut own = world.accept("a").await;
    assert_eq!(own.leased("2025-11-25").await, json!({"roots": {}}));
    for _ in 0..100 {
        serve(&mut own, "x").await;
    }
    for run in runs {
        assert_eq!(said(&run.answer().await), "x");
    }
    assert!(!world.is_started("a"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn con4_profiles_of_a_principal_are_three_and_the_one_unused_longest_goes() {
    let (mut world, _base) = legacy(server("a")).await;
    let profiles = [ROOTS, FORM, r#"{"sampling":{}}"#, r#"{"roots":{},"elicitation":{}}"#];
    let mut open = Vec::new();
    for profile in &profiles[..3] {
        let running = call(&world, &caller("one", LEGACY, profile, Some(1)));
        let mut own = world.accept("a").await;
        assert_eq!(own.leased("2025-11-25").await.to_string(), *profile);
        serve(&mut own, profile).await;
        assert_eq!(said(&running.answer().await), *profile);
        open.push(own);
    }
    // The first is in use: the second is the one that goes.
    let first = call(&world, &caller("one", LEGACY, ROOTS, Some(1)));
    let asked = open[0].expect("tools/call").await;
    let running = call(&world, &caller("one", LEGACY, profiles[3], Some(1)));
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    let busy = own.expect("tools/call").await;
    assert!(open[1].next().await.is_none(), "it is stopped");
    // All in use: one that declares less serves, and nothing that was not declared is told to a server.
    let third = call(&world, &caller("one", LEGACY, profiles[2], Some(1)));
    let sampling = open[2].expect("tools/call").await;
    let fifth = call(&world, &caller("one", LEGACY, r#"{"roots":{},"sampling":{}}"#, Some(1)));
    serve(&mut open[2], "less").await;
    assert_eq!(said(&fifth.answer().await), "less");
    // And with none that does, it is said so.
    let none = call(&world, &caller("one", LEGACY, FORM, Some(1)));
    assert_eq!(none.answer().await["error"]["data"]["reason"], "limit");
    open[0].result(&asked, text("1")).await;
    own.result(&busy, text("2")).await;
    open[2].result(&sampling, text("3")).await;
    for running in [first, running, third] {
        running.answer().await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn con4_a_client_that_nobody_uses_is_ended_and_made_again() {
    let (mut world, _base) = legacy(server("a")).await;
    let one = caller("one", LEGACY, ROOTS, Some(1));
    for _ in 0..2 {
        let running = call(&world, &one);
        let mut own = world.accept("a").await;
        own.leased("2025-11-25").await;
        serve(&mut own, "x").await;
        running.answer().await;
        assert!(own.next().await.is_none());
    }
    world.end().await;
}

/// A server of both eras asks back in the host's.
#[tokio::test(start_paused = true)]
async fn a_server_of_both_eras_is_spoken_to_in_the_era_of_a_host_that_can_be_asked() {
    let mut world = World::new(vec![server("a")]);
    let mut base = world.accept("a").await;
    let probe = base.expect("server/discover").await;
    let discovered = json!({"supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": {"tools": {}},
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
    base.result(&probe, discovered).await;
    let asked = base.expect("tools/list").await;
    base.result(&asked, list_of(&["t"])).await;
    for (revision, capabilities) in [(LEGACY, "{}"), (MODERN, FORM)] {
        let running = call(&world, &caller("one", revision, capabilities, None));
        serve(&mut base, "base").await;
        assert_eq!(said(&running.answer().await), "base");
    }
    let running = call(&world, &caller("one", LEGACY, FORM, Some(1)));
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    let asked = own.expect("tools/call").await;
    own.ask(1, "elicitation/create", json!({"message": "?"})).await;
    assert_eq!(running.asked(r#"{"action":"decline"}"#).await, r#"{"message":"[a] ?"}"#);
    own.answer(1).await;
    own.result(&asked, text("own")).await;
    assert_eq!(said(&running.answer().await), "own");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn con3_sharing_is_as_configured() {
    let with = |sharing| {
        let mut settings = server("a");
        settings.sharing = sharing;
        settings
    };
    // Shared by all: nothing is declared, and nothing may be asked.
    let (world, mut base) = legacy(with(Sharing::Shared)).await;
    for name in ["one", "two"] {
        let running = call(&world, &caller(name, LEGACY, FORM, Some(1)));
        let asked = base.expect("tools/call").await;
        base.ask(1, "elicitation/create", json!({"message": "?"})).await;
        assert_eq!(base.answer(1).await["error"]["code"], -32601);
        base.result(&asked, text(name)).await;
        assert_eq!(said(&running.answer().await), name);
    }
    assert!(!world.is_started("a"));
    world.end().await;
    // Each session has its own, which ends with it.
    let (mut world, _base) = legacy(with(Sharing::Session)).await;
    let mut open = Vec::new();
    for session in 1..=5 {
        let running = call(&world, &caller("one", LEGACY, "{}", Some(session)));
        let mut own = world.accept("a").await;
        own.leased("2025-11-25").await;
        serve(&mut own, "x").await;
        running.answer().await;
        open.push(own);
    }
    world.gateway.session_ended(3);
    assert!(open[2].next().await.is_none());
    let running = call(&world, &caller("one", LEGACY, "{}", Some(2)));
    serve(&mut open[1], "y").await;
    assert_eq!(said(&running.answer().await), "y");
    world.end().await;
    // Each principal has its own, of a modern server, too.
    let mut world = World::new(vec![with(Sharing::Principal)]);
    let mut base = world.accept("a").await;
    base.modern(&["t"]).await;
    let running = call(&world, &caller("one", MODERN, FORM, None));
    serve(&mut base, "x").await;
    running.answer().await;
    let running = call(&world, &caller("two", MODERN, FORM, None));
    let mut own = world.accept("a").await;
    let probe = own.expect("server/discover").await;
    own.result(&probe, json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})).await;
    serve(&mut own, "y").await;
    assert_eq!(said(&running.answer().await), "y");
    world.end().await;
}

/// Questions reach the host whose call caused them; where that cannot be known, nobody (D065).
#[tokio::test(start_paused = true)]
async fn rel2_d065_questions_are_never_guessed_between_hosts() {
    let (mut world, _base) = legacy(server("a")).await;
    // Two principals: two connections, with the same ids on both.
    let mut both = Vec::new();
    for name in ["one", "two"] {
        let running = call(&world, &caller(name, LEGACY, FORM, Some(1)));
        let mut own = world.accept("a").await;
        own.leased("2025-11-25").await;
        let asked = own.expect("tools/call").await;
        both.push((name, running, own, asked));
    }
    for (name, _, own, _) in &mut both {
        own.ask(1, "elicitation/create", json!({"message": *name})).await;
    }
    for (name, running, own, asked) in both.iter_mut().rev() {
        let answer = json!({"action": "accept", "content": {"who": *name}});
        assert!(running.asked(&answer.to_string()).await.contains(&format!("[a] {name}")));
        assert_eq!(own.answer(1).await["result"], answer);
        own.result(asked, text(name)).await;
    }
    let mut kept = Vec::new();
    for (name, running, own, _) in both {
        assert_eq!(said(&running.answer().await), name);
        kept.push(own);
    }
    let mut own = kept.remove(0);
    // Two sessions of one principal share a connection: with both calls open, the asker cannot be known.
    let first = call(&world, &caller("one", LEGACY, FORM, Some(1)));
    let asked = own.expect("tools/call").await;
    let second = call(&world, &caller("one", LEGACY, FORM, Some(2)));
    let other = own.expect("tools/call").await;
    own.ask(2, "elicitation/create", json!({"message": "?"})).await;
    assert_eq!(own.answer(2).await["error"]["code"], -32603);
    own.result(&asked, text("1")).await;
    first.answer().await;
    own.ask(3, "elicitation/create", json!({"message": "?"})).await;
    second.asked(r#"{"action":"decline"}"#).await;
    own.answer(3).await;
    // Of one host, it is the latest.
    let third = call(&world, &caller("one", LEGACY, FORM, Some(2)));
    own.expect("tools/call").await;
    own.ask(4, "elicitation/create", json!({"message": "?"})).await;
    third.asked(r#"{"action":"decline"}"#).await;
    own.answer(4).await;
    own.result(&other, text("2")).await;
    second.answer().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mrt2_mlb4_a_state_is_its_principals() {
    let (mut world, _base) = legacy(server("a")).await;
    let (one, two) = (caller("one", MODERN, FORM, None), caller("two", MODERN, FORM, None));
    let running = call(&world, &one);
    let mut own = world.accept("a").await;
    own.leased("2025-11-25").await;
    let asked = own.expect("tools/call").await;
    own.ask(1, "elicitation/create", json!({"message": "?"})).await;
    let state = running.answer().await["requestState"].clone();
    let retry = json!({"name": "a__t", "arguments": {}, "requestState": state,
        "inputResponses": {"elicitation_1": {"action": "decline"}}});
    assert_eq!(call_with(&world, &two, &retry).answer().await["error"]["code"], -32602);
    let running = call_with(&world, &one, &retry);
    own.answer(1).await;
    own.result(&asked, text("x")).await;
    assert_eq!(said(&running.answer().await), "x");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn mlb3_thirty_two_calls_of_a_principal_wait_for_input_at_most() {
    let mut settings = server("a");
    settings.sharing = Sharing::Session;
    let (mut world, _base) = legacy(settings).await;
    let mut open = Vec::new();
    // Each on a connection of its own, since one has five questions open at most.
    for n in 0..=32u64 {
        let mut modern = caller("one", MODERN, FORM, Some(n));
        modern.capabilities.ui = None;
        let running = call(&world, &modern);
        let mut own = world.accept("a").await;
        own.leased("2025-11-25").await;
        let asked = own.expect("tools/call").await;
        own.ask(1, "elicitation/create", json!({"message": "?"})).await;
        let answer = running.answer().await;
        if n < 32 {
            assert!(answer["requestState"].is_string(), "{answer}");
        } else {
            assert_eq!(answer["error"]["data"]["reason"], "limit");
            let mut cancelled = false;
            for _ in 0..2 {
                let message = own.next().await.unwrap();
                cancelled |= message["params"]["requestId"] == asked["id"];
            }
            assert!(cancelled);
        }
        open.push(own);
    }
    world.end().await;
}

async fn log(server: &mut End, level: &str, data: Value) {
    server.tell("notifications/message", json!({"level": level, "logger": "db", "data": data})).await;
}

/// The log messages that a finished call was told.
fn logged(running: &Running) -> Vec<String> {
    let rest = running.upward.rest().into_iter();
    rest.map(|happening| {
        let Happening::Log(message) = happening else { panic!("no log message: {happening:?}") };
        assert_eq!(&*message.server, "a");
        let params: Value = serde_json::from_slice(message.params.of(&message.line)).unwrap();
        params["data"].as_str().unwrap().to_owned()
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn log1_log2_d068_log_messages_go_to_the_asker_who_wants_them_and_to_nobody_else() {
    let mut world = World::new(vec![server("a")]);
    let mut base = world.accept("a").await;
    base.modern(&["t"]).await;
    let at = |name, revision, log_level| Caller { log_level, ..caller(name, revision, "{}", None) };
    for (caller, expected) in [
        (at("one", MODERN, None), &[][..]),
        (at("one", MODERN, Some(LogLevel::Info)), &["info", "warning", "error"]),
        (at("one", LEGACY, None), &["warning", "error"]),
        (at("one", LEGACY, Some(LogLevel::Error)), &["error"]),
    ] {
        let running = call(&world, &caller);
        let asked = base.expect("tools/call").await;
        let told = asked["params"]["_meta"].get("io.modelcontextprotocol/logLevel").cloned();
        assert_eq!(told, caller.log_level.map(|level| json!(level.as_str())));
        for level in ["debug", "info", "warning", "error"] {
            log(&mut base, level, json!(level)).await;
        }
        base.result(&asked, text("x")).await;
        let Running { upward, answer } = running;
        answer.await.unwrap();
        let running = Running { upward, answer: world.tasks.spawn(async { Value::Null }) };
        assert_eq!(logged(&running), expected);
    }
    // Of two principals on one connection nobody knows whose it is.
    let (first, second) = (call(&world, &at("one", LEGACY, None)), call(&world, &at("two", LEGACY, None)));
    let (one, two) = (base.expect("tools/call").await, base.expect("tools/call").await);
    log(&mut base, "error", json!("whose")).await;
    base.result(&one, text("1")).await;
    base.result(&two, text("2")).await;
    let uppers = [Arc::clone(&first.upward), Arc::clone(&second.upward)];
    first.answer().await;
    second.answer().await;
    assert!(uppers.iter().all(|upward| upward.rest().is_empty()));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn log2_a_legacy_server_is_set_to_the_most_that_anybody_wants() {
    let (mut world, _base) = legacy(server("a")).await;
    let mut own: Option<End> = None;
    for (level, set) in [
        (None, None),
        (Some(LogLevel::Error), Some("error")),
        (Some(LogLevel::Debug), Some("debug")),
        (Some(LogLevel::Info), None),
    ] {
        let one = Caller { log_level: level, ..caller("one", LEGACY, FORM, Some(1)) };
        let running = call(&world, &one);
        let own = match &mut own {
            Some(own) => own,
            none => {
                let mut opened = world.accept("a").await;
                opened.leased("2025-11-25").await;
                none.insert(opened)
            }
        };
        if let Some(set) = set {
            let asked = own.expect("logging/setLevel").await;
            assert_eq!(asked["params"], json!({"level": set}));
            own.result(&asked, json!({})).await;
        }
        serve(own, "x").await;
        running.answer().await;
    }
    world.end().await;
}

/// A secret of ours that a server logs is not told.
#[tokio::test(start_paused = true)]
async fn log3_what_a_server_was_given_in_confidence_is_kept_out_of_its_log() {
    let mut settings = server("a");
    if let Ok(onegate::config::settings::Reach::Launch(launch)) = &mut settings.reach {
        launch.secrets = vec![onegate::ident::Secret::new("hush-hush")];
    }
    let (world, mut base) = legacy(settings).await;
    let running = call(&world, &caller("one", LEGACY, "{}", None));
    let asked = base.expect("tools/call").await;
    log(&mut base, "error", json!("it is hush-hush")).await;
    base.result(&asked, text("x")).await;
    let upward = Arc::clone(&running.upward);
    running.answer().await;
    let running = Running { upward, answer: world.tasks.spawn(async { Value::Null }) };
    assert_eq!(logged(&running), ["it is [secret]"]);
    tokio::time::sleep(Duration::ZERO).await;
    world.end().await;
}
