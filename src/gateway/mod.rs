//! The only room that knows both sides: what hosts ask on the one, servers on the other.
//!
//! Speaks the language of the middle: modern and stateless, the bytes of whoever wrote them. Upstream adapters
//! bring requests in and write answers out in the words of their host's revision.

mod audiences;
mod bridge;
mod current;
mod fault;
mod grants;
mod invoke;
mod learned;
mod lists;
mod meaning;
mod pages;
mod pinned;
mod recorded;
mod refused;
mod remembered;
mod seal;
mod search;
mod status;
mod subscriptions;
mod tasks;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::catalog::{Catalogue, Fingerprint};
pub use crate::downstream::{Connect, Ended, EraMemory, Link, Offers, Pace, Processes, State};
pub use bridge::Input;
pub use current::{Changes, Current, Reloaded, Sights};
pub use fault::Failure;
pub use invoke::Outcome;
pub use lists::{ItemList, Seen, Sight};
pub use pinned::approved;
pub use refused::Refused;
pub use status::{Cost, ProfileStatus, ServerStatus, Status};
pub use subscriptions::{Held, Updates};
pub use tasks::TaskState;

use crate::caller::Caller;
use crate::config::settings::GatewaySettings;
use crate::downstream::Server;
use crate::ident::Principal;
use crate::pins::observed::Observed;
use crate::policy::Policy;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::Otlp;
use audiences::Audiences;
use bridge::Bridge;
use learned::Learned;
use lists::Lists;
use pinned::Pinned;
use seal::Seal;
use subscriptions::Subscriptions;

/// The gateway of one configuration: its servers, what they list, and the way of a call. Another configuration is another
/// one ([`Current::reload`]); what outlives both is [`Lasting`].
pub struct Gateway {
    /// Another one for each configuration.
    number: u64,
    /// By place: that of a key is the same for as long as the process runs.
    servers: Vec<Arc<Server>>,
    /// Which of them it is not ready without.
    required: Box<[bool]>,
    lists: Arc<Lists>,
    audiences: Arc<Audiences>,
    policy: Arc<Policy>,
    seal: Arc<Seal>,
    bridge: Arc<Bridge>,
    learned: Arc<Learned>,
    subscriptions: Arc<Subscriptions>,
    audit: Option<Arc<Audit>>,
    otlp: Option<Arc<Otlp>>,
    metrics: Metrics,
    /// Names of the profiles, by place, and which of them are gone.
    profiles: Box<[(String, bool)]>,
    pins: Arc<Pinned>,
    /// `[gateway]`.
    settings: GatewaySettings,
    /// Ends what looks at the lock and at what servers list.
    ended: CancellationToken,
    /// Servers that nobody has any more when this is dropped, and the gateway that took its place: that one is not dropped
    /// before, as this one's servers may be its own.
    last_had: OnceLock<(Vec<Arc<Server>>, Arc<Gateway>)>,
}

impl Gateway {
    /// The servers, by their places; those that are gone left out.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().filter(|server| !self.is_gone(server.index()))
    }

    /// Whether the configuration has the server of a place no more.
    fn is_gone(&self, server: usize) -> bool {
        self.lists.places()[server].gone
    }

    /// Whether these settings seal as this gateway does.
    fn sealed_by(&self, settings: &GatewaySettings) -> bool {
        (&self.settings.seal_key, &self.settings.state) == (&settings.seal_key, &settings.state)
    }

    /// Largest message of a host, in bytes.
    pub fn max_message(&self) -> usize {
        self.settings.max_message
    }

    /// How long a host's list waits for servers.
    pub fn list_deadline(&self) -> Duration {
        self.settings.list_deadline
    }

    /// The place of a server.
    fn place_of(&self, key: &str) -> Option<usize> {
        self.servers().find(|server| server.key().as_str() == key).map(|server| server.index())
    }

    /// The place of a profile.
    pub fn profile(&self, name: &str) -> Option<usize> {
        self.profiles.iter().position(|(known, gone)| known == name && !gone)
    }

    /// What a principal sees through a profile.
    pub fn sight(&self, principal: &Principal, profile: usize) -> Sight {
        self.lists.sight(principal, profile)
    }

    /// The same of whoever calls.
    fn sight_of(&self, caller: &Caller) -> Sight {
        self.lists.sight(&caller.principal, caller.profile)
    }

    /// What is allowed, and how often.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Everything that is seen now.
    pub fn catalogue(&self, sight: Sight) -> Arc<Catalogue> {
        self.lists.catalogue(sight)
    }

    /// Waits until every server has listed or failed, without the hosts' deadline but with each server's own.
    pub async fn settle(&self) {
        let longest = self.servers().map(|server| server.settings().timeouts.start * 2).max();
        let deadline = tokio::time::Instant::now() + longest.unwrap_or_default();
        self.lists.settle_until(deadline).await;
    }

    /// Tells of changes of what is seen.
    pub fn changes(&self, sight: Sight) -> watch::Receiver<Seen> {
        self.lists.changes(sight)
    }

    /// What a caller sees, in short: its own, where servers list something else to it than to all.
    pub fn seen(&self, caller: &Caller) -> Seen {
        self.audiences.seen(caller)
    }

    /// What is known now of the instructions for the model.
    pub fn instructions(&self, sight: Sight) -> String {
        if self.settings.is_mere_front {
            return self.lists.instructions_of_all(sight);
        }
        self.lists.instructions(sight, self.settings.instructions.as_deref())
    }

    /// What is offered to hosts: what any of the servers that they see offers. A server that has not said yet may offer
    /// anything, as hosts take the answer for good (§9.1); so nothing is waited for (CON-8).
    pub fn offers(&self, sight: Sight) -> Offers {
        let mut all = Offers { tools: Some(true), ..Offers::default() };
        for offers in self.lists.offers(sight) {
            let offers = offers.unwrap_or_else(Offers::everything);
            all.prompts = all.prompts.or(offers.prompts.map(|_| true));
            all.resources = all.resources.or(offers.resources.map(|_| true));
            all.subscribe |= offers.subscribe;
            all.completions |= offers.completions && offers.has_references();
            all.logging |= offers.logging;
            all.ui = all.ui.or(offers.ui);
            all.tasks |= offers.tasks;
        }
        all
    }

    /// What a server was seen to be, where all of its lists came.
    pub fn observed(&self, server: usize) -> Option<Observed> {
        self.pins.observed(server)
    }

    /// How many entries of a server are not as they were reviewed.
    pub fn drifted(&self, server: usize) -> usize {
        self.pins.drifted(server)
    }

    /// Stops all servers at this pace; their tasks end.
    pub fn stop(&self, pace: Pace) {
        self.bridge.stop();
        self.ended.cancel();
        for server in &self.servers {
            server.stop(pace);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The last request that began before the reload has ended.
        for server in self.last_had.get().into_iter().flat_map(|(servers, _)| servers) {
            server.stop(Pace::CALM);
        }
    }
}
