//! All pages of a list of a server, raw (PAG-*, D-29).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::Fault;
use super::connection::{Connection, Deadlines};
use crate::ident::Kind;
use crate::protocol::code;
use crate::protocol::json;
use crate::protocol::meta;
use crate::protocol::method::Method;
use crate::protocol::reply::Body;

/// Pages of one list, at most.
const MAX_PAGES: usize = 1000;

/// A whole list, and for how long it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    /// The raw arrays in order.
    pub(super) pages: Vec<Bytes>,
    /// The least `ttlMs` of the pages (CCH-3).
    pub(super) ttl: Option<Duration>,
}

/// The method that lists a kind, and the member that holds the items.
const fn words(kind: Kind) -> (Method, &'static str) {
    match kind {
        Kind::Tool => (Method::ToolsList, "tools"),
        Kind::Prompt => (Method::PromptsList, "prompts"),
        Kind::Resource => (Method::ResourcesList, "resources"),
        Kind::Template => (Method::TemplatesList, "resourceTemplates"),
    }
}

/// Fetches several lists, all at once and each within `limit`.
pub(super) async fn each(
    connection: &Arc<Connection>,
    kinds: &[Kind],
    limit: Duration,
) -> impl Iterator<Item = (Kind, Result<Pages, Fault>)> {
    let one = async |kind| match kinds.contains(&kind) {
        true => Some(within(connection, kind, limit).await),
        false => None,
    };
    let [tool, prompt, resource, template] = Kind::ALL;
    let lists = <[_; 4]>::from(tokio::join!(one(tool), one(prompt), one(resource), one(template)));
    Kind::ALL.into_iter().zip(lists).filter_map(|(kind, list)| Some((kind, list?)))
}

/// Fetches a list within `limit`, however many pages it has.
pub(super) async fn within(connection: &Arc<Connection>, kind: Kind, limit: Duration) -> Result<Pages, Fault> {
    timeout(limit, all(connection, kind, limit)).await.unwrap_or(Err(Fault::Timeout(limit)))
}

/// Fetches every page of a list.
///
/// Ends at a missing cursor, never at an empty one (PAG-1). A cursor that comes again, too many pages or bytes fail
/// the list (D042); how many entries it may have is a matter of the catalogue. A server that no longer knows a cursor of
/// its own is asked from the beginning, once (PAG-6).
async fn all(connection: &Arc<Connection>, kind: Kind, limit: Duration) -> Result<Pages, Fault> {
    let (method, member) = words(kind);
    let mut all = Pages::default();
    let mut seen: HashSet<Box<[u8]>> = HashSet::new();
    let mut cursor: Option<Box<[u8]>> = None;
    let mut bytes = 0;
    let mut anew = false;
    loop {
        let asked = connection.request(method, Some(Deadlines::within(limit)), None, |out, _| {
            push_params(out, cursor.as_deref(), connection);
        })?;
        let answer = asked.answer().await?;
        let line = answer.reply.line;
        let result = match answer.reply.body {
            Body::Result(spans) => spans.whole,
            // It declared the kind and knows no list: it has none (D061). Templates have no word of their own.
            Body::Error(error) if error.code == code::METHOD_NOT_FOUND && all.pages.is_empty() => {
                if kind != Kind::Template {
                    let method = method.as_str();
                    tracing::warn!(server = %connection.key, "it declared {member}, but does not know {method}");
                }
                return Ok(all);
            }
            Body::Error(error) if error.code == code::INVALID_PARAMS && cursor.is_some() && !anew => {
                anew = true;
                (all, cursor, bytes) = (Pages::default(), None, 0);
                seen.clear();
                continue;
            }
            Body::Error(error) => {
                let message = error.message.map_or_else(String::new, |message| {
                    connection.mask.shown(&String::from_utf8_lossy(message.of(&line)))
                });
                return Err(Fault::Refused { code: error.code, message });
            }
        };
        let mut page = None;
        cursor = None;
        let mut ttl = None;
        for entry in json::members(result.of(&line)) {
            if entry.is(member) && entry.value.starts_with(b"[") {
                page = Some(line.slice_ref(entry.value));
            } else if entry.is("nextCursor") && entry.value.starts_with(b"\"") {
                cursor = Some(entry.value.into());
            } else if entry.is("ttlMs") {
                ttl = std::str::from_utf8(entry.value).ok().and_then(|ms| ms.parse::<f64>().ok());
            }
        }
        let page = page.ok_or_else(|| Fault::Invalid(format!("its list has no array of {member}")))?;
        bytes += page.len();
        all.pages.push(page);
        // A page that does not say holds for no time (CCH-2).
        let page_ttl = Duration::from_millis(ttl.unwrap_or(0.0).max(0.0) as u64);
        all.ttl = Some(all.ttl.map_or(page_ttl, |ttl| ttl.min(page_ttl)));
        let Some(next) = &cursor else { return Ok(all) };
        if !seen.insert(next.clone()) {
            return Err(Fault::Invalid("its list gives a cursor twice and would never end".to_owned()));
        }
        if all.pages.len() >= MAX_PAGES || bytes > connection.max_list {
            return Err(Fault::Invalid(format!("its list goes on after {} pages and {bytes} bytes", all.pages.len())));
        }
    }
}

fn push_params(out: &mut Vec<u8>, cursor: Option<&[u8]>, connection: &Connection) {
    out.push(b'{');
    if let Some(cursor) = cursor {
        out.extend_from_slice(b"\"cursor\":");
        out.extend_from_slice(cursor);
    }
    if let Some(revision) = connection.modern() {
        if cursor.is_some() {
            out.push(b',');
        }
        out.extend_from_slice(b"\"_meta\":{");
        meta::push_own_keys(out, revision);
        out.push(b'}');
    }
    out.push(b'}');
}
