//! What we hand to a host to get it back later: cursors, request states and ids of tasks, as MessagePack under an authenticated
//! cipher (PAG-2, MRT-2, SEC-2).
//!
//! A seal names something of ours and proves nothing else: who opens one checks what it holds against who asks.
//! Deliberately knows nothing of what it holds. The key is the operator's, so that replicas share it, or made once
//! and kept in the state folder, so that seals survive a restart. Of several keys the first seals and all open: that
//! is how a key is replaced (MRT-6).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use data_encoding::BASE64URL_NOPAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::config::settings::GatewaySettings;
use crate::whole;

/// Longest text that is opened.
const MAX_TEXT: usize = 256 << 10;
const NONCE: usize = 24;
/// The file of the key in the state folder.
const FILE: &str = "seal.key";

/// What a seal is for: one made for another purpose does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The place in a list (PAG-2).
    Cursor,
    /// The state of a call that waits for input (MRT-2).
    State,
    /// The id of a task (TSK-1).
    Task,
}

impl Purpose {
    const fn tag(self) -> &'static [u8] {
        match self {
            Self::Cursor => b"onegate cursor 1",
            Self::State => b"onegate state 1",
            Self::Task => b"onegate task 1",
        }
    }
}

/// Makes and opens seals.
pub(super) struct Seal {
    keys: OnceLock<Vec<Key>>,
    /// Where the key is kept when the operator gave none.
    folder: PathBuf,
}

struct Key {
    /// Says which key a seal was made with, before any of them is tried.
    id: u8,
    cipher: XChaCha20Poly1305,
}

impl Key {
    fn of(secret: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let id = Sha256::digest(digest)[0];
        Self { id, cipher: XChaCha20Poly1305::new(&digest.into()) }
    }
}

impl Seal {
    /// The seals of a gateway. A key of its own is made or read when it is first needed.
    pub(super) fn new(settings: &GatewaySettings) -> Self {
        let keys = OnceLock::new();
        if let Some(secret) = &settings.seal_key {
            let words = secret.reveal().split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty());
            let _ = keys.set(words.map(|word| Key::of(word.as_bytes())).collect());
        }
        Self { keys, folder: settings.state.clone() }
    }

    fn keys(&self) -> &[Key] {
        self.keys.get_or_init(|| {
            let secret = kept(&self.folder).unwrap_or_else(|error| {
                tracing::warn!(%error, "the seal key cannot be kept; what hosts hold of ours ends with this process");
                random().to_vec()
            });
            vec![Key::of(&secret)]
        })
    }

    /// Seals a value.
    pub(super) fn seal<T: Serialize>(&self, purpose: Purpose, value: &T) -> String {
        let key = &self.keys()[0];
        let plain = rmp_serde::to_vec(value).expect("invariant: what is sealed is plain data");
        let nonce: [u8; NONCE] = std::array::from_fn({
            let random = random();
            move |n| random[n]
        });
        let payload = Payload { msg: &plain, aad: purpose.tag() };
        let sealed = key.cipher.encrypt(XNonce::from_slice(&nonce), payload).expect("invariant: memory holds it");
        let mut bytes = Vec::with_capacity(1 + NONCE + sealed.len());
        bytes.push(key.id);
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// Opens a seal; `None` when it is not one of ours for this purpose.
    pub(super) fn open<T: DeserializeOwned>(&self, purpose: Purpose, text: &str) -> Option<T> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (&id, rest) = bytes.split_first()?;
        let (nonce, sealed) = rest.split_at_checked(NONCE)?;
        let mut keys = self.keys().iter().filter(|key| key.id == id);
        let plain = keys.find_map(|key| {
            key.cipher.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: purpose.tag() }).ok()
        })?;
        rmp_serde::from_slice(&plain).ok()
    }
}

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("invariant: the system gives random bytes");
    bytes
}

/// The key of this folder, made when there is none. Of several processes that make one at once, one wins.
fn kept(folder: &Path) -> io::Result<Vec<u8>> {
    let path = folder.join(FILE);
    let read = |path: &Path| match fs::read(path) {
        Ok(bytes) if bytes.len() >= 32 => Ok(bytes),
        Ok(_) => Err(io::Error::other("the file of the seal key is too short")),
        Err(error) => Err(error),
    };
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    fs::create_dir_all(folder)?;
    whole::create(&path, &random(), 0o600)?;
    read(&path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::Secret;

    fn seal(keys: &str) -> Seal {
        let state = PathBuf::from("unused");
        Seal::new(&GatewaySettings {
            instructions: None,
            name_budget: 45,
            state,
            seal_key: Some(Secret::new(keys)),
            is_mere_front: false,
            max_message: 0,
            list_deadline: std::time::Duration::ZERO,
        })
    }

    #[test]
    fn sec2_only_what_was_sealed_for_the_purpose_opens() {
        let ours = seal("one");
        let text = ours.seal(Purpose::Cursor, &("tools/list", 7u64));
        assert_eq!(ours.open(Purpose::Cursor, &text), Some(("tools/list".to_owned(), 7u64)));
        assert_eq!(ours.open::<(String, u64)>(Purpose::State, &text), None);
        assert_eq!(seal("two").open::<(String, u64)>(Purpose::Cursor, &text), None);
        assert_ne!(text, ours.seal(Purpose::Cursor, &("tools/list", 7u64)), "no nonce comes twice");
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last character may carry bits that are no part of the bytes.
            assert_eq!(ours.open::<(String, u64)>(Purpose::Cursor, &changed), None, "changed at {at}");
        }
        for bad in ["", "A", "ä", &text[..20]] {
            assert_eq!(ours.open::<(String, u64)>(Purpose::Cursor, bad), None);
        }
    }

    #[test]
    fn mrt6_a_replaced_key_still_opens() {
        let text = seal("old").seal(Purpose::State, &1u8);
        assert_eq!(seal("new, old").open::<u8>(Purpose::State, &text), Some(1));
        assert_eq!(seal("new").open::<u8>(Purpose::State, &text), None);
    }

    #[test]
    fn a_key_of_our_own_survives_and_is_nobody_elses() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep");
        let settings = GatewaySettings {
            instructions: None,
            name_budget: 45,
            state,
            seal_key: None,
            is_mere_front: false,
            max_message: 0,
            list_deadline: std::time::Duration::ZERO,
        };
        let text = Seal::new(&settings).seal(Purpose::State, &9u8);
        assert_eq!(Seal::new(&settings).open::<u8>(Purpose::State, &text), Some(9));
        let mode = fs::metadata(settings.state.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&settings.state).unwrap().count(), 1, "nothing is left beside it");
    }
}
