//! The only room that knows both sides: what hosts ask on the one, servers on the other.
//!
//! Speaks the language of the middle: modern and stateless, the bytes of whoever wrote them. Upstream adapters
//! bring requests in and write answers out in the words of their host's revision.

mod bridge;
mod fault;
mod invoke;
mod lists;
mod seal;
mod subscriptions;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

pub use crate::catalog::{Catalogue, Fingerprint};
pub use crate::downstream::{Connect, EraMemory, Link, Pace, Processes, State};
pub use bridge::Input;
pub use fault::Failure;
pub use invoke::Outcome;
pub use lists::{ItemList, LIST_DEADLINE};

use crate::caller::Caller;
use crate::config::settings::{ServerSettings, Settings};
use crate::downstream::Server;
use crate::ident::Kind;
use crate::policy::{Policy, RulesError};
use bridge::Bridge;
use lists::{Lists, Place};
use seal::Seal;

/// Events of servers that wait to be taken in.
const EVENTS: usize = 64;

/// The gateway: all servers, what they list, and the way of a call.
pub struct Gateway {
    servers: Vec<Arc<Server>>,
    lists: Arc<Lists>,
    policy: Arc<Policy>,
    instructions: Option<String>,
    seal: Seal,
    bridge: Bridge,
}

impl Gateway {
    /// Starts all servers. Their actors, and whatever they start, belong to `tasks`.
    pub fn start(
        settings: Settings,
        connect: Arc<dyn Connect>,
        memory: &EraMemory,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, Vec<RulesError>> {
        let policy = Arc::new(Policy::compile(&settings)?);
        let place = |server: &ServerSettings| Place { key: server.key.clone(), prefix: server.prefix.clone() };
        let places = settings.servers.iter().map(place).collect();
        let lists = Arc::new(Lists::new(places, Arc::clone(&policy), settings.gateway.name_budget));
        let (events, told) = mpsc::channel(EVENTS);
        let servers = settings
            .servers
            .into_iter()
            .enumerate()
            .map(|(n, server)| Server::run(n, server, Arc::clone(&connect), memory.clone(), events.clone(), tasks))
            .collect();
        let following = Arc::clone(&lists);
        tasks.spawn(async move { following.follow(told).await });
        let seal = Seal::new(&settings.gateway);
        let bridge = Bridge::new(tasks);
        Ok(Arc::new(Self { servers, lists, policy, instructions: settings.gateway.instructions, seal, bridge }))
    }

    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Everything that is known now.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.lists.catalogue()
    }

    /// A list for this host, when every server had its chance to list (LST-1); from the cursor on, a raw string.
    pub async fn list(&self, kind: Kind, caller: &Caller, cursor: Option<&[u8]>) -> Result<ItemList, Failure> {
        self.lists.settle().await;
        self.list_of(kind, caller, cursor)
    }

    /// The same at once, when there is nothing to wait for.
    pub fn list_now(&self, kind: Kind, caller: &Caller, cursor: Option<&[u8]>) -> Option<Result<ItemList, Failure>> {
        self.lists.is_settled().then(|| self.list_of(kind, caller, cursor))
    }

    fn list_of(&self, kind: Kind, caller: &Caller, cursor: Option<&[u8]>) -> Result<ItemList, Failure> {
        match (kind, cursor) {
            (_, Some(_)) => Err(Failure::bad_cursor()),
            (Kind::Tool, None) => Ok(self.lists.tools_now(caller.revision)),
            (Kind::Prompt | Kind::Resource | Kind::Template, None) => {
                Err(Failure::unknown_method("lists of this kind"))
            }
        }
    }

    /// Waits until every server has listed or failed, without the hosts' deadline but with each server's own.
    pub async fn settle(&self) {
        let longest = self.servers.iter().map(|server| server.settings().timeouts.start * 2).max();
        let deadline = tokio::time::Instant::now() + longest.unwrap_or_default();
        self.lists.settle_until(deadline).await;
    }

    /// Tells of changes of what hosts see.
    pub fn changes(&self) -> watch::Receiver<Fingerprint> {
        self.lists.changes()
    }

    /// What is known now of the instructions for the model.
    pub fn instructions(&self) -> String {
        self.lists.instructions(self.instructions.as_deref())
    }

    /// Stops all servers at this pace; their tasks end.
    pub fn stop(&self, pace: Pace) {
        self.bridge.stop();
        for server in &self.servers {
            server.stop(pace);
        }
    }
}
