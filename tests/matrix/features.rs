//! The table: each feature, and what is to be seen of it in each cell.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fake::Fake;
use super::front::{self, Front, Setup};
use super::hosts::{HOST_KEY, Host};
use super::servers::{Seen, serve_http, serve_pipes};
use super::world::{World, server};
use onegate::config::settings::{Reach, Remote, SurfaceMode};
use onegate::ident::Secret;

/// The servers: `l` legacy, `m` modern, `p` on a pipe, `h` over HTTP.
const SERVERS: [&str; 4] = ["lp", "lh", "mp", "mh"];
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The features of the protocol, each once.
macro_rules! features {
    ($($name:ident),* $(,)?) => {
        /// A feature of the protocol. [`Cell::check`] has an arm for each.
        #[derive(Clone, Copy, Debug)]
        enum Feature { $($name),* }

        const ALL: &[Feature] = &[$(Feature::$name),*];
    };
}

features! {
    Tools,
    Structured,
    ToolErrors,
    Errors,
    Resources,
    Templates,
    Read,
    ReadMissing,
    Prompts,
    Prompt,
    Completion,
    Logging,
    Progress,
    Cancellation,
    Paging,
    ListChanges,
    Subscriptions,
    ElicitForm,
    ElicitUrl,
    Sampling,
    Roots,
    Trace,
    IconsAndAnnotations,
    CacheHints,
    UnknownMethods,
}

use Feature::*;

/// What concerns calls: all of it is as it is, too, where a tool is behind search and called through ours (SRF-1).
const CALLS: &[Feature] = &[
    Structured,
    ToolErrors,
    Errors,
    Logging,
    Progress,
    Cancellation,
    Subscriptions,
    ElicitForm,
    ElicitUrl,
    Sampling,
    Roots,
    Trace,
];

/// A host and a server.
struct Cell<'a> {
    host: &'a mut Host,
    key: &'static str,
    seen: &'a Seen,
    /// Tools are found by search.
    behind: bool,
}

impl Cell<'_> {
    fn modern_server(&self) -> bool {
        self.key.starts_with('m')
    }

    async fn call(&mut self, what: &str, more: Value) -> super::hosts::Heard {
        self.call_with(what, more, json!({})).await
    }

    async fn call_with(&mut self, what: &str, more: Value, meta: Value) -> super::hosts::Heard {
        let mut arguments = json!({"do": what});
        for (name, value) in more.as_object().into_iter().flatten() {
            arguments[name] = value.clone();
        }
        let mut params = self.called("t", arguments);
        params["_meta"] = meta;
        self.host.exchange("tools/call", params).await
    }

    /// The params of a call of a tool of this server.
    fn called(&self, tool: &str, arguments: Value) -> Value {
        let direct = json!({"name": format!("{}__{tool}", self.key), "arguments": arguments});
        if self.behind { json!({"name": "onegate__call_tool", "arguments": direct}) } else { direct }
    }

    async fn ask(&mut self, method: &str, params: Value) -> (super::hosts::Heard, Value) {
        let heard = self.call("ask", json!({"question": {"method": method, "params": params}})).await;
        let answered = serde_json::from_str(heard.text()).unwrap();
        (heard, answered)
    }

    /// The item of a list that has this value.
    async fn listed(&mut self, method: &str, kind: &str, name: &str, value: &str) -> Value {
        let heard = self.host.exchange(method, json!({})).await;
        let items = heard.result()[kind].as_array().unwrap();
        let found = items.iter().find(|item| item[name] == value);
        found.unwrap_or_else(|| panic!("no {value} in {}", heard.answer)).clone()
    }

    /// Waits until the server was told something.
    async fn told(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2000 {
            if let Some(message) = self.seen.last(self.key, &fits) {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} was not told: {what}", self.key);
    }

    /// The feature is as it should be in this cell.
    async fn check(&mut self, feature: Feature) {
        let (key, modern) = (self.key, self.host.modern);
        match feature {
            Tools => {
                self.listed("tools/list", "tools", "name", &format!("{key}__t")).await;
                let heard = self.call("", json!({})).await;
                assert_eq!(heard.text(), format!("{key}:\"t\""), "the server hears its own name");
                // ENV-5: in the words of the host's era.
                let kind = heard.result().get("resultType");
                assert_eq!(kind, modern.then(|| json!("complete")).as_ref());
            }
            Structured => {
                let value = json!({"n": 12_345_678_901_234_567_u64, "deep": [null, {"x": 1.5}]});
                let heard = self.call("structured", json!({"value": value})).await;
                assert_eq!(heard.result()["structuredContent"], value);
                // One that is no object is text to a legacy host.
                let heard = self.call("structured", json!({"value": [1]})).await;
                let expected = if modern { Some(json!([1])) } else { None };
                assert_eq!(heard.result().get("structuredContent"), expected.as_ref());
                let texts = heard.result()["content"].to_string();
                assert_eq!(texts.contains(r#""text":"[1]""#), !modern, "{texts}");
            }
            ToolErrors => {
                let heard = self.call("fail", json!({})).await;
                assert_eq!((heard.text(), &heard.result()["isError"]), ("failed", &json!(true)));
            }
            Errors => {
                let heard = self.call("error", json!({})).await;
                assert_eq!(heard.answer["error"], json!({"code": 17, "message": "no", "data": {"why": [1]}}));
                let unknown = self.called("none", json!({}));
                assert_eq!(self.host.exchange("tools/call", unknown).await.code(), -32602);
            }
            Resources => {
                let item = self.listed("resources/list", "resources", "uri", &format!("{key}:1")).await;
                assert_eq!((&item["name"], &item["size"]), (&json!("r"), &json!(3)));
            }
            Templates => {
                let uri = format!("{key}:t/{{id}}");
                self.listed("resources/templates/list", "resourceTemplates", "uriTemplate", &uri).await;
                let read = self.host.exchange("resources/read", json!({"uri": format!("{key}:t/7")})).await;
                assert_eq!(read.result()["contents"][0]["uri"], format!("{key}:t/7"));
            }
            Read => {
                let uri = format!("{key}:1");
                let read = self.host.exchange("resources/read", json!({"uri": uri})).await;
                let both = json!([{"uri": uri, "text": "one"}, {"uri": uri, "blob": "AAEC"}]);
                assert_eq!(read.result()["contents"], both);
            }
            ReadMissing => {
                let uri = format!("{key}:t/gone");
                let read = self.host.exchange("resources/read", json!({"uri": uri})).await;
                assert_eq!(read.code(), if modern { -32602 } else { -32002 });
                assert_eq!(read.answer["error"]["data"]["uri"], uri);
                let none = self.host.exchange("resources/read", json!({"uri": "nobody:1"})).await;
                assert_eq!(none.code(), if modern { -32602 } else { -32002 });
            }
            Prompts => {
                let item = self.listed("prompts/list", "prompts", "name", &format!("{key}__p")).await;
                assert_eq!((&item["title"], &item["arguments"]), (&json!("P"), &json!([{"name": "a"}])));
            }
            Prompt => {
                let params = json!({"name": format!("{key}__p"), "arguments": {"a": "x"}});
                let got = self.host.exchange("prompts/get", params).await;
                assert_eq!(got.result()["messages"][0]["content"]["text"], "x");
                let none = json!({"name": format!("{key}__q")});
                assert_eq!(self.host.exchange("prompts/get", none).await.code(), -32602, "PRM-2");
            }
            Completion => {
                for reference in [
                    json!({"type": "ref/prompt", "name": format!("{key}__p")}),
                    json!({"type": "ref/resource", "uri": format!("{key}:t/{{id}}")}),
                ] {
                    let params = json!({"ref": reference, "argument": {"name": "a", "value": "v"},
                        "context": {"arguments": {"b": "w"}}});
                    let completed = self.host.exchange("completion/complete", params).await;
                    assert_eq!(completed.result()["completion"]["values"], json!(["vw"]));
                }
            }
            Logging => {
                // LOG-1, LOG-2: a modern host names the level in the request, a legacy one for its session.
                let meta = if modern {
                    assert!(self.call("log", json!({})).await.beside.is_empty());
                    json!({LOG_LEVEL: "warning"})
                } else {
                    self.host.exchange("logging/setLevel", json!({"level": "warning"})).await;
                    json!({})
                };
                let heard = self.call_with("log", json!({}), meta).await;
                assert_eq!(heard.beside.len(), 1, "{heard:?}");
                let params = &heard.beside[0]["params"];
                assert_eq!((&params["level"], &params["data"]), (&json!("error"), &json!("error")));
                assert_eq!(params["logger"], format!("{key}/x"));
            }
            Progress => {
                let heard = self.call_with("progress", json!({}), json!({"progressToken": "mine"})).await;
                let tokens = heard.beside.iter().map(|told| &told["params"]["progressToken"]);
                assert!(tokens.clone().count() >= 1 && tokens.clone().all(|token| token == "mine"), "{heard:?}");
                assert_eq!(heard.beside.last().unwrap()["params"]["progress"], 2, "PRG-5: the last is always told");
                // PRG-1: who gives no token is told nothing.
                assert!(self.call("progress", json!({})).await.beside.is_empty());
            }
            Cancellation => {
                // Earlier hosts gave up the same call, perhaps under the same id.
                self.seen.clear();
                let params = self.called("t", json!({"do": "hold"}));
                let (id, client) = self.host.begin("tools/call", params).await;
                let held = self.told("the call", |message| message["params"]["arguments"]["do"] == "hold").await;
                self.host.give_up(id, client).await;
                let is_it = |message: &Value| {
                    message["method"] == "notifications/cancelled" && message["params"]["requestId"] == held["id"]
                };
                self.told("that it was given up", is_it).await;
            }
            Paging => {
                // PAG-1, PAG-2: both pages of the server are in our one.
                let heard = self.host.exchange("tools/list", json!({})).await;
                let tools = heard.result()["tools"].as_array().unwrap();
                let mine: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()?.strip_prefix(key)).collect();
                assert_eq!(mine, ["__t", "__second"]);
                assert_eq!(heard.result().get("nextCursor"), None);
                let page = self.host.exchange("tools/list", json!({"cursor": "made up"})).await;
                assert_eq!(page.code(), -32602, "PAG-4");
            }
            ListChanges => {
                self.host.subscribe(&format!("{key}:1")).await;
                for count in [3, 2] {
                    self.call("change", json!({})).await;
                    let told = self.host.news("notifications/tools/list_changed").await;
                    assert_eq!(told["params"]["_meta"].get(SUBSCRIPTION).is_some(), modern, "SUB-4");
                    // CCH-7: who is told gets the new list.
                    let heard = self.host.exchange("tools/list", json!({})).await;
                    let tools = heard.result()["tools"].as_array().unwrap();
                    let mine = tools.iter().filter(|tool| tool["name"].as_str().unwrap().starts_with(key));
                    assert_eq!(mine.count(), count);
                }
                self.host.unsubscribe(&format!("{key}:1")).await;
            }
            Subscriptions => {
                let uri = format!("{key}:1");
                self.host.subscribe(&uri).await;
                self.call("touch", json!({})).await;
                let told = self.host.news("notifications/resources/updated").await;
                assert_eq!(told["params"]["uri"], uri);
                self.host.unsubscribe(&uri).await;
            }
            ElicitForm => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let params = json!({"message": "Who?", "requestedSchema": schema});
                let (heard, answered) = self.ask("elicitation/create", params).await;
                assert_eq!(heard.asked[0].1["message"], format!("[{key}] Who?"), "MRT-5");
                assert_eq!(heard.asked[0].1["requestedSchema"], schema);
                assert_eq!(answered, json!({"action": "accept", "content": {"name": "Ada"}}));
            }
            ElicitUrl => {
                let params = json!({"mode": "url", "message": "Open", "url": "https://x.test/?a=b"});
                let (heard, answered) = self.ask("elicitation/create", params).await;
                let asked = &heard.asked[0].1;
                assert_eq!((&asked["url"], &asked["mode"]), (&json!("https://x.test/?a=b"), &json!("url")), "URL-4");
                // LMB-2: the id is of the legacy era.
                assert_eq!(asked.get("elicitationId").is_some(), !modern);
                assert_eq!(answered, json!({"action": "accept"}));
            }
            Sampling => {
                let messages = json!([{"role": "user", "content": {"type": "text", "text": "Hi"}}]);
                let tools = json!([{"name": "look", "inputSchema": {"type": "object"}}]);
                let params =
                    json!({"messages": messages, "maxTokens": 9, "tools": tools, "toolChoice": {"mode": "auto"}});
                let (heard, answered) = self.ask("sampling/createMessage", params).await;
                // CALL-6: these tools are of this question alone and keep their names.
                assert_eq!((&heard.asked[0].1["tools"], &heard.asked[0].1["messages"]), (&tools, &messages));
                assert_eq!(answered, super::hosts::reply("sampling/createMessage", &Value::Null));
            }
            Roots => {
                let (heard, answered) = self.ask("roots/list", json!({})).await;
                assert_eq!(heard.asked[0].0, "roots/list");
                assert_eq!(answered, json!({"roots": [{"uri": "file:///here", "name": "h"}]}));
            }
            Trace => {
                let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
                let meta = json!({"traceparent": trace, "tracestate": "a=b", "x.test/own": 1});
                let heard = self.call_with("meta", json!({}), meta).await;
                let meta: Value = serde_json::from_str(heard.text()).unwrap();
                assert_eq!((&meta["traceparent"], &meta["tracestate"]), (&json!(trace), &json!("a=b")));
                assert_eq!(meta["x.test/own"], 1, "ENV-11");
                let version = meta.get("io.modelcontextprotocol/protocolVersion");
                assert_eq!(version.is_some(), self.modern_server(), "of the server's leg, not of the host's");
            }
            IconsAndAnnotations => {
                let tool = self.listed("tools/list", "tools", "name", &format!("{key}__t")).await;
                assert_eq!(tool["icons"], json!([{"src": "https://x.test/i.png", "mimeType": "image/png"}]));
                assert_eq!(tool["annotations"], json!({"readOnlyHint": true, "title": "A"}), "LST-8");
            }
            CacheHints => {
                for (method, params) in [
                    ("tools/list", json!({})),
                    ("prompts/list", json!({})),
                    ("resources/list", json!({})),
                    ("resources/templates/list", json!({})),
                    ("resources/read", json!({"uri": format!("{key}:1")})),
                ] {
                    let heard = self.host.exchange(method, params).await;
                    let hints = (heard.result()["ttlMs"].is_u64(), heard.result()["cacheScope"].is_string());
                    assert_eq!(hints, (modern, modern), "{method}: CCH-1: {}", heard.answer);
                    if method == "resources/read" && modern {
                        // RES-6: the modern server's own word; a legacy one gave none.
                        let expected = if self.modern_server() { 30_000 } else { 0 };
                        assert_eq!(heard.result()["ttlMs"], expected);
                    }
                }
            }
            UnknownMethods => {
                assert_eq!(self.host.exchange("no/such", json!({})).await.code(), -32601);
                let of_other_era = if modern { "ping" } else { "server/discover" };
                assert_eq!(self.host.exchange(of_other_era, json!({})).await.code(), -32601);
            }
        }
    }
}

/// A server behind this URL.
fn remote(key: &str, url: &str) -> onegate::config::settings::ServerSettings {
    let remote = Remote {
        ca: None,
        url: url.parse().unwrap(),
        headers: Vec::new(),
        sse: false,
        identity: key.into(),
        written: Secret::new("{}"),
        secrets: Vec::new(),
    };
    let mut settings = server(key);
    settings.reach = Ok(Reach::Remote(remote));
    settings
}

/// Plays all cells of a host.
#[expect(clippy::print_stdout, reason = "shown when it fails: in which cell")]
async fn play(host: &mut Host, name: &str, seen: &Seen, behind: bool) -> usize {
    let mut cells = 0;
    let features = if behind { CALLS } else { ALL };
    for key in SERVERS {
        for &feature in features {
            // Shown when the test fails: the last is the one.
            println!("{feature:?}, {name} host, server {key}");
            Cell { host: &mut *host, key, seen, behind }.check(feature).await;
            cells += 1;
        }
    }
    cells
}

/// Plays all cells of all hosts, with tools in the list or behind search.
async fn play_all(behind: bool) -> usize {
    let (seen, mut servers) = (Seen::default(), JoinSet::new());
    let (legacy, modern) = (Fake::new().await, Fake::new().await);
    let settings = vec![server("lp"), server("mp"), remote("lh", &legacy.url()), remote("mh", &modern.url())];
    servers.spawn(serve_http("lh", legacy, seen.clone()));
    servers.spawn(serve_http("mh", modern, seen.clone()));
    let mut world = World::with(settings, |settings| {
        if behind {
            settings.profiles[0].surface.mode = SurfaceMode::Search;
        }
    });
    servers.spawn(serve_pipes("lp", world.links("lp"), seen.clone()));
    servers.spawn(serve_pipes("mp", world.links("mp"), seen.clone()));
    world.gateway.settle().await;
    let front = {
        // INV-7, AUT-1: a host over HTTP says who it is, one on a pipe need not.
        let keys = Some(vec![front::key("host", HOST_KEY)]);
        Front::over(world, Setup { keys, ..Setup::default() }).await
    };
    let mut cells = 0;
    for modern in [false, true] {
        let era = if modern { "modern" } else { "legacy" };
        let mut host = Host::pipe(front.world.host(), modern).await;
        cells += found(&mut host, behind).await;
        cells += play(&mut host, &format!("{era} pipe"), &seen, behind).await;
        let mut host = Host::http(front.address, modern).await;
        cells += found(&mut host, behind).await;
        cells += play(&mut host, &format!("{era} HTTP"), &seen, behind).await;
    }
    front.end().await;
    servers.shutdown().await;
    cells
}

/// A host finds the tools that it is not listed: one cell for each server.
async fn found(host: &mut Host, behind: bool) -> usize {
    if !behind {
        return 0;
    }
    let heard = host.exchange("tools/list", json!({})).await;
    let names: Vec<_> = heard.result()["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["onegate__call_tool", "onegate__search_tools"]);
    for key in SERVERS {
        let arguments = json!({"query": "t", "server": key, "detail": "full"});
        let heard = host.exchange("tools/call", json!({"name": "onegate__search_tools", "arguments": arguments})).await;
        let tool = &heard.result()["structuredContent"]["tools"][0];
        assert_eq!((&tool["name"], &tool["server"]), (&json!(format!("{key}__t")), &json!(key)), "{heard:?}");
        assert!(tool["score"].as_f64().unwrap() > 0.0 && tool["inputSchema"]["type"] == "object");
        assert!(heard.text().contains(&format!("{key}__t")));
    }
    SERVERS.len()
}

fn run(playing: impl Future<Output = usize>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(playing)
}

/// D061, INV-3, INV-7: all features in all cells, each over both transports on both sides.
#[test]
fn every_feature_works_in_every_cell_over_every_transport() {
    assert_eq!(run(play_all(false)), ALL.len() * 16);
}

/// SRF-1: a tool behind search can be called in every way that a listed one can.
#[test]
fn srf_1_every_feature_of_calls_works_through_our_tool() {
    assert_eq!(run(play_all(true)), (CALLS.len() + 1) * 16);
}
