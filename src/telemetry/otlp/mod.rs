//! Traces and numbers for a collector, by OTLP over HTTP (OBS-1, OBS-2): spans of what hosts ask and of what servers are
//! asked for it, named as the OpenTelemetry conventions for MCP say, and the numbers of [`super::metrics`].
//!
//! The way of a request begins and ends spans ([`span`]); it never waits. What ends goes into a bounded queue and is sent
//! by one thread ([`export`]); what finds no place there is counted. Numbers are read when they are sent ([`numbers`]).
//! Sampling, names of the service and of its surroundings are read from the `OTEL_…` variables by the SDK.
//!
//! Made by `daemon`, used by `gateway` and `downstream`. No argument, result, content or text of an error is in a span.

mod export;
mod numbers;
mod span;

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

pub use numbers::Timings;
pub use span::{Asking, Host, Named, Parent, Served, Towards};

use super::metrics::Point;
use crate::config::settings::OtlpSettings;
use export::Sending;

/// How this is called where it is not said otherwise.
const NAME: &str = "onegate";

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
#[error("telemetry.otlp: {0}")]
pub struct OpenError(String);

/// What the way of a request has of all this.
pub struct Otlp {
    tracer: SdkTracer,
    timings: Arc<Timings>,
    meters: SdkMeterProvider,
    dropped: Arc<export::Dropped>,
}

/// The thread that sends, and its end.
pub struct Keeper {
    spans: SdkTracerProvider,
    meters: SdkMeterProvider,
    sending: Sending,
}

impl Otlp {
    /// Starts the thread that sends. That nobody takes what is sent shows later, in the log.
    pub fn open(settings: &OtlpSettings) -> Result<(Arc<Self>, Keeper), OpenError> {
        let resource = resource();
        let (exporters, sending) = export::start(settings, &resource).map_err(OpenError)?;
        let export::Exporters { spans, numbers, dropped } = exporters;
        let tracers = SdkTracerProvider::builder().with_span_processor(spans).with_resource(resource.clone()).build();
        let meters = SdkMeterProvider::builder().with_periodic_exporter(numbers).with_resource(resource).build();
        let scope = InstrumentationScope::builder(NAME).with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = tracers.tracer_with_scope(scope.clone());
        let timings = Arc::new(Timings::new(&meters.meter_with_scope(scope)));
        let keeper = Keeper { spans: tracers, meters: meters.clone(), sending };
        Ok((Arc::new(Self { tracer, timings, meters, dropped }), keeper))
    }

    /// How long things took, for the numbers that are not kept otherwise.
    pub fn timings(&self) -> &Arc<Timings> {
        &self.timings
    }

    /// Has the numbers that `look` answers sent whenever it is time for it.
    pub fn observe(&self, look: impl Fn() -> Vec<Point> + Send + Sync + 'static) {
        let scope = InstrumentationScope::builder(NAME).with_version(env!("CARGO_PKG_VERSION")).build();
        numbers::observe(&self.meters.meter_with_scope(scope), Arc::clone(&self.dropped), look);
    }
}

impl Keeper {
    /// Has everything sent that has ended until now; answers whether that was done in time. Waits, so it is called where
    /// nothing else has to go on.
    pub fn finish(self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let Self { spans, meters, sending } = self;
        // Nothing is recorded from here on; what waits is sent while the numbers are looked at.
        let _ = spans.shutdown_with_timeout(Duration::ZERO);
        sending.last();
        // The SDK waits by its own rules, and longer than we do.
        let (told, numbers) = std::sync::mpsc::channel();
        let looking = std::thread::Builder::new().name("otlp-end".to_owned()).spawn(move || {
            let sent = meters.shutdown().is_ok();
            let _ = told.send(sent);
        });
        let left = || until.saturating_duration_since(Instant::now());
        let counted = looking.is_ok() && numbers.recv_timeout(left()).unwrap_or(false);
        sending.finish(left()) && counted
    }
}

/// What all that is sent is about. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say it otherwise.
fn resource() -> Resource {
    let said = Resource::builder().build();
    let has = |key: &'static str| said.get(&Key::from_static_str(key)).is_some();
    let is_named = said
        .get(&Key::from_static_str("service.name"))
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let mut builder = Resource::builder();
    if !is_named {
        builder = builder.with_service_name(NAME);
    }
    if !has("service.version") {
        builder = builder.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    }
    if !has("service.instance.id") {
        let id = getrandom::u64().map_or_else(|_| std::process::id().to_string(), |id| format!("{id:016x}"));
        builder = builder.with_attribute(KeyValue::new("service.instance.id", id));
    }
    builder.build()
}
