//! URIs of many servers seen through one (tool-naming rules U-1 … U-9): who answers to one, and which spelling of it
//! hosts see.
//!
//! Most URIs stay what they are. [`form`] has the other spellings, [`template`] finds what templates expand to,
//! [`table`] decides, [`walk`] finds the URIs in results. Knows no connection: what was learned from results is the
//! caller's, a request is never asked of several servers.

mod edits;
mod form;
mod table;
mod template;
mod walk;

pub(super) use edits::Edits;
pub use form::{MAX_URI, enclose, is_uri};
pub(super) use form::{OURS, is_short_and_clean};
pub use table::UriRoute;
pub(super) use table::{Listed, Site, Uris};
pub use template::MAX_EXPRESSIONS;
pub(super) use template::Template;
pub use walk::{Expose, rewrite_question, rewrite_result};
