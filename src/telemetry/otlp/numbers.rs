//! Numbers for a collector: those of [`crate::telemetry::metrics`] under their own names, read when they are sent, and
//! how long things took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use super::export::Dropped;
use crate::telemetry::metrics::{self, Point};

/// The bounds that the conventions advise for operations, in seconds.
const BOUNDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// All numbers of one sending are read at once.
const FRESH: Duration = Duration::from_secs(1);

/// How long things took.
pub struct Timings {
    served: Histogram<f64>,
    asked: Histogram<f64>,
    request: Histogram<f64>,
    overhead: Histogram<f64>,
}

impl Timings {
    pub(super) fn new(meter: &Meter) -> Self {
        let operation = |name, what| {
            meter.f64_histogram(name).with_unit("s").with_description(what).with_boundaries(BOUNDS.to_vec()).build()
        };
        // Their names say the unit, so that it is not put behind them twice.
        let own = |name, what| {
            let bounds = metrics::buckets().collect();
            meter.f64_histogram(name).with_description(what).with_boundaries(bounds).build()
        };
        Self {
            served: operation("mcp.server.operation.duration", "Time from a request of a host to its answer"),
            asked: operation("mcp.client.operation.duration", "Time from a request to a server to its answer"),
            request: own(metrics::REQUEST_SECONDS.0, metrics::REQUEST_SECONDS.1),
            overhead: own(metrics::OVERHEAD_SECONDS.0, metrics::OVERHEAD_SECONDS.1),
        }
    }

    pub(super) fn served(&self, time: Duration, labels: &[KeyValue]) {
        self.served.record(time.as_secs_f64(), labels);
    }

    pub(super) fn asked(&self, time: Duration, labels: &[KeyValue]) {
        self.asked.record(time.as_secs_f64(), labels);
    }

    /// A request that concerned a server: how long it took, and how long of that it was with us.
    pub fn request(&self, server: &str, all: Duration, overhead: Duration) {
        let labels = [KeyValue::new("server", server.to_owned())];
        self.request.record(all.as_secs_f64(), &labels);
        self.overhead.record(overhead.as_secs_f64(), &labels);
    }
}

type Look = Box<dyn Fn() -> Vec<Point> + Send + Sync>;

/// What was read last, for all numbers of one sending.
struct Read {
    look: Look,
    last: Mutex<Option<(Instant, Arc<[Point]>)>>,
}

impl Read {
    fn points(&self) -> Arc<[Point]> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, points)) = &*last
            && when.elapsed() < FRESH
        {
            return Arc::clone(points);
        }
        let points: Arc<[Point]> = (self.look)().into();
        *last = Some((Instant::now(), Arc::clone(&points)));
        points
    }

    fn of(&self, name: &str, mut each: impl FnMut(u64, &[KeyValue])) {
        for point in self.points().iter().filter(|point| point.name == name) {
            let labels: Vec<_> =
                point.labels.iter().map(|(key, value)| KeyValue::new(*key, value.to_string())).collect();
            each(point.value, &labels);
        }
    }
}

/// Has these numbers read whenever they are sent.
pub(super) fn observe(meter: &Meter, dropped: Arc<Dropped>, look: impl Fn() -> Vec<Point> + Send + Sync + 'static) {
    let read = Arc::new(Read { look: Box::new(look), last: Mutex::default() });
    for (name, what) in metrics::COUNTERS {
        let read = Arc::clone(&read);
        let counter = meter.u64_observable_counter(name).with_description(what);
        counter.with_callback(move |out| read.of(name, |value, labels| out.observe(value, labels))).build();
    }
    for (name, what) in metrics::GAUGES {
        let read = Arc::clone(&read);
        let gauge = meter.u64_observable_gauge(name).with_description(what);
        gauge.with_callback(move |out| read.of(name, |value, labels| out.observe(value, labels))).build();
    }
    let lost =
        [KeyValue::new("error.type", "queue_full"), KeyValue::new("otel.component.type", "batching_span_processor")];
    let counter = meter.u64_observable_counter("otel.sdk.processor.span.processed");
    let counter = counter.with_unit("{span}").with_description("Spans that found no place in the queue");
    counter.with_callback(move |out| out.observe(dropped.count(), &lost)).build();
}
