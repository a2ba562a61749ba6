//! A front that serves, with one server behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onegate::config::settings::{
    ApiKey, AuditSettings, AuthMode, AuthSettings, HttpSettings, JwtSettings, PolicySettings, Sharing,
};
use onegate::ident::Principal;
use onegate::upstream::http::{Entrance, Limits, serve};
use serde_json::{Value, json};
use sha2::Digest as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::{Client, Head, notification, request};
use super::end::End;
use super::world::{World, server};

/// A front under test.
pub(crate) struct Front {
    pub(crate) world: World,
    pub(crate) address: SocketAddr,
    pub(crate) entrance: Arc<Entrance>,
    serving: JoinHandle<std::io::Result<()>>,
}

/// Runs a test on one thread, within a time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("it took too long") });
}

/// How a front is set up.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) http: HttpSettings,
    pub(crate) keys: Option<Vec<ApiKey>>,
    /// Whose tokens are taken, beside keys if there are any.
    pub(crate) jwt: Option<JwtSettings>,
    /// Its server is a modern one that makes tasks of calls.
    pub(crate) tasks: bool,
    pub(crate) policy: PolicySettings,
    /// All principals share the connection to the server.
    pub(crate) shared: bool,
    /// Where decisions are written down.
    pub(crate) audit: Option<AuditSettings>,
}

/// A key: the principal's name and its secret.
pub(crate) fn key(name: &str, secret: &str) -> ApiKey {
    let hash = sha2::Sha256::digest(secret.as_bytes()).into();
    ApiKey { name: name.into(), hash, groups: Vec::new(), expires: None }
}

impl Front {
    /// A front without keys, and its server `a` with the tool `t`.
    pub(crate) async fn new() -> (Self, End) {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> (Self, End) {
        let mut world = World::with(vec![server("a")], |settings| {
            settings.policy = setup.policy.clone();
            settings.telemetry.audit = setup.audit.clone();
            if setup.shared {
                settings.servers[0].sharing = Sharing::Shared;
            }
        });
        // Whoever is named first sees the tool.
        let first = setup.keys.as_ref().and_then(|keys| keys.first());
        let first = first.map_or_else(Principal::anonymous, |key| Principal::key_in(&key.name, &key.groups));
        let mut changes = world.gateway.changes(world.gateway.sight(&first, 0));
        let mut a = world.accept("a").await;
        if setup.tasks {
            let tasks = json!({"io.modelcontextprotocol/tasks": {}});
            a.modern_with(&["t"], json!({"tools": {"listChanged": true}, "extensions": tasks})).await;
        } else {
            a.legacy(&["t"]).await;
        }
        // The change from nothing to this list has been told.
        changes.changed().await.unwrap();
        (Self::over(world, setup).await, a)
    }

    /// A front to these servers.
    pub(crate) async fn over(world: World, setup: Setup) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = match (&setup.keys, &setup.jwt) {
            (Some(_), Some(_)) => AuthMode::Both,
            (Some(_), None) => AuthMode::Keys,
            (None, Some(_)) => AuthMode::Jwt,
            (None, None) => AuthMode::None,
        };
        let keys = setup.keys.unwrap_or_default();
        let auth = AuthSettings { mode, keys, jwt: setup.jwt, ..AuthSettings::default() };
        let (gateway, stop, tasks) = (world.current.clone(), world.stop.clone(), world.tasks.clone());
        let entrance = Entrance::new((&setup.http, &auth), address, setup.limits.keys.clone(), &stop, &tasks);
        let entering = Arc::clone(&entrance);
        let serving = world
            .tasks
            .spawn(async move { serve(setup.limits, gateway, listener, &setup.http, entering, &stop, &tasks).await });
        Self { world, address, entrance, serving }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Drops what serves, as a second signal does.
    pub(crate) async fn give_up(&self) {
        self.serving.abort();
        while !self.serving.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Stops serving; all must end by itself.
    pub(crate) async fn end(self) {
        self.world.stop.cancel();
        self.serving.await.unwrap().unwrap();
        self.world.end().await;
    }

    /// An answer on a connection of its own.
    pub(crate) async fn ask(&self, path: &str, headers: &[(&str, &str)], message: &Value) -> (Head, Value) {
        let mut client = self.client().await;
        client.post(path, headers, message).await;
        client.answer().await
    }

    /// Opens a legacy session; answers its name.
    pub(crate) async fn open(&self, revision: &str) -> String {
        self.open_with(revision, &[], json!({})).await
    }

    pub(crate) async fn open_with(&self, revision: &str, headers: &[(&str, &str)], capabilities: Value) -> String {
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "0"}});
        let (head, answer) = self.ask("/mcp", headers, &request(0, "initialize", params)).await;
        assert_eq!((head.status, &answer["result"]["protocolVersion"]), (200, &json!(revision)), "{answer}");
        let name = head.get("mcp-session-id").to_owned();
        assert!(name.len() >= 22 && name.bytes().all(|byte| byte.is_ascii_graphic()), "SES-1: {name}");
        let headers = [headers, &[("Mcp-Session-Id", name.as_str())]].concat();
        let (head, answer) = self.ask("/mcp", &headers, &notification("notifications/initialized", json!({}))).await;
        assert_eq!((head.status, answer), (202, Value::Null), "HTTP-5");
        name
    }
}

impl Client {
    /// Sends a modern request, with the headers that belong to it.
    pub(crate) async fn modern(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let message = request(id, method, super::end::modern(params));
        let name = message["params"]["name"].as_str().unwrap_or("-").to_owned();
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name.as_str())];
        self.post("/mcp", &headers, &message).await;
    }

    /// Calls `a__t` as a modern host.
    pub(crate) async fn modern_call(&mut self, id: impl Into<Value>) {
        self.modern(id, "tools/call", json!({"name": "a__t", "arguments": {}})).await;
    }
}
