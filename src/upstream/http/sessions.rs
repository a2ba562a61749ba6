//! The legacy sessions of a front, by their unguessable names (SES-1, SES-2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use data_encoding::BASE64URL_NOPAD;
use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::Limits;
use super::front::Who;
use super::session::Session;

/// A name that nobody can guess, of characters that fit anywhere.
pub(super) fn new_name() -> Option<Box<str>> {
    let mut name = [0; 32];
    getrandom::fill(&mut name).ok()?;
    Some(BASE64URL_NOPAD.encode(&name).into())
}

/// All sessions.
pub(super) struct Sessions {
    table: Mutex<HashMap<Box<str>, Arc<Session>, RandomState>>,
    most: usize,
    most_each: usize,
    idle: Duration,
    kept: Duration,
}

impl Sessions {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            table: Mutex::default(),
            most: limits.sessions,
            most_each: limits.sessions_each,
            idle: limits.session,
            kept: limits.kept,
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Session>, RandomState>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session in. At a bound the one that was unused the longest ends; nothing when all are in use.
    pub(super) fn open(&self, mut session: Session) -> Option<Arc<Session>> {
        session.name = new_name()?;
        let who = &session.who;
        let mut table = self.table();
        let each = table.values().filter(|session| session.who.principal == who.principal).count();
        let mut gone = None;
        if each >= self.most_each || table.len() >= self.most {
            let only = (each >= self.most_each).then_some(&who.principal);
            let unused = table
                .values()
                .filter(|session| only.is_none_or(|only| session.who.principal == *only))
                .filter_map(|session| Some((session.unused_since()?, session)))
                .min_by_key(|(since, _)| *since);
            let oldest = unused.map(|(_, session)| session.name.clone())?;
            gone = table.remove(&oldest);
        }
        let session = Arc::new(session);
        table.insert(session.name.clone(), Arc::clone(&session));
        drop(table);
        if let Some(gone) = gone {
            gone.end();
        }
        Some(session)
    }

    /// The session of that name, when it is this one's: a name alone proves nothing (SES-1, S-16).
    pub(super) fn find(&self, name: &[u8], who: &Who) -> Option<Arc<Session>> {
        let session = Arc::clone(self.table().get(std::str::from_utf8(name).ok()?)?);
        if !session.who.is(who) {
            return None;
        }
        session.renew(who);
        Some(session)
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &Session) {
        self.table().remove(&session.name);
        session.end();
    }

    /// Ends those that were unused for too long, or whose key has expired, and forgets streams that nobody resumes.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let clock = SystemTime::now();
        let mut gone = Vec::new();
        self.table().retain(|_, session| {
            session.forget_streams(now, self.kept);
            let old = session.unused_since().is_some_and(|since| now.duration_since(since) >= self.idle)
                || session.who.proof.is_over(clock);
            if old {
                gone.push(Arc::clone(session));
            }
            !old
        });
        gone.iter().for_each(|session| session.end());
    }

    /// We leave: no answer to a question comes in any more.
    pub(super) fn close_questions(&self) {
        self.table().values().for_each(|session| session.close_questions());
    }

    /// Ends all.
    pub(super) fn end_all(&self) {
        let all = std::mem::take(&mut *self.table());
        all.values().for_each(|session| session.end());
    }
}
