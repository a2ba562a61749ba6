//! What a server offers, as it announced it: read once after the handshake, never assumed (CAP-1, D061).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ident::Kind;
use crate::protocol::capability::{TASKS, UI};
use crate::protocol::json;

/// What a server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// Its kinds of items; whether it tells of their changes. Templates come with resources.
    pub tools: Option<bool>,
    /// See `tools`.
    pub prompts: Option<bool>,
    /// See `tools`.
    pub resources: Option<bool>,
    /// It tells of changes of single resources.
    pub subscribe: bool,
    /// It completes arguments; a 2024-11-05 server cannot say so (§9.1).
    pub completions: bool,
    /// It logs.
    pub logging: bool,
    /// Its settings of MCP Apps, raw, when it brings any.
    pub ui: Option<Bytes>,
    /// It may make tasks of calls: the extension of the modern era.
    pub tasks: bool,
    /// It takes calls as tasks when asked to: 2025-11-25 alone (TSK-7).
    pub task_calls: bool,
}

impl Offers {
    /// Reads the raw `capabilities`. A member of another kind than it should be counts as absent.
    pub fn read(capabilities: &[u8]) -> Self {
        let mut offers = Self::default();
        for entry in json::members(capabilities) {
            let offered = !matches!(entry.value, b"null" | b"false");
            let says = |name| json::members(entry.value).any(|inner| inner.is(name) && inner.value == b"true");
            if !offered {
                continue;
            }
            if entry.is("tools") {
                offers.tools = Some(says("listChanged"));
            } else if entry.is("prompts") {
                offers.prompts = Some(says("listChanged"));
            } else if entry.is("resources") {
                offers.resources = Some(says("listChanged"));
                offers.subscribe = says("subscribe");
            } else if entry.is("completions") {
                offers.completions = true;
            } else if entry.is("logging") {
                offers.logging = true;
            } else if entry.is("extensions") {
                let ui = json::members(entry.value).find(|inner| inner.is(UI) && inner.value.starts_with(b"{"));
                offers.ui = ui.map(|ui| Bytes::copy_from_slice(ui.value));
                offers.tasks = json::member(entry.value, TASKS).is_some_and(|tasks| tasks.starts_with(b"{"));
            } else if entry.is("tasks") {
                let calls = json::member(entry.value, "requests").and_then(|requests| json::member(requests, "tools"));
                offers.task_calls =
                    calls.and_then(|tools| json::member(tools, "call")).is_some_and(|call| call.starts_with(b"{"));
            }
        }
        offers
    }

    /// What a server may turn out to offer, in the words of the protocol itself: extensions are offered when they are
    /// there.
    pub fn everything() -> Self {
        let any = Some(true);
        Self {
            tools: any,
            prompts: any,
            resources: any,
            subscribe: true,
            completions: true,
            logging: true,
            ui: None,
            tasks: false,
            task_calls: false,
        }
    }

    /// Whether it has anything whose arguments can be completed.
    pub fn has_references(&self) -> bool {
        self.prompts.is_some() || self.resources.is_some()
    }

    /// One that said nothing of itself: it is asked for everything, and what it does not know is empty.
    pub(super) fn unknown() -> Self {
        let any = Some(false);
        Self { tools: any, prompts: any, resources: any, completions: true, ..Self::default() }
    }

    /// Whether it has items of this kind, and then whether it tells of their changes.
    pub fn of(&self, kind: Kind) -> Option<bool> {
        match kind {
            Kind::Tool => self.tools,
            Kind::Prompt => self.prompts,
            Kind::Resource | Kind::Template => self.resources,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d061_a_server_has_the_kinds_that_it_declared() {
        let offers = Offers::read(
            br#"{"tools":{"listChanged":true},"prompts":null,"resources":{"subscribe":true},"completions":{},"logging":false}"#,
        );
        assert_eq!((offers.tools, offers.prompts, offers.resources), (Some(true), None, Some(false)));
        assert!(offers.subscribe && offers.completions && !offers.logging);
        assert_eq!(offers.of(Kind::Template), Some(false));
        assert_eq!(Offers::read(br#"{"tools":{"listChanged":"yes"}}"#).tools, Some(false));
        assert_eq!(Offers::read(b"null"), Offers::default());
    }

    #[test]
    fn tsk7_tasks_are_offered_in_two_ways() {
        let offers = |raw: &str| {
            let offers = Offers::read(raw.as_bytes());
            (offers.tasks, offers.task_calls)
        };
        assert_eq!(offers(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#), (true, false));
        assert_eq!(offers(r#"{"extensions":{"io.modelcontextprotocol/tasks":true,"x":{}}}"#), (false, false));
        assert_eq!(offers(r#"{"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}"#), (false, true));
        for no in
            ["{}", r#"{"requests":{}}"#, r#"{"requests":{"tools":{}}}"#, r#"{"requests":{"tools":{"call":false}}}"#]
        {
            assert_eq!(offers(&format!(r#"{{"tasks":{no}}}"#)), (false, false), "{no}");
        }
    }
}
