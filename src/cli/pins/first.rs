//! `--trust-on-first-use`: the lock of a single user, made once, of what is there at the first start (threat model §5).
//!
//! Never where a lock exists, never in CI, never for what changed.

use super::lock::{findings, load_again};
use super::{observe, summary, tell_failed, today, tools_of_others};
use crate::cli::exit::Exit;
use crate::cli::{Common, out};
use crate::config::settings::Settings;
use crate::pins::lock::{Lock, edit::Draft};
use crate::pins::observed::Memory;
use crate::pins::review;

/// Makes the lock, and says what was trusted.
pub(super) fn trust(common: &Common, settings: &Settings) -> anyhow::Result<()> {
    let path = &settings.pins.lock;
    match Lock::read(path) {
        Ok(None) => {}
        Ok(Some(_)) => {
            tracing::info!(lock = %path.display(), "there is a lock; nothing is trusted on first use");
            return Ok(());
        }
        Err(fault) => {
            out::say(&format!("onegate: {}: {fault}", path.display()));
            return Err(Exit::LockInvalid.into());
        }
    }
    if std::env::var_os("CI").is_some() {
        out::say("onegate: --trust-on-first-use is for people; in CI write the lock before, and use --locked");
        return Err(Exit::Usage.into());
    }
    let keys = settings.servers.iter().map(|server| server.key.clone()).collect();
    let seen = observe(&mut || load_again(common), &keys)?;
    tell_failed(&seen);
    let mut draft = Draft::open(path)?;
    let memory = Memory::of(&settings.gateway.state, path);
    for server in &settings.servers {
        let Some(observed) = seen.observed.get(&server.key) else { continue };
        let reviewed = review::reviewed(observed, &server.pin.ignore, None, &today());
        out::say(&format!("trusted on first use: {}", summary(&server.key, &reviewed)));
        let others = tools_of_others(&server.key, None, &seen.observed);
        findings(observed, &others).iter().for_each(|finding| out::say(&format!("  ! {finding}")));
        draft.put(&server.key, &reviewed);
        memory.note(&server.key, observed)?;
    }
    if !seen.observed.is_empty() {
        draft.write()?;
    }
    Ok(())
}
