//! E-20 over HTTP: what policy denies is reached on no way, in both eras of hosts and of servers; and so is what a reload
//! denies to hosts that knew it, whose sessions and streams go on (D097).

use std::time::Duration;

use onegate::config::settings::{Effect, PolicySettings};
use serde_json::{Value, json};

use super::client::{Events, request};
use super::end::{modern_as, names};
use super::front::{Front, Setup, key, run};
use super::full::{CELLS, Era, Full, LISTS, is_unknown, ways};
use super::world::{World, server, settings};

/// A host over HTTP.
struct Web<'f> {
    front: &'f Front,
    era: Era,
    session: Option<String>,
}

impl<'f> Web<'f> {
    async fn open(front: &'f Front, era: Era) -> Self {
        let session = if era == Era::Legacy { Some(front.open("2025-11-25").await) } else { None };
        Self { front, era, session }
    }

    fn headers<'a>(&'a self, method: &'a str, params: &'a Value) -> Vec<(&'static str, &'a str)> {
        match &self.session {
            Some(session) => vec![("Mcp-Session-Id", session)],
            None => {
                let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or("-");
                vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name)]
            }
        }
    }

    async fn get(&self, method: &str, params: Value) -> Value {
        let message = request("get", method, self.era.params(params.clone()));
        self.front.ask("/mcp", &self.headers(method, &params), &message).await.1
    }

    /// Opens the stream on which changes are told of, with a subscription to `x:1`.
    async fn listen(&self, a: &mut Full) -> Events {
        let mut client = self.front.client().await;
        let Some(session) = &self.session else {
            let wanted = json!({"notifications": {"resourceSubscriptions": ["x:1"], "toolsListChanged": true}});
            let message = request("listen", "subscriptions/listen", self.era.params(wanted));
            client.post("/mcp", &self.headers("subscriptions/listen", &json!({})), &message).await;
            let mut stream = client.stream().await;
            let (told, ()) = tokio::join!(stream.message(), wanted_of(a));
            assert_eq!(told["params"]["notifications"]["resourceSubscriptions"], json!(["x:1"]), "{told}");
            return stream;
        };
        let headers = [("Mcp-Session-Id", session.as_str()), ("Accept", "text/event-stream")];
        client.send("GET", "/mcp", &headers, b"").await;
        let stream = client.stream().await;
        let (answer, ()) = tokio::join!(self.get("resources/subscribe", json!({"uri": "x:1"})), wanted_of(a));
        assert!(answer.get("error").is_none(), "{answer}");
        stream
    }
}

/// The server is asked to tell of `x:1`.
async fn wanted_of(a: &mut Full) {
    if a.era == Era::Legacy {
        let asked = a.expect("resources/subscribe").await;
        a.end.result(&asked, json!({})).await;
    }
    a.quiet(Duration::from_millis(200)).await;
}

fn denying() -> PolicySettings {
    PolicySettings { default: Some(Effect::Deny), ..PolicySettings::default() }
}

/// Nothing of the server is there for this host.
async fn all_is_unknown(web: &Web<'_>) {
    for (list, member) in LISTS {
        let answer = web.get(list, json!({})).await;
        assert_eq!(answer["result"][member], json!([]), "{list}: {answer}");
    }
    for (method, params) in ways() {
        is_unknown(&web.get(method, params).await);
    }
    if web.era == Era::Legacy {
        let answer = web.get("resources/subscribe", json!({"uri": "x:1"})).await;
        assert!(answer["error"]["code"].is_i64(), "{answer}");
        return;
    }
    let wanted = json!({"notifications": {"resourceSubscriptions": ["x:1"]}});
    let mut client = web.front.client().await;
    let message = request("listen", "subscriptions/listen", web.era.params(wanted));
    client.post("/mcp", &web.headers("subscriptions/listen", &json!({})), &message).await;
    let told = client.stream().await.message().await;
    let honoured = &told["params"]["notifications"]["resourceSubscriptions"];
    assert!(honoured.as_array().is_none_or(Vec::is_empty), "{told}");
}

#[test]
fn e20_d097_what_is_denied_at_the_start_or_by_a_reload_is_reached_on_no_way() {
    for (era, server_era) in CELLS {
        run(async {
            let mut world = World::new(vec![server("a")]);
            let mut a = Full::new(world.accept("a").await, server_era);
            a.settle().await;
            let mut front = Front::over(world, Setup::default()).await;
            let web = Web::open(&front, era).await;
            assert_eq!(names(&web.get("tools/list", json!({})).await), ["a__t"]);
            let mut stream = web.listen(&mut a).await;
            let denied = settings(vec![server("a")], |settings| settings.policy = denying());
            front.world.current.reload(denied).await.unwrap();
            all_is_unknown(&web).await;
            // Its host is told that its list is another, and of the resource nothing.
            let told = stream.message().await;
            assert!(told["method"].as_str().unwrap().ends_with("/list_changed"), "{told}");
            a.tell("notifications/resources/updated", json!({"uri": "x:1"})).await;
            a.quiet(Duration::from_millis(300)).await;
            let mut batch = front.open("2025-03-26").await;
            let calls: Vec<_> = (1..3).map(|id| super::client::call(id, "a__t")).collect();
            let headers = [("Mcp-Session-Id", batch.as_str())];
            let (_, answers) = front.ask("/mcp", &headers, &json!(calls)).await;
            let answers = answers.as_array().unwrap_or_else(|| panic!("{answers}")).clone();
            assert!(answers.len() == 2 && answers.iter().all(|one| one["error"]["code"] == -32602), "{answers:?}");
            // Nor is it after its server has come back, nor for a host that comes now.
            drop(a);
            all_is_unknown(&Web::open(&front, era).await).await;
            batch.clear();
            let more = tokio::time::timeout(Duration::from_millis(300), async {
                loop {
                    let told = stream.message().await;
                    assert!(!told["method"].as_str().unwrap().ends_with("/updated"), "{told}");
                }
            });
            assert!(more.await.is_err());
            drop(stream);
            // What a later one allows is there again, in the same session.
            front.world.current.reload(settings(vec![server("a")], |_| {})).await.unwrap();
            assert_eq!(names(&web.get("tools/list", json!({})).await), ["a__t"]);
            front.world.links("a");
            front.end().await;
        });
    }
}

/// A task of a tool that a reload denies is unknown, in every way (TSK-5).
#[test]
fn e20_tsk5_a_task_of_what_is_denied_by_a_reload_is_unknown() {
    run(async {
        let keys = Some(vec![key("one", "first")]);
        let (front, mut a) = Front::with(Setup { keys, tasks: true, ..Setup::default() }).await;
        let takes = |params| modern_as(params, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
        let headers = |method: &'static str, name: &str| {
            let name = name.to_owned();
            [
                ("MCP-Protocol-Version", "2026-07-28".to_owned()),
                ("Mcp-Method", method.to_owned()),
                ("Mcp-Name", name),
                ("Authorization", "Bearer first".to_owned()),
            ]
        };
        let mut client = front.client().await;
        let message = request(1, "tools/call", takes(json!({"name": "a__t", "arguments": {}})));
        let with = headers("tools/call", "a__t");
        client.post("/mcp", &with.each_ref().map(|(name, value)| (*name, value.as_str())), &message).await;
        let call = a.expect("tools/call").await;
        let made = json!({"taskId": "n-1", "status": "working", "createdAt": "2026-08-01T10:00:00Z",
            "lastUpdatedAt": "2026-08-01T10:00:00Z", "ttlMs": null, "resultType": "task"});
        a.result(&call, made).await;
        let (_, answer) = client.answer().await;
        let id = answer["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        let denied = settings(vec![server("a")], |settings| settings.policy = denying());
        front.world.current.reload(denied).await.unwrap();
        for (method, params) in [
            ("tasks/get", json!({"taskId": id})),
            ("tasks/update", json!({"taskId": id, "inputResponses": {}})),
            ("tasks/cancel", json!({"taskId": id})),
        ] {
            let with = headers(method, &id);
            let with = with.each_ref().map(|(name, value)| (*name, value.as_str()));
            let (_, answer) = front.ask("/mcp", &with, &request(2, method, takes(params))).await;
            assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
        }
        a.quiet(Duration::from_millis(300)).await;
        front.end().await;
    });
}
