//! Whether a server that says nothing still lives: asked now and then, `ping` in the legacy era, `server/discover` in the
//! modern one. Any answer will do.
//!
//! One that works on a request is left alone as long as a call may take: many do one thing at a time. What follows is the
//! client's ([`super::client`]), which asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use crate::config::settings::ServerSettings;
use crate::protocol::meta;
use crate::protocol::method::Method;

/// So many questions in a row stay without an answer before an idle server counts as hung.
const MISSES: u32 = 2;

/// Comes to an end when there is no sign of life.
pub(super) async fn missing(connection: &Arc<Connection>, settings: &ServerSettings) {
    let Some(every) = settings.ping else { return std::future::pending().await };
    let limit = settings.timeouts.ping;
    loop {
        sleep(every).await;
        let silent = Instant::now();
        let mut misses = 0;
        while !connection.heard.swap(false, Ordering::Relaxed) {
            if asked(connection, limit).await {
                // That it answered is no news next time.
                connection.heard.store(false, Ordering::Relaxed);
                break;
            }
            misses += 1;
            let is_over = match connection.patience() {
                None => true,
                Some(None) => false,
                Some(Some(longest)) => silent.elapsed() >= longest + limit,
            };
            // What it said while it was asked is as good as an answer.
            let is_silent = !connection.heard.load(Ordering::Relaxed);
            if misses >= MISSES && is_over && is_silent {
                return;
            }
        }
    }
}

/// Asks once; whether there was an answer, or nobody to ask, which others see to. It counts as no use of the server.
async fn asked(connection: &Arc<Connection>, limit: Duration) -> bool {
    let modern = connection.modern();
    let method = if modern.is_some() { Method::Discover } else { Method::Ping };
    let sent = connection.request(method, None, None, |out, _| {
        out.push(b'{');
        if let Some(revision) = modern {
            out.extend_from_slice(b"\"_meta\":{");
            meta::push_own_keys(out, revision);
            out.push(b'}');
        }
        out.push(b'}');
    });
    match sent {
        Ok(waiting) => timeout(limit, waiting.uncancellable().answer()).await.is_ok(),
        Err(_) => {
            // It takes no more, or its end is known: no new question for a while.
            sleep(limit).await;
            true
        }
    }
}
