//! The way of a tool call: resolve, admit, send, check what comes back.

use std::sync::Arc;

use tokio::time::Instant;

use super::bridge::{Input, Way};
use super::{Failure, Gateway, LIST_DEADLINE};
use crate::caller::Caller;
use crate::catalog::naming;
use crate::downstream::Answer;
use crate::ident::{Kind, ServerKey};
use crate::protocol::call::Call;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::reply::{Body, ErrorSpans, ResultSpans};
use crate::protocol::version::Era;
use crate::shown::shown;
use crate::transport::upward::Upward;

/// What a server answered to a call, for the host's adapter to write.
pub enum Outcome {
    /// A complete result.
    Result(Answer, ResultSpans),
    /// A protocol error, passed as the server wrote it (CALL-2, D050).
    Error(Answer, ErrorSpans),
    /// Questions to a modern host, which comes back with the answers.
    Input(Input),
    /// A complete result of our own: raw members, without braces.
    Own(String),
}

impl Gateway {
    /// Serves a request that names an item. Dropping the future cancels it.
    pub async fn call(&self, call: &Call, caller: &Caller, upward: Arc<Upward>) -> Result<Outcome, Failure> {
        let name = json::text_of(call.target()).unwrap_or_default();
        let mut catalogue = self.lists.catalogue();
        if catalogue.resolve(&name).is_none() {
            // Rare and large: on the heap, so that every call is not as large as the rarest.
            Box::pin(self.wait_for_owner(&name)).await;
            catalogue = self.lists.catalogue();
        }
        let route = catalogue.resolve(&name).ok_or_else(|| Failure::unknown_tool(&name))?;
        let permit = self
            .policy
            .admit(route.server, Kind::Tool, &route.native)
            // Everything that policy refuses today is hidden, and hidden is unknown.
            .map_err(|_| Failure::unknown_tool(&name))?;
        let server = &self.servers[route.server];
        let native = &*route.native_json;
        let way = Way { bridge: &self.bridge, seal: &self.seal, server, permit, call, native, caller, upward: &upward };
        way.go().await
    }

    /// A name may be called before its server has listed: it is waited for once (N-9), as long as a list waits.
    async fn wait_for_owner(&self, name: &str) {
        let deadline = Instant::now() + LIST_DEADLINE;
        for server in self.lists.unsettled() {
            if naming::may_own(&self.lists.places()[server].prefix, name) {
                self.lists.settle_server(server, deadline).await;
            }
        }
    }
}

/// Whether an answer is one that a host may see.
pub(super) fn check(server: &ServerKey, answer: Answer) -> Result<Outcome, Failure> {
    match answer.reply.body {
        Body::Result(spans) => {
            let kind = spans.result_type.map(|field| field.value.of(&answer.reply.line));
            match kind {
                None | Some(b"\"complete\"") => Ok(Outcome::Result(answer, spans)),
                // The member means nothing before 2026-07-28.
                Some(_) if answer.era == Era::Legacy => Ok(Outcome::Result(answer, spans)),
                // Neither input nor tasks were offered to it (CAP-6, ENV-6).
                Some(kind) => {
                    let kind = shown(&kind[..kind.len().min(40)]);
                    Err(Failure::invalid_result(server, &format!("its resultType is {kind}")))
                }
            }
        }
        Body::Error(error) => match error.code {
            code::MISSING_CAPABILITY => Err(Failure::capability_withheld(server)),
            // Version and header faults are between us and the server; undefined codes must not be passed (§16.2).
            reserved if code::RESERVED.contains(&reserved) => {
                Err(Failure::invalid_result(server, &format!("it answered with error {reserved}")))
            }
            _ => Ok(Outcome::Error(answer, error)),
        },
    }
}
