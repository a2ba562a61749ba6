//! `onegate status` and `onegate logs`: what runs, asked of the gateways themselves.
//!
//! Starts nothing and changes nothing. What servers said was escaped by who kept it. A configuration that cannot be read
//! keeps nobody from looking: gateways that run with an older one are found in the usual folder.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use bytes::Bytes;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use serde_json::{Value, json};

use super::exit::Exit;
use super::{Common, load, out, run};
use crate::config::Environment;
use crate::config::settings::AdminSettings;
use crate::daemon;
use crate::ident::ServerKey;

/// How often a live view is made anew.
const EACH: Duration = Duration::from_secs(1);

/// Flags of `status`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Show it anew each second, until `q`; with --json a line each time.
    #[arg(long)]
    watch: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Flags of `logs`.
#[derive(clap::Args)]
pub(super) struct LogArgs {
    /// Whose lines, by its key.
    server: String,
    /// How many lines, 1000 at most.
    #[arg(short = 'n', long, default_value_t = 50)]
    lines: u16,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let admin = admin(&args.common)?;
    let gateways = run::block_on(gateways(&admin))?;
    match (args.watch, args.json) {
        (true, true) => loop {
            out::json(&merged(&run::block_on(self::gateways(&admin))?))?;
            std::thread::sleep(EACH);
        },
        (true, false) if io::stdout().is_terminal() => watch(&admin)?,
        (_, true) => out::json(&merged(&gateways))?,
        (_, false) => {
            for gateway in &gateways {
                out::text(&format!("{}\n{}", headline(gateway), out::table(&rows(gateway), &[3, 4, 5])))?;
            }
        }
    }
    if gateways.is_empty() && !args.watch {
        out::say("onegate: no gateway runs here; `onegate serve` or a host with `onegate run` starts one");
        return Ok(Exit::Failed);
    }
    Ok(Exit::Fine)
}

pub(super) fn logs(args: &LogArgs) -> anyhow::Result<Exit> {
    // Only what is a key goes into a path.
    let Ok(key) = ServerKey::new(&args.server) else {
        out::say("onegate: a server's key is 1 to 16 of a-z, 0-9 and -, beginning with a letter");
        return Ok(Exit::Usage);
    };
    let admin = admin(&args.common)?;
    let answers = run::block_on(daemon::ask(&admin, &format!("/logs/{key}?lines={}", args.lines)))?;
    let answers = decoded(&answers);
    if answers.is_empty() {
        out::say(&format!("onegate: no gateway with a server {key} runs here"));
        return Ok(Exit::Failed);
    }
    if args.json {
        out::json(&json!({ "gateways": answers }))?;
        return Ok(Exit::Fine);
    }
    for answer in &answers {
        if answers.len() > 1 {
            out::say(&format!("pid {}:", answer["pid"]));
        }
        for line in answer["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            out::text(line)?;
        }
    }
    Ok(Exit::Fine)
}

/// Where gateways are found.
fn admin(common: &Common) -> anyhow::Result<AdminSettings> {
    match load::load(common, false) {
        Ok(loaded) => Ok(loaded.settings.admin),
        Err(error) if error.is::<Exit>() => {
            let folder = Some(Environment::of_process().runtime_folder());
            Ok(AdminSettings { folder, ..AdminSettings::default() })
        }
        Err(error) => Err(error),
    }
}

async fn gateways(admin: &AdminSettings) -> Vec<Value> {
    decoded(&daemon::ask(admin, "/status").await)
}

fn decoded(answers: &[Bytes]) -> Vec<Value> {
    answers.iter().filter_map(|answer| serde_json::from_slice(answer).ok()).collect()
}

/// All servers of all gateways, each with the process of its own, and the gateways without them.
fn merged(gateways: &[Value]) -> Value {
    let mut servers = Vec::new();
    let mut alone = Vec::new();
    for gateway in gateways {
        let mut gateway = gateway.clone();
        let pid = gateway["pid"].clone();
        if let Value::Array(own) = gateway["servers"].take() {
            servers.extend(own.into_iter().map(|mut server| {
                server["gateway"] = pid.clone();
                server
            }));
        }
        if let Some(members) = gateway.as_object_mut() {
            members.remove("servers");
        }
        alone.push(gateway);
    }
    json!({ "servers": servers, "gateways": alone })
}

/// A gateway in a line.
fn headline(gateway: &Value) -> String {
    let text = |name: &str| gateway[name].as_str().unwrap_or_default().to_owned();
    let address = gateway["address"].as_str().map(|address| format!(" at {address}")).unwrap_or_default();
    let up = Duration::from_millis(gateway["uptime_ms"].as_u64().unwrap_or_default());
    let profiles = gateway["profiles"].as_array().into_iter().flatten().map(|profile| {
        let of = |name: &str| profile[name].as_u64().unwrap_or_default();
        let behind = match of("behind") {
            0 => String::new(),
            behind => format!(", {behind} more by search"),
        };
        let name = profile["name"].as_str().unwrap_or_default();
        format!("{name}: {} tools, ~{} tokens{behind}", of("tools"), of("tokens"))
    });
    let ready = if gateway["ready"] == true { "" } else { ", not ready yet" };
    let profiles = profiles.collect::<Vec<_>>().join("; ");
    format!("{}{address}, pid {}, up {}{ready} ({profiles})", text("front"), gateway["pid"], spoken(up))
}

/// A time in the two units that matter.
fn spoken(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        s => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

const COLUMNS: [&str; 7] = ["server", "state", "era", "running", "restarts", "pid", "last error"];

/// A gateway's servers, a row each, below the names of the columns.
fn rows(gateway: &Value) -> Vec<Vec<String>> {
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    for server in gateway["servers"].as_array().into_iter().flatten() {
        let shown = |name: &str| match &server[name] {
            value if value.is_null() => "-".to_owned(),
            value => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        };
        let state = match server["retry_after_ms"].as_u64() {
            Some(wait) => format!("{} ({} s)", shown("state"), wait.div_ceil(1000)),
            None => shown("state"),
        };
        rows.push(vec![
            shown("key"),
            state,
            shown("era"),
            shown("in_flight"),
            shown("restarts"),
            shown("pid"),
            shown("last_error"),
        ]);
    }
    rows
}

/// The live view, until `q`, Escape or an interrupt.
fn watch(admin: &AdminSettings) -> anyhow::Result<()> {
    let mut terminal = ratatui::init();
    let looked = (|| {
        loop {
            let gateways = run::block_on(gateways(admin))?;
            terminal.draw(|frame| draw(frame, &gateways))?;
            if event::poll(EACH)?
                && let Event::Key(key) = event::read()?
                && is_end(key)
            {
                return Ok(());
            }
        }
    })();
    ratatui::restore();
    looked
}

fn is_end(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut ratatui::Frame<'_>, gateways: &[Value]) {
    let sizes = gateways.iter().flat_map(|gateway| {
        let servers = gateway["servers"].as_array().map_or(0, Vec::len);
        [Constraint::Length(1), Constraint::Length(u16::try_from(servers + 2).unwrap_or(u16::MAX))]
    });
    let areas = Layout::vertical(sizes.chain([Constraint::Min(1)])).split(frame.area());
    for (gateway, areas) in gateways.iter().zip(areas.chunks(2)) {
        let [head, body] = areas else { break };
        frame.render_widget(Line::from(headline(gateway)).style(Modifier::BOLD), *head);
        let rows = rows(gateway);
        let colour = |row: &[String]| match row.get(1).and_then(|state| state.split(' ').next()) {
            Some("ready") => Style::new().fg(Color::Green),
            Some("starting" | "idle") => Style::new(),
            Some("state") => Style::new().add_modifier(Modifier::DIM),
            _ => Style::new().fg(Color::Red),
        };
        let shown =
            rows.iter().map(|row| Row::new(row.iter().map(|cell| Cell::from(cell.as_str()))).style(colour(row)));
        let widths = [16, 14, 7, 8, 9, 8].map(Constraint::Length).into_iter().chain([Constraint::Min(20)]);
        frame.render_widget(Table::new(shown, widths), *body);
    }
    if let Some(last) = areas.last() {
        let note = if gateways.is_empty() { "no gateway runs here; q ends" } else { "q ends" };
        frame.render_widget(Line::from(note).style(Modifier::DIM), *last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn gateway() -> Value {
        json!({"pid": 7, "version": "1", "front": "serve", "address": "http://127.0.0.1:7410/mcp", "uptime_ms": 3_725_000,
        "ready": true, "profiles": [{"name": "default", "tools": 3, "tokens": 120}],
        "servers": [
            {"key": "files", "state": "ready", "era": "modern", "pid": 8, "restarts": 0, "in_flight": 2},
            {"key": "broken", "state": "waiting", "era": null, "restarts": 4, "in_flight": 0, "retry_after_ms": 1500,
                "last_error": "no such file"},
        ]})
    }

    #[test]
    fn all_servers_stand_in_one_list_with_their_gateway() {
        let merged = merged(&[gateway(), json!({"pid": 9, "servers": []})]);
        assert_eq!(merged["servers"][1]["key"], "broken");
        assert_eq!(merged["servers"][1]["gateway"], 7);
        assert_eq!(merged["gateways"].as_array().map(Vec::len), Some(2));
        assert_eq!(merged["gateways"][0].get("servers"), None);
    }

    #[test]
    fn the_live_view_shows_what_the_table_shows() {
        let mut terminal = Terminal::new(TestBackend::new(110, 8)).unwrap();
        terminal.draw(|frame| draw(frame, &[gateway()])).unwrap();
        let text = terminal.backend().to_string();
        for part in
            ["serve at http://127.0.0.1:7410/mcp, pid 7, up 1 h 2 min", "files", "waiting (2 s)", "no such file"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(out::table(&rows(&gateway()), &[]).contains("waiting (2 s)"));
        terminal.draw(|frame| draw(frame, &[])).unwrap();
        assert!(terminal.backend().to_string().contains("no gateway runs here"));
    }
}
