//! `onegate audit`: the record of decisions verified, shown and summed up. Starts nothing, and changes no file.
//!
//! Long, and one thing: three looks at the same lines.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::exit::Exit;
use super::{Common, load, out};
use crate::config;
use crate::config::settings::AuditSettings;
use crate::moment;
use crate::shown::{shown, shown_str};
use crate::telemetry::audit::chain::spelled;
use crate::telemetry::audit::family;
use crate::telemetry::audit::verify::{End, Lines, Remark, Report, verify};

/// How often `--follow` looks.
const LOOK: Duration = Duration::from_millis(200);

/// Flags of `audit`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check that no record was changed, removed or moved: exit 1 and the first line that does not follow.
    Verify {
        /// The files. Default: the configured one, and all that belong to it.
        file: Vec<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Show the last records.
    Tail {
        /// The file. Default: that of the configured ones which was written last.
        file: Option<PathBuf>,
        /// How many.
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100_000))]
        lines: u32,
        /// Go on showing what is written.
        #[arg(short, long)]
        follow: bool,
        /// Print the lines as they are.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Count decisions: who, where, what, why.
    Top {
        /// The file. Default: the configured one, and all that belong to it.
        file: Option<PathBuf>,
        /// By what they are counted.
        #[arg(long, value_enum, default_value_t = By::Principal)]
        by: By,
        /// Only those of this last time, for example 1d or 30m.
        #[arg(long, value_name = "TIME", value_parser = time)]
        since: Option<Duration>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    Principal,
    Server,
    Tool,
    Reason,
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "write for example 30m, 12h, 7d".to_owned())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Verify { file, json, common } => {
            let files = if file.is_empty() { configured(common, *json)? } else { file.clone() };
            show_verified(&files, *json)
        }
        Command::Tail { file, lines, follow, json, common } => {
            let file = match file {
                Some(file) => file.clone(),
                None => last_written(configured(common, *json)?),
            };
            tail(&file, *lines as usize, *follow, *json)
        }
        Command::Top { file, by, since, json, common } => {
            let files = match file {
                Some(file) => vec![file.clone()],
                None => configured(common, *json)?,
            };
            top(&files, *by, *since, *json)
        }
    }
}

/// The files of the configuration; `Err` inside means: told that there are none.
fn configured(common: &Common, json: bool) -> anyhow::Result<Vec<PathBuf>> {
    files_of(load::load(common, json)?.settings.telemetry.audit.as_ref())
}

/// The same of settings.
pub(super) fn files_of(audit: Option<&AuditSettings>) -> anyhow::Result<Vec<PathBuf>> {
    let Some(audit) = audit else {
        out::say("onegate: the configuration names no audit file (telemetry.audit.file)");
        return Err(Exit::Usage.into());
    };
    let files = family(&audit.file).with_context(|| named(&audit.file))?;
    if files.is_empty() {
        out::say(&format!("onegate: nothing was written to {} yet", named(&audit.file)));
        return Err(Exit::Failed.into());
    }
    Ok(files)
}

fn named(file: &Path) -> String {
    shown_str(&file.display().to_string())
}

fn last_written(files: Vec<PathBuf>) -> PathBuf {
    let written = |file: &PathBuf| std::fs::metadata(file).and_then(|found| found.modified()).ok();
    files.into_iter().max_by_key(written).unwrap_or_default()
}

fn show_verified(files: &[PathBuf], as_json: bool) -> anyhow::Result<Exit> {
    let reports = verify(files).with_context(|| files.iter().map(|file| named(file)).collect::<Vec<_>>().join(", "))?;
    let broken = reports.iter().any(|report| report.broken.is_some());
    if as_json {
        let chains: Vec<_> = reports.iter().map(report_as_json).collect();
        out::json(&json!({ "ok": !broken, "chains": chains }))?;
    } else {
        for report in &reports {
            out::text(&report_as_text(report))?;
        }
    }
    Ok(if broken { Exit::Failed } else { Exit::Fine })
}

fn report_as_json(report: &Report) -> Value {
    let remark = |remark: &Remark| json!({ "file": remark.file, "line": remark.line, "what": remark.what });
    json!({
        "files": report.files, "first": report.first, "last": report.link.seq,
        "hash": report.link.hash.as_ref().map(spelled), "decisions": report.decisions, "lost": report.lost,
        "end": report.end.as_str(), "broken": report.broken.as_ref().map(remark),
        "notes": report.notes.iter().map(remark).collect::<Vec<_>>(),
    })
}

fn report_as_text(report: &Report) -> String {
    let remark = |remark: &Remark| format!("{}, line {}: {}", named(&remark.file), remark.line, remark.what);
    let files: Vec<_> = report.files.iter().map(|file| named(file)).collect();
    let mut text = format!("{}: ", files.join(", "));
    match &report.broken {
        Some(broken) => text.push_str(&format!("BROKEN\n  {}\n", remark(broken))),
        None => {
            let decisions = load::count(usize::try_from(report.decisions).unwrap_or(usize::MAX), "decision");
            text.push_str(&format!("whole; lines {} to {}, {decisions}\n", report.first, report.link.seq));
            if let Some(hash) = &report.link.hash {
                text.push_str(&format!("  last line: {}\n", spelled(hash)));
            }
        }
    }
    for note in &report.notes {
        text.push_str(&format!("  {}\n", remark(note)));
    }
    if report.lost > 0 {
        text.push_str(&format!("  {} found no place and are not in it\n", load::count(report.lost as usize, "record")));
    }
    match report.end {
        End::Written => text.push_str("  a process writes to it\n"),
        End::Open => {
            text.push_str("  it has no end: its process crashed or was killed, or lines were taken from the end\n");
        }
        End::InOrder | End::Torn | End::Unknown => {}
    }
    text
}

fn tail(file: &Path, count: usize, follow: bool, as_json: bool) -> anyhow::Result<Exit> {
    let mut lines = Lines::open(file).with_context(|| named(file))?;
    let mut last = VecDeque::new();
    let mut read = 0;
    while let Some(raw) = lines.next_line()? {
        // What has no end yet is still being written.
        if !raw.ended && follow {
            break;
        }
        read += raw.bytes.len() as u64 + 1;
        last.push_back(raw.bytes);
        if last.len() > count {
            last.pop_front();
        }
    }
    for line in last {
        show(&line, as_json)?;
    }
    if !follow {
        return Ok(Exit::Fine);
    }
    // Up to whoever follows: until a signal comes, or nobody reads what is shown.
    loop {
        sleep(LOOK);
        read = news(file, read, as_json)?;
    }
}

/// Shows the whole lines behind `read`; answers how much was read then. Another file of the name is read from its
/// beginning.
fn news(file: &Path, read: u64, as_json: bool) -> anyhow::Result<u64> {
    use std::io::{Seek as _, SeekFrom};
    // Between two files there is none for a moment.
    let Ok(mut open) = std::fs::File::open(file) else { return Ok(read) };
    let from = if open.metadata()?.size() < read { 0 } else { read };
    open.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    open.take(8 << 20).read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for line in bytes[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        show(line, as_json)?;
    }
    Ok(from + end as u64)
}

fn show(line: &[u8], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return out::text(&String::from_utf8_lossy(line));
    }
    match serde_json::from_slice::<Value>(line) {
        Ok(record) => out::text(&as_text(&record)),
        Err(_) => out::text(&format!("no record: {}", shown(line))),
    }
}

/// One record on one line.
fn as_text(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().map(shown_str);
    let time = text("time").unwrap_or_default();
    if let Some(event) = text("event") {
        let lost = record["lost"].as_u64().map_or_else(String::new, |lost| format!(" {lost} records"));
        return format!("{time} -- {event}{lost}");
    }
    let verdict = text("verdict").unwrap_or_default();
    let item = item(record);
    let reason = text("reason").map_or_else(String::new, |reason| format!(" ({reason})"));
    let rule = text("rule").map_or_else(String::new, |rule| format!(", by {rule}"));
    let error = text("error").map_or_else(String::new, |error| format!(" ({error})"));
    format!(
        "{time} {verdict:<7} {} {} {item}{reason}{rule}: {}{error} in {} ms",
        text("principal").unwrap_or_default(),
        text("method").unwrap_or_default(),
        text("outcome").unwrap_or_default(),
        record["duration_ms"],
    )
}

/// The item of a record: as policy names it, else as the host did.
fn item(record: &Value) -> String {
    let text = |name: &str| record[name].as_str();
    match (text("server"), text("kind"), text("native")) {
        (Some(server), Some(kind), Some(native)) => shown_str(&format!("{server}/{kind}/{native}")),
        _ => text("exposed").map_or_else(|| "-".to_owned(), |exposed| format!("{:?}", shown_str(exposed))),
    }
}

/// What was counted of one.
#[derive(Default)]
struct Count {
    all: u64,
    refused: u64,
    shadow: u64,
    failed: u64,
    millis: f64,
}

fn top(files: &[PathBuf], by: By, since: Option<Duration>, as_json: bool) -> anyhow::Result<Exit> {
    let from = since.and_then(|since| SystemTime::now().checked_sub(since)).map(moment::text).unwrap_or_default();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let (mut lost, mut unread) = (0, 0);
    for file in files {
        let mut lines = Lines::open(file).with_context(|| named(file))?;
        while let Some(raw) = lines.next_line()? {
            let Ok(record) = serde_json::from_slice::<Value>(&raw.bytes) else {
                unread += 1;
                continue;
            };
            if record["time"].as_str().is_none_or(|time| time < from.as_str()) {
                continue;
            }
            lost += record["lost"].as_u64().unwrap_or(0);
            if record.get("event").is_none() {
                count(&mut counts, &record, by);
            }
        }
    }
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(count.all));
    let mean = |count: &Count| (count.millis / count.all as f64 * 1000.0).round() / 1000.0;
    if as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, count)| {
                json!({
                    "name": name, "decisions": count.all, "refused": count.refused, "shadow": count.shadow,
                    "failed": count.failed, "mean_ms": mean(count),
                })
            })
            .collect();
        out::json(&json!({ "rows": rows, "lost": lost, "unread": unread }))?;
        return Ok(Exit::Fine);
    }
    let heads = [word(by), "decisions", "refused", "shadow", "failed", "mean ms"].map(str::to_owned).to_vec();
    let cells = |(name, count): &(String, Count)| {
        let numbers = [count.all, count.refused, count.shadow, count.failed].map(|number| number.to_string());
        [vec![shown_str(name)], numbers.to_vec(), vec![format!("{:.1}", mean(count))]].concat()
    };
    let table: Vec<_> = std::iter::once(heads).chain(rows.iter().map(cells)).collect();
    out::text(&out::table(&table, &[1, 2, 3, 4, 5]))?;
    if lost > 0 {
        out::text(&format!("{} found no place and are not counted", load::count(lost as usize, "record")))?;
    }
    if unread > 0 {
        out::say(&format!("{} could not be read; `onegate audit verify` tells more", load::count(unread, "line")));
    }
    Ok(Exit::Fine)
}

const fn word(by: By) -> &'static str {
    match by {
        By::Principal => "principal",
        By::Server => "server",
        By::Tool => "item",
        By::Reason => "reason",
    }
}

fn count(counts: &mut BTreeMap<String, Count>, record: &Value, by: By) {
    let text = |name: &str| record[name].as_str();
    let name = match by {
        By::Principal => text("principal").unwrap_or("-").to_owned(),
        By::Server => text("server").unwrap_or("-").to_owned(),
        By::Tool => item(record),
        By::Reason => match (text("reason"), text("error")) {
            (Some(reason), _) | (None, Some(reason)) => reason.to_owned(),
            (None, None) => "-".to_owned(),
        },
    };
    let count = counts.entry(name).or_default();
    count.all += 1;
    count.refused += u64::from(matches!(text("verdict"), Some("refuse" | "hidden" | "unknown")));
    count.shadow += u64::from(text("verdict") == Some("shadow"));
    count.failed += u64::from(matches!(text("outcome"), Some("error" | "is_error" | "cancelled")));
    count.millis += record["duration_ms"].as_f64().unwrap_or(0.0);
}
