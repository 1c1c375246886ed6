//! The recorder of these tests: it keeps every metric in memory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use permits::Client;
use permits_testkit::sound::Named as _;

/// A metric with its labels, such as `permits_held{semaphore=exports}`.
type Series = String;

#[derive(Default)]
struct Recorded {
    values: BTreeMap<Series, f64>,
    /// The number of samples of each histogram.
    samples: BTreeMap<Series, usize>,
    /// Names and labels of the series that were registered, with their kinds.
    registered: Vec<(String, &'static str, Vec<String>)>,
    /// Name, kind, unit, description.
    described: Vec<(String, String, String, String)>,
}

static RECORDED: LazyLock<Mutex<Recorded>> = LazyLock::new(Mutex::default);

fn recorded() -> MutexGuard<'static, Recorded> {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the recorder, unless another test has.
pub(crate) fn install() {
    // Fails only if another test has installed it.
    let _ = metrics::set_global_recorder(InMemory);
}

/// The value of a counter or gauge, or the sum of a histogram.
pub(crate) fn value(series: &str) -> f64 {
    recorded().values.get(series).copied().unwrap_or_default()
}

/// The number of samples of a histogram.
pub(crate) fn samples(series: &str) -> usize {
    recorded().samples.get(series).copied().unwrap_or_default()
}

pub(crate) fn registered() -> Vec<(String, &'static str, Vec<String>)> {
    recorded().registered.clone()
}

pub(crate) fn described() -> Vec<(String, String, String, String)> {
    recorded().described.clone()
}

/// All series with a value, of this name.
pub(crate) fn series(name: &str) -> Vec<Series> {
    let is_it = |series: &&Series| series.split('{').next() == Some(name);
    recorded().values.keys().filter(is_it).cloned().collect()
}

/// The client that the recorder itself uses, once it is set.
pub(crate) static USED_INSIDE: OnceLock<Client> = OnceLock::new();

/// The number of permits that the recorder has acquired.
pub(crate) static ACQUIRED_INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Acquires and drops a permit, as a recorder may.
fn use_permits() {
    thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
    let Some(client) = USED_INSIDE.get().filter(|_| !INSIDE.replace(true)) else { return };
    let semaphore = client.named("inside", 1000);
    // The memory store answers at once.
    let acquiring = pin!(semaphore.acquire()).poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(Ok(_permit)) = acquiring {
        ACQUIRED_INSIDE.fetch_add(1, Ordering::Relaxed);
    }
    INSIDE.set(false);
}

struct InMemory;

struct Handle(Series);

impl Handle {
    fn new(key: &Key, kind: &'static str) -> Arc<Self> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let mut names: Vec<String> = key.labels().map(|label| label.key().to_owned()).collect();
        names.sort();
        recorded().registered.push((key.name().to_owned(), kind, names));
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        Arc::new(Self(format!("{}{labels}", key.name())))
    }

    fn change(&self, change: impl FnOnce(f64) -> f64) {
        assert!(!self.0.contains("semaphore=panics"), "a recorder that panics");
        use_permits();
        let mut recorded = recorded();
        let value = recorded.values.entry(self.0.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Handle {
    #[expect(clippy::cast_precision_loss, reason = "the counts of a test are small")]
    fn increment(&self, by: u64) {
        self.change(|value| value + by as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!("no counter is set");
    }
}

impl GaugeFn for Handle {
    fn increment(&self, by: f64) {
        self.change(|value| value + by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| value - by);
    }

    fn set(&self, _: f64) {
        unreachable!("no gauge is set");
    }
}

impl HistogramFn for Handle {
    fn record(&self, sample: f64) {
        self.change(|sum| sum + sample);
        *recorded().samples.entry(self.0.clone()).or_default() += 1;
    }
}

fn describe(name: KeyName, kind: &str, unit: Option<Unit>, description: SharedString) {
    let unit = unit.map(|unit| unit.as_str().to_owned()).unwrap_or_default();
    recorded().described.push((name.as_str().to_owned(), kind.to_owned(), unit, description.into_owned()));
}

impl Recorder for InMemory {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        describe(name, "counter", unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        describe(name, "gauge", unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        describe(name, "histogram", unit, description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Handle::new(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Handle::new(key, "gauge"))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Handle::new(key, "histogram"))
    }
}
