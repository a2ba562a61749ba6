//! What was called, by the records: how often each tool was in some last time, and since when records are there at all.
//!
//! Reads files and writes none but the count of a day ([`Wanted::renew`]): a process that starts has no time to read a
//! month of records, and an order of tools that changed with each call would be worth nothing to whoever keeps a prompt.
//! Called by `onegate tools`, by whoever loads a configuration, and by `daemon`.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::names::family;
use super::verify::Lines;
use crate::config::settings::{Settings, Uses};
use crate::{moment, whole};

/// For so long one count is good enough.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Largest file of a count that is read or written.
const MAX_FILE: u64 = 8 << 20;

/// Calls by server and native name.
pub type Counts = BTreeMap<String, BTreeMap<String, u32>>;

/// What was called in some time.
#[derive(Debug, Default)]
pub struct Used {
    /// How often each tool was.
    pub tools: Counts,
    /// When the first record was written that was read.
    pub recorded: Option<String>,
    /// From when on calls count.
    pub from: String,
}

impl Used {
    /// Reads the records of this last time; on an error, the file that it was about.
    pub fn read(files: &[PathBuf], time: Duration) -> Result<Self, (PathBuf, io::Error)> {
        let from = SystemTime::now().checked_sub(time).map(moment::text).unwrap_or_default();
        let mut used = Self { from, ..Self::default() };
        for file in files {
            used.file(file).map_err(|error| (file.clone(), error))?;
        }
        Ok(used)
    }

    fn file(&mut self, file: &Path) -> io::Result<()> {
        let mut lines = Lines::open(file)?;
        while let Some(raw) = lines.next_line()? {
            let Ok(record) = serde_json::from_slice::<Value>(&raw.bytes) else { continue };
            self.record(&record);
        }
        Ok(())
    }

    /// Takes in one record.
    pub fn record(&mut self, record: &Value) {
        let text = |name: &str| record[name].as_str();
        let Some(time) = text("time") else { return };
        if self.recorded.as_deref().is_none_or(|since| time < since) {
            self.recorded = Some(time.to_owned());
        }
        // Who was refused wanted it all the same.
        if let (Some(server), Some("tool"), Some(native)) = (text("server"), text("kind"), text("native"))
            && time >= self.from.as_str()
        {
            let count = self.tools.entry(server.to_owned()).or_default().entry(native.to_owned()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Whether a tool was called.
    pub fn has(&self, server: &str, native: &str) -> bool {
        self.tools.get(server).is_some_and(|tools| tools.contains_key(native))
    }
}

/// Which counts a configuration goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The record of decisions.
    file: PathBuf,
    /// Where a count lies, of which time it is, and which profile goes by it.
    counts: Vec<(PathBuf, Duration, usize)>,
}

impl Wanted {
    /// What these settings want; nothing where they record nothing.
    pub fn by(settings: &Settings) -> Self {
        let Some(audit) = &settings.telemetry.audit else { return Self::default() };
        let place = |time: Duration| {
            let name = Sha256::digest(format!("{}\n{}", audit.file.display(), time.as_secs()));
            settings.gateway.state.join("used").join(HEXLOWER.encode(&name[..16]))
        };
        let recent =
            settings.profiles.iter().enumerate().filter_map(|(at, profile)| Some((at, profile.surface.recent?)));
        Self { file: audit.file.clone(), counts: recent.map(|(at, time)| (place(time), time, at)).collect() }
    }

    /// Whether there is nothing to count.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Counts anew what was counted more than a day ago, for the next start or reload. Reads all records: not on the path of
    /// anything.
    pub fn renew(&self) -> io::Result<()> {
        for (path, time, _) in &self.counts {
            let written = std::fs::metadata(path).and_then(|about| about.modified());
            if written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < DAY)) {
                continue;
            }
            let used = Used::read(&family(&self.file)?, *time).map_err(|(_, error)| error)?;
            let bytes = rmp_serde::to_vec(&used.tools).map_err(io::Error::other)?;
            // Where nothing was called yet, the next start looks again.
            if !used.tools.is_empty() && bytes.len() as u64 <= MAX_FILE {
                let folder = path.parent().unwrap_or(Path::new("."));
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                whole::replace(path, &bytes, 0o600)?;
            }
        }
        Ok(())
    }
}

/// Puts the last counts into the profiles that go by them; where there is none yet, nothing was called.
pub fn fill(settings: &mut Settings) {
    for (path, _, at) in Wanted::by(settings).counts {
        settings.profiles[at].surface.uses = read(&path).map(Uses::new).unwrap_or_default();
    }
}

fn read(path: &Path) -> Option<Counts> {
    std::fs::metadata(path).ok().filter(|about| about.len() <= MAX_FILE)?;
    rmp_serde::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::settings::{AuditSettings, LogFormat, ProfileSettings, TelemetrySettings};

    fn record(time: SystemTime, native: &str) -> String {
        json!({"time": moment::text(time), "server": "a", "kind": "tool", "native": native}).to_string() + "\n"
    }

    #[test]
    fn a_count_is_good_for_a_day_and_is_taken_up_by_who_loads_a_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.jsonl");
        let now = SystemTime::now();
        let old = record(now - Duration::from_secs(40 * 24 * 3600), "old");
        std::fs::write(&file, old + &record(now, "t") + "no record\n" + &record(now, "t")).unwrap();
        let audit = Some(AuditSettings::of(file.clone()));
        let telemetry = TelemetrySettings { log: "off".into(), format: LogFormat::Pretty, audit, otlp: None };
        let mut settings = Settings::of(Vec::new(), folder.path().join("state"), telemetry);
        settings.profiles = vec![ProfileSettings::everything(), ProfileSettings::everything()];
        settings.profiles[1].surface.recent = Some(Duration::from_secs(30 * 24 * 3600));
        let weights = |settings: &mut Settings| {
            fill(settings);
            ["t", "old", "u"].map(|native| settings.profiles[1].surface.uses.weight("a", native))
        };
        assert_eq!(weights(&mut settings), [0, 0, 0], "nothing was counted yet");
        Wanted::by(&settings).renew().unwrap();
        assert_eq!(weights(&mut settings), [2, 0, 0]);
        assert_eq!(settings.profiles[0].surface.uses, Uses::default());
        std::fs::write(&file, record(now, "u")).unwrap();
        Wanted::by(&settings).renew().unwrap();
        assert_eq!(weights(&mut settings), [2, 0, 0], "the same for a day");
        let kept = Wanted::by(&settings).counts.remove(0).0;
        std::fs::File::options().write(true).open(&kept).unwrap().set_modified(now - 2 * DAY).unwrap();
        Wanted::by(&settings).renew().unwrap();
        assert_eq!(weights(&mut settings), [0, 0, 1]);
        std::fs::write(&kept, b"no count").unwrap();
        assert_eq!(weights(&mut settings), [0, 0, 0]);
    }
}
