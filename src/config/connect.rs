//! The settings of a front that has no servers of its own and hands everything on to another gateway: `run --connect`.
//!
//! Made in memory: no file is read, and nothing is decided here that the other gateway decides. Called by `cli::connect`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::settings::{
    AdminSettings, LogFormat, Reach, Remote, ServerLimits, ServerSettings, Settings, TelemetrySettings, Timeouts,
};
use super::{Environment, address, check};
use crate::ident::{Secret, ServerKey};

/// The other gateway ends calls by its own deadlines, which are shorter than these.
const CALL: Duration = Duration::from_secs(3600);
const CALL_MAX: Duration = Duration::from_secs(24 * 3600);
/// As it does with answers.
const MAX_RESULT: u64 = 64 << 20;

/// The gateway to reach.
pub struct Gateway<'a> {
    /// Its endpoint.
    pub url: &'a str,
    /// What proves who we are.
    pub token: Option<Secret>,
    /// PEM file with certificates that are trusted for it.
    pub ca: Option<PathBuf>,
}

/// The settings; else what is wrong, without secrets.
pub fn connect(gateway: Gateway<'_>, log: Option<&str>, environment: &Environment) -> Result<Settings, String> {
    if let Some(problem) = log.and_then(check::log_problem) {
        return Err(format!("--log {problem}"));
    }
    let url = address::endpoint(gateway.url).map_err(|why| format!("the address {why}"))?;
    if let Some(file) = &gateway.ca {
        std::fs::File::open(file).map_err(|error| format!("the file {}: {error}", file.display()))?;
    }
    let telemetry =
        TelemetrySettings { log: log.unwrap_or("info").to_owned(), format: LogFormat::Pretty, audit: None, otlp: None };
    let server = server(url, gateway.token, gateway.ca)?;
    let mut settings = Settings::of(vec![server], environment.state_folder(), telemetry);
    settings.gateway.is_mere_front = true;
    settings.admin = AdminSettings { folder: Some(environment.runtime_folder()), ..AdminSettings::default() };
    Ok(settings)
}

/// Whether what proves who we are would be sent in the open.
pub fn is_in_the_open(settings: &Settings) -> bool {
    settings.servers.iter().any(|server| match &server.reach {
        Ok(Reach::Remote(remote)) => {
            remote.url.scheme() == "http" && !address::is_loopback(&remote.url) && !remote.headers.is_empty()
        }
        _ => false,
    })
}

fn server(url: Url, token: Option<Secret>, ca: Option<PathBuf>) -> Result<ServerSettings, String> {
    // A key that no server behind it has: then none of its URIs is taken for one of ours.
    let key = ServerKey::gateway();
    let mut headers = Vec::new();
    let mut secrets = Vec::new();
    if let Some(token) = token {
        let value = format!("Bearer {}", token.reveal());
        if http::HeaderValue::from_str(&value).is_err() {
            return Err("the token holds characters that no header can hold".to_owned());
        }
        headers.push((http::header::AUTHORIZATION, Secret::new(value)));
        secrets.push(token);
    }
    let described =
        serde_json::to_vec(&("connect", written_of(&url), ca.as_deref().map(Path::display).map(|p| p.to_string())));
    let identity = HEXLOWER.encode(&Sha256::digest(described.unwrap_or_default()));
    let remote = Remote { url, headers, ca, sse: false, identity, written: Secret::new("{}"), secrets };
    let mut server = ServerSettings::new(key, Ok(Reach::Remote(remote)));
    server.prefix = String::new();
    server.timeouts = Timeouts { call: CALL, call_max: CALL_MAX, ..Timeouts::default() };
    server.limits = ServerLimits { max_result: MAX_RESULT, ..ServerLimits::default() };
    Ok(server)
}

/// An address without its query, which may hold secrets.
fn written_of(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, token: Option<&str>) -> Result<Settings, String> {
        connect(Gateway { url, token: token.map(Secret::new), ca: None }, None, &Environment::of_process())
    }

    #[test]
    fn one_server_whose_names_pass_and_whose_token_is_a_secret() {
        let made =
            settings("https://tools.example/mcp/dev?k=s3cret", Some("t0ken")).unwrap_or_else(|why| panic!("{why}"));
        let [server] = &made.servers[..] else { panic!("one server") };
        assert_eq!((server.key.as_str(), server.prefix.as_str()), ("onegate", ""));
        let Ok(Reach::Remote(remote)) = &server.reach else { panic!("remote") };
        assert_eq!(remote.headers[0].1.reveal(), "Bearer t0ken");
        assert_eq!(server.secrets()[0].reveal(), "t0ken");
        assert!(!is_in_the_open(&made));
        assert!(is_in_the_open(&settings("http://tools.example/mcp", Some("t")).ok().unwrap()));
        assert!(!is_in_the_open(&settings("http://127.0.0.1:1/mcp", Some("t")).ok().unwrap()));
        for (url, token) in
            [("tools.example", None), ("https://a:b@c.example", None), ("https://c.example", Some("a\nb"))]
        {
            let why = settings(url, token).err().unwrap();
            assert!(!why.contains("a:b") && !why.contains("a\nb"), "{why}");
        }
    }
}
