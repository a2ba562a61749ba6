//! Putting references in, for whatever a configuration says of a server: what the text refers to, what is wrong with
//! it, and which words must stay in confidence.
//!
//! What is missing on this machine (a variable, a file) is kept apart from what is wrong in the text. Neither ever
//! holds an expanded value (I-34). Called by `launch`, `remote` and `serving`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::ident::Secret;

use super::environment::Environment;
use super::fault::{Fault, Note};
use super::layers::{Layer, Origins};
use super::references::{Style, Trouble, expand};

/// What reaching servers needs to know, the same for all of them.
pub(super) struct Ground<'a> {
    pub environment: &'a Environment,
    /// What every child sees.
    pub inherited: BTreeMap<OsString, Secret>,
    pub cwd: &'a Path,
    pub layers: &'a [Layer],
    pub origins: &'a Origins,
}

/// What making one way to a server found out.
#[derive(Default)]
pub(super) struct Findings {
    /// Wrong in the text.
    pub faults: Vec<Fault>,
    /// Missing on this machine.
    pub missing: Vec<Fault>,
    pub notes: Vec<Note>,
}

/// Whether what a variable or header of this name holds is likely to be confidential, though it is written in the open.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let within = ["TOKEN", "KEY", "SECRET", "PASS", "AUTH", "CREDENTIAL", "COOKIE", "WEBHOOK"];
    // Too short to be looked for within words: `PATH`.
    let words = name.split(['_', '-', '.']).any(|word| matches!(word, "PAT" | "PWD")) && name != "PWD";
    words || within.iter().any(|word| name.contains(word)) || name.replace(['_', '-'], "").contains("CONNECTIONSTRING")
}

impl Findings {
    pub(super) fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.missing.is_empty()
    }
}

/// Makes one way to a server.
pub(super) struct Maker<'a, 'g> {
    pub ground: &'a Ground<'g>,
    pub findings: &'a mut Findings,
    /// What references put in.
    pub secrets: Vec<Secret>,
}

impl<'a, 'g> Maker<'a, 'g> {
    pub(super) fn new(ground: &'a Ground<'g>, findings: &'a mut Findings) -> Self {
        Self { ground, findings, secrets: Vec::new() }
    }

    fn fault(&self, path: &str, message: String, nearest: Option<&str>) -> Fault {
        Fault {
            place: self.ground.origins.place(path, self.ground.layers),
            key: path.to_owned(),
            message,
            nearest: nearest.map(str::to_owned),
        }
    }

    /// Notes something that is wrong in the text.
    pub(super) fn wrong(&mut self, path: &str, message: String) {
        let fault = self.fault(path, message, None);
        self.findings.faults.push(fault);
    }

    /// Notes something that is missing on this machine.
    pub(super) fn missing(&mut self, path: &str, message: String) {
        let fault = self.fault(path, message, None);
        self.findings.missing.push(fault);
    }

    /// Whose rules the text at `path` follows, and where its relative paths start.
    pub(super) fn origin(&self, path: &str) -> (Style, &Path) {
        match self.ground.origins.get(path, self.ground.layers) {
            Some((layer, _)) => (layer.style, &layer.base),
            None => (Style::Own, self.ground.cwd),
        }
    }

    /// The text at `path` with its references put in.
    pub(super) fn text(&mut self, text: &str, path: &str) -> Option<String> {
        let (style, base) = self.origin(path);
        match expand(text, style, self.ground.environment, base) {
            Ok(expanded) => {
                for name in expanded.bare {
                    let message = format!(
                        "{path}: `${{{name}}}` is handed on as it stands; write `${{env:{name}}}` for the \
                         variable, or `$${{{name}}}` to say that this is meant"
                    );
                    let place = self.ground.origins.place(path, self.ground.layers);
                    self.findings.notes.push(Note { place, message });
                }
                self.secrets.extend(expanded.put_in.into_iter().map(Secret::new));
                Some(expanded.text)
            }
            Err(Trouble::Syntax { message, nearest }) => {
                let fault = self.fault(path, message, nearest);
                self.findings.faults.push(fault);
                None
            }
            Err(Trouble::Missing(message)) => {
                self.missing(path, message);
                None
            }
        }
    }
}
