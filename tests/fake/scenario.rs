//! What a fake server is told to do: one JSON object, read once.
//!
//! Texts that go onto the wire (tools, results, errors, lines) are JSON *strings that hold the raw text*, so the
//! tests decide every byte. In lines and results `@ID@` is the id of the request, `@TOKEN@` its progress token and
//! `@NAME@` the tool's name, each as raw JSON; `@ARGS@` are the raw arguments.
//!
//! | member | means |
//! |---|---|
//! | `talk` | each whole line, with the process and who said it, goes to `FILE.<pid>.talk` too |
//! | `label` | first word of the default answer of a tool: `label:tool` |
//! | `era` | `legacy` (default), `modern`, `dual` |
//! | `discover` | instead of the era's own answer: `die`, `silent`, or the raw line to write |
//! | `initialize` | the same for `initialize` |
//! | `version` | what `initialize` answers; default: what was asked |
//! | `versions` | raw array for `supportedVersions`; default `["2026-07-28"]` |
//! | `capabilities` | raw object; default tools with `listChanged` |
//! | `tools`, `tool_count` | raw definitions; or that many generated ones, `t000`… |
//! | `page`, `cursor` | items per page; `offset` (default), `empty` (first cursor is `""`), `repeat`, `alternate`, `fresh` |
//! | `list` | `silent`, or the raw line to write for every list |
//! | `lists_ok` | only that many lists are answered well, `list` holds from then on |
//! | `banner`, `noise` | lines before everything, lines before each answer |
//! | `stream` | `bytes`: one byte per write |
//! | `text_ids` | ids come back as text |
//! | `after_open` | lines written after `notifications/initialized`, or after the first modern list |
//! | `shuffle_ms` | each call is answered after a random delay up to this, in any order |
//! | `start_gate`, `start_delay_ms` | nothing is read until the file exists / the time is over |
//! | `stderr_at_start`, `stderr_at_start_mib`, `exit_at_start` | text, that much text, exit code |
//! | `exit_unless` | ends at once with 9 unless that file exists |
//! | `stderr_per_answer_kib`, `stderr_newline` | that much before each answer; with line ends or none |
//! | `exit_after`, `exit_delay_ms`, `exit_code` | ends after that many calls were answered |
//! | `deaf`, `ignore_eof`, `ignore_term` | never reads / stays at end of input / stays at TERM |
//! | `wrapper`, `grandchild` | the server is a child of this process / a child lives beside it |
//! | `grandchild_group` | that child leaves the process group |
//! | `act`, `acts` | what any tool does, what the named tool does: see `act.rs` |

use std::path::Path;

use serde_json::Value;

/// The parsed file.
pub(crate) struct Scenario(Value);

impl Scenario {
    /// Reads the file; an unreadable one is an empty scenario with a word on stderr.
    pub(crate) fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        match serde_json::from_str(&text) {
            Ok(value) => Self(value),
            Err(error) => {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "bad scenario {path:?}: {error}");
                std::process::exit(65);
            }
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.0.get(key)?.as_str().map(str::to_owned)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key)?.as_u64()
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        let items = self.0.get(key).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The act of a tool: its own, the common one, or none.
    pub(crate) fn act(&self, tool: &str) -> Option<Value> {
        let own = self.0.get("acts").and_then(|acts| acts.get(tool));
        own.or_else(|| self.0.get("act")).cloned()
    }
}
