//! What a `requestState` of ours holds (MRT-2): which call it belongs to, whose, for how long, and the server's own.
//!
//! Attacker-controlled when it comes back: opened and compared with the call that brings it, in full.

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::caller::Caller;
use crate::gateway::Failure;
use crate::gateway::seal::{Purpose, Seal};
use crate::ident::ServerKey;
use crate::protocol::call::Call;
use crate::protocol::json;

/// How long a host may take to come back.
const LIFETIME: Duration = Duration::from_secs(15 * 60);
/// States that came back and are remembered, at most.
const REMEMBERED: usize = 1 << 16;
/// The shape of [`State`]; another one does not open.
const VERSION: u8 = 2;

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A modern server asked; its own state, raw, when it gave one.
    Pass(Option<String>),
    /// A legacy server asked; its call is open and stands in our table.
    Suspended {
        /// In which process: another one has no such call (MLB-9).
        replica: u64,
        /// Where.
        id: u64,
        /// Another one each round: a state is good for one retry (MLB-4).
        nonce: u64,
    },
    /// A URL must be opened before the call is sent again (URL-1).
    Replay {
        /// How often that was asked for.
        round: u8,
    },
}

#[derive(Serialize, Deserialize)]
struct State {
    version: u8,
    server: String,
    principal: String,
    digest: [u8; 32],
    issued: u64,
    expires: u64,
    kind: Kind,
}

/// States that came back, by their hashes, and when.
#[derive(Default)]
struct Used {
    known: HashSet<u64, RandomState>,
    order: VecDeque<(u64, u64)>,
}

impl Used {
    /// Those that do not open any more need not be known.
    fn forget(&mut self, now: u64) {
        while let Some((oldest, _)) = self.order.front().copied().filter(|(_, at)| at + LIFETIME.as_secs() < now) {
            self.known.remove(&oldest);
            self.order.pop_front();
        }
    }
}

/// Seals and opens states.
pub(super) struct States {
    /// The time when we began: the clock that is not turned, and that tests can stop.
    began: (u64, Instant),
    /// The last states that came back, by their hashes.
    used: Mutex<Used>,
    hash: RandomState,
}

impl States {
    pub(super) fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: (unix.as_secs(), Instant::now()), used: Mutex::default(), hash: RandomState::default() }
    }

    fn now(&self) -> u64 {
        self.began.0 + self.began.1.elapsed().as_secs()
    }

    /// Whether a state was not used yet, as far as is remembered, in whatever spelling.
    pub(super) fn is_new(&self, raw: &[u8]) -> bool {
        let Some(text) = json::text_of(raw) else { return false };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.forget(self.now());
        // One that cannot be remembered could come back for ever.
        used.order.len() < REMEMBERED && !used.known.contains(&self.hash.hash_one(&*text))
    }

    /// Remembers that it was used, for as long as it opens.
    pub(super) fn remember(&self, raw: &[u8]) {
        let Some(text) = json::text_of(raw) else { return };
        let (hash, now) = (self.hash.hash_one(&*text), self.now());
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.forget(now);
        if used.order.len() < REMEMBERED && used.known.insert(hash) {
            used.order.push_back((hash, now));
        }
    }

    /// A state for this call, as a raw JSON string.
    pub(super) fn seal(&self, seal: &Seal, server: &ServerKey, caller: &Caller, call: &Call, kind: Kind) -> String {
        let issued = self.now();
        let state = State {
            version: VERSION,
            server: server.to_string(),
            principal: caller.principal.to_string(),
            digest: digest(call),
            issued,
            expires: issued + LIFETIME.as_secs(),
            kind,
        };
        format!("\"{}\"", seal.seal(Purpose::State, &state))
    }

    /// Opens the raw state that came with this call.
    pub(super) fn open(
        &self,
        seal: &Seal,
        server: &ServerKey,
        caller: &Caller,
        call: &Call,
        raw: &[u8],
    ) -> Result<Kind, Failure> {
        let text = json::text_of(raw).ok_or_else(Failure::foreign_state)?;
        let state: State = seal.open(Purpose::State, &text).ok_or_else(Failure::foreign_state)?;
        let same = state.version == VERSION
            && state.server == server.as_str()
            && state.principal == caller.principal.as_str()
            && state.digest == digest(call);
        if !same {
            return Err(Failure::foreign_state());
        }
        if state.expires <= self.now() {
            return Err(Failure::expired_state());
        }
        Ok(state.kind)
    }
}

/// Which call it is: its method, its target and its arguments, whatever the order of their members.
fn digest(call: &Call) -> [u8; 32] {
    let mut text = call.method().as_str().as_bytes().to_vec();
    text.push(0);
    push_canonical(&mut text, call.target());
    text.push(0);
    push_canonical(&mut text, call.arguments().unwrap_or(b"{}"));
    Sha256::digest(&text).into()
}

/// Appends a raw value with its members sorted and without blanks. Numbers stay as they are written: a host repeats
/// its own.
fn push_canonical(out: &mut Vec<u8>, raw: &[u8]) {
    match raw.first() {
        Some(b'{') => {
            let mut members: Vec<_> = json::members(raw).map(|entry| (spelled(entry.key), entry.value)).collect();
            members.sort();
            out.push(b'{');
            for (key, value) in members {
                out.extend_from_slice(&key);
                out.push(b':');
                push_canonical(out, value);
                out.push(b',');
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            for element in json::elements(raw) {
                push_canonical(out, element);
                out.push(b',');
            }
            out.push(b']');
        }
        Some(b'"') => out.extend_from_slice(&spelled(&raw[1..raw.len() - 1])),
        _ => out.extend_from_slice(raw),
    }
}

/// A string in its one spelling; one with lone surrogates stays as it is.
fn spelled(inside: &[u8]) -> Vec<u8> {
    let raw = [b"\"", inside, b"\""].concat();
    match json::text_of(&raw) {
        Some(text) => {
            let mut out = Vec::with_capacity(raw.len());
            json::push_string(&mut out, &text);
            out
        }
        None => raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(raw: &str) -> String {
        let mut out = Vec::new();
        push_canonical(&mut out, raw.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn mrt2_a_state_in_another_spelling_is_the_same_state() {
        let states = States::new();
        assert!(states.is_new(br#""Ab""#) && states.is_new(br#""Ab""#));
        states.remember(br#""Ab""#);
        for again in [&br#""Ab""#[..], br#""\u0041b""#, br#""A\u0062""#, b"7"] {
            assert!(!states.is_new(again));
        }
        assert!(states.is_new(br#""Ac""#));
    }

    #[test]
    fn mrt2_arguments_are_the_same_in_any_order_and_spelling() {
        let one = r#"{ "b": [1, 2.50, {"y":null,"x":"\u0041/"}], "a":"\/" }"#;
        let other = r#"{"a":"/","b":[1,2.50,{"x":"A\/","y":null}]}"#;
        assert_eq!(canonical(one), canonical(other));
        for different in [
            r#"{"a":"/","b":[2.50,1,{"x":"A\/","y":null}]}"#,
            r#"{"a":"/","b":[1,2.5,{"x":"A\/","y":null}]}"#,
            r#"{"a":"/"}"#,
        ] {
            assert_ne!(canonical(different), canonical(one), "{different}");
        }
        assert_ne!(canonical(r#"{"a":9007199254740993}"#), canonical(r#"{"a":9007199254740992}"#));
    }
}
