//! Addresses, hosts, origins and names of headers, as a configuration may write them.
//!
//! Deliberately resolves no name and opens nothing. No message holds an address of a server: its query may be a
//! secret (I-34). Called by `schema`, `remote`, `front` and `host`.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use url::{Host, Url};

use crate::shown::shown_str as shown;

/// Headers that belong to a connection, to the protocol, or to the body: the gateway makes these itself (I-12).
const OURS: [&str; 20] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept",
    "accept-encoding",
    "last-event-id",
    "range",
    "via",
    "forwarded",
];

/// Whether the operator cannot set this header.
pub(crate) fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OURS.contains(&name.as_str()) || name.starts_with("mcp-")
}

/// Why a text is no name of a header of the operator.
pub(super) fn header_problem(name: &str) -> Option<String> {
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        Some("is not a name of a header".to_owned())
    } else if is_ours(name) {
        Some("cannot be set: this header belongs to HTTP or MCP itself, and the gateway makes it".to_owned())
    } else {
        None
    }
}

/// Reads the address of a server, or says what is wrong with it.
pub(super) fn endpoint(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL; write for example `https://tickets.example/mcp`")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with `https://` or `http://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must hold no user and password; put what proves who we are into `headers`");
    }
    if url.fragment().is_some() {
        return Err("must hold no fragment (what follows `#`)");
    }
    Ok(url)
}

/// Whether an address leads to this machine and nowhere else.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Why a text is nothing to listen on.
pub(super) fn listen_problem(text: &str) -> Option<String> {
    text.parse::<SocketAddr>().is_err().then(|| {
        format!(
            "`{}` is not an address and port; write for example `127.0.0.1:7410`, `[::1]:7410`, or `0.0.0.0:7410` \
             for all interfaces",
            shown(text)
        )
    })
}

/// Why a text is no value of `Host`.
pub(super) fn host_problem(text: &str) -> Option<String> {
    if text.contains("://") || text.contains('/') {
        return Some(format!(
            "`{}` is not a host; write it as `gateway.example` or `gateway.example:7410`",
            shown(text)
        ));
    }
    // The parser of addresses knows names, numbers and ports.
    let read = Url::parse(&format!("http://{text}/")).ok().filter(|url| {
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
    });
    let Some(host) = read.as_ref().and_then(Url::host) else {
        return Some(format!(
            "`{}` is not a host; write it as `gateway.example` or `gateway.example:7410`",
            shown(text)
        ));
    };
    match host {
        Host::Domain(name) if name.contains('*') => Some(format!("`{}`: every host is written out", shown(text))),
        Host::Ipv4(ip) if IpAddr::from(ip).is_unspecified() => Some(nowhere(text)),
        Host::Ipv6(ip) if IpAddr::from(ip).is_unspecified() => Some(nowhere(text)),
        Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

fn nowhere(text: &str) -> String {
    format!("`{}` stands for all addresses and is no host's; name the one that hosts use", shown(text))
}

/// Why a text is no value of `Origin`.
pub(super) fn origin_problem(text: &str) -> Option<String> {
    let exact = Url::parse(text).is_ok_and(|url| url.origin().is_tuple() && url.origin().ascii_serialization() == text);
    // Origins of applications have schemes of their own, which are compared as they are.
    let own = !text.starts_with("http:")
        && !text.starts_with("https:")
        && text.split_once("://").is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_lowercase())
                && scheme
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.'))
                && !rest.is_empty()
                && rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':'))
        });
    (!exact && !own).then(|| {
        format!(
            "`{}` is not an origin; write it as browsers do, `https://app.example` or `https://app.example:8443`: \
             small letters, no path, no port that goes without saying",
            shown(text)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers_are_checked() {
        for good in ["https://a.example/mcp", "http://127.0.0.1:8080/mcp?x=1", "http://[::1]/"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("a.example/mcp", "not a URL"),
            ("https://", "not a URL"),
            ("ftp://a.example/", "must begin"),
            ("file:///etc/passwd", "must begin"),
            ("https://user:s3cret@a.example/", "`headers`"),
            ("https://s3cret@a.example/", "`headers`"),
            ("https://a.example/mcp#s3cret", "fragment"),
        ] {
            let problem = endpoint(bad).err().unwrap_or_default();
            assert!(problem.contains(why) && !problem.contains("s3cret"), "{bad}: {problem}");
        }
    }

    #[test]
    fn loopback_is_known_without_asking_anybody() {
        let is = |text: &str| is_loopback(&Url::parse(text).unwrap());
        for here in
            ["http://localhost/", "http://a.localhost:1/", "http://127.8.9.1/", "http://[::1]/", "http://2130706433/"]
        {
            assert!(is(here), "{here}");
        }
        for there in ["http://localhost.example/", "http://10.0.0.1/", "http://[::2]/", "http://127.0.0.1.example/"] {
            assert!(!is(there), "{there}");
        }
    }

    #[test]
    fn headers_of_the_protocol_are_ours_i_12() {
        for ours in
            ["Host", "content-length", "Mcp-Session-Id", "MCP-Protocol-Version", "Accept", "Last-Event-ID", "TE"]
        {
            assert!(header_problem(ours).is_some_and(|why| why.contains("cannot be set")), "{ours}");
        }
        for theirs in ["Authorization", "X-Api-Key", "Cookie", "User-Agent", "mcp"] {
            assert_eq!(header_problem(theirs), None, "{theirs}");
        }
        for bad in ["", "a b", "a:", "ä", "a\r\nb"] {
            assert!(header_problem(bad).is_some_and(|why| why.contains("not a name")), "{bad}");
        }
    }

    #[test]
    fn hosts_and_origins_are_checked() {
        for good in ["gateway.example", "gateway.example:7410", "10.0.0.1", "[2001:db8::1]:443"] {
            assert_eq!(host_problem(good), None, "{good}");
        }
        for bad in
            ["", "https://a.example", "a.example/", "*.example", "0.0.0.0", "0.0.0.0:80", "[::]", "a b", "u@a", "a?b"]
        {
            assert!(host_problem(bad).is_some(), "{bad}");
        }
        for good in ["https://app.example", "http://app.example:8080", "vscode-webview://abc", "tauri://localhost"] {
            assert_eq!(origin_problem(good), None, "{good}");
        }
        for bad in
            ["", "*", "null", "app.example", "https://app.example/", "https://App.example", "https://a.example:443"]
        {
            assert!(origin_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn what_to_listen_on_is_an_address_and_a_port() {
        for good in ["127.0.0.1:7410", "0.0.0.0:80", "[::1]:0"] {
            assert_eq!(listen_problem(good), None, "{good}");
        }
        for bad in ["", "7410", ":7410", "localhost:7410", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(listen_problem(bad).is_some(), "{bad}");
        }
    }
}
