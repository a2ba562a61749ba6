//! One server as a host describes it, in one form for all hosts.
//!
//! Deliberately knows no host and no file format: `fields` fills it, `own` writes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::hosts::Scope;
use super::secrets::{self, Instead};
use super::text::{self, Text};

/// Where a server was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// What people call the host; the file's own name when it is of no known one.
    pub host: String,
    /// The file.
    pub file: PathBuf,
    /// For whom the file counts, when that is known.
    pub scope: Option<Scope>,
    /// The line, where the format tells.
    pub line: Option<u32>,
    /// The project that it is for, where a file holds those of several.
    pub project: Option<String>,
    /// The folder of the project that the file is for, where it is known.
    pub folder: Option<PathBuf>,
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
        let mut bare = self.clone();
        let _ = secrets::lift(&mut bare, "x", Instead::Variable, Path::new("/"));
        let own = |text: &Text| {
            let text = text.own().text.replace("$${", "${");
            if text.contains("://") { host_alone(&text) } else { text }
        };
        match (&bare.command, &bare.url) {
            (Some(command), _) => {
                // A script in one argument may hold anything.
                let says = |arg: &String| !arg.starts_with('-') && !arg.contains(char::is_whitespace);
                let plain = bare.args.iter().filter(|arg| arg.as_plain().is_some());
                let first = plain.map(own).find(says);
                [Some(own(command)), first].into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
            (None, Some(url)) => own(url),
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

/// Scheme and host of an address: user, path and query may hold secrets.
fn host_alone(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i_34_a_summary_shows_no_secret() {
        let summary = |args: &[&str], url: Option<&str>| {
            let mut server = Server::new("s", Origin::default());
            match url {
                Some(url) => server.url = Some(Text::plain(url)),
                None => server.command = Some(Text::plain("npx")),
            }
            server.args = args.iter().map(|arg| Text::plain(arg)).collect();
            server.summary()
        };
        assert_eq!(summary(&["-y", "pkg@1"], None), "npx pkg@1");
        assert_eq!(summary(&["--token", "canary", "pkg"], None), "npx pkg");
        assert_eq!(summary(&["postgresql://u:canary@h/db"], None), "npx");
        assert_eq!(summary(&["https://h.example/canary/mcp"], None), "npx https://h.example");
        assert_eq!(summary(&["curl -H x:canary"], None), "npx");
        for url in ["https://h:1/s/canary/mcp", "https://u:canary@h:1/", "https://canary@h:1?k=canary"] {
            assert_eq!(summary(&[], Some(url)), "https://h:1");
        }
    }
}
