//! How one remote server is reached, or a collector: its address and the operator's headers, references put in.
//!
//! Deliberately resolves no name and opens nothing. What is missing on this machine disables this server alone; no
//! finding holds an address or a value (I-34). Called by `resolve`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use http::{HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::ident::Secret;
use crate::shown::shown_str;

use super::address;
use super::check::join;
use super::fault::Note;
use super::ground::{Findings, Ground, Maker, names_a_secret};
use super::schema::{Server, Transport};
use super::settings::Remote;

/// Makes the way to the server at `path` (`servers.KEY`); `None` when the findings say why not.
pub(super) fn remote(server: &Server, path: &str, ground: &Ground<'_>, findings: &mut Findings) -> Option<Remote> {
    let mut maker = Maker::new(ground, findings);
    let url = maker.url(server.url.as_deref()?, &join(path, "url"));
    let headers = maker.headers(&server.headers, &join(path, "headers"));
    let ca = server.ca.as_deref().and_then(|written| maker.ca(written, &join(path, "ca")));
    let url = url.filter(|_| maker.findings.is_clean())?;
    if url.scheme() == "http" && !address::is_loopback(&url) && proves_something(server, &headers, &maker.secrets) {
        let place = ground.origins.place(&join(path, "url"), ground.layers);
        let message = format!(
            "{path}: its headers hold what proves who we are, and `http://` sends that in the open; use `https://`"
        );
        maker.findings.notes.push(Note { place, message });
    }
    let mut secrets = maker.secrets;
    for (_, value) in &headers {
        let value = value.reveal();
        secrets.push(Secret::new(value));
        // A server may well say the token without the scheme before it.
        if let Some((scheme, token)) = value.split_once(' ')
            && !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphabetic())
        {
            secrets.push(Secret::new(token.trim_start()));
        }
    }
    let sse = server.transport == Some(Transport::Sse);
    let written = Secret::new(written(server));
    Some(Remote { url, headers, ca, sse, identity: identity(server), written, secrets })
}

impl Maker<'_, '_> {
    pub(super) fn url(&mut self, written: &str, path: &str) -> Option<Url> {
        let before = self.secrets.len();
        let text = self.text(written, path)?;
        let referred = self.secrets.len() > before;
        match address::endpoint(&text) {
            Ok(url) => {
                self.confide_query(&url, referred);
                Some(url)
            }
            // What came out of a variable or file is not the text's fault.
            Err(message) if referred => {
                self.missing(path, message.to_owned());
                None
            }
            Err(message) => {
                self.wrong(path, message.to_owned());
                None
            }
        }
    }

    /// The file of certificates, which must be there.
    fn ca(&mut self, written: &str, path: &str) -> Option<PathBuf> {
        let text = self.text(written, path)?;
        let ground = self.ground;
        let base = ground.origins.get(path, ground.layers).map_or(ground.cwd, |(layer, _)| &layer.base);
        let file = ground.environment.path(&text, base);
        if let Err(error) = std::fs::File::open(&file) {
            self.missing(path, format!("the file `{}` cannot be read: {error}", shown_str(written)));
        }
        Some(file)
    }

    /// A query may hold what proves who we are, decoded and as it is sent.
    fn confide_query(&mut self, url: &Url, referred: bool) {
        for (name, value) in url.query_pairs() {
            if referred || names_a_secret(&name) {
                self.secrets.push(Secret::new(value));
            }
        }
        for (name, value) in url.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')) {
            if referred || names_a_secret(name) {
                self.secrets.push(Secret::new(value));
            }
        }
    }

    pub(super) fn headers(&mut self, all: &BTreeMap<String, String>, path: &str) -> Vec<(HeaderName, Secret)> {
        let mut headers: Vec<(HeaderName, Secret)> = Vec::with_capacity(all.len());
        for (written, value) in all {
            let path = join(path, written);
            // Names were checked with their lines.
            let Ok(name) = HeaderName::from_bytes(written.as_bytes()) else { continue };
            if headers.iter().any(|(known, _)| *known == name) {
                self.wrong(&path, "is given twice; capitals do not matter here".to_owned());
                continue;
            }
            let before = self.secrets.len();
            let Some(value) = self.text(value, &path) else { continue };
            if HeaderValue::from_str(&value).is_err() {
                let message = "holds characters that no header can hold (only visible ASCII and blanks)".to_owned();
                if self.secrets.len() > before {
                    self.missing(&path, message);
                } else {
                    self.wrong(&path, message);
                }
                continue;
            }
            headers.push((name, Secret::new(value)));
        }
        headers
    }
}

/// Whether what is sent proves who we are, as far as names and references tell.
fn proves_something(server: &Server, headers: &[(HeaderName, Secret)], referred: &[Secret]) -> bool {
    headers.iter().any(|(name, _)| names_a_secret(name.as_str()))
        || !referred.is_empty() && server.headers.values().any(|value| value.contains("${"))
}

/// How it is reached, in one hash: as written, references unexpanded, headers by their names alone.
fn identity(server: &Server) -> String {
    let (transport, names) = transport_and_headers(server);
    let described = serde_json::to_vec(&(&server.url, transport, names)).unwrap_or_default();
    HEXLOWER.encode(&Sha256::digest(described))
}

/// The same in full, without the query, which may hold secrets: for the hash that pins are made of.
fn written(server: &Server) -> String {
    let (transport, names) = transport_and_headers(server);
    let url = server.url.as_deref().unwrap_or_default();
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let mut described = serde_json::json!({ "transport": transport, "url": url, "headers": names });
    if let Some(ca) = &server.ca {
        described["ca"] = ca.as_str().into();
    }
    described.to_string()
}

fn transport_and_headers(server: &Server) -> (&'static str, Vec<String>) {
    let mut names: Vec<String> = server.headers.keys().map(|name| name.to_ascii_lowercase()).collect();
    names.sort();
    let transport = match server.transport.unwrap_or(Transport::Http) {
        Transport::Http => "http",
        Transport::Sse => "sse",
    };
    (transport, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str, headers: &[(&str, &str)]) -> Server {
        Server {
            url: Some(url.to_owned()),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Server::default()
        }
    }

    #[test]
    fn the_identity_is_of_what_is_written() {
        let one = identity(&server("https://a.example/${env:X}", &[("Authorization", "1")]));
        assert_eq!(one.len(), 64);
        assert_eq!(one, identity(&server("https://a.example/${env:X}", &[("authorization", "2")])), "values are out");
        assert_ne!(one, identity(&server("https://a.example/x", &[("Authorization", "1")])));
        assert_ne!(one, identity(&server("https://a.example/${env:X}", &[("X-Api-Key", "1")])));
        let sse = Server { transport: Some(Transport::Sse), ..server("https://a.example/", &[]) };
        assert_ne!(identity(&sse), identity(&server("https://a.example/", &[])));
    }
}
