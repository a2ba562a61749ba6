//! Printing: results to stdout, words to stderr, neither ever panicking.

use std::io::{self, Write as _};

/// Prints a result.
pub(super) fn text(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes())?;
    if text.ends_with('\n') { Ok(()) } else { bytes(b"\n") }
}

/// Prints a result as it is.
pub(super) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Prints a result as JSON, on one line.
pub(super) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    text(&serde_json::to_string(value)?)
}

/// Says something to the person; a stderr that is gone is nobody's fault.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether it failed because nobody reads our output any more.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A table: columns aligned, the named ones to the right.
pub(super) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let (before, after) = if right.contains(&column) { (pad.as_str(), "") } else { ("", pad.as_str()) };
            line.push_str(&format!("{before}{cell}{after}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
