//! Before a server is started: whether what would run is what was reviewed (E-09, E-10).
//!
//! Starts nothing itself. Asked by `downstream` through [`Guarded`], which stands around the way to servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::Pinned;
use crate::config::settings::{PinMode, ServerSettings};
use crate::downstream::{Answering, Connect, Link, Served};
use crate::ident::Kind;
use crate::pins::artifact::{Artifact, Reference};
use crate::pins::drift::Quarantine;

impl Pinned {
    /// Whether a server may be started: what is launched is what was reviewed (E-09, E-10).
    async fn clear(&self, server: usize) -> Result<(), String> {
        let mode = self.mode(server);
        if mode == PinMode::Off {
            return Ok(());
        }
        let site = &self.sites[server];
        let measured = match &site.reference {
            // Files may be large.
            Some(reference) => measure(reference.clone()).await,
            None => Ok(None),
        };
        let before = self.quarantine(server);
        match measured {
            Ok(artifact) => {
                let level = |artifact: &Option<Artifact>| artifact.as_ref().map(|artifact| artifact.level);
                let locked = self.with_locked(server, |locked| locked.and_then(|locked| level(&locked.artifact)));
                let mut now = site.now();
                let other = level(&artifact) != level(&now.observed.artifact).or(locked);
                now.observed.artifact = artifact;
                drop(now);
                if other {
                    self.mark(server);
                }
            }
            Err(error) if mode == PinMode::Enforce => return Err(format!("what it runs cannot be read: {error}")),
            Err(_) => {}
        }
        let quarantine = self.quarantine(server);
        if quarantine != before {
            self.mark(server);
        }
        let Some(quarantine) = quarantine.filter(|_| !self.observe) else { return Ok(()) };
        self.tell_server(server, mode, Some(&quarantine));
        // What only its words say, or that nobody has reviewed it, is seen when it is listed: for the inventory.
        let starts = match quarantine {
            Quarantine::Unlocked | Quarantine::Protocol { .. } | Quarantine::Level { .. } => true,
            Quarantine::Lock(_) | Quarantine::Launch | Quarantine::Artifact(_) | Quarantine::Floating(_) => false,
        };
        if mode == PinMode::Enforce && !starts {
            return Err(format!("not started: {quarantine}"));
        }
        Ok(())
    }
}

/// Reads what is launched, which may be large; awaited at once by who asked.
async fn measure(reference: Reference) -> std::io::Result<Option<Artifact>> {
    tokio::task::spawn_blocking(move || reference.measure().map(Some)).await.map_err(std::io::Error::other)?
}

/// A way to servers that asks the pins before anything is started.
pub(in crate::gateway) struct Guarded {
    pub(in crate::gateway) inner: Arc<dyn Connect>,
    /// Those that are in force.
    pub(in crate::gateway) pins: Arc<ArcSwap<Pinned>>,
}

impl Connect for Guarded {
    fn connect(&self, server: &ServerSettings) -> Result<Link, String> {
        self.inner.connect(server)
    }

    fn clear<'a>(&'a self, server: &'a ServerSettings) -> Answering<'a, Result<(), String>> {
        Box::pin(async move {
            let pins = self.pins.load_full();
            match pins.index(&server.key) {
                Some(index) => pins.clear(index).await?,
                None => return Err("it is not one of the servers".to_owned()),
            }
            self.inner.clear(server).await
        })
    }

    fn served(&self, server: &ServerSettings, kind: Kind, pages: &[Bytes]) -> Served {
        let pins = self.pins.load();
        pins.index(&server.key).map(|index| pins.served(index, kind, pages)).unwrap_or_default()
    }

    fn generation(&self) -> u64 {
        self.pins.load().generation.load(Ordering::Acquire)
    }
}
