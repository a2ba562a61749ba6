//! Before a server is started: whether what would run is what was reviewed (E-09, E-10).
//!
//! Where the lock binds packages that are installed, their command is started in the place of the runner. Starts nothing itself. Asked by `downstream` through [`Guarded`], which stands around the way to servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::Pinned;
use crate::config::settings::{Launch, PinMode, Reach, ServerSettings};
use crate::downstream::{Answering, Connect, Link, Served};
use crate::ident::Kind;
use crate::pins::artifact::{Artifact, Reference};
use crate::pins::drift::Quarantine;
use crate::pins::managed::{Plan, Site};

impl Pinned {
    /// Where the packages of a server are installed, if the lock binds it by them.
    fn installation(&self, server: usize) -> Option<(Site, Plan)> {
        let site = &self.sites[server];
        let plan = site.plan.clone()?;
        let locked = || self.with_locked(server, |locked| locked?.artifact.as_ref()?.packages);
        let packages = self.installed.get(&site.key).copied().or_else(locked)?;
        Some((Site::of(&self.state, &plan, packages), plan))
    }

    /// How the installed command of a server is started, as its last look found; nothing where its runner is. Another lock, or
    /// other settings, may be in force since that look: then it is refused, and looked at again with the next try.
    fn entry(&self, server: usize, settings: &ServerSettings) -> Result<Option<Launch>, String> {
        let is_of_these = |asked: &Launch| matches!(&settings.reach, Ok(Reach::Launch(launch)) if launch == asked);
        let entry = self.sites[server].now().entry.clone();
        let entry = entry.and_then(|(asked, entry)| is_of_these(&asked).then_some(entry));
        let bound = || self.with_locked(server, |locked| locked.and_then(|locked| locked.artifact.as_ref()?.packages));
        if entry.is_none() && self.mode(server) == PinMode::Enforce && bound().is_some() {
            return Err("not started: the lock has packages of it that were not compared yet".to_owned());
        }
        Ok(entry)
    }

    /// Whether a server may be started: what is launched is what was reviewed (E-09, E-10).
    async fn clear(&self, server: usize, settings: &ServerSettings) -> Result<(), String> {
        let mode = self.mode(server);
        let site = &self.sites[server];
        if mode == PinMode::Off {
            site.now().entry = None;
            return Ok(());
        }
        let launch = match &settings.reach {
            Ok(Reach::Launch(launch)) => Some(launch.clone()),
            Ok(Reach::Remote(_)) | Err(_) => None,
        };
        let measured = match &site.reference {
            // Files may be large.
            Some(reference) => measure(reference.clone(), self.installation(server), launch).await,
            None => Ok((None, None)),
        };
        let measured = measured.map(|(artifact, entry)| {
            site.now().entry = entry;
            artifact
        });
        let before = self.quarantine(server);
        match measured {
            Ok(artifact) => {
                let level = |artifact: &Option<Artifact>| artifact.as_ref().map(|artifact| artifact.level);
                let locked = self.with_locked(server, |locked| locked.and_then(|locked| level(&locked.artifact)));
                let mut now = site.now();
                let other = level(&artifact) != level(&now.observed.artifact).or(locked);
                (now.observed.artifact, now.early) = (artifact, false);
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

/// What is launched, what was asked for and how the installed command of it is started instead.
type Measured = (Option<Artifact>, Option<(Launch, Launch)>);

/// Reads what is launched, which may be large; awaited at once by who asked.
async fn measure(
    reference: Reference,
    installation: Option<(Site, Plan)>,
    launch: Option<Launch>,
) -> std::io::Result<Measured> {
    let read = move || {
        let installed = installation.and_then(|(site, plan)| {
            let artifact = site.measure(&plan, &reference)?;
            let asked = launch?;
            let entry = site.launch(&plan, &asked);
            Some((Some(artifact), entry.map(|entry| (asked, entry))))
        });
        installed.map_or_else(|| Ok((Some(reference.measure()?), None)), Ok)
    };
    tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)?
}

/// A way to servers that asks the pins before anything is started.
pub(in crate::gateway) struct Guarded {
    pub(in crate::gateway) inner: Arc<dyn Connect>,
    /// Those that are in force.
    pub(in crate::gateway) pins: Arc<ArcSwap<Pinned>>,
}

impl Connect for Guarded {
    fn connect(&self, server: &ServerSettings) -> Result<Link, String> {
        let pins = self.pins.load();
        let index = pins.index(&server.key);
        match index.map(|index| pins.entry(index, server)).transpose()?.flatten() {
            Some(launch) => self.inner.connect(&ServerSettings { reach: Ok(Reach::Launch(launch)), ..server.clone() }),
            None => self.inner.connect(server),
        }
    }

    fn clear<'a>(&'a self, server: &'a ServerSettings) -> Answering<'a, Result<(), String>> {
        Box::pin(async move {
            let pins = self.pins.load_full();
            match pins.index(&server.key) {
                Some(index) => pins.clear(index, server).await?,
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
