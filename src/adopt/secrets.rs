//! Which texts of a server are secrets written in the open, and references in their place.
//!
//! Better one too many than one too few: a text that was none works just as well from a file. What is found is given
//! as a `Secret` and written by `store` alone; no message ever holds it (I-34).

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::names_a_secret;
use crate::ident::Secret;

use super::server::Server;
use super::text::{Piece, SECRETS, Text, variable_name};

/// A secret that stood in the open.
pub struct Lifted {
    /// Where it stood, for people: `env GITHUB_TOKEN`.
    pub place: String,
    /// The name of its file in the folder of secrets.
    pub file: String,
    /// The variable that stands for it instead, where no file is written.
    pub variable: String,
    /// It.
    pub value: Secret,
}

/// What is put in the place of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// A file beside the configuration, so that it works at once.
    File,
    /// A variable, which somebody has to set.
    Variable,
}

/// Beginnings of tokens that tell what they are.
const BEGINNINGS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxe",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "hf_",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "SG.",
    "lin_api_",
    "ntn_",
    "secret_",
    "figd_",
    "tvly-",
    "gsk_",
    "sntrys_",
    "pat_",
    "ATATT",
    "dapi",
    "nvapi-",
    "r8_",
    "fc-",
];

/// What a secret is not, whatever its name says.
const WORDS: &[&str] = &["true", "false", "yes", "no", "on", "off", "none", "null", "auto", "basic", "bearer", "oauth"];

/// Whether a value tells by itself that it is a secret.
fn looks_secret(value: &str) -> bool {
    let token = |text: &str| text.len() >= 16 && text.bytes().all(|b| b.is_ascii_graphic());
    let begins = BEGINNINGS.iter().any(|begin| value.starts_with(begin)) && token(value);
    let web_token = value.starts_with("eyJ") && value.matches('.').count() == 2 && token(value);
    begins || web_token || has_password(value)
}

/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.split_once(':').is_some_and(|(_, word)| !word.is_empty()))
}

/// Whether what stands under this name is a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let short = WORDS.contains(&value.to_ascii_lowercase().as_str())
        || value.bytes().all(|b| b.is_ascii_digit()) && value.len() < 4;
    let upper = name.to_ascii_uppercase().replace('-', "_");
    // Where a secret is, is none.
    let of_place =
        ["_FILE", "_PATH", "_DIR", "_MODE", "_TYPE", "_NAME", "_URL", "_METHOD"].iter().any(|end| upper.ends_with(end));
    // Whoever has the address of a webhook may call it.
    let of_place = of_place && !(upper.contains("WEBHOOK") && value.contains("://"));
    let place = of_place || (upper.ends_with("CREDENTIALS") && value.contains('/'));
    !value.is_empty() && (looks_secret(value) || (names_a_secret(name) && !short && !place))
}

/// Takes the secrets of a server out, references in their place. Files that lie in the folder of secrets beside `base` with
/// another content are somebody else's.
pub(super) fn lift(server: &mut Server, key: &str, instead: Instead, base: &Path) -> Vec<Lifted> {
    lift_among(server, key, instead, base, &mut Variables::new())
}

/// The variables that stand for secrets so far, and for which.
pub(super) type Variables = BTreeMap<String, Secret>;

/// The same for one of several servers: a variable of one never stands for another secret of the next.
pub(super) fn lift_among(
    server: &mut Server,
    key: &str,
    instead: Instead,
    base: &Path,
    variables: &mut Variables,
) -> Vec<Lifted> {
    let mut lifter = Lifter { key, instead, base, variables, lifted: Vec::new() };
    for (name, text) in &mut server.env {
        if text.as_plain().is_some_and(|value| is_secret(name, value)) {
            let value = text.as_plain().unwrap_or_default().to_owned();
            *text = lifter.reference(&format!("env {name}"), name, &value);
        }
    }
    for (name, text) in &mut server.headers {
        lifter.header(name, text);
    }
    lifter.args(&mut server.args);
    if let Some(url) = &mut server.url {
        lifter.url(url);
    }
    lifter.lifted
}

struct Lifter<'k> {
    key: &'k str,
    instead: Instead,
    base: &'k Path,
    variables: &'k mut Variables,
    lifted: Vec<Lifted>,
}

impl Lifter<'_> {
    fn reference(&mut self, place: &str, name: &str, value: &str) -> Text {
        let piece = self.piece(place, name, value);
        Text(vec![piece])
    }

    fn piece(&mut self, place: &str, name: &str, value: &str) -> Piece {
        let plain: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect();
        let mut file = format!("{}.{plain}", self.key);
        // One name twice, or a file of another's: the place in the row tells them apart.
        if self.lifted.iter().any(|known| known.file == file) {
            let number = self.lifted.len() + 1;
            file.push_str(&format!(".{number}"));
        }
        let folder = self.base.join(SECRETS);
        let of_another = |file: &String| {
            let known = std::fs::read(folder.join(file));
            known.is_ok_and(|known| known.strip_suffix(b"\n").unwrap_or(&known) != value.as_bytes())
        };
        let stem = file.clone();
        let mut number: u32 = 2;
        while self.instead == Instead::File && of_another(&file) {
            file = format!("{stem}-{number}");
            number += 1;
        }
        let variable = self.variable(name, value);
        let piece = match self.instead {
            Instead::File => Piece::File(format!("{SECRETS}/{file}")),
            Instead::Variable => Piece::Variable { name: variable.clone(), default: None },
        };
        self.lifted.push(Lifted { place: place.to_owned(), file, variable, value: Secret::new(value) });
        piece
    }

    /// A variable that stands for this secret and no other.
    fn variable(&mut self, name: &str, value: &str) -> String {
        let (key, plain) = (variable_name(self.key), variable_name(name));
        let (first, own) = if name.eq_ignore_ascii_case("authorization") {
            (format!("{key}_TOKEN"), format!("{key}_TOKEN"))
        } else {
            (plain.clone(), format!("{key}_{plain}"))
        };
        let numbered = (2_u32..).map(|number| format!("{own}_{number}"));
        let is_free = |name: &String| self.variables.get(name).is_none_or(|known| known.reveal() == value);
        let chosen = [first, own.clone()].into_iter().chain(numbered).find(is_free).unwrap_or(plain);
        self.variables.insert(chosen.clone(), Secret::new(value));
        chosen
    }

    fn header(&mut self, name: &str, text: &mut Text) {
        let Some(value) = text.as_plain() else { return };
        if !is_secret(name, value) && !name.eq_ignore_ascii_case("authorization") {
            return;
        }
        // The scheme is no secret, and the line stays readable with it.
        let (scheme, token) = match value.split_once(' ') {
            Some((scheme, token)) if scheme.bytes().all(|b| b.is_ascii_alphabetic()) => (format!("{scheme} "), token),
            _ => (String::new(), value),
        };
        if token.is_empty() {
            return;
        }
        let (token, place) = (token.to_owned(), format!("header {name}"));
        let piece = self.piece(&place, name, &token);
        *text = match scheme.as_str() {
            "" => Text(vec![piece]),
            _ => Text(vec![Piece::Plain(scheme), piece]),
        };
    }

    fn args(&mut self, args: &mut [Text]) {
        let mut before: Option<String> = None;
        for text in args {
            let flag = before.take();
            let Some(value) = text.as_plain().map(str::to_owned) else { continue };
            if let Some(pieces) = self.named(&value) {
                *text = Text(pieces);
            } else if let Some(flag) = flag.filter(|flag| is_secret(flag, &value) && !value.starts_with('-')) {
                *text = self.reference(&format!("argument --{flag}"), &flag, &value);
            } else if looks_secret(&value) {
                *text = self.reference("an argument", "argument", &value);
            } else if let Some(flag) = value.strip_prefix("--").filter(|flag| is_name(flag)) {
                before = Some(flag.to_owned());
            }
        }
    }

    /// What an argument names itself: `--token=…`, `TOKEN=…`, `Authorization: …`, `--env=TOKEN=…`.
    fn named(&mut self, value: &str) -> Option<Vec<Piece>> {
        let assigned = value.split_once('=').filter(|(name, _)| is_name(name.trim_start_matches('-')));
        if let Some((name, secret)) = assigned {
            let word = name.trim_start_matches('-');
            let mut pieces = vec![Piece::Plain(format!("{name}="))];
            if is_secret(word, secret) {
                pieces.push(self.piece(&format!("argument {name}"), word, secret));
            } else {
                pieces.extend(self.named(secret)?);
            }
            return Some(pieces);
        }
        let (name, token) = value.split_once(':')?;
        let bare = token.trim_start();
        // `authelia:latest` is an image; headers are told by their space or their capitals.
        let header =
            bare.len() < token.len() || name.contains(|c: char| c.is_ascii_uppercase()) || name.starts_with("x-");
        if !header || !is_name(name) || !is_secret(name, bare) {
            return None;
        }
        let mut text = Text::plain(bare);
        self.header(name, &mut text);
        let mut pieces = vec![Piece::Plain(value[..value.len() - bare.len()].to_owned())];
        pieces.append(&mut text.0);
        Some(pieces)
    }

    /// User and password, parameters of the query, and tokens that are a part of the path.
    fn url(&mut self, url: &mut Text) {
        let Some(value) = url.as_plain().map(str::to_owned) else { return };
        let (address, query) = value.split_once('?').unwrap_or((&value, ""));
        let mut pieces = Vec::new();
        for (n, part) in address.split_inclusive('/').enumerate() {
            let word = part.trim_end_matches('/');
            let user = part.rsplit_once('@').filter(|_| n == 2);
            if let Some((user, host)) = user {
                // A name alone is a token where it looks like one.
                match user.split_once(':') {
                    Some((name, word)) if !word.is_empty() => {
                        pieces.push(Piece::Plain(format!("{name}:")));
                        pieces.push(self.piece("the address", "url", word));
                    }
                    None if looks_secret(user) => pieces.push(self.piece("the address", "url", user)),
                    Some((name, "")) if looks_secret(name) => {
                        pieces.push(self.piece("the address", "url", name));
                        pieces.push(Piece::Plain(":".to_owned()));
                    }
                    Some(_) | None => pieces.push(Piece::Plain(user.to_owned())),
                }
                pieces.push(Piece::Plain(format!("@{host}")));
            } else if n > 2 && looks_secret(word) {
                pieces.push(self.piece("the address", "url", word));
                pieces.push(Piece::Plain(part[word.len()..].to_owned()));
            } else {
                pieces.push(Piece::Plain(part.to_owned()));
            }
        }
        for (n, parameter) in query.split('&').filter(|parameter| !parameter.is_empty()).enumerate() {
            pieces.push(Piece::Plain(if n == 0 { "?" } else { "&" }.to_owned()));
            match parameter.split_once('=').filter(|(name, value)| is_secret(name, value)) {
                Some((name, value)) => {
                    pieces.push(Piece::Plain(format!("{name}=")));
                    pieces.push(self.piece(&format!("parameter {name} of the address"), name, value));
                }
                None => pieces.push(Piece::Plain(parameter.to_owned())),
            }
        }
        if pieces.iter().any(|piece| !matches!(piece, Piece::Plain(_))) {
            *url = Text(pieces);
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::super::server::Origin;
    use super::*;

    fn server() -> Server {
        Server::new("s", Origin::default())
    }

    #[test]
    fn i_34_secrets_are_told_from_other_values() {
        for (name, value, secret) in [
            ("GITHUB_TOKEN", "whatever", true),
            ("API_KEY", "abc12", true),
            ("DB_PASSWORD", "x", true),
            ("TOKEN", "", false),
            ("AUTH", "none", false),
            ("AUTH_MODE", "device", false),
            ("TOKEN_FILE", "/run/token", false),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json", false),
            ("LOG", "info", false),
            ("X", "ghp_0123456789abcdefghijABCDEFGHIJ", true),
            ("X", "sk-proj-0123456789abcdef", true),
            ("X", "sk-short", false),
            ("X", "eyJhbGciOi.eyJzdWIiOiIx.c2lnbmF0dXJl", true),
            ("DATABASE", "postgres://me:pw@db/x", true),
            ("DATABASE", "postgres://me@db/x", false),
            ("X", "https://h/a:b@c", false),
            ("GITHUB_PAT", "x1y2z3", true),
            ("PATH", "/usr/bin", false),
            ("PWD", "/home/me", false),
            ("MYSQL_PWD", "hunter2", true),
            ("SQL_CONNECTION_STRING", "Server=a;Uid=b", true),
            ("SLACK_WEBHOOK_URL", "https://hooks.example/T/B/x", true),
        ] {
            assert_eq!(is_secret(name, value), secret, "{name}={value}");
        }
    }

    #[test]
    fn i_34_references_take_the_place_of_secrets() {
        let mut server = server();
        server.env = vec![("GITHUB_TOKEN".into(), Text::plain("hunter2")), ("LOG".into(), Text::plain("info"))];
        server.headers =
            vec![("Authorization".into(), Text::plain("Bearer hunter3")), ("X-Team".into(), Text::plain("a"))];
        server.args =
            ["--api-key", "hunter4", "--token=hunter5", "-y", "Authorization: Bearer hunter6", "--key-file", "/k"]
                .map(Text::plain)
                .to_vec();
        server.url = Some(Text::plain("https://h.example/mcp?api_key=hunter7&x=1"));
        let lifted = lift(&mut server, "gh", Instead::File, Path::new("/nowhere"));
        let values: Vec<_> = lifted.iter().map(|lifted| lifted.value.reveal()).collect();
        assert_eq!(values, ["hunter2", "hunter3", "hunter4", "hunter5", "hunter6", "hunter7"]);
        let own = |text: &Text| text.own().text;
        assert_eq!(own(&server.env[0].1), "${file:secrets/gh.GITHUB_TOKEN}");
        assert_eq!(own(&server.env[1].1), "info");
        assert_eq!(own(&server.headers[0].1), "Bearer ${file:secrets/gh.Authorization}");
        let args: Vec<_> = server.args.iter().map(own).collect();
        assert_eq!(args[1], "${file:secrets/gh.api-key}");
        assert_eq!(args[2], "--token=${file:secrets/gh.token}");
        assert_eq!(args[4], "Authorization: Bearer ${file:secrets/gh.Authorization.5}");
        assert_eq!(args[5..], ["--key-file", "/k"]);
        assert_eq!(own(server.url.as_ref().unwrap()), "https://h.example/mcp?api_key=${file:secrets/gh.api_key}&x=1");
        let mut files: Vec<_> = lifted.iter().map(|lifted| &lifted.file).collect();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), 6, "each has its own file");
    }

    #[test]
    fn i_34_secrets_within_arguments_and_addresses() {
        let mut server = server();
        server.args = [
            "Authorization:Bearer hunter1",
            "--header=Authorization: Bearer hunter2",
            "--env=GITHUB_TOKEN=hunter3",
            "authelia:latest",
        ]
        .map(Text::plain)
        .to_vec();
        server.url = Some(Text::plain("https://me:hunter4@h.example/mcp"));
        let lifted = lift(&mut server, "s", Instead::Variable, Path::new("/nowhere"));
        let values: Vec<_> = lifted.iter().map(|lifted| lifted.value.reveal()).collect();
        assert_eq!(values, ["hunter1", "hunter2", "hunter3", "hunter4"]);
        let args: Vec<_> = server.args.iter().map(|text| text.own().text).collect();
        assert_eq!(args[0], "Authorization:Bearer ${env:S_TOKEN}");
        assert_eq!(args[1], "--header=Authorization: Bearer ${env:S_TOKEN_2}");
        assert_eq!(args[2], "--env=GITHUB_TOKEN=${env:GITHUB_TOKEN}");
        assert_eq!(args[3], "authelia:latest");
        assert_eq!(server.url.unwrap().own().text, "https://me:${env:URL}@h.example/mcp");
    }

    #[test]
    fn one_variable_stands_for_one_secret() {
        let mut variables = Variables::new();
        let mut lift = |key: &str, value: &str| {
            let mut server = server();
            server.env = vec![("API_KEY".into(), Text::plain(value))];
            let _ = lift_among(&mut server, key, Instead::Variable, Path::new("/nowhere"), &mut variables);
            server.env[0].1.own().text
        };
        assert_eq!(lift("a", "hunter1"), "${env:API_KEY}");
        assert_eq!(lift("b", "hunter1"), "${env:API_KEY}");
        assert_eq!(lift("c-d", "hunter2"), "${env:C_D_API_KEY}");
    }

    #[test]
    fn references_are_no_secrets() {
        let mut server = server();
        server.env = vec![("TOKEN".into(), Text::read("${env:TOKEN}", super::super::hosts::Variables::Code))];
        assert!(lift(&mut server, "x", Instead::Variable, Path::new("/nowhere")).is_empty());
    }
}
