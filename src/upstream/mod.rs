//! The server that the host sees: reads its messages, answers in the words of its revision.
//!
//! Both eras share one pipe: a request with the modern `_meta` keys is served statelessly, everything else belongs
//! to the legacy session that `initialize` opened (VER-1, VER-3). [`stdio`] is the loop, `session` the requests
//! that run, `work` what both eras and both transports have in common, `modern` and `legacy` what is special to an era, `asked` what
//! servers ask the host, `subscribed` which resources it subscribed to, `write` the answers.
//! [`relay`] stands before a gateway of another process instead.

mod asked;
mod batch;
mod convert;
pub mod http;
mod legacy;
mod modern;
pub mod relay;
mod session;
pub mod stdio;
mod subscribed;
mod work;
mod write;
