//! What policy refuses, decided in one place and told in the words of who asked (contract §4, E-20).
//!
//! A tool's call that is refused is a result that a model can read and act on; any other request gets an error. What the
//! caller may not know of never comes here: it is unknown (D095). Part of the way of a call, `gateway/invoke.rs`.

use std::time::Duration;

use super::recorded::Trace;
use super::{Failure, Gateway, Outcome};
use crate::caller::Caller;
use crate::downstream::Server;
use crate::ident::Kind;
use crate::policy::{Ask, Charge, Decision, Extent, Origin, Permit, Reason, Refusal, Terms};
use crate::protocol::call::{Call, Target};
use crate::protocol::json;
use crate::protocol::method::Method;

/// The key of ours in the `_meta` of a refused call.
const REFUSAL: &str = "onegate/refusal";

/// A refused call of a tool, as a result.
pub struct Refused {
    /// Raw members, without braces.
    pub members: String,
    /// Raw members of `_meta`, without braces.
    pub meta: String,
}

impl Gateway {
    /// Asks policy, and says in the log and in the record of the request what it decided (R-36).
    pub(super) fn decided(
        &self,
        ask: &Ask<'_>,
        terms: &Terms,
        server: &Server,
        trace: &mut Trace<'_>,
    ) -> Result<Permit, Refusal> {
        let decision = self.policy.decide(ask, terms);
        if let Some(record) = &mut trace.record {
            record.decided(&self.verdict(&decision, ask.arguments));
        }
        if let Err(refusal) = &decision.outcome {
            trace.refused(refusal.reason().code());
            self.metrics.refused(Some(server.index()), refusal.reason().code());
        }
        if decision.outcome.is_ok() && decision.shadowed.is_none() {
            return decision.outcome;
        }
        let place = self.place(&decision);
        let Decision { outcome, shadowed, .. } = decision;
        let (principal, server) = (ask.principal, server.key());
        match (&outcome, shadowed) {
            (Ok(_), Some(reason)) => {
                tracing::info!(%principal, %server, %reason, place, "would be refused, but policy.shadow is on");
            }
            (Err(refusal), _) => {
                let reason = refusal.reason();
                tracing::debug!(%principal, %server, %reason, place, "refused");
            }
            (Ok(_), None) => {}
        }
        outcome
    }

    /// The same for a question about a task that a call made: its tool must still be one that the caller may use, or the
    /// task is unknown; what it was called with is not asked again.
    pub(super) fn admit_task(
        &self,
        caller: &Caller,
        server: usize,
        tool: &str,
        charge: Charge,
        trace: &mut Trace<'_>,
    ) -> Option<Result<Permit, (usize, Refusal)>> {
        let Some(terms) = self.terms(caller, server, Kind::Tool, tool, Origin::Listed) else {
            self.note_hidden(trace, caller, (server, Kind::Tool, tool));
            return None;
        };
        let ask = Ask { principal: &caller.principal, arguments: b"{}", extent: Extent::Partial, charge };
        match self.decided(&ask, &terms, &self.servers[server], trace) {
            Err(refusal) if refusal.is_hidden() => None,
            decided => Some(decided.map_err(|refusal| (server, refusal))),
        }
    }

    /// What a host is told whose question about a task is refused.
    pub(super) fn refused_task(&self, (server, refusal): &(usize, Refusal)) -> Failure {
        Failure::refused(self.servers[*server].key(), refusal, text(refusal))
    }

    /// The same for a host that wants to know of changes.
    pub(super) fn admit_subscription(
        &self,
        caller: &Caller,
        terms: &Terms,
        server: &Server,
        trace: &mut Trace<'_>,
    ) -> Result<(), Failure> {
        let ask = Ask { principal: &caller.principal, arguments: b"{}", extent: Extent::Whole, charge: Charge::Call };
        match self.decided(&ask, terms, server, trace) {
            // What it holds counts for the request, not for as long as the subscription lasts.
            Ok(permit) => drop(permit),
            Err(refusal) => return Err(Failure::refused(server.key(), &refusal, text(&refusal))),
        }
        Ok(())
    }

    /// What a host is told of a refusal.
    pub(super) fn refused(
        &self,
        call: &Call,
        caller: &Caller,
        name: &str,
        server: &Server,
        refusal: &Refusal,
    ) -> Result<Outcome, Failure> {
        if refusal.is_hidden() {
            return Err(Failure::unknown(call, name, caller.revision));
        }
        let text = text(refusal);
        if call.kind() != Target::Tool || call.method() != Method::ToolsCall {
            return Err(Failure::refused(server.key(), refusal, text));
        }
        let mut members = br#""content":[{"type":"text","text":"#.to_vec();
        json::push_string(&mut members, &text);
        members.extend_from_slice(br#"}],"isError":true"#);
        let members = String::from_utf8_lossy(&members).into_owned();
        let data = Failure::refusal_data(server.key(), refusal);
        Ok(Outcome::Refused(Refused { members, meta: format!("\"{REFUSAL}\":{data}") }))
    }
}

/// What happened and what to do about it, for a model to read.
fn text(refusal: &Refusal) -> String {
    let remedy = match (refusal.reason(), refusal.pointer(), refusal.retry_after()) {
        (Reason::ArgumentNotAllowed, Some(pointer), _) if !pointer.is_empty() => format!(
            "the argument at {pointer} is missing or has a value that is not allowed. Use another value; the same call \
             will be refused again."
        ),
        (Reason::ArgumentNotAllowed, ..) => {
            "the arguments are not allowed. Use others; the same call will be refused again.".to_owned()
        }
        (Reason::NotAllowed, ..) => "it is not allowed. Do not try again.".to_owned(),
        (Reason::CapabilityWithheld, ..) => "its server may not use what it needs. Do not try again.".to_owned(),
        (Reason::RateLimited, _, Some(after)) => format!("there were too many calls. Try again in {}.", spoken(after)),
        (Reason::QuotaExhausted, _, Some(after)) => {
            format!("its quota is used up. Try again in {}.", spoken(after))
        }
        (Reason::RateLimited | Reason::QuotaExhausted, _, None) => {
            "there were too many calls. Try again later.".to_owned()
        }
        (Reason::ConcurrencyLimited, ..) => {
            "too many calls run at the same time. Try again when one of them has ended.".to_owned()
        }
    };
    format!("Refused by the gateway's policy ({}): {remedy}", refusal.reason())
}

/// A time that is surely long enough, in a unit that people use.
fn spoken(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000).max(1);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}
