//! What servers log: each message to the request that it belongs to, when its host wants that level (LOG-1, LOG-2), as
//! long as they do not come too fast (LOG-3).
//!
//! Beyond the bound messages are left out and counted. The host hears once that some are missing, the operator how
//! many. Called by [`super::receive`].

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::connection::{Attributed, Connection};
use super::questions::task_of;
use crate::protocol::json::{self, Index, Span};
use crate::protocol::level::LogLevel;
use crate::protocol::message::{Part, pick};
use crate::transport::bucket::Bucket;
use crate::transport::upward::LogMessage;

/// Passed on at once; beyond it one for each [`REFILL`].
const BURST: u32 = 100;
/// Twenty a second.
const REFILL: Duration = Duration::from_millis(50);

/// Said in place of the first message that is left out.
const LEFT_OUT: &str = "it logs faster than is passed on; some of its messages are left out here";

/// How much a server logs.
#[derive(Default)]
pub(super) struct Flow(Mutex<Level>);

#[derive(Default)]
struct Level {
    /// Let through.
    bucket: Bucket,
    /// Left out since the bound was met.
    left_out: u64,
}

/// What becomes of a message.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It passes; so many were left out before it.
    Passes(u64),
    /// It is the first that is left out, or one more of them.
    LeftOut { first: bool },
}

impl Flow {
    fn judge(&self, now: Instant) -> Verdict {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        level.bucket.refill(now, REFILL);
        // Half of it must be free again, so that a steady storm is one story and not many.
        if level.bucket.spent >= BURST || (level.left_out > 0 && level.bucket.spent > BURST / 2) {
            level.left_out += 1;
            return Verdict::LeftOut { first: level.left_out == 1 };
        }
        level.bucket.spent += 1;
        Verdict::Passes(std::mem::take(&mut level.left_out))
    }
}

/// Takes a log message of a server.
pub(super) fn take(connection: &Connection, line: &Bytes, index: &Index, params: Option<Part>, stream: Option<u64>) {
    let Some(params) = params else { return };
    let Ok(([Some(level), logger, meta], _)) = pick(line, index, params, ["level", "logger", "_meta"]) else { return };
    let Some(level) = LogLevel::parse(level.of(line)) else { return };
    let task = meta.and_then(|meta| task_of(meta.of(line)));
    let Some(request) = connection.attribute(stream, task.as_deref(), false) else { return };
    if request.log.is_none_or(|wanted| level < wanted) {
        return;
    }
    let server = &connection.key;
    match connection.logs.judge(Instant::now()) {
        Verdict::Passes(0) => {}
        Verdict::Passes(left_out) => {
            tracing::warn!(%server, left_out, "log messages of it were left out: too many at once")
        }
        Verdict::LeftOut { first } => {
            if first {
                tracing::warn!(%server, "it logs faster than is passed on");
                say_so(connection, &request);
            }
            return;
        }
    }
    let mut message = LogMessage {
        line: line.clone(),
        params: params.span,
        logger: logger.filter(|logger| logger.of(line).starts_with(b"\"")),
        level,
        server: server.as_str().into(),
    };
    if let Some(clean) = connection.mask.without(params.span.of(line)) {
        let logger = json::members(&clean).find(|entry| entry.is("logger") && entry.value.starts_with(b"\""));
        message.logger = logger.map(|logger| span(logger.at, logger.value.len()));
        message.params = span(0, clean.len());
        message.line = clean.into();
    }
    request.upward.push_log(message);
}

/// Tells the host that it does not see all, if it wants to hear of warnings.
fn say_so(connection: &Connection, request: &Attributed) {
    if request.log.is_none_or(|wanted| LogLevel::Warning < wanted) {
        return;
    }
    let line: Bytes = format!(r#"{{"level":"warning","data":"{LEFT_OUT}"}}"#).into();
    request.upward.push_log(LogMessage {
        params: span(0, line.len()),
        line,
        logger: None,
        level: LogLevel::Warning,
        server: connection.key.as_str().into(),
    });
}

fn span(start: usize, length: usize) -> Span {
    Span { start: start as u32, end: (start + length) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log3_a_storm_is_thinned_counted_and_told_of_once() {
        let flow = Flow::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..BURST {
            assert_eq!(flow.judge(start), Verdict::Passes(0));
        }
        assert_eq!(flow.judge(start), Verdict::LeftOut { first: true });
        // Ten seconds of a storm: nothing gets through, and nothing more is said.
        for n in 1..=1000 {
            let verdict = flow.judge(at(n));
            assert_eq!(verdict, Verdict::LeftOut { first: false }, "{n}");
        }
        assert_eq!(flow.judge(at(5000)), Verdict::Passes(1001));
        assert_eq!(flow.judge(at(5001)), Verdict::Passes(0));
    }

    #[test]
    fn log3_who_logs_at_a_bearable_pace_loses_nothing() {
        let flow = Flow::default();
        let start = Instant::now();
        for n in 0..10_000u64 {
            assert_eq!(flow.judge(start + REFILL * n as u32), Verdict::Passes(0));
        }
    }
}
