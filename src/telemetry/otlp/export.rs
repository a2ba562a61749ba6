//! What is sent, and the one thread that does: spans out of a bounded queue, in batches, and whatever the meters hand over.
//!
//! A collector that is gone or hangs costs what it was to get and nothing else: each request has a deadline, the queue a
//! bound, and the end of all another deadline. Knows spans as values alone.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use opentelemetry::Context;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    MetricExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::config::settings::OtlpSettings;
use crate::ident::Secret;
use crate::transport::fetch::{Fetcher, Trust};

/// Spans that wait, at most; of each batch; and how long one waits for others.
const WAITING: usize = 4096;
const BATCH: usize = 512;
const PAUSE: Duration = Duration::from_secs(2);
/// How long a request may take, and the largest answer to it.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_ANSWER: usize = 256 << 10;

/// Spans that found no place in the queue.
#[derive(Debug, Default)]
pub(super) struct Dropped(AtomicU64);

impl Dropped {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the SDK hands things over to.
pub(super) struct Exporters {
    pub(super) spans: Queue,
    pub(super) numbers: MetricExporter,
    pub(super) dropped: Arc<Dropped>,
}

/// The thread that sends.
pub(super) struct Sending {
    /// No span is to come.
    last: CancellationToken,
    /// Nothing is sent any more.
    end: CancellationToken,
    /// All spans are sent.
    done: Receiver<()>,
}

/// Starts it.
pub(super) fn start(settings: &OtlpSettings, resource: &Resource) -> Result<(Exporters, Sending), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(|error| text(&error))?;
    let sink: Arc<dyn HttpClient> = Arc::new(Sink {
        runtime: runtime.handle().clone(),
        way: Arc::new(Way {
            fetcher: Fetcher::new(MAX_ANSWER, PATIENCE),
            base: settings.url.clone(),
            headers: settings.headers.clone(),
            is_failing: AtomicBool::new(false),
        }),
    });
    // The real address and the headers of the configuration are put in by the sink: they may hold what is confidential,
    // and the exporters show themselves.
    let (traces, metrics) = (format!("http://{HERE}/v1/traces"), format!("http://{HERE}/v1/metrics"));
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Shared(Arc::clone(&sink)))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(traces)
        .with_timeout(PATIENCE)
        .with_headers(HashMap::new())
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(1))
        .build()
        .map_err(|error| text(&error))?;
    exporter.set_resource(resource);
    let numbers = MetricExporter::builder()
        .with_http()
        .with_http_client(Shared(sink))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(metrics)
        .with_timeout(PATIENCE)
        .with_headers(HashMap::new())
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|error| text(&error))?;
    let (sender, mut queue) = mpsc::channel(WAITING);
    let (last, end) = (CancellationToken::new(), CancellationToken::new());
    let (told, done) = channel();
    let (no_more, over) = (last.clone(), end.clone());
    let sending = thread::Builder::new().name("otlp".to_owned()).spawn(move || {
        let work = async {
            while send(&exporter, &mut queue, &no_more).await {}
            // Nobody may wait for it.
            let _ = told.send(());
            // The meters may still have something, which is sent on this thread.
            over.cancelled().await;
        };
        runtime.block_on(over.run_until_cancelled(work));
        runtime.shutdown_background();
    });
    sending.map_err(|error| text(&error))?;
    let dropped = Arc::new(Dropped::default());
    let spans = Queue { sender, dropped: Arc::clone(&dropped) };
    Ok((Exporters { spans, numbers, dropped }, Sending { last, end, done }))
}

/// Sends the next batch; answers whether another one may come.
async fn send(exporter: &SpanExporter, queue: &mut mpsc::Receiver<SpanData>, last: &CancellationToken) -> bool {
    let mut batch = Vec::new();
    let first = tokio::select! {
        biased;
        first = queue.recv() => first,
        () = last.cancelled() => queue.try_recv().ok(),
    };
    let Some(first) = first else { return false };
    batch.push(first);
    let more = async {
        while batch.len() < BATCH {
            let Some(span) = queue.recv().await else { return };
            batch.push(span);
        }
    };
    let _ = timeout(PAUSE, last.run_until_cancelled(more)).await;
    while batch.len() < BATCH
        && let Ok(span) = queue.try_recv()
    {
        batch.push(span);
    }
    // Whether it was taken is told by the sink.
    let _ = exporter.export(batch).await;
    true
}

impl Sending {
    /// No span is to come: what waits is sent now.
    pub(super) fn last(&self) {
        self.last.cancel();
    }

    /// Waits until it is sent; answers whether that was done in time. After it nothing is sent.
    pub(super) fn finish(self, limit: Duration) -> bool {
        self.done.recv_timeout(limit).is_ok()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// The way into the queue.
#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<SpanData>,
    dropped: Arc<Dropped>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled()
            && self.sender.try_send(span).is_err()
            && self.dropped.0.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("more spans end than the collector takes: some are lost");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The host of addresses that stand for the collector.
const HERE: &str = "collector";

/// The collector, as the exporters see it.
struct Sink {
    /// Of the thread that sends.
    runtime: Handle,
    way: Arc<Way>,
}

struct Way {
    fetcher: Fetcher,
    base: Url,
    headers: Vec<(http::HeaderName, Secret)>,
    /// It was told that nothing is taken.
    is_failing: AtomicBool,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

/// One of two exporters' share of it.
#[derive(Debug)]
struct Shared(Arc<dyn HttpClient>);

type Answered<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Shared {
    fn send_bytes<'a, 'f>(&'a self, request: Request<Bytes>) -> Answered<'f>
    where
        'a: 'f,
        Self: 'f,
    {
        self.0.send_bytes(request)
    }
}

impl HttpClient for Sink {
    fn send_bytes<'a, 'f>(&'a self, request: Request<Bytes>) -> Answered<'f>
    where
        'a: 'f,
        Self: 'f,
    {
        let way = Arc::clone(&self.way);
        // The meters ask on a thread of their own, which has no sockets.
        let sent = self.runtime.spawn(async move { way.send(request).await });
        Box::pin(async move { sent.await? })
    }
}

impl Way {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), request.uri().path()));
        let mut request = request.map(Full::new);
        for (name, value) in &self.headers {
            let mut value = http::HeaderValue::from_str(value.reveal())?;
            value.set_sensitive(true);
            request.headers_mut().insert(name.clone(), value);
        }
        let answer = self.fetcher.send(&url, Trust::Sink, request).await;
        let why = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status().as_u16())),
            Err(error) => Some(error.to_string()),
        };
        // Said once, not with each batch.
        match (why, self.is_failing.load(Ordering::Relaxed)) {
            (Some(why), false) => {
                self.is_failing.store(true, Ordering::Relaxed);
                tracing::warn!("the collector of telemetry.otlp takes nothing: {why}");
            }
            (None, true) => {
                self.is_failing.store(false, Ordering::Relaxed);
                tracing::info!("the collector of telemetry.otlp takes what is sent again");
            }
            (Some(_), true) | (None, false) => {}
        }
        Ok(answer?)
    }
}
