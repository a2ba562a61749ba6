//! What is looked at before anything else: which name the request was sent to, and which page sent it (HTTP-1).
//!
//! A page of another site must not reach us through the user's browser, neither directly (`Origin`) nor by a name
//! that it made point to us (`Host`).

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use http::request::Parts;

use crate::config::settings::HttpSettings;

/// Names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The allow-lists.
pub struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    /// `local` is where we listen.
    pub fn new(settings: &HttpSettings, local: SocketAddr) -> Self {
        let mut hosts: Vec<_> = settings.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        hosts.extend(LOOPBACK.map(str::to_owned));
        // What stands for every address is the name of none.
        if !local.ip().is_unspecified() {
            hosts.push(match local.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            });
        }
        Self { hosts, origins: settings.allowed_origins.clone() }
    }

    /// Whether the request may be looked at further; the origin that is told so in the answer, or why not.
    pub fn check(&self, head: &Parts) -> Result<Option<HeaderValue>, &'static str> {
        let mut named = false;
        let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        for host in head.headers.get_all(HOST).iter().map(HeaderValue::as_bytes).chain(authority) {
            named = true;
            if !self.knows(host) {
                return Err("the name in Host is not allowed, see http.allowed_hosts");
            }
        }
        if !named {
            return Err("a Host is needed");
        }
        match single(&head.headers) {
            Ok(None) => Ok(None),
            Ok(Some(origin)) if self.trusts(origin.as_bytes()) => Ok(Some(origin.clone())),
            _ => Err("this Origin is not allowed, see http.allowed_origins"),
        }
    }

    fn knows(&self, host: &[u8]) -> bool {
        let bare = without_port(host);
        self.hosts
            .iter()
            .any(|known| known.as_bytes().eq_ignore_ascii_case(bare) || known.as_bytes().eq_ignore_ascii_case(host))
    }

    fn trusts(&self, origin: &[u8]) -> bool {
        let local = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
        local.is_some_and(|host| LOOPBACK.iter().any(|name| name.as_bytes() == without_port(host)))
            || self.origins.iter().any(|known| known.as_bytes() == origin)
    }
}

fn single(headers: &HeaderMap) -> Result<Option<&HeaderValue>, ()> {
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (_, Some(_)) => Err(()),
        (origin, None) => Ok(origin),
    }
}

/// A host without `:port`; one whose port is no number stays as it is, and so is unknown.
fn without_port(host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) && !host[..colon].ends_with(b":") => {
            &host[..colon]
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, origin: Option<&str>) -> bool {
        let settings = HttpSettings {
            allowed_hosts: vec!["Mcp.example".into(), "other.example:8443".into()],
            allowed_origins: vec!["https://app.example".into()],
            ..HttpSettings::default()
        };
        let guard = Guard::new(&settings, "192.0.2.7:7410".parse().unwrap());
        let mut request = http::Request::builder().uri("/mcp").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        guard.check(&request.body(()).unwrap().into_parts().0).is_ok()
    }

    #[test]
    fn http1_names_that_are_not_ours_are_refused() {
        for good in [
            "localhost",
            "LOCALHOST:7410",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:7410",
            "192.0.2.7:7410",
            "192.0.2.7",
            "mcp.example",
            "MCP.example:443",
            "other.example:8443",
        ] {
            assert!(check(good, None), "{good}");
        }
        for bad in [
            "evil.example",
            "0.0.0.0:7410",
            "other.example",
            "other.example:1",
            "localhost.evil.example",
            "localhost:x",
            "::1",
            "[::]",
            "",
            "127.0.0.1.evil.example:7410",
            "localhost:1:2",
        ] {
            assert!(!check(bad, None), "{bad}");
        }
    }

    #[test]
    fn http1_origins_that_are_not_allowed_are_refused() {
        for good in ["http://localhost:6274", "https://127.0.0.1", "http://[::1]:80", "https://app.example"] {
            assert!(check("localhost", Some(good)), "{good}");
        }
        for bad in [
            "null",
            "http://evil.example",
            "https://app.example:443",
            "http://app.example",
            "http://localhost.evil",
            "file://localhost",
            "http://localhost@evil.example",
            "",
        ] {
            assert!(!check("localhost", Some(bad)), "{bad}");
        }
    }

    #[test]
    fn http1_the_unspecified_address_is_the_name_of_nobody() {
        let guard = Guard::new(&HttpSettings::default(), "0.0.0.0:7410".parse().unwrap());
        assert!(!guard.knows(b"0.0.0.0:7410"));
        let guard = Guard::new(&HttpSettings::default(), "[::]:7410".parse().unwrap());
        assert!(!guard.knows(b"[::]:7410"));
    }
}
