//! `[profiles]`, `[http]`, `[auth]` and the seal key: the merged file → settings, and what keeps `serve` from
//! starting.
//!
//! Called by `resolve`. Opens no socket; of files it only asks whether they are there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;
use url::Host;

use crate::ident::{Secret, ServerKey};

use super::check::join;
use super::fault::{Fault, Note, nearest};
use super::ground::{Findings, Ground, Maker};
use super::resolve::{is_faulty, prefix_problem};
use super::schema::{Auth, Http, Jwt, Key, Mode, Profile, Tokenizer};
use super::settings::{
    ApiKey, AuthMode, AuthSettings, HttpSettings, ItemFilter, JwtSettings, KeySource, ProfileSettings, Reach,
    ServerSettings, StdioToken, TlsSettings, TokenizerName,
};
use super::{address, keys, surface, tokens};
use crate::moment;
use crate::shown::shown_str as shown;

/// Shortest seal key that nobody can guess, if it is random.
const SHORTEST_SEAL_KEY: usize = 32;

/// What concerns `serve` alone: `run` goes on without it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Serving {
    /// Whether the configuration says anything of `[http]` or `[auth]`.
    pub configured: bool,
    /// What keeps `serve` from starting, and is a fault of the configuration.
    pub faults: Vec<Fault>,
    /// Nobody can enter: keeps `serve` from starting, but may be a configuration that is not complete yet.
    pub nobody: Option<Fault>,
    /// What people should know before they serve others.
    pub notes: Vec<Note>,
}

/// Resolves what faces the hosts of a team.
pub(super) struct Front<'a, 'g> {
    pub ground: &'a Ground<'g>,
    pub earlier: &'a [Fault],
    pub faults: &'a mut Vec<Fault>,
    pub serving: Serving,
}

impl Front<'_, '_> {
    fn fault_at(&self, path: &str, message: String) -> Fault {
        let place = self.ground.origins.place(path, self.ground.layers);
        Fault { place, key: path.to_owned(), message, nearest: None }
    }

    fn fault(&mut self, path: &str, message: String) {
        let fault = self.fault_at(path, message);
        self.faults.push(fault);
    }

    /// The key of seals, its references put in.
    pub(super) fn seal_key(&mut self, written: Option<&str>) -> Option<Secret> {
        const PATH: &str = "gateway.seal_key";
        let mut findings = Findings::default();
        let text = Maker::new(self.ground, &mut findings).text(written?, PATH);
        // Without it a replica could not read what another one sealed: no part of the gateway goes on then.
        self.faults.append(&mut findings.faults);
        self.faults.append(&mut findings.missing);
        let text = text?;
        // Several may stand there, the newest first: what was sealed with an older one still opens.
        let mut keys = text.split([',', ' ', '\n', '\t']).filter(|key| !key.is_empty()).peekable();
        if keys.peek().is_none() || keys.any(|key| key.len() < SHORTEST_SEAL_KEY) {
            let message =
                format!("is shorter than {SHORTEST_SEAL_KEY} characters; `openssl rand -base64 32` makes one");
            self.fault(PATH, message);
        }
        Some(Secret::new(text))
    }

    /// By what tokens are counted. Ceilings hang on it, so a build that cannot count so does not go on with another number.
    pub(super) fn tokenizer(&mut self, written: Option<Tokenizer>) -> Option<TokenizerName> {
        let written = written?;
        if !cfg!(feature = "tokenizer") {
            let message = "this build has no tokenizers (build it with `--features tokenizer`)";
            self.fault("gateway.tokenizer", message.to_owned());
        }
        Some(match written {
            Tokenizer::Cl100kBase => TokenizerName::Cl100kBase,
            Tokenizer::O200kBase => TokenizerName::O200kBase,
        })
    }

    /// The profiles, `default` first.
    pub(super) fn profiles(
        &mut self,
        mut written: BTreeMap<String, Profile>,
        known: &[String],
        enabled: &[ServerSettings],
    ) -> Vec<ProfileSettings> {
        let mut profiles = vec![match written.remove(ProfileSettings::DEFAULT) {
            Some(profile) => self.profile(ProfileSettings::DEFAULT.to_owned(), profile, known, enabled),
            None => ProfileSettings {
                surface: surface::settings(&Profile::default(), enabled),
                ..ProfileSettings::everything()
            },
        }];
        profiles.extend(written.into_iter().map(|(name, profile)| self.profile(name, profile, known, enabled)));
        profiles
    }

    fn profile(
        &mut self,
        name: String,
        profile: Profile,
        known: &[String],
        enabled: &[ServerSettings],
    ) -> ProfileSettings {
        let path = join(&join("profiles", &name), "servers");
        let surface = surface::settings(&profile, enabled);
        let servers = profile.servers.map(|wanted| {
            let mut servers: Vec<ServerKey> = Vec::with_capacity(wanted.len());
            for (index, key) in wanted.iter().enumerate() {
                let at = format!("{path}[{index}]");
                if !known.contains(key) {
                    // A server with a fault of its own was taken out before.
                    if !is_faulty(self.earlier, &join("servers", key)) {
                        let mut fault = self.fault_at(&at, format!("there is no server `{}`", shown(key)));
                        fault.nearest = nearest(key, known.iter().map(String::as_str)).map(str::to_owned);
                        self.faults.push(fault);
                    }
                } else if servers.iter().any(|earlier| earlier.as_str() == key) {
                    self.fault(&at, format!("the server `{}` is named twice", shown(key)));
                } else if let Some(server) = enabled.iter().find(|server| server.key.as_str() == key) {
                    servers.push(server.key.clone());
                }
            }
            servers
        });
        let name_budget = profile.name_budget.map(usize::from);
        if let Some(budget) = name_budget {
            let shown = |server: &&ServerSettings| servers.as_ref().is_none_or(|shown| shown.contains(&server.key));
            let at = join(&join("profiles", &name), "name_budget");
            for server in enabled.iter().filter(shown) {
                if let Some(message) = prefix_problem(&server.prefix, budget, &at) {
                    self.fault(&at, message);
                }
            }
        }
        let tools = ItemFilter { allow: profile.tools.allow, deny: profile.tools.deny };
        ProfileSettings { name, servers, tools, name_budget, surface }
    }

    /// Where is listened, and who may come in: decided together, because an open door must not face the network.
    pub(super) fn http_and_auth(&mut self, http: Http, auth: Auth) -> (HttpSettings, AuthSettings) {
        let origins = self.ground.origins;
        self.serving.configured = ["http", "auth"].iter().any(|table| origins.get(table, self.ground.layers).is_some());
        let tls = self.tls(&http);
        let auth = self.auth(auth);
        let fallback = HttpSettings::default();
        // Checked with its line.
        let listen = http.listen.parse().unwrap_or(fallback.listen);
        if !listen.ip().is_loopback() {
            match auth.mode {
                AuthMode::None => self.fault(
                    "auth.mode",
                    format!(
                        "`none` would let in everybody who reaches {listen}; it is for a listener on loopback only"
                    ),
                ),
                AuthMode::Keys | AuthMode::Jwt | AuthMode::Both if tls.is_none() => {
                    let place = origins.place("http.listen", self.ground.layers);
                    let message = format!(
                        "http.listen: {listen} is reached from other machines, and without `http.tls` or a proxy that \
                         speaks TLS keys and tokens cross the network in the open"
                    );
                    self.serving.notes.push(Note { place, message });
                }
                AuthMode::Keys | AuthMode::Jwt | AuthMode::Both => {}
            }
        }
        let http = HttpSettings {
            listen,
            allowed_hosts: http.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            allowed_origins: http.allowed_origins,
            sse: http.sse,
            tls,
        };
        (http, auth)
    }

    /// Points out a server that is this gateway itself: each of its lists would wait for itself.
    pub(super) fn points_at_itself(&mut self, http: &HttpSettings, servers: &[ServerSettings]) {
        for server in servers {
            let Ok(Reach::Remote(remote)) = &server.reach else { continue };
            let here = match remote.url.host() {
                Some(Host::Ipv4(ip)) => IpAddr::from(ip) == http.listen.ip() || ip.is_loopback(),
                Some(Host::Ipv6(ip)) => IpAddr::from(ip) == http.listen.ip() || ip.is_loopback(),
                Some(Host::Domain(_)) => address::is_loopback(&remote.url),
                None => false,
            };
            if here && remote.url.port_or_known_default() == Some(http.listen.port()) {
                let path = join(&join("servers", server.key.as_str()), "url");
                let place = self.ground.origins.place(&path, self.ground.layers);
                let message =
                    format!("{path}: is where `serve` itself listens ({}); it would wait for itself", http.listen);
                self.serving.notes.push(Note { place, message });
            }
        }
    }

    fn tls(&mut self, http: &Http) -> Option<TlsSettings> {
        let (cert, key) = match (&http.tls.cert, &http.tls.key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => return None,
            (cert, _) => {
                let missing = if cert.is_some() { "key" } else { "cert" };
                if !is_faulty(self.earlier, "http.tls") {
                    self.fault("http.tls", format!("the key `{missing}` is missing: TLS needs `cert` and `key`"));
                }
                return None;
            }
        };
        let cert = self.file("http.tls.cert", cert);
        let key = self.file("http.tls.key", key);
        Some(TlsSettings { cert, key })
    }

    fn file(&mut self, path: &str, written: &str) -> PathBuf {
        let ground = self.ground;
        let base = ground.origins.get(path, ground.layers).map_or(ground.cwd, |(layer, _)| &layer.base);
        let file = ground.environment.path(written, base);
        if let Err(error) = std::fs::File::open(&file) {
            let fault = self.fault_at(path, format!("the file `{}` cannot be read: {error}", shown(written)));
            self.serving.faults.push(fault);
        }
        file
    }

    fn auth(&mut self, auth: Auth) -> AuthSettings {
        let mode = match auth.mode {
            Mode::Keys => AuthMode::Keys,
            Mode::Jwt => AuthMode::Jwt,
            Mode::Both => AuthMode::Both,
            Mode::None => AuthMode::None,
        };
        let before = self.faults.len();
        let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        let mut keys = Vec::with_capacity(auth.keys.len());
        for (index, written) in auth.keys.into_iter().enumerate() {
            let path = format!("auth.keys[{index}]");
            let Some(key) = self.key(written, &path) else { continue };
            self.only_once(&path, "key", &key.name, key.hash, (&mut names, &mut hashes));
            keys.push(key);
        }
        let mut stdio = Vec::with_capacity(auth.stdio.len());
        // One text must not prove two things, so their hashes are those of keys too.
        let mut names = BTreeSet::new();
        for (index, written) in auth.stdio.into_iter().enumerate() {
            let path = format!("auth.stdio[{index}]");
            self.name_and_hash(&path, written.name.is_some(), written.hash.is_some(), " --stdio");
            let (Some(name), Some(hash)) = (written.name, written.hash.as_deref().and_then(keys::parse_hash)) else {
                continue;
            };
            self.only_once(&path, "token", &name, hash, (&mut names, &mut hashes));
            stdio.push(StdioToken { name, hash, groups: written.groups });
        }
        let takes_tokens = matches!(mode, AuthMode::Jwt | AuthMode::Both);
        let jwt = self.jwt(auth.jwt, takes_tokens);
        let faulty = self.faults.len() > before || is_faulty(self.earlier, "auth");
        if mode == AuthMode::Keys && !faulty {
            self.somebody_may_enter(&keys);
        }
        if mode == AuthMode::Jwt && !keys.is_empty() {
            self.serving_note("auth.keys", "are not taken with `mode = \"jwt\"`; `\"both\"` takes keys and tokens");
        }
        AuthSettings { mode, keys, jwt: jwt.filter(|_| takes_tokens), stdio }
    }

    fn serving_note(&mut self, path: &str, message: &str) {
        let place = self.ground.origins.place(path, self.ground.layers);
        self.serving.notes.push(Note { place, message: format!("{path}: {message}") });
    }

    fn only_once(
        &mut self,
        path: &str,
        what: &str,
        name: &str,
        hash: [u8; 32],
        (names, hashes): (&mut BTreeSet<String>, &mut BTreeSet<[u8; 32]>),
    ) {
        if !names.insert(name.to_owned()) {
            self.fault(&join(path, "name"), format!("there is a {what} `{name}` already"));
        } else if !hashes.insert(hash) {
            let message = "is that of another key: who comes with it would not be known".to_owned();
            self.fault(&join(path, "hash"), message);
        }
    }

    /// Whose tokens are taken: all of it must be known before anybody may enter.
    fn jwt(&mut self, written: Jwt, needed: bool) -> Option<JwtSettings> {
        const PATH: &str = "auth.jwt";
        let is_given = written != Jwt::default();
        let faulty = is_faulty(self.earlier, PATH);
        if needed && !faulty {
            for (member, given) in [("issuer", written.issuer.is_some()), ("audience", written.audience.is_some())] {
                if !given {
                    let message = format!(
                        "the key `{member}` is missing: tokens are taken from one issuer, and for one audience"
                    );
                    self.fault(PATH, message);
                }
            }
        } else if is_given && !faulty {
            self.serving_note(PATH, "means nothing with this `auth.mode`; `\"jwt\"` and `\"both\"` take tokens");
        }
        let (issuer, audience) = (written.issuer?, written.audience?);
        let resource = written.resource.as_deref().unwrap_or(&audience);
        let Some(resource) = tokens::resource(resource) else {
            if needed && !faulty {
                let message = "the key `resource` is missing: `audience` is no address, so it must be said what hosts ask \
                               tokens for, such as `https://gateway.example/mcp`";
                self.fault(PATH, message.to_owned());
            }
            return None;
        };
        let keys = match written.jwks {
            None => KeySource::Discovered,
            Some(text) if tokens::is_address(&text) => KeySource::Url(address::endpoint(&text).ok()?),
            Some(text) => KeySource::File(self.file("auth.jwt.jwks", &text)),
        };
        let groups_claim = written.groups_claim.unwrap_or_else(|| tokens::GROUPS.to_owned());
        Some(JwtSettings { issuer, audience, resource, keys, groups_claim, scopes: written.scopes })
    }

    fn name_and_hash(&mut self, path: &str, name: bool, hash: bool, flag: &str) {
        let faulty = is_faulty(self.earlier, path);
        for (member, given) in [("name", name), ("hash", hash)] {
            if !given && !faulty {
                self.fault(
                    path,
                    format!("the key `{member}` is missing; `onegate key new NAME{flag}` shows the whole entry"),
                );
            }
        }
    }

    fn key(&mut self, written: Key, path: &str) -> Option<ApiKey> {
        self.name_and_hash(path, written.name.is_some(), written.hash.is_some(), "");
        Some(ApiKey {
            name: written.name?,
            hash: keys::parse_hash(&written.hash?)?,
            groups: written.groups,
            expires: written.expires.as_deref().and_then(moment::parse),
        })
    }

    /// Points out that nobody can enter; that it is meant so is hard to believe.
    fn somebody_may_enter(&mut self, keys: &[ApiKey]) {
        let now = SystemTime::now();
        let is_expired = |key: &ApiKey| key.expires.is_some_and(|end| end <= now);
        let message = if keys.is_empty() {
            "there is no key, so nobody can enter: `onegate key new NAME` makes one and shows the entry for the \
             configuration; for a listener on loopback, `mode = \"none\"` does without"
        } else if keys.iter().all(is_expired) {
            "every key has expired, so nobody can enter: `onegate key new NAME` makes a new one"
        } else {
            for key in keys.iter().filter(|key| is_expired(key)) {
                let place = self.ground.origins.place("auth.keys", self.ground.layers);
                let message = format!("auth.keys: the key `{}` has expired", key.name);
                self.serving.notes.push(Note { place, message });
            }
            return;
        };
        self.serving.nobody = Some(self.fault_at("auth.keys", message.to_owned()));
    }
}
