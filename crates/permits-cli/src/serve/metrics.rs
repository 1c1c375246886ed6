//! `/metrics`: the text formats of Prometheus and OpenMetrics.
//!
//! The formats differ in the last line, and in the name of a counter: OpenMetrics describes it without
//! `_total`. The number of series is bounded, because a name is a label. All but the age of the snapshot is
//! rendered once for all clients.

use std::fmt::Write as _;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use permits::{LaneInfo, WAIT_BOUNDS};

use super::feed::{FeedRow, StoreSnapshot};
use crate::inspected::ListRow;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

/// A metric with a value for each of the largest lanes of a semaphore that has one.
struct LaneMetric {
    name: &'static str,
    help: &'static str,
    value: fn(&LaneInfo) -> Option<u64>,
}

const LANE_METRICS: [LaneMetric; 4] = [
    LaneMetric {
        name: "permits_lane_waiting",
        help: "Requests of a lane that wait in the queue; of the ten largest lanes of a semaphore.",
        value: |lane| Some(lane.waiting),
    },
    LaneMetric {
        name: "permits_lane_held",
        help: "Units that a lane holds, of those that count for its limit and floor, or of the first 1,000 holders; of the ten largest lanes of a semaphore.",
        value: |lane| Some(lane.held),
    },
    LaneMetric {
        name: "permits_lane_limit",
        help: "Units that a lane may hold; absent if it has no limit of its own.",
        value: |lane| lane.limit.map(u64::from),
    },
    LaneMetric {
        name: "permits_lane_floor",
        help: "Units up to which a lane is served before others; absent if it has no floor.",
        value: |lane| Some(lane.floor.into()).filter(|floor| *floor > 0),
    },
];

/// A metric with a value for each semaphore that has one.
struct Metric {
    name: &'static str,
    help: &'static str,
    value: fn(&ListRow) -> Option<f64>,
}

const METRICS: [Metric; 18] = [
    Metric {
        name: "permits_semaphore_limit",
        help: "Units that may be held at once; absent if no limit is set.",
        value: |row| row.limit.map(f64::from),
    },
    Metric {
        name: "permits_semaphore_held",
        help: "Units that are held, with those that cool.",
        value: |row| Some(row.held as f64),
    },
    Metric {
        name: "permits_semaphore_cooling",
        help: "Held units whose holders have gone, and that stay taken for some time.",
        value: |row| Some(row.units.cooling as f64),
    },
    Metric {
        name: "permits_semaphore_may_be_kept",
        help: "Held units that clients may keep without using them.",
        value: |row| Some(row.units.may_be_kept as f64),
    },
    Metric {
        name: "permits_semaphore_waiting",
        help: "Requests that wait in the queue.",
        value: |row| Some(row.waiting as f64),
    },
    Metric {
        name: "permits_semaphore_oldest_holder_age_seconds",
        help: "Time since the oldest grant that has not been released; absent if there is none.",
        value: |row| row.oldest_holder_age_ms.map(seconds),
    },
    Metric {
        name: "permits_semaphore_oldest_waiter_age_seconds",
        help: "Waiting time of the longest waiting request; absent if none waits.",
        value: |row| row.oldest_waiter_age_ms.map(seconds),
    },
    Metric {
        name: "permits_semaphore_paused",
        help: "1 if an operator has stopped granting.",
        value: |row| Some(flag(row.paused)),
    },
    Metric {
        name: "permits_semaphore_pause_remaining_seconds",
        help: "Time until the pause ends by itself; absent without a pause or an end.",
        value: |row| row.pause_remaining_ms.map(seconds),
    },
    Metric {
        name: "permits_semaphore_pinned",
        help: "1 if an operator has pinned the limit.",
        value: |row| Some(flag(row.pinned)),
    },
    Metric {
        name: "permits_semaphore_closed",
        help: "1 if an operator has closed the line.",
        value: |row| Some(flag(row.closed.is_some())),
    },
    Metric {
        name: "permits_alert_wait_seconds",
        help: "Longest wait that needs no look, by an operator; absent if none is set.",
        value: |row| row.alert.wait().map(|wait| wait.as_secs_f64()),
    },
    Metric {
        name: "permits_alert_waiting",
        help: "Most waiters that need no look, by an operator; absent if none is set.",
        value: |row| row.alert.waiting().map(f64::from),
    },
    Metric {
        name: "permits_semaphore_recovering_seconds",
        help: "Time until free units are granted again after a start of the server.",
        value: |row| Some(seconds(row.recovering_ms)),
    },
    Metric {
        name: "permits_semaphore_grants_total",
        help: "Permits granted since the store has the semaphore.",
        value: |row| Some(row.counts.grants as f64),
    },
    Metric {
        name: "permits_semaphore_refusals_total",
        help: "Requests refused since the store has the semaphore.",
        value: |row| Some(row.counts.refused as f64),
    },
    Metric {
        name: "permits_semaphore_expirations_total",
        help: "Leases of holders and waiters that have ended since the store has the semaphore.",
        value: |row| Some(row.counts.expired as f64),
    },
    Metric {
        name: "permits_semaphore_revocations_total",
        help: "Holders and waiters that operators have revoked since the store has the semaphore.",
        value: |row| Some(row.counts.revoked as f64),
    },
];

const WAITS: &str = "permits_semaphore_wait_seconds";
const UP: &str = "permits_store_up";
const UP_HELP: &str = "1 if the store could be read.";
const AGE: &str = "permits_store_scrape_age_seconds";

/// The end of the names of counters. All other metrics are gauges.
const COUNTER: &str = "_total";

impl Format {
    /// The format that a client prefers: OpenMetrics only if the client names it, and prefers the other
    /// format no more.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges = accepted.flat_map(|value| value.split(','));
        let (mut open, mut text) = (0.0_f64, 0.0_f64);
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality =
                parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
            let quality = quality.filter(|quality| (0.0..=1.0).contains(quality)).unwrap_or(0.0);
            match media.as_str() {
                "application/openmetrics-text" => open = open.max(quality),
                "text/plain" => text = text.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The metrics of a snapshot, with at most `max` semaphores: the part that all clients share, and the rest.
/// If the store cannot be read, only the metrics of the store are there, because old values would look like
/// present ones.
pub(super) fn render(snapshot: &StoreSnapshot, max: usize, format: Format) -> [Bytes; 2] {
    let shared = snapshot.texts.metrics[format as usize].get_or_init(|| shared(snapshot, max, format).into());
    let mut rest = String::new();
    if snapshot.error.is_none() {
        let age = snapshot.age().as_secs_f64();
        one(&mut rest, AGE, "Time since the last read of the store.", age, format);
    }
    if format == Format::OpenMetrics {
        rest.push_str("# EOF\n");
    }
    [shared.clone(), rest.into()]
}

/// The semaphores with series of their own, of which the names are labels: at most `max`, in the order of
/// their names.
fn named(snapshot: &StoreSnapshot, max: usize) -> impl Iterator<Item = (&String, &FeedRow)> {
    snapshot.rows.iter().filter(move |(_, row)| row.place < max)
}

fn shared(snapshot: &StoreSnapshot, max: usize, format: Format) -> String {
    let mut text = String::new();
    let is_up = snapshot.error.is_none();
    one(&mut text, UP, UP_HELP, flag(is_up), format);
    if !is_up {
        return text;
    }
    for Metric { name, help, value } in &METRICS {
        head(&mut text, name, help, format);
        for (semaphore, row) in named(snapshot, max) {
            if row.json.unreadable.is_none()
                && let Some(value) = value(&row.json)
            {
                let _ = writeln!(text, "{name}{{semaphore=\"{}\"}} {value}", escaped(semaphore));
            }
        }
    }
    waits(&mut text, snapshot, max, format);
    for LaneMetric { name, help, value } in &LANE_METRICS {
        head(&mut text, name, help, format);
        for (semaphore, row) in named(snapshot, max) {
            for info in &row.lanes {
                let Some(value) = value(info) else { continue };
                let (semaphore, lane) =
                    (escaped(semaphore), escaped(info.lane.as_deref().unwrap_or_default()));
                let _ = writeln!(text, "{name}{{semaphore=\"{semaphore}\",lane=\"{lane}\"}} {value}");
            }
        }
    }
    let known = snapshot.rows.len() + snapshot.omitted;
    let omitted = known - snapshot.rows.len().min(max);
    for (name, help, value) in [
        (
            "permits_store_scrape_duration_seconds",
            "Time that the last read of the store took.",
            snapshot.duration.as_secs_f64(),
        ),
        (
            "permits_store_scrape_timestamp_seconds",
            "Time of the last read of the store, since 1970.",
            seconds(snapshot.at_ms),
        ),
        ("permits_store_semaphores", "Semaphores of the store.", known as f64),
        (
            "permits_store_semaphores_omitted",
            "Semaphores without metrics of their own, because there are too many.",
            omitted as f64,
        ),
        (
            "permits_store_semaphores_omitted_urgent",
            "Semaphores that need a look, and have no metrics of their own.",
            snapshot.rows.values().filter(|row| row.place >= max && row.json.need.is_urgent()).count() as f64,
        ),
        (
            "permits_store_longest_stall_seconds",
            "Longest time for which requests of a semaphore wait and none is granted, but for pauses and waits by design.",
            seconds(snapshot.longest_stall_ms()),
        ),
        (
            "permits_store_semaphores_unreadable",
            "Semaphores without metrics, because their keys cannot be read.",
            snapshot.unreadable() as f64,
        ),
    ] {
        one(&mut text, name, help, value, format);
    }
    text
}

/// The waits of each semaphore, as a histogram.
fn waits(text: &mut String, snapshot: &StoreSnapshot, max: usize, format: Format) {
    let help =
        "Time that requests waited in line until they were granted, since the store has the semaphore.";
    head(text, WAITS, help, format);
    // The bounds have a fraction, as OpenMetrics demands: Prometheus 3 stores `100` as `100.0`, Prometheus 2
    // as `100`.
    let bounds = WAIT_BOUNDS.map(|bound| format!("{:?}", bound.as_secs_f64()));
    for (semaphore, row) in named(snapshot, max).filter(|(_, row)| row.json.unreadable.is_none()) {
        let (semaphore, waits, mut sum) = (escaped(semaphore), &row.json.waits, 0_u64);
        for (bound, number) in bounds.iter().map(String::as_str).chain(["+Inf"]).zip(waits.numbers) {
            sum += u64::from(number);
            let _ = writeln!(text, "{WAITS}_bucket{{semaphore=\"{semaphore}\",le=\"{bound}\"}} {sum}");
        }
        let total = waits.total_us as f64 / 1e6;
        let _ = writeln!(text, "{WAITS}_sum{{semaphore=\"{semaphore}\"}} {total}");
        let _ = writeln!(text, "{WAITS}_count{{semaphore=\"{semaphore}\"}} {sum}");
    }
}

/// A metric without labels.
fn one(text: &mut String, name: &str, help: &str, value: f64, format: Format) {
    head(text, name, help, format);
    let _ = writeln!(text, "{name} {value}");
}

fn head(text: &mut String, name: &str, help: &str, format: Format) {
    let (described, kind) = match (name.strip_suffix(COUNTER), format) {
        _ if name == WAITS => (name, "histogram"),
        (Some(base), Format::OpenMetrics) => (base, "counter"),
        (Some(_), Format::Prometheus) => (name, "counter"),
        (None, _) => (name, "gauge"),
    };
    let _ = writeln!(text, "# HELP {described} {help}\n# TYPE {described} {kind}");
}

/// The value of a label, by the rules of both formats.
fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_negotiated() {
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2";
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/html, */*;q=0.1", Format::Prometheus),
            (prometheus_3, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
            ("application/openmetrics-text;q=0.3,text/plain;q=0.5", Format::Prometheus),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().expect("a value"))]);
            assert_eq!(Format::of(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped(r#"a"b\c"#), r#"a\"b\\c"#);
        assert_eq!(escaped("a\nb"), r"a\nb");
        assert_eq!(escaped("ex/ports ü <b>"), "ex/ports ü <b>");
    }
}
