//! A scripted server with all kinds: what is routine it answers itself, what a test is about the test answers.
//!
//! And what tests need to run for hosts of both eras.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::end::{End, modern};
use super::world::{World, server};

pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Of a host or a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// All cells: host, server.
pub(crate) const CELLS: [(Era, Era); 4] =
    [(Era::Legacy, Era::Legacy), (Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy), (Era::Modern, Era::Modern)];

impl Era {
    /// Opens a host of this era, where it needs that.
    pub(crate) async fn open(self, host: &mut End) {
        if self == Self::Legacy {
            host.open("2025-11-25").await;
        }
    }

    /// The params of a request of a host of this era.
    pub(crate) fn params(self, params: Value) -> Value {
        if self == Self::Modern { modern(params) } else { params }
    }

    /// Asks for something that no server is needed for, or that fails.
    pub(crate) async fn get(self, host: &mut End, method: &str, params: Value) -> Value {
        host.ask("get", method, self.params(params)).await;
        host.answer("get").await
    }
}

/// The lists, and the members that hold what they list.
pub(crate) const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

/// Every request that names something of [`Full`], by each of its names (E-20).
pub(crate) fn ways() -> Vec<(&'static str, Value)> {
    let completing = |reference: Value| json!({"ref": reference, "argument": {"name": "id", "value": ""}});
    vec![
        ("tools/call", json!({"name": "a__t", "arguments": {}})),
        ("tools/call", json!({"name": "a__t", "requestState": "x", "inputResponses": {}})),
        ("tools/call", json!({"name": "t"})),
        ("prompts/get", json!({"name": "a__p"})),
        ("resources/read", json!({"uri": "x:1"})),
        ("resources/read", json!({"uri": "og+a:x:1"})),
        ("resources/read", json!({"uri": "x:other"})),
        ("completion/complete", completing(json!({"type": "ref/prompt", "name": "a__p"}))),
        ("completion/complete", completing(json!({"type": "ref/resource", "uri": "x:{id}"}))),
    ]
}

/// The answer to one of them is that there is no such thing, and no word of why.
#[track_caller]
pub(crate) fn is_unknown(answer: &Value) {
    let code = answer["error"]["code"].as_i64();
    assert!(matches!(code, Some(-32602 | -32002)), "{answer}");
    assert!(answer["error"]["data"].get("reason").is_none(), "{answer}");
}

/// One server `a` that is up.
pub(crate) async fn one(era: Era, change: impl FnOnce(&mut Full)) -> (World, Full) {
    let mut world = World::new(vec![server("a")]);
    let mut a = Full::new(world.accept("a").await, era);
    change(&mut a);
    a.settle().await;
    (world, a)
}

/// A server with all kinds.
pub(crate) struct Full {
    pub(crate) end: End,
    pub(crate) era: Era,
    pub(crate) revision: &'static str,
    pub(crate) capabilities: Value,
    pub(crate) instructions: Value,
    pub(crate) tools: Value,
    pub(crate) prompts: Value,
    pub(crate) resources: Value,
    pub(crate) templates: Value,
    /// Methods that it declares and does not know.
    pub(crate) unknown: Vec<&'static str>,
    /// Methods that the test answers.
    pub(crate) left: Vec<&'static str>,
    /// What it was asked for and told.
    pub(crate) asked: Vec<String>,
    /// The streams that are open to it.
    pub(crate) streams: Vec<Value>,
    /// Resources that it tells nothing of.
    pub(crate) refused: Vec<&'static str>,
    /// Whether it refuses a stream with such a resource whole.
    pub(crate) strict: bool,
}

impl Full {
    /// A server that offers everything: a tool `t`, a prompt `p`, a resource `x:1` and a template `x:{id}`.
    pub(crate) fn new(end: End, era: Era) -> Self {
        Self {
            end,
            era,
            revision: "2025-11-25",
            capabilities: json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "logging": {},
                "resources": {"listChanged": true, "subscribe": true}, "completions": {}}),
            instructions: Value::Null,
            tools: json!([{"name": "t", "inputSchema": {"type": "object"}}]),
            prompts: json!([{"name": "p"}]),
            resources: json!([{"name": "one", "uri": "x:1"}]),
            templates: json!([{"name": "any", "uriTemplate": "x:{id}"}]),
            unknown: Vec::new(),
            left: Vec::new(),
            asked: Vec::new(),
            streams: Vec::new(),
            refused: Vec::new(),
            strict: false,
        }
    }

    /// The next message that is not routine.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let message = self.end.next().await?;
            if !self.routine(&message).await {
                return Some(message);
            }
        }
    }

    /// The next one, of this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await.expect("it closed");
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// Serves its routine until nothing more is asked, and what changed was told.
    pub(crate) async fn settle(&mut self) {
        self.quiet(Duration::from_millis(300)).await;
        sleep(Duration::from_secs(1)).await;
    }

    /// Nothing but routine comes until it is silent for this long.
    pub(crate) async fn quiet(&mut self, time: Duration) {
        while let Ok(message) = timeout(time, self.end.next()).await {
            let message = message.expect("it closed");
            assert!(self.routine(&message).await, "unexpected: {message}");
        }
    }

    /// Tells something, on the stream that is for it where the era has such.
    pub(crate) async fn tell(&mut self, method: &str, mut params: Value) {
        if self.era == Era::Modern {
            let member = if method.ends_with("updated") { "resourceSubscriptions" } else { "ListChanged" };
            let is_it = |stream: &&Value| stream["params"]["notifications"].to_string().contains(member);
            let stream = self.streams.iter().rev().find(is_it).expect("no stream is open for it");
            params["_meta"] = json!({SUBSCRIPTION: stream["id"]});
        }
        self.end.tell(method, params).await;
    }

    /// The resources of the streams that are open, in their order.
    pub(crate) fn told_of(&self) -> Vec<&Value> {
        let about = self.streams.iter().map(|stream| &stream["params"]["notifications"]["resourceSubscriptions"]);
        about.filter(|about| about.is_array()).collect()
    }

    async fn routine(&mut self, message: &Value) -> bool {
        let Some(method) = message["method"].as_str() else { return false };
        self.asked.push(method.to_owned());
        if self.left.contains(&method) {
            return false;
        }
        if self.unknown.contains(&method) {
            self.end.error(message, -32601).await;
            return true;
        }
        let mut result = match method {
            "server/discover" if self.era == Era::Legacy => {
                self.end.error(message, -32601).await;
                return true;
            }
            "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}),
            "initialize" => json!({"protocolVersion": self.revision, "capabilities": self.capabilities,
                "serverInfo": {"name": "f", "version": "0"}}),
            "notifications/initialized" => return true,
            "tools/list" => json!({"tools": self.tools}),
            "prompts/list" => json!({"prompts": self.prompts}),
            "resources/list" => json!({"resources": self.resources}),
            "resources/templates/list" => json!({"resourceTemplates": self.templates}),
            "subscriptions/listen" => {
                self.listen(message).await;
                return true;
            }
            "notifications/cancelled" => {
                let open = self.streams.len();
                self.streams.retain(|stream| stream["id"] != message["params"]["requestId"]);
                return self.streams.len() < open;
            }
            _ => return false,
        };
        if matches!(method, "server/discover" | "initialize") && !self.instructions.is_null() {
            result["instructions"] = self.instructions.clone();
        }
        if self.era == Era::Modern {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(60_000);
            result["cacheScope"] = json!("public");
        }
        self.end.result(message, result).await;
        true
    }

    async fn listen(&mut self, message: &Value) {
        let mut filter = message["params"]["notifications"].clone();
        if let Some(uris) = filter["resourceSubscriptions"].as_array_mut() {
            let asked = uris.len();
            uris.retain(|uri| !self.refused.contains(&uri.as_str().unwrap()));
            if self.strict && uris.len() < asked {
                self.end.error(message, -32602).await;
                return;
            }
        } else {
            filter.as_object_mut().unwrap().remove("resourceSubscriptions");
        }
        self.streams.push(message.clone());
        let params = json!({"notifications": filter, "_meta": {SUBSCRIPTION: message["id"]}});
        self.end.tell("notifications/subscriptions/acknowledged", params).await;
    }
}
