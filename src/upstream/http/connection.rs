//! Connections: accepted up to a bound, watched while they last, let go when we leave.
//!
//! A watch looks at each connection once a second instead of setting timers for each request: heads that do not
//! arrive, clients that take nothing, connections without requests. See `docs/decisions/deadlines.md` for the idea.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::Limits;
use super::front::Front;
use super::tls::Tls;
use crate::transport::quiet::Own;

/// How long a connection may be without a request when others wait for its place.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(2);
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 256;

/// Accepts connections until we leave; then ends them.
pub(super) async fn accept(front: &Arc<Front>, listener: TcpListener, tls: Option<&Tls>) {
    // Dropped before its end, it leaves no connection and no session behind.
    let _end = End(front);
    let places = Arc::new(Semaphore::new(front.limits.connections));
    let connections = TaskTracker::new();
    let mut sweep = interval(front.limits.look * 10);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        tokio::select! {
            () = front.stop.cancelled() => break,
            _ = sweep.tick() => front.sessions.sweep(),
            (place, stream) = next => match stream {
                Ok((stream, _)) => {
                    let tls = tls.map(Tls::acceptor);
                    let (front, tracker) = (Arc::clone(front), connections.clone());
                    let place = Place { _permit: place, places: Arc::clone(&places) };
                    connections.spawn(async move {
                        // Small answers must not wait for more of them.
                        let _ = stream.set_nodelay(true);
                        accepted(front, stream, tls, tracker, place).await;
                    });
                }
                Err(error) => {
                    // Of one connection, or for want of descriptors: it passes.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    // Who comes now is refused instead of waiting for nobody.
    drop(listener);
    front.sessions.close_questions();
    front.links.close_questions();
    connections.close();
    if timeout(front.limits.drain, connections.wait()).await.is_err() {
        tracing::warn!("some requests have not ended in time");
        front.cut.cancel();
        connections.wait().await;
    }
}

/// Ends what is left when dropped.
struct End<'a>(&'a Front);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.cancel();
        self.0.cut.cancel();
        self.0.sessions.end_all();
    }
}

/// A connection's place among all.
struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    places: Arc<Semaphore>,
}

/// Serves HTTP/1.1, or HTTP/2 to who begins with that, in TLS to who agreed on it.
async fn accepted(front: Arc<Front>, stream: TcpStream, tls: Option<TlsAcceptor>, tracker: TaskTracker, place: Place) {
    match tls {
        None => match in_time(&front, begins_with_http2(&stream)).await {
            Ok(http2) => connection(front, stream, http2, tracker, place).await,
            Err(error) => tracing::debug!(%error, "a connection ended"),
        },
        Some(acceptor) => match in_time(&front, acceptor.accept(stream)).await {
            Ok(stream) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                connection(front, stream, http2, tracker, place).await;
            }
            Err(error) => tracing::debug!(%error, "no TLS"),
        },
    }
}

/// What comes before a request: in time, and before we leave.
async fn in_time<T>(front: &Front, beginning: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        biased;
        begun = timeout(front.limits.head_time, beginning) => begun.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        () = front.stop.cancelled() => Err(io::Error::other("we leave")),
    }
}

/// Looks at the first bytes and leaves them where they are.
async fn begins_with_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut first = [0; PREFACE.len()];
    loop {
        let length = stream.peek(&mut first).await?;
        if length == PREFACE.len() || first[..length] != PREFACE[..length] || length == 0 {
            return Ok(first == PREFACE);
        }
        // A few bytes that may become either.
        sleep(Duration::from_millis(5)).await;
    }
}

async fn connection<T>(front: Arc<Front>, stream: T, http2: bool, tracker: TaskTracker, place: Place)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pulse = Arc::new(Pulse { http2, ..Pulse::default() });
    let limits = &front.limits;
    let service = {
        let (front, pulse) = (Arc::clone(&front), Arc::clone(&pulse));
        service_fn(move |request| super::front::handle(Arc::clone(&front), Arc::clone(&pulse), request))
    };
    let io = TokioIo::new(Watched { stream, pulse: Arc::clone(&pulse) });
    if http2 {
        let mut builder = http2::Builder::new(Tracked(tracker));
        builder.max_header_list_size(limits.head as u32).max_concurrent_streams(STREAMS);
        watched(&front, &pulse, &place, builder.serve_connection(io, service)).await;
    } else {
        let mut builder = http1::Builder::new();
        builder.max_header_size(limits.head).header_read_timeout(None);
        watched(&front, &pulse, &place, builder.serve_connection(io, service)).await;
    }
}

/// Drives a connection to its end.
async fn watched<C>(front: &Front, pulse: &Pulse, place: &Place, serving: C)
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let limits = &front.limits;
    let mut serving = pin!(serving);
    let mut own = Own::default();
    let mut leaving = pin!(front.stop.cancelled());
    let mut cut = pin!(front.cut.cancelled());
    let mut look = interval(limits.look);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch::default();
    let mut is_leaving = false;
    loop {
        tokio::select! {
            biased;
            // On HTTP/2 the ends of a body sit in several tasks.
            ended = poll_fn(|cx| match pulse.http2 {
                true => serving.as_mut().poll(cx),
                false => own.through(cx, |cx| serving.as_mut().poll(cx)),
            }) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
                return;
            }
            // Nothing is cut before we leave.
            () = &mut cut, if is_leaving => return,
            () = &mut leaving, if !is_leaving => {
                is_leaving = true;
                (watch.closing, watch.leaving) = (true, true);
                serving.as_mut().graceful_shutdown();
            }
            _ = look.tick() => {
                let full = place.places.available_permits() == 0;
                match watch.look(pulse, limits, full) {
                    Verdict::Fine => {}
                    Verdict::Unused => {
                        watch.closing = true;
                        serving.as_mut().graceful_shutdown();
                    }
                    Verdict::Stalled(why) => {
                        tracing::debug!("a connection is cut: {why}");
                        return;
                    }
                }
            }
        }
    }
}

/// What a connection does, as far as its watch must know.
#[derive(Default)]
pub(super) struct Pulse {
    /// Requests and answers that have not ended.
    busy: AtomicUsize,
    /// How often something was read, and how often when `busy` last became nothing.
    reads: AtomicU64,
    reads_then: AtomicU64,
    writes: AtomicU64,
    /// A write waits for the client.
    blocked: AtomicBool,
    http2: bool,
    /// Answers on HTTP/2, where one may stand still while others flow.
    answers: Mutex<Vec<Weak<Taken>>>,
}

/// Whether an answer is being taken.
#[derive(Default)]
pub(super) struct Taken {
    /// It was asked for more lately.
    lately: AtomicBool,
    /// There was no more: the client waits for us.
    waits: AtomicBool,
    /// For how many looks it was not.
    quiet: AtomicU64,
}

impl Taken {
    /// It was asked for more, and whether it had none.
    pub(super) fn mark(&self, waits: bool) {
        self.lately.store(true, Relaxed);
        self.waits.store(waits, Relaxed);
    }
}

/// Something a connection has to do; ends when dropped.
pub(super) struct Busy(Arc<Pulse>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Relaxed) == 1 {
            self.0.reads_then.store(self.0.reads.load(Relaxed), Relaxed);
        }
    }
}

impl Pulse {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(Arc::clone(self))
    }

    /// An answer on HTTP/2, which is watched by itself.
    pub(super) fn answer(&self) -> Arc<Taken> {
        let taken = Arc::new(Taken::default());
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|answer| answer.strong_count() > 0);
        answers.push(Arc::downgrade(&taken));
        taken
    }

    /// Whether there is an answer of which more was to be had all this time, and nobody asked.
    fn stands_still(&self, look: Duration, longest: Duration) -> bool {
        if !self.http2 {
            return false;
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().filter_map(Weak::upgrade).any(|answer| {
            if answer.lately.swap(false, Relaxed) || answer.waits.load(Relaxed) {
                answer.quiet.store(0, Relaxed);
                return false;
            }
            let quiet = answer.quiet.fetch_add(1, Relaxed) + 1;
            look * u32::try_from(quiet).unwrap_or(u32::MAX) >= longest
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Unused,
    Stalled(&'static str),
}

/// What the looks at one connection have seen.
#[derive(Default)]
struct Watch {
    /// It had a request.
    used: bool,
    idle: Duration,
    blocked: Duration,
    writes: u64,
    /// It was asked to close; and since when nothing moves on it.
    closing: bool,
    still: Duration,
    /// We leave: nobody is waited for as long as usual.
    leaving: bool,
}

impl Watch {
    fn look(&mut self, pulse: &Pulse, limits: &Limits, full: bool) -> Verdict {
        let writes = pulse.writes.load(Relaxed);
        let moves = writes != self.writes;
        self.writes = writes;
        let stall = if self.leaving { limits.stall.min(limits.leaving) } else { limits.stall };
        if pulse.blocked.load(Relaxed) && !moves {
            self.blocked += limits.look;
            if self.blocked >= stall {
                return Verdict::Stalled("its client takes nothing");
            }
        } else {
            self.blocked = Duration::ZERO;
        }
        if pulse.stands_still(limits.look, stall) {
            return Verdict::Stalled("its client takes nothing of an answer");
        }
        if pulse.busy.load(Relaxed) > 0 {
            self.used = true;
            self.idle = Duration::ZERO;
            self.still = Duration::ZERO;
            return Verdict::Fine;
        }
        // HTTP/2 closes when its client agrees, and what a client does not take of an answer waits in there.
        self.still = if self.closing && !moves { self.still + limits.look } else { Duration::ZERO };
        if self.still >= limits.leaving {
            return Verdict::Stalled("its client does not close it");
        }
        self.used |= pulse.reads_then.load(Relaxed) > 0;
        self.idle += limits.look;
        let partial = pulse.reads.load(Relaxed) != pulse.reads_then.load(Relaxed) && !pulse.http2;
        if (partial || !self.used) && self.idle >= limits.head_time {
            return Verdict::Stalled("no request came in time");
        }
        let idle = if full { limits.idle.min(IDLE_WHEN_FULL) } else { limits.idle };
        if self.used && !partial && self.idle >= idle { Verdict::Unused } else { Verdict::Fine }
    }
}

/// Tasks of HTTP/2 streams.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// A stream that notes what happens on it.
struct Watched<T> {
    stream: T,
    pulse: Arc<Pulse>,
}

impl<T> Watched<T> {
    fn wrote<R>(&self, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.pulse.blocked.store(written.is_pending(), Relaxed);
        if written.is_ready() {
            self.pulse.writes.fetch_add(1, Relaxed);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.pulse.reads.fetch_add(1, Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.pulse.blocked.store(flushed.is_pending(), Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.pulse.blocked.store(closed.is_pending(), Relaxed);
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all, as TLS does, and passes it on when it may.
    struct Slow(Poll<()>);

    impl AsyncWrite for Slow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.map(Ok)
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.map(Ok)
        }
    }

    #[test]
    fn what_was_flushed_late_is_blocked_no_more() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut stream = Watched { stream: Slow(Poll::Pending), pulse: Arc::default() };
        let mut blocked = |state, closes| {
            stream.stream.0 = state;
            let done = match closes {
                true => Pin::new(&mut stream).poll_shutdown(&mut cx),
                false => Pin::new(&mut stream).poll_flush(&mut cx),
            };
            assert_eq!(done.is_pending(), state.is_pending());
            stream.pulse.blocked.load(Relaxed)
        };
        for closes in [false, true] {
            assert!(blocked(Poll::Pending, closes));
            assert!(!blocked(Poll::Ready(()), closes));
        }
    }

    #[test]
    fn a_watch_tells_unused_from_stalled() {
        let limits = Limits::default();
        let looks = |pulse: &Pulse, watch: &mut Watch, count: u64| {
            (0..count).map(|_| watch.look(pulse, &limits, false)).find(|verdict| *verdict != Verdict::Fine)
        };
        let pulse = Arc::new(Pulse::default());
        assert!(matches!(looks(&pulse, &mut Watch::default(), 10), Some(Verdict::Stalled(_))), "nothing was sent");

        let mut watch = Watch::default();
        let busy = pulse.begin();
        pulse.reads.store(3, Relaxed);
        assert_eq!(looks(&pulse, &mut watch, 1000), None, "a request runs");
        drop(busy);
        assert_eq!(looks(&pulse, &mut watch, 89), None);
        assert_eq!(watch.look(&pulse, &limits, false), Verdict::Unused);
        watch.idle = Duration::from_secs(2);
        assert_eq!(watch.look(&pulse, &limits, true), Verdict::Unused, "others wait");
        watch.idle = Duration::ZERO;
        pulse.reads.store(4, Relaxed);
        assert!(matches!(looks(&pulse, &mut watch, 10), Some(Verdict::Stalled(_))), "half a head");

        let _busy = pulse.begin();
        pulse.blocked.store(true, Relaxed);
        assert_eq!(looks(&pulse, &mut watch, 29), None);
        pulse.writes.store(1, Relaxed);
        assert_eq!(looks(&pulse, &mut watch, 30), None, "it took something");
        assert!(matches!(looks(&pulse, &mut watch, 1), Some(Verdict::Stalled(_))));
    }
}
