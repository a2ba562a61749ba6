//! What of a host each server gets to know, as policy says: a capability that a server may not use is not declared to it, so
//! it asks for nothing of the kind, and what it asks all the same is refused like anything undeclared (§8.1).
//!
//! Called wherever a server is given a caller.

use std::borrow::Cow;

use crate::caller::Caller;
use crate::ident::Capability;
use crate::policy::Policy;

/// The caller as this server may know it.
pub(super) fn granted<'a>(policy: &Policy, caller: &'a Caller, server: usize) -> Cow<'a, Caller> {
    let given = &caller.capabilities;
    let withheld = |has: bool, capability| has && !policy.grants(&caller.principal, server, capability);
    let roots = withheld(given.roots, Capability::Roots);
    let sampling = withheld(given.sampling, Capability::Sampling);
    let elicitation = withheld(given.elicitation_form || given.elicitation_url, Capability::Elicitation);
    let secrets = withheld(given.elicitation_secrets, Capability::Secrets);
    if !(roots || sampling || elicitation || secrets) {
        return Cow::Borrowed(caller);
    }
    let mut caller = caller.clone();
    let given = &mut caller.capabilities;
    if roots {
        (given.roots, given.roots_list_changed) = (false, false);
    }
    if sampling {
        (given.sampling, given.sampling_tools) = (false, false);
    }
    if elicitation {
        (given.elicitation_form, given.elicitation_url) = (false, false);
    }
    given.elicitation_secrets &= !(elicitation || secrets);
    Cow::Owned(caller)
}
