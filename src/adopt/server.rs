//! One server as a host describes it, in one form for all hosts.
//!
//! Deliberately knows no host and no file format: `fields` fills it, `own` writes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::hosts::Scope;
use super::text::{self, Text};

/// Where a server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What people call the host; the file's own name when it is of no known one.
    pub host: String,
    /// The file.
    pub file: PathBuf,
    /// For whom the file counts, when that is known.
    pub scope: Option<Scope>,
    /// The line, where the format tells.
    pub line: Option<u32>,
}

/// A server. Without `Debug`: its texts may be secrets (I-34).
#[derive(Clone)]
pub struct Server {
    /// Its name there.
    pub title: String,
    /// Where it was found.
    pub origin: Origin,
    pub(super) command: Option<Text>,
    pub(super) args: Vec<Text>,
    pub(super) env: Vec<(String, Text)>,
    pub(super) cwd: Option<Text>,
    pub(super) url: Option<Text>,
    pub(super) headers: Vec<(String, Text)>,
    /// HTTP+SSE of 2024-11-05 and nothing else.
    pub(super) sse: bool,
    /// It is switched on there.
    pub enabled: bool,
    /// Tools that the host lets through; none = all.
    pub(super) allow: Option<Vec<String>>,
    /// Tools that the host keeps back.
    pub(super) deny: Vec<String>,
    pub(super) start: Option<Duration>,
    pub(super) call: Option<Duration>,
    /// What people should know of it.
    pub remarks: Vec<String>,
    /// Why it cannot be taken over as it is; it is then written switched off.
    pub unusable: Option<String>,
}

/// How a server is launched or reached, in one hash; two with the same are one server. Secrets are in it, so it is
/// never written down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity([u8; 32]);

impl Server {
    pub(super) fn new(title: &str, origin: Origin) -> Self {
        Self {
            title: title.to_owned(),
            origin,
            command: None,
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            url: None,
            headers: Vec::new(),
            sse: false,
            enabled: true,
            allow: None,
            deny: Vec::new(),
            start: None,
            call: None,
            remarks: Vec::new(),
            unusable: None,
        }
    }

    /// What starts it or where it is, for people; without what may be a secret.
    pub fn summary(&self) -> String {
        let own = |text: &Text| text.own().text.replace("$${", "${");
        match (&self.command, &self.url) {
            (Some(command), _) => {
                let first = self.args.iter().map(own).find(|arg| !arg.starts_with('-'));
                [Some(own(command)), first].into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
            (None, Some(url)) => own(url).split(['?', '#']).next().unwrap_or_default().to_owned(),
            (None, None) => String::new(),
        }
    }

    /// How it is launched or reached; what lies in our own folder of secrets beside `base` counts by its content.
    pub(super) fn identity(&self, base: &Path) -> Identity {
        let read = text::kept_beside(base.to_owned());
        let plain = |text: &Text| text::compared(&text.own().text, &read);
        let named = |texts: &[(String, Text)], lower: bool| {
            let name = |name: &str| if lower { name.to_ascii_lowercase() } else { name.to_owned() };
            let mut texts: Vec<_> = texts.iter().map(|(n, text)| (name(n), plain(text))).collect();
            texts.sort();
            texts
        };
        let described = serde_json::to_vec(&(
            self.command.as_ref().map(plain),
            self.args.iter().map(plain).collect::<Vec<_>>(),
            named(&self.env, false),
            self.cwd.as_ref().map(plain),
            self.url.as_ref().map(|url| plain(url).trim_end_matches('/').to_owned()),
            named(&self.headers, true),
        ));
        Identity(Sha256::digest(described.unwrap_or_default()).into())
    }
}
