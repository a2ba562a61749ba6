//! `onegate verify`: whether lock and snapshots are whole, without starting anything.

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::{Common, load, out};
use crate::config::settings::PinMode;
use crate::pins::lock::{Lock, LockFault};

/// Flags of `verify`.
#[derive(clap::Args)]
pub(in crate::cli) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(in crate::cli) fn run(args: &Args) -> anyhow::Result<Exit> {
    let settings = load::load(&args.common, args.json)?.settings;
    let path = &settings.pins.lock;
    let enforced = settings.servers.iter().any(|server| server.pin.mode == PinMode::Enforce);
    let (faults, servers): (Vec<String>, usize) = match Lock::read(path) {
        Err(fault) => (vec![fault.to_string()], 0),
        Ok(None) if enforced => (vec!["it is not there, and pins are enforced".to_owned()], 0),
        Ok(None) => (Vec::new(), 0),
        Ok(Some(lock)) => {
            let loose = lock.loose.clone().filter(|_| enforced).map(|path| LockFault::Loose(path).to_string());
            let of_servers = lock.faults().map(|(key, fault)| format!("{key}: {fault}"));
            (loose.into_iter().chain(of_servers).collect(), lock.servers.len())
        }
    };
    if args.json {
        out::json(&json!({ "lock": path, "servers": servers, "faults": faults }))?;
    } else if faults.is_empty() {
        out::text(&format!("{}: {}, whole", path.display(), load::count(servers, "server")))?;
    } else {
        faults.iter().for_each(|fault| out::say(&format!("onegate: {}: {fault}", path.display())));
    }
    Ok(if faults.is_empty() { Exit::Fine } else { Exit::LockInvalid })
}
