//! Another configuration while calls run: when a file of it changes, and at HUP.
//!
//! Knows neither flags nor files of the configuration: [`Reload`] loads. What is wrong with a new one is told, and the old
//! one stays in force. What cannot change while the process runs is told, too. Called by the fronts of `daemon`.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::systemd;
use crate::config::settings::{AdminSettings, AuthMode, GatewaySettings, HttpSettings, Settings, TelemetrySettings};
use crate::gateway::Current;
use crate::policy::RulesError;
use crate::upstream::http::Entrance;

/// Files are read when nothing more has changed for this long: editors write in several steps…
const QUIET: Duration = Duration::from_millis(250);
/// …and at the latest after this.
const LATEST: Duration = Duration::from_secs(2);
/// How often files are looked at where nobody tells of changes.
const LOOK: Duration = Duration::from_secs(5);

/// How a configuration is loaded anew.
pub struct Reload {
    /// Loads it; what is wrong is text for people, a line for each fault. Reads files.
    pub load: Box<dyn Fn() -> Result<Fresh, String> + Send + Sync>,
    /// The files and folders that it was made of.
    pub files: Vec<PathBuf>,
}

/// A configuration that was loaded anew.
pub struct Fresh {
    /// All of it.
    pub settings: Settings,
    /// The files and folders that it was made of.
    pub files: Vec<PathBuf>,
}

/// What is in force as long as the process runs.
#[derive(Clone)]
pub(super) struct Fixed {
    http: HttpSettings,
    admin: AdminSettings,
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
    pub(super) fixed: Fixed,
    /// Why the last configuration is not in force; read by those who look.
    pub(super) fault: Arc<ArcSwapOption<String>>,
}

/// Loads the configuration anew when it has changed or somebody says so, until `stop`.
pub(super) fn watch(subject: Subject, reload: Reload, stop: CancellationToken, tasks: &TaskTracker) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        tracing::warn!("signals cannot be watched: the configuration is not loaded anew");
        return;
    };
    tasks.spawn(async move {
        let mut files = Files::new(reload.files.clone());
        let reload = Arc::new(reload);
        let watching = async {
            loop {
                let asked = tokio::select! {
                    _ = hangup.recv() => true,
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
    /// Loads it and puts it in force; the files that it is made of now.
    async fn reload(&self, reload: &Arc<Reload>, asked: bool) -> Option<Vec<PathBuf>> {
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
            Ok((what, files)) => {
                tracing::info!("the new configuration is in force: {what}");
                self.fault.store(None);
                Some(files)
            }
            Err(why) => {
                why.lines().for_each(|line| tracing::error!("{line}"));
                tracing::error!("the new configuration is not in force: the old one stays");
                self.fault.store(Some(Arc::new(why)));
                None
            }
        }
    }

    async fn put(&self, fresh: Fresh) -> Result<(String, Vec<PathBuf>), String> {
        let Fresh { mut settings, files } = fresh;
        // A front goes on listening where it does: the rule of its start holds there.
        if settings.auth.mode == AuthMode::None && self.entrance.is_some() && !self.fixed.http.listen.ip().is_loopback()
        {
            return Err("auth.mode = \"none\" is for a listener on loopback only".to_owned());
        }
        for key in self.fixed.differs(&settings) {
            tracing::warn!("{key} is another now: that takes effect with the next start");
        }
        settings.gateway.state.clone_from(&self.fixed.gateway.state);
        let (http, auth) = (settings.http.clone(), settings.auth.clone());
        let reloaded = self.current.reload(settings).await.map_err(|faults| RulesError::all(&faults))?;
        if let Some(entrance) = &self.entrance {
            entrance.reload(&http, &auth);
        }
        Ok((reloaded.to_string(), files))
    }
}

/// The files of a configuration, and what tells of changes.
struct Files {
    /// Files, and folders whose files count.
    files: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    told: Arc<Notify>,
    /// Nothing where the system cannot tell of changes.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

/// What tells one state of a file from another.
type Stamp = (PathBuf, Option<(u64, i64, i64, u64)>);

impl Files {
    fn new(files: Vec<PathBuf>) -> Self {
        let told = Arc::new(Notify::new());
        let tell = Arc::clone(&told);
        let watcher = notify::recommended_watcher(move |_| tell.notify_one());
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "changes of files are looked for now and then"));
        let stamps = Vec::new();
        let mut all = Self { files: Vec::new(), stamps, told, watcher: watcher.ok(), watched: BTreeSet::new() };
        all.follow(files);
        all
    }

    /// Follows these from now on. The folders that hold them are watched, as most editors put another file in the place of the
    /// old one; a link may lead to another folder, and that one counts too.
    fn follow(&mut self, files: Vec<PathBuf>) {
        self.files = files;
        self.stamps = self.stamp();
        let folder =
            |path: &Path| if path.is_dir() { Some(path.to_owned()) } else { path.parent().map(Path::to_owned) };
        let real = self.files.iter().filter_map(|file| std::fs::canonicalize(file).ok());
        let wanted: BTreeSet<PathBuf> =
            self.files.iter().cloned().chain(real).filter_map(|path| folder(&path)).collect();
        let Some(watcher) = &mut self.watcher else { return };
        for folder in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(folder);
        }
        let mut watched: BTreeSet<PathBuf> = self.watched.intersection(&wanted).cloned().collect();
        for folder in wanted.difference(&self.watched) {
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(watched.insert(folder.clone())),
                Err(error) => tracing::debug!(folder = %folder.display(), %error, "changes there are not told of"),
            }
        }
        self.watched = watched;
    }

    /// Waits until they are others than they were, and nothing more changes. Nothing is lost when the future is dropped.
    async fn changed(&mut self) {
        loop {
            match self.watcher {
                Some(_) => self.told.notified().await,
                None => tokio::time::sleep(LOOK).await,
            }
            if self.stamp() == self.stamps {
                continue;
            }
            let latest = Instant::now() + LATEST;
            loop {
                let quiet = latest.min(Instant::now() + QUIET);
                tokio::select! {
                    () = self.told.notified(), if quiet < latest => {}
                    () = sleep_until(quiet) => break,
                }
            }
            self.stamps = self.stamp();
            return;
        }
    }

    fn stamp(&self) -> Vec<Stamp> {
        let mut all = Vec::new();
        for file in &self.files {
            match std::fs::read_dir(file) {
                Ok(inside) => all.extend(inside.flatten().map(|entry| stamp(entry.path()))),
                Err(_) => all.push(stamp(file.clone())),
            }
        }
        all.sort();
        all
    }
}

fn stamp(path: PathBuf) -> Stamp {
    let about = std::fs::metadata(&path).ok();
    let about = about.map(|about| (about.ino(), about.mtime(), about.mtime_nsec(), about.len()));
    (path, about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    async fn tells(files: &mut Files) -> bool {
        timeout(Duration::from_secs(20), files.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_file_that_is_written_replaced_linked_or_added_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other, all) =
            (folder.path().join("a.toml"), folder.path().join("b"), folder.path().join("policy.d"));
        std::fs::write(&file, "1").unwrap();
        std::fs::create_dir(&all).unwrap();
        let mut files = Files::new(vec![file.clone(), all.clone()]);
        std::fs::write(&file, "22").unwrap();
        assert!(tells(&mut files).await, "written");
        std::fs::write(&other, "333").unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert!(tells(&mut files).await, "another one in its place");
        std::fs::write(all.join("x.toml"), "1").unwrap();
        assert!(tells(&mut files).await, "one more in a folder");
        std::fs::remove_file(&file).unwrap();
        assert!(tells(&mut files).await, "gone");
        // Where it leads to counts.
        let target = tempfile::tempdir().unwrap();
        std::fs::write(target.path().join("real"), "1").unwrap();
        std::os::unix::fs::symlink(target.path().join("real"), &file).unwrap();
        files.follow(vec![file.clone(), all]);
        std::fs::write(target.path().join("real"), "22").unwrap();
        assert!(tells(&mut files).await, "behind a link");
    }

    #[tokio::test]
    async fn what_is_beside_it_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "1").unwrap();
        let mut files = Files::new(vec![file.clone()]);
        std::fs::write(folder.path().join("b"), "1").unwrap();
        std::fs::read(&file).unwrap();
        assert!(timeout(Duration::from_millis(600), files.changed()).await.is_err());
    }
}
