//! A server, as the gateway sees it: its clients, and which of them serves a caller.
//!
//! One client is its base: it lists, and serves everybody who declares nothing. What a connection is, and how it is
//! kept up, is the client's ([`super::client`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::client::{Client, Connect, Ground, Lease, State};
use super::connection::{Answer, Deadlines};
use super::process::Pace;
use super::{EraMemory, Fault, Offers};
use crate::caller::Caller;
use crate::config::settings::ServerSettings;
use crate::ident::{Kind, ServerKey};
use crate::policy::verdict::Permit;
use crate::protocol::call::{Call, Input, Leg};
use crate::protocol::version::{Era, Revision};
use crate::transport::upward::Upward;

/// What a server has to say to the gateway.
#[derive(Debug)]
pub struct Event {
    /// Which server, by its place in the settings.
    pub server: usize,
    /// What it lists.
    pub listing: Listing,
}

/// What a server brought, or did not.
#[derive(Debug)]
pub enum Listing {
    /// One of its lists.
    List {
        /// What it lists.
        list: Listed,
        /// What it offers.
        offers: Offers,
        /// Its era.
        era: Era,
        /// Its own instructions for the model.
        instructions: Option<String>,
    },
    /// These resources are others now, by native URI.
    Updated(BTreeSet<String>),
    /// There are no lists of these kinds, and no hope for any soon.
    Failed(Vec<Kind>),
}

/// One list of a server.
#[derive(Debug)]
pub struct Listed {
    /// Of what.
    pub kind: Kind,
    /// The raw arrays of its pages.
    pub pages: Vec<Bytes>,
    /// For how long it says they hold.
    pub ttl: Option<Duration>,
    /// Whether it tells of changes.
    pub tells_changes: bool,
}

/// A server, as others see it.
pub struct Server {
    settings: Arc<ServerSettings>,
    base: Arc<Client>,
    /// Who wants a resource and who no longer does take turns, so that the last word counts.
    wanting: tokio::sync::Mutex<()>,
}

impl Server {
    /// Makes a server; its actors belong to `tasks`.
    pub fn run(
        index: usize,
        settings: ServerSettings,
        connect: Arc<dyn Connect>,
        memory: EraMemory,
        events: mpsc::Sender<Event>,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let settings = Arc::new(settings);
        let ground = Ground { index, settings: Arc::clone(&settings), connect, memory, events, tasks: tasks.clone() };
        let base = Client::run(&ground, Lease::default());
        Arc::new(Self { settings, base, wanting: tokio::sync::Mutex::default() })
    }

    /// Its key.
    pub fn key(&self) -> &ServerKey {
        &self.settings.key
    }

    /// Its settings.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Where it stands, now and later.
    pub fn state(&self) -> watch::Receiver<State> {
        self.base.state()
    }

    /// What went wrong last, safe to show.
    pub fn last_error(&self) -> Option<String> {
        self.base.last_error()
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u64 {
        self.base.restarts()
    }

    /// Stops it for good, at this pace.
    pub fn stop(&self, pace: Pace) {
        self.base.stop(pace);
    }

    /// Has it tell of changes of a resource; whether it does.
    pub async fn want_resource(&self, native: Arc<str>) -> Result<bool, Fault> {
        let _turn = self.wanting.lock().await;
        self.base.want_resource(native).await
    }

    /// Nobody wants to know of this resource any more, unless somebody does by now.
    pub async fn unwant_resource(&self, native: &str, is_wanted: impl FnOnce() -> bool) {
        let _turn = self.wanting.lock().await;
        if !is_wanted() {
            self.base.unwant_resource(native).await;
        }
    }

    /// Sends a request under its item's native name or URI (a raw JSON string). The permit proves that policy was
    /// asked. Dropping the future cancels it.
    pub async fn ask(
        &self,
        _permit: Permit,
        call: &Call,
        native: &[u8],
        input: Option<Input<'_>>,
        caller: &Caller,
        upward: Arc<Upward>,
    ) -> Result<Answer, Fault> {
        let connection = self.base.connection().await?;
        let wants_progress = call.progress_token().is_some();
        let timeouts = self.settings.timeouts;
        let deadlines = Deadlines { idle: timeouts.call, max: timeouts.call_max };
        let waiting = connection.request(call.method(), Some(deadlines), Some(upward), |out, id| {
            let leg = Leg {
                token: wants_progress.then_some(id),
                modern: connection.modern(),
                capabilities: &caller.capabilities,
                log_level: caller.log_level,
                input,
                context: connection.revision() >= Revision::V2025_06_18,
            };
            call.push_params(out, native, &leg);
        })?;
        waiting.answer().await
    }
}
