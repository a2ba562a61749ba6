//! Another configuration while calls run: when a file of it changes, and at HUP.
//!
//! Knows neither flags nor files of the configuration: [`Reload`] loads. What is wrong with a new one is told, and the old
//! one stays in force. What cannot change while the process runs is told, too. Called by the fronts of `daemon`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attach::Guests;
use super::systemd;
use super::uses::Uses;
use crate::config::settings::{AdminSettings, GatewaySettings, HttpSettings, Settings, TelemetrySettings};
use crate::gateway::Current;
use crate::policy::RulesError;
use crate::telemetry::audit::used::Wanted;
use crate::upstream::http::Entrance;
use crate::watched::{Files, Read};

/// How a configuration is loaded anew.
pub struct Reload {
    /// Loads it; what is wrong is text for people, a line for each fault. Reads files.
    pub load: Box<dyn Fn() -> Result<Fresh, String> + Send + Sync>,
    /// What the one that is in force at the start was made of.
    pub read: Read,
}

/// A configuration that was loaded anew.
pub struct Fresh {
    /// All of it.
    pub settings: Settings,
    /// What it was made of.
    pub read: Read,
}

/// What is in force as long as the process runs.
#[derive(Clone)]
pub(super) struct Fixed {
    pub(super) http: HttpSettings,
    pub(super) admin: AdminSettings,
    telemetry: TelemetrySettings,
    gateway: GatewaySettings,
}

impl Fixed {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            http: settings.http.clone(),
            admin: settings.admin.clone(),
            telemetry: settings.telemetry.clone(),
            gateway: settings.gateway.clone(),
        }
    }

    /// What another configuration has of it in other words, by key.
    fn differs(&self, settings: &Settings) -> Vec<&'static str> {
        let (http, other) = (&self.http, &settings.http);
        let all = [
            ("http.listen", http.listen != other.listen),
            ("http.tls", http.tls != other.tls),
            ("http.sse", http.sse != other.sse),
            ("admin", self.admin != settings.admin),
            ("telemetry", self.telemetry != settings.telemetry),
            ("gateway.max_message", self.gateway.max_message != settings.gateway.max_message),
            ("gateway.state", self.gateway.state != settings.gateway.state),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// What is reloaded.
pub(super) struct Subject {
    pub(super) current: Arc<Current>,
    /// Of a front that others reach.
    pub(super) entrance: Option<Arc<Entrance>>,
    /// Who may be whom of those that attach.
    pub(super) guests: Option<Arc<Guests>>,
    pub(super) fixed: Fixed,
    /// Why the last configuration is not in force; read by those who look.
    pub(super) fault: Arc<ArcSwapOption<String>>,
    pub(super) uses: Option<Uses>,
}

/// Loads the configuration anew when it has changed or somebody says so, until `stop`.
pub(super) fn watch(subject: Subject, reload: Reload, stop: CancellationToken, tasks: &TaskTracker) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        tracing::warn!("signals cannot be watched: the configuration is not loaded anew");
        return;
    };
    tasks.spawn(async move {
        let mut files = Files::new(reload.read.clone());
        let reload = Arc::new(reload);
        let watching = async {
            loop {
                let asked = tokio::select! {
                    _ = hangup.recv() => {
                        files.note();
                        true
                    }
                    () = files.changed() => false,
                };
                if let Some(now) = subject.reload(&reload, asked).await {
                    files.follow(now);
                }
            }
        };
        stop.run_until_cancelled(watching).await;
    });
}

impl Subject {
    /// Loads it and puts it in force; what it is made of now.
    async fn reload(&self, reload: &Arc<Reload>, asked: bool) -> Option<Read> {
        tracing::info!("loading the configuration anew, {}", if asked { "as asked" } else { "since it has changed" });
        systemd::tell_reloading();
        let loading = Arc::clone(reload);
        let loaded = tokio::task::spawn_blocking(move || (loading.load)()).await;
        let loaded = loaded.unwrap_or_else(|_| Err("it could not be read to its end".to_owned()));
        let done = match loaded {
            Ok(fresh) => self.put(fresh).await,
            Err(why) => Err(why),
        };
        // Whatever came of it, we serve.
        systemd::tell(&[NotifyState::Ready]);
        match done {
            Ok((what, read)) => {
                tracing::info!("the new configuration is in force: {what}");
                self.fault.store(None);
                Some(read)
            }
            Err(why) => {
                why.lines().for_each(|line| tracing::error!("{line}"));
                tracing::error!("the new configuration is not in force: the old one stays");
                self.fault.store(Some(Arc::new(why)));
                None
            }
        }
    }

    async fn put(&self, fresh: Fresh) -> Result<(String, Read), String> {
        let Fresh { mut settings, read } = fresh;
        if let Some(entrance) = &self.entrance {
            entrance.suits(&settings.auth)?;
        }
        for key in self.fixed.differs(&settings) {
            tracing::warn!("{key} is another now: that takes effect with the next start");
        }
        settings.gateway.state.clone_from(&self.fixed.gateway.state);
        let (http, auth, counts) = (settings.http.clone(), settings.auth.clone(), Wanted::by(&settings));
        let reloaded = self.current.reload(settings).await.map_err(|faults| RulesError::all(&faults))?;
        if let Some(entrance) = &self.entrance {
            entrance.reload(&http, &auth);
        }
        if let Some(uses) = &self.uses {
            uses.reload(counts);
        }
        if let Some(guests) = &self.guests {
            guests.reload(&auth.stdio);
        }
        Ok((reloaded.to_string(), read))
    }
}
