//! Lists as hosts get them: whole where they fit, else in pages of one snapshot (PAG-2…5).
//!
//! A cursor is a seal: it names the snapshot, the place in it and who may go on there. Native cursors never leave.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::seal::Purpose;
use super::{Failure, Gateway, ItemList};
use crate::caller::Caller;
use crate::ident::Kind;
use crate::protocol::json;
use crate::protocol::method::Method;
use crate::telemetry::metrics::Came;

/// Items of one page.
const PAGE: usize = 1000;

/// What a cursor holds.
#[derive(Serialize, Deserialize)]
struct Cursor {
    kind: u8,
    profile: u32,
    principal: String,
    fingerprint: Vec<u8>,
    offset: u64,
}

impl Gateway {
    /// A list for this host, when every server had its chance to list (LST-1); from the cursor on, a raw string.
    /// `message` is the host's own.
    pub async fn list(
        &self,
        kind: Kind,
        caller: &Caller,
        cursor: Option<&[u8]>,
        message: &[u8],
    ) -> Result<ItemList, Failure> {
        let span = self.plain(caller, method(kind), message);
        if cursor.is_none() {
            let deadline = Instant::now() + self.settings.list_deadline;
            self.lists.settle(kind).await;
            self.audiences.settle(caller, deadline, |_| true).await;
        }
        let page = self.page(kind, caller, cursor);
        span.ended(page.as_ref().err());
        page
    }

    /// The same at once, when there is nothing to wait for.
    pub fn list_now(
        &self,
        kind: Kind,
        caller: &Caller,
        cursor: Option<&[u8]>,
        message: &[u8],
    ) -> Option<Result<ItemList, Failure>> {
        (self.lists.is_settled(kind) && self.audiences.is_settled(caller)).then(|| {
            let span = self.plain(caller, method(kind), message);
            let page = self.page(kind, caller, cursor);
            span.ended(page.as_ref().err());
            page
        })
    }

    fn page(&self, kind: Kind, caller: &Caller, cursor: Option<&[u8]>) -> Result<ItemList, Failure> {
        let mut measure = self.metrics.begin(method(kind));
        let page = self.cut(kind, caller, cursor);
        measure.ended(if page.is_ok() { Came::Ok } else { Came::Failed }, None);
        page
    }

    fn cut(&self, kind: Kind, caller: &Caller, cursor: Option<&[u8]>) -> Result<ItemList, Failure> {
        let sight = self.sight_of(caller);
        let (catalogue, offset) = match cursor {
            None => (self.audiences.catalogue(caller), 0),
            Some(raw) => self.open(kind, caller, raw).ok_or_else(Failure::bad_cursor)?,
        };
        let (items, next) = if catalogue.entries(kind) <= PAGE {
            (catalogue.list(kind, caller.revision), None)
        } else {
            catalogue.page(kind, caller.revision, offset, PAGE)
        };
        let next = next.map(|offset| {
            self.lists.keep(sight, &catalogue);
            let cursor = Cursor {
                kind: kind.index() as u8,
                profile: caller.profile as u32,
                principal: caller.principal.as_str().to_owned(),
                fingerprint: catalogue.fingerprint_of(kind).as_bytes().to_vec(),
                offset: offset as u64,
            };
            format!("\"{}\"", self.seal.seal(Purpose::Cursor, &cursor)).into()
        });
        let ttl_ms = self.lists.holds(sight, kind).as_millis();
        Ok(ItemList { kind, items, next, ttl_ms, fingerprint: catalogue.fingerprint_of(kind) })
    }

    /// The place that a cursor names, when it is one of ours for this host and list (PAG-4).
    fn open(
        &self,
        kind: Kind,
        caller: &Caller,
        raw: &[u8],
    ) -> Option<(std::sync::Arc<crate::catalog::Catalogue>, usize)> {
        let cursor: Cursor = self.seal.open(Purpose::Cursor, &json::text_of(raw)?)?;
        let own = usize::from(cursor.kind) == kind.index()
            && cursor.profile as usize == caller.profile
            && cursor.principal == caller.principal.as_str();
        let current = || self.audiences.catalogue(caller);
        let catalogue =
            own.then(|| self.lists.recall(current(), self.sight_of(caller), kind, &cursor.fingerprint))??;
        let offset = usize::try_from(cursor.offset).ok().filter(|&offset| offset < catalogue.entries(kind))?;
        Some((catalogue, offset))
    }
}

/// The method that lists this kind.
const fn method(kind: Kind) -> Method {
    match kind {
        Kind::Tool => Method::ToolsList,
        Kind::Prompt => Method::PromptsList,
        Kind::Resource => Method::ResourcesList,
        Kind::Template => Method::TemplatesList,
    }
}
