//! Numbers for operators, in the text form that Prometheus reads (contract §5, OBS-2), and one by one for who sends them.
//!
//! What happens is counted when it happens; where something stands is put in by [`Metrics::render`], just before it is
//! read. Labels are server keys, profile names and words of ours: no principal, no name of a host's or a server's own.
//! Knows neither servers nor sockets: `gateway` counts, `daemon` asks for the text.
//!
//! Long, and one thing: all numbers, which two readers show alike.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::otlp::Timings;
use crate::ident::{Kind, ServerKey};
use crate::protocol::method::Method;

/// Names of numbers that only grow and what they mean, for who sends them somewhere.
pub const COUNTERS: [(&str, &str); 3] = [
    ("onegate_requests_total", "Requests of hosts, by what came of them"),
    ("onegate_refusals_total", "Requests that policy refused"),
    ("onegate_restarts_total", "How often a server was started again"),
];
/// The same of those that come and go.
pub const GAUGES: [(&str, &str); 5] = [
    ("onegate_in_flight", "Requests that a server works on"),
    ("onegate_server_state", "1 for where a server stands, 0 for all else"),
    ("onegate_pin_drift", "Entries of a server that are not as reviewed"),
    ("onegate_catalogue_items", "What a profile shows to everybody"),
    ("onegate_catalogue_tokens", "What its lists cost a model, estimated"),
];
/// The same of times.
pub const REQUEST_SECONDS: (&str, &str) = ("onegate_request_seconds", "Time from a request to its answer");
/// The same.
pub const OVERHEAD_SECONDS: (&str, &str) =
    ("onegate_overhead_seconds", "The part of it that was not spent waiting for the server");

/// What stands before the names in the text; what the text puts behind those of counters.
const PREFIX: &str = "onegate";
const TOTAL: &str = "_total";

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    server: Arc<String>,
    method: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct Refusal {
    server: Arc<String>,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfServer {
    server: Arc<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    server: Arc<String>,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Items {
    profile: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProfile {
    profile: String,
}

/// All numbers.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    seconds: Family<OfServer, Histogram, fn() -> Histogram>,
    overhead: Family<OfServer, Histogram, fn() -> Histogram>,
    in_flight: Family<OfServer, Gauge>,
    drift: Family<OfServer, Gauge>,
    restarts: Family<OfServer, Counter>,
    requests: Family<Request, Counter>,
    refusals: Family<Refusal, Counter>,
    states: Family<InState, Gauge>,
    items: Family<Items, Gauge>,
    tokens: Family<OfProfile, Gauge>,
    /// By place in the settings.
    servers: Box<[Arc<Server>]>,
    /// The label of what concerns no server, and its requests.
    none: (Arc<String>, Arc<Counts>),
    /// The refusals that were counted until now: no family tells its own.
    refused: Arc<Mutex<BTreeSet<Refusal>>>,
    /// Times that go to a collector, too.
    timings: Option<Arc<Timings>>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// A result.
    Ok,
    /// An error of the server.
    Error,
    /// An error of ours: its server is gone or too slow, or there is no such thing.
    Failed,
    /// Policy or a pin refused it.
    Refused,
    /// The server asks back.
    Input,
    /// A task.
    Task,
    /// There is nothing to be told of.
    Declined,
    /// Nobody waits for it any more.
    Cancelled,
}

impl Came {
    const WORDS: [&'static str; 8] = ["ok", "error", "failed", "refused", "input", "task", "declined", "cancelled"];

    /// The same in a word.
    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// The counters of one server's requests, by method and by what came of them; each made when it first counts.
struct Counts([OnceLock<Box<[OnceLock<Counter>; Came::WORDS.len()]>>; Method::COUNT]);

/// One number as it stands.
pub struct Point {
    /// One of [`COUNTERS`] or [`GAUGES`].
    pub name: &'static str,
    /// By the names of its labels.
    pub labels: Vec<(&'static str, Box<str>)>,
    /// How much.
    pub value: u64,
}

/// What is at hand for each call.
struct Server {
    key: Arc<String>,
    counts: Arc<Counts>,
    seconds: Histogram,
    overhead: Histogram,
    in_flight: Gauge,
    drift: Gauge,
    restarts: Counter<u64, AtomicU64>,
}

/// Where a server stands.
pub struct ServerNow {
    /// One of [`ServerNow::STATES`].
    pub state: &'static str,
    /// How often it was started again.
    pub restarts: u64,
    /// How many of its entries are not as reviewed.
    pub drift: usize,
}

impl ServerNow {
    /// All words for where a server stands.
    pub const STATES: [&'static str; 7] = ["idle", "starting", "ready", "waiting", "broken", "disabled", "stopped"];
}

/// What a profile shows to everybody.
pub struct ProfileNow {
    /// Its name.
    pub name: String,
    /// Items, by [`Kind::index`].
    pub items: [usize; 4],
    /// What its lists cost a model, about.
    pub tokens: usize,
}

impl Metrics {
    /// Numbers about these servers, in the order of the settings.
    pub fn new(servers: &[ServerKey]) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let (requests, refusals, states, items, tokens) = Default::default();
        let histogram: fn() -> Histogram = || Histogram::new(buckets());
        let seconds = Family::new_with_constructor(histogram);
        let overhead = Family::new_with_constructor(histogram);
        let (in_flight, drift, restarts) = Default::default();
        let metrics = Self {
            registry: Arc::default(),
            seconds,
            overhead,
            in_flight,
            drift,
            restarts,
            requests,
            refusals,
            states,
            items,
            tokens,
            servers: Box::default(),
            none: (Arc::default(), Counts::new()),
            refused: Arc::default(),
            timings: None,
        };
        let [requests, refusals, restarts] = COUNTERS.map(|(name, what)| (bare(name), what));
        let [in_flight, states, drift, items, tokens] = GAUGES.map(|(name, what)| (bare(name), what));
        let [seconds, overhead] = [REQUEST_SECONDS, OVERHEAD_SECONDS].map(|(name, what)| (bare(name), what));
        registry.register(requests.0, requests.1, metrics.requests.clone());
        registry.register(seconds.0, seconds.1, metrics.seconds.clone());
        registry.register(overhead.0, overhead.1, metrics.overhead.clone());
        registry.register(refusals.0, refusals.1, metrics.refusals.clone());
        registry.register(in_flight.0, in_flight.1, metrics.in_flight.clone());
        registry.register(states.0, states.1, metrics.states.clone());
        registry.register(restarts.0, restarts.1, metrics.restarts.clone());
        registry.register(drift.0, drift.1, metrics.drift.clone());
        registry.register(items.0, items.1, metrics.items.clone());
        registry.register(tokens.0, tokens.1, metrics.tokens.clone());
        Self { registry: Arc::new(registry), ..metrics }.of(servers)
    }

    /// The same numbers about these servers; those that were there before keep their places and go on counting.
    pub fn of(&self, servers: &[ServerKey]) -> Self {
        let known = self.servers.iter().cloned();
        let new = servers.iter().skip(self.servers.len()).map(|key| {
            let key = Arc::new(key.to_string());
            let label = OfServer { server: Arc::clone(&key) };
            Arc::new(Server {
                key,
                counts: Counts::new(),
                seconds: self.seconds.get_or_create_owned(&label),
                overhead: self.overhead.get_or_create_owned(&label),
                in_flight: self.in_flight.get_or_create_owned(&label),
                drift: self.drift.get_or_create_owned(&label),
                restarts: self.restarts.get_or_create_owned(&label),
            })
        });
        Self { servers: known.chain(new).collect(), ..self.clone() }
    }

    /// The same, of which times are told there, too.
    pub fn timed(self, timings: Option<Arc<Timings>>) -> Self {
        Self { timings, ..self }
    }

    /// A request has come.
    pub fn begin(&self, method: Method) -> Measure<'_> {
        Measure {
            metrics: self,
            method,
            begun: Instant::now(),
            server: None,
            since: None,
            away: Duration::ZERO,
            came: Came::Cancelled,
        }
    }

    /// Policy refused a request; `None` = before it was known to which server it goes.
    pub fn refused(&self, server: Option<usize>, reason: &'static str) {
        let server = Arc::clone(self.key(server));
        let refusal = Refusal { server, reason };
        self.refusals.get_or_create(&refusal).inc();
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(refusal);
    }

    /// How many requests a server works on.
    pub fn in_flight(&self, server: usize) -> u64 {
        u64::try_from(self.servers[server].in_flight.get()).unwrap_or_default()
    }

    fn key(&self, server: Option<usize>) -> &Arc<String> {
        server.map_or(&self.none.0, |server| &self.servers[server].key)
    }

    fn count(&self, server: Option<usize>, method: Method, came: Came) {
        let counts = server.map_or(&self.none.1, |server| &self.servers[server].counts);
        let of_method = counts.0[method as usize].get_or_init(Default::default);
        let counter = of_method[came as usize].get_or_init(|| {
            let (server, outcome) = (Arc::clone(self.key(server)), came.word());
            self.requests.get_or_create_owned(&Request { server, method: method.as_str(), outcome })
        });
        counter.inc();
    }

    /// All numbers but times, in the order of nothing; servers as in [`Self::render`].
    pub fn points(&self, servers: &[Option<ServerNow>], profiles: &[ProfileNow]) -> Vec<Point> {
        let mut points = Vec::new();
        let mut point = |name, labels: &[(&'static str, &str)], value| {
            let labels = labels.iter().map(|&(key, value)| (key, value.into())).collect();
            points.push(Point { name, labels, value });
        };
        let [requests, refusals, restarts] = COUNTERS.map(|(name, _)| name);
        let [in_flight, states, drift, items, tokens] = GAUGES.map(|(name, _)| name);
        let all = self.servers.iter().map(|server| (&server.key, &server.counts));
        for (key, counts) in all.chain([(&self.none.0, &self.none.1)]) {
            for (method, counters) in Method::ALL.iter().zip(&counts.0) {
                for (word, counter) in Came::WORDS.iter().zip(counters.get().into_iter().flat_map(|all| all.iter())) {
                    let Some(counter) = counter.get() else { continue };
                    let labels = [("server", key.as_str()), ("method", method.as_str()), ("outcome", word)];
                    point(requests, &labels, counter.get());
                }
            }
        }
        for refusal in &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels = [("server", refusal.server.as_str()), ("reason", refusal.reason)];
            point(refusals, &labels, self.refusals.get_or_create(refusal).get());
        }
        let whole = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (place, (server, now)) in self.servers.iter().zip(servers).enumerate() {
            let Some(now) = now else { continue };
            let key = ("server", server.key.as_str());
            for state in ServerNow::STATES {
                point(states, &[key, ("state", state)], u64::from(state == now.state));
            }
            point(in_flight, &[key], self.in_flight(place));
            point(restarts, &[key], now.restarts);
            point(drift, &[key], whole(now.drift));
        }
        for now in profiles {
            let name = ("profile", now.name.as_str());
            for kind in Kind::ALL {
                point(items, &[name, ("kind", kind.as_str())], whole(now.items[kind.index()]));
            }
            point(tokens, &[name], whole(now.tokens));
        }
        points
    }

    /// All numbers as text; servers by their places, nothing for those that are there no more.
    pub fn render(&self, servers: &[Option<ServerNow>], profiles: &[ProfileNow]) -> String {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (server, now) in self.servers.iter().zip(servers) {
            for state in ServerNow::STATES {
                let label = InState { server: Arc::clone(&server.key), state };
                match now {
                    Some(now) => drop(self.states.get_or_create(&label).set(i64::from(state == now.state))),
                    None => drop(self.states.remove(&label)),
                }
            }
            let Some(now) = now else { continue };
            server.drift.set(count(now.drift));
            server.restarts.inner().store(now.restarts, Ordering::Relaxed);
        }
        for now in profiles {
            for kind in Kind::ALL {
                let label = Items { profile: now.name.clone(), kind: kind.as_str() };
                self.items.get_or_create(&label).set(count(now.items[kind.index()]));
            }
            self.tokens.get_or_create(&OfProfile { profile: now.name.clone() }).set(count(now.tokens));
        }
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry).expect("invariant: a String takes everything");
        text
    }
}

/// A name without what the text puts around it.
fn bare(name: &'static str) -> &'static str {
    let name = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('_')).unwrap_or(name);
    name.strip_suffix(TOTAL).unwrap_or(name)
}

impl Counts {
    fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| OnceLock::new())))
    }
}

/// From 100 µs, doubled 20 times: to a minute and more.
pub(super) fn buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(0.0001, 2.0, 20)
}

/// A request that is measured; it counts when this is dropped, as cancelled unless its outcome was told.
pub struct Measure<'a> {
    metrics: &'a Metrics,
    method: Method,
    begun: Instant,
    server: Option<usize>,
    /// Since when the server has it.
    since: Option<Instant>,
    /// How long the server had it.
    away: Duration,
    came: Came,
}

impl Measure<'_> {
    /// It is about this server.
    pub fn about(&mut self, server: usize) {
        self.server = Some(server);
    }

    /// The server has it from now on.
    pub fn sent(&mut self, server: usize) {
        self.server = Some(server);
        self.since = Some(Instant::now());
        self.metrics.servers[server].in_flight.inc();
    }

    /// The server has answered.
    pub fn back(&mut self) {
        if let (Some(since), Some(server)) = (self.since.take(), self.server) {
            self.away += since.elapsed();
            self.metrics.servers[server].in_flight.dec();
        }
    }

    /// What came of it; why, where that is a refusal that policy did not count.
    pub fn ended(&mut self, came: Came, refused: Option<&'static str>) {
        self.came = came;
        if let Some(reason) = refused {
            self.metrics.refused(self.server, reason);
        }
    }
}

impl Drop for Measure<'_> {
    fn drop(&mut self) {
        self.back();
        let Self { metrics, method, came, .. } = *self;
        metrics.count(self.server, method, came);
        if let Some(server) = self.server {
            let (all, server) = (self.begun.elapsed(), &metrics.servers[server]);
            server.seconds.observe(all.as_secs_f64());
            let overhead = all.saturating_sub(self.away);
            server.overhead.observe(overhead.as_secs_f64());
            if let Some(timings) = &metrics.timings {
                timings.request(&server.key, all, overhead);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, name: &str) -> Vec<String> {
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    fn said(point: &Point) -> String {
        let labels: Vec<_> = point.labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        format!("{}{{{}}} {}", point.name, labels.join(","), point.value)
    }

    #[test]
    fn obs2_what_happened_and_where_things_stand_is_told_by_name() {
        let metrics = Metrics::new(&["a", "b"].map(|key| ServerKey::new(key).unwrap()));
        let mut measure = metrics.begin(Method::ToolsCall);
        measure.sent(1);
        assert_eq!((metrics.in_flight(0), metrics.in_flight(1)), (0, 1));
        measure.back();
        measure.ended(Came::Ok, None);
        drop(measure);
        // Given up while the server has it.
        let mut measure = metrics.begin(Method::ToolsCall);
        measure.sent(1);
        drop(measure);
        drop(metrics.begin(Method::PromptsGet));
        // Admitted, and held back by a pin.
        let mut measure = metrics.begin(Method::ToolsCall);
        measure.about(0);
        measure.ended(Came::Refused, Some("pin-changed"));
        drop(measure);
        metrics.refused(Some(0), "rate-limited");
        assert_eq!(metrics.in_flight(1), 0);
        let servers =
            [("ready", 3), ("idle", 0)].map(|(state, restarts)| Some(ServerNow { state, restarts, drift: 2 }));
        let profiles = [ProfileNow { name: "default".to_owned(), items: [5, 0, 2, 1], tokens: 1234 }];
        let text = metrics.render(&servers, &profiles);
        for line in [
            r#"onegate_requests_total{server="b",method="tools/call",outcome="ok"} 1"#,
            r#"onegate_requests_total{server="b",method="tools/call",outcome="cancelled"} 1"#,
            r#"onegate_requests_total{server="",method="prompts/get",outcome="cancelled"} 1"#,
            r#"onegate_refusals_total{server="a",reason="rate-limited"} 1"#,
            r#"onegate_refusals_total{server="a",reason="pin-changed"} 1"#,
            r#"onegate_requests_total{server="a",method="tools/call",outcome="refused"} 1"#,
            r#"onegate_in_flight{server="b"} 0"#,
            r#"onegate_server_state{server="a",state="ready"} 1"#,
            r#"onegate_server_state{server="a",state="broken"} 0"#,
            r#"onegate_restarts_total{server="a"} 3"#,
            r#"onegate_pin_drift{server="a"} 2"#,
            r#"onegate_catalogue_items{profile="default",kind="tool"} 5"#,
            r#"onegate_catalogue_tokens{profile="default"} 1234"#,
            r#"onegate_request_seconds_count{server="b"} 2"#,
            r#"onegate_overhead_seconds_count{server="b"} 2"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert_eq!(lines(&text, "onegate_server_state{").len(), 14);
        // Whoever sends them sends the same.
        let points = metrics.points(&servers, &profiles);
        let said: BTreeSet<_> = points.iter().map(said).collect();
        let times = [REQUEST_SECONDS.0, OVERHEAD_SECONDS.0];
        let is_number = |line: &&str| !line.starts_with('#') && !times.iter().any(|name| line.starts_with(name));
        // One that nobody set is no number there.
        let written: BTreeSet<_> = text.lines().filter(is_number).map(str::to_owned).collect();
        assert_eq!(said, written);
        assert_eq!(points.len(), said.len());
    }
}
