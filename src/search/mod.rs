//! Finding tools by words: how well each of many tools fits what somebody wants to do.
//!
//! Pure: text in, positions and scores out. Knows neither catalogue nor host; `gateway` builds an [`Index`] for what a
//! profile shows. `docs/search.md` has the figures.

mod index;
mod read;
mod shape;
mod vocabulary;
mod words;

pub use index::{Document, Hit, Index};
pub use read::Texts;
