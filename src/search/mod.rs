//! Finding tools by words: how well each of many tools fits what somebody wants to do.
//!
//! Pure: text in, positions and scores out. Knows neither catalogue nor host; `gateway` builds an [`Index`] for what a
//! profile shows. `docs/search.md` has the figures.

mod fuse;
mod index;
mod meaning;
#[cfg(feature = "semantic")]
mod model;
#[cfg(not(feature = "semantic"))]
#[path = "no_model.rs"]
mod model;
mod read;
mod shape;
mod vocabulary;
mod words;

pub use fuse::{Beside, find};
pub use index::{Hit, Index};
pub use meaning::{Meant, ModelError, ModelId, Vector, Vectors};
pub use model::Model;
pub use read::{Document, Texts};
