//! The resources that the host of a legacy session subscribed to, in its own spelling.
//!
//! To subscribe takes time, to unsubscribe takes none: who unsubscribes meanwhile, opens the session anew or ends it
//! has the last word, and so has the later of two that subscribe to the same. Knows no gateway: what is held does its
//! work by being held, and is handed back wherever it is let go, so that nobody drops it under his lock. Used by
//! the sessions of both transports.

use std::collections::HashMap;

use crate::gateway::Held;

/// What one session subscribed to.
pub(super) struct Subscribed<T = Held> {
    held: HashMap<String, T>,
    /// Those for which a request runs, with the number of the last one.
    running: HashMap<String, u64>,
    last: u64,
}

impl<T> Default for Subscribed<T> {
    fn default() -> Self {
        Self { held: HashMap::new(), running: HashMap::new(), last: 0 }
    }
}

impl<T> Subscribed<T> {
    /// A request to subscribe runs; answers its number.
    pub(super) fn begin(&mut self, uri: &str) -> u64 {
        self.last += 1;
        self.running.insert(uri.to_owned(), self.last);
        self.last
    }

    /// That request has ended, with this or without success; answers what is to be dropped.
    #[must_use]
    pub(super) fn finish(&mut self, uri: &str, number: u64, held: Option<T>) -> Option<T> {
        if self.running.get(uri) != Some(&number) {
            return held;
        }
        self.running.remove(uri);
        self.held.insert(uri.to_owned(), held?)
    }

    /// The host wants it no more, or never wanted it; answers what is to be dropped.
    #[must_use]
    pub(super) fn remove(&mut self, uri: &str) -> Option<T> {
        self.running.remove(uri);
        self.held.remove(uri)
    }

    /// The same of all.
    #[must_use]
    pub(super) fn clear(&mut self) -> impl Sized + use<T> {
        self.running.clear();
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_last_has_the_last_word() {
        let mut subscribed = Subscribed::default();
        let one = subscribed.begin("a");
        assert_eq!(subscribed.finish("a", one, Some(1)), None);
        // Again: the one before goes.
        let (two, three) = (subscribed.begin("a"), subscribed.begin("a"));
        assert_eq!(subscribed.finish("a", two, Some(2)), Some(2), "another came later");
        assert_eq!(subscribed.finish("a", three, Some(3)), Some(1));
        assert_eq!(subscribed.remove("a"), Some(3));
        // Unsubscribed from while it runs, and the session opened anew while it runs.
        let four = subscribed.begin("a");
        assert_eq!(subscribed.remove("a"), None);
        assert_eq!(subscribed.finish("a", four, Some(4)), Some(4));
        let five = subscribed.begin("a");
        let _ = subscribed.clear();
        let six = subscribed.begin("a");
        assert_eq!(subscribed.finish("a", five, Some(5)), Some(5));
        assert_eq!(subscribed.finish("a", six, None), None, "it failed");
        assert_eq!(subscribed.remove("a"), None);
    }
}
