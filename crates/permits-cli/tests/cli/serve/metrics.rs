//! `/metrics`, read by a parser that accepts nothing but the format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use permits_testkit::sound::Named as _;
use permits_testkit::{documents, skip};
use rustix::process::Signal;

use super::Serve;
use crate::support::{
    Holder, Local, Running, Store, on_a_server, output, permits, prepare, run, shell, until_counts, waiter,
};

on_a_server! {
    each_semaphore_has_its_numbers,
    the_documented_metrics_are_the_real_ones,
}

/// Samples by name and label, and the names of the metrics.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) samples: BTreeMap<(String, Option<String>), f64>,
    pub(crate) help: BTreeMap<String, String>,
}

impl Metrics {
    /// Parses the text, in which a counter is described by its name without `suffix`. Panics at the first
    /// byte that is not in the format, with at most one label of the name `semaphore`, and one of the name
    /// `lane` behind it.
    #[track_caller]
    pub(crate) fn parse(text: &str, suffix: &str) -> Self {
        let mut metrics = Self::default();
        assert!(text.ends_with('\n'), "the last line has an end");
        let (mut metric, mut text_of_help) = (String::new(), "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a text");
                assert!(is_name(name) && help.ends_with('.'), "{line}");
                name.clone_into(&mut metric);
                text_of_help = help;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert_eq!(name, metric, "the type follows the help");
                if kind == "counter" {
                    metric += suffix;
                }
                let expected = match metric.as_str() {
                    "permits_semaphore_wait_seconds" => "histogram",
                    counter if counter.ends_with("_total") => "counter",
                    _ => "gauge",
                };
                assert_eq!(kind, expected, "{metric}");
                let known = metrics.help.insert(metric.clone(), text_of_help.to_owned());
                assert!(known.is_none(), "twice: {line}");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, label) = match series.split_once('{') {
                    None => (series, None),
                    Some((name, rest)) => {
                        let label =
                            rest.strip_prefix("semaphore=\"").and_then(|rest| rest.strip_suffix("\"}"));
                        let label = label.unwrap_or_else(|| panic!("{line}"));
                        let lane = name.starts_with("permits_lane_").then(|| label.split_once("\",lane=\""));
                        let bound = name.ends_with("_bucket").then(|| label.split_once("\",le=\""));
                        let label = match lane.or(bound) {
                            Some(other) => {
                                let (label, other) = other.unwrap_or_else(|| panic!("{line}"));
                                format!("{} {}", unescaped(label), unescaped(other))
                            }
                            None => unescaped(label),
                        };
                        (name, Some(label))
                    }
                };
                assert_eq!(described(name), metric, "the samples of a metric are together");
                let value: f64 = value.parse().expect("a number");
                assert!(value.is_finite() && value >= 0.0, "{line}");
                assert!(metrics.samples.insert((name.to_owned(), label), value).is_none(), "twice: {line}");
            }
        }
        metrics
    }

    #[track_caller]
    pub(crate) fn of(&self, name: &str, semaphore: &str) -> Option<f64> {
        let name = format!("permits_semaphore_{name}");
        assert!(self.help.contains_key(described(&name)), "{name}");
        self.samples.get(&(name, Some(semaphore.to_owned()))).copied()
    }

    #[track_caller]
    fn of_lane(&self, name: &str, semaphore: &str, lane: &str) -> Option<f64> {
        let name = format!("permits_lane_{name}");
        self.samples.get(&(name, Some(format!("{semaphore} {lane}")))).copied()
    }

    #[track_caller]
    pub(crate) fn store(&self, name: &str) -> f64 {
        self.samples[&(format!("permits_store_{name}"), None)]
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    ["permits_semaphore_", "permits_lane_", "permits_alert_", "permits_store_"]
        .iter()
        .any(|first| name.starts_with(first))
        && name.bytes().all(is_part)
}

/// The name under which a series is described. Each series of a histogram has the name of the histogram.
fn described(series: &str) -> &str {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end));
    of_histogram.unwrap_or(series)
}

#[track_caller]
fn unescaped(label: &str) -> String {
    let mut text = String::new();
    let mut characters = label.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some(escaped @ ('\\' | '"')) => escaped,
                other => panic!("{other:?} is escaped in {label:?}"),
            },
            '"' => panic!("a quotation mark in {label:?}"),
            other => other,
        });
    }
    text
}

fn each_semaphore_has_its_numbers(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 3 --weight 2");
    let _waiters = [1, 2].map(|place| waiter(store, name, "--weight 2", (1, place)));
    let hostile = r#"a"b\c <script>"#;
    for arguments in [["limit", hostile, "12"], ["pause", "paused", "--for=1h"], ["close", "closed", "-v"]] {
        output(&mut permits(&store.url(), arguments)).ends(0);
    }
    output(&mut run(store, "rate", "--limit 3 --at-least 1h", "true")).ends(0);
    prepare(store, "moved");
    let first = Holder::start(store, "moved", "--limit 1");
    let second = waiter(store, "moved", "", (1, 1));
    first.release();
    second.finish().ends(0);
    let serve = Serve::start(store, &[]);
    let reply = serve.read("/metrics");
    assert_eq!(reply.status, 200);
    let metrics = Metrics::parse(&reply.body, "");
    for (metric, semaphore, expected) in [
        ("limit", name, Some(3.0)),
        ("held", name, Some(2.0)),
        ("cooling", name, Some(0.0)),
        ("held", "rate", Some(1.0)),
        ("cooling", "rate", Some(1.0)),
        ("oldest_holder_age_seconds", "rate", None),
        ("waiting", name, Some(2.0)),
        ("paused", name, Some(0.0)),
        ("limit", hostile, Some(12.0)),
        ("pinned", hostile, Some(1.0)),
        ("oldest_holder_age_seconds", hostile, None),
        ("oldest_waiter_age_seconds", hostile, None),
        ("limit", "paused", None),
        ("paused", "paused", Some(1.0)),
        ("closed", "paused", Some(0.0)),
        ("pause_remaining_seconds", "closed", None),
        ("wait_seconds_bucket", &format!("{name} 0.01"), Some(0.0)),
        ("wait_seconds_bucket", &format!("{name} 100.0"), Some(0.0)),
        ("wait_seconds_bucket", &format!("{name} +Inf"), Some(0.0)),
        ("wait_seconds_count", name, Some(0.0)),
        ("wait_seconds_sum", name, Some(0.0)),
        ("wait_seconds_bucket", "moved +Inf", Some(1.0)),
        ("wait_seconds_count", "moved", Some(1.0)),
        ("closed", "closed", Some(1.0)),
        ("refusals_total", name, Some(0.0)),
        ("expirations_total", name, Some(0.0)),
        ("revocations_total", hostile, Some(0.0)),
    ] {
        assert_eq!(metrics.of(metric, semaphore), expected, "{metric} of {semaphore}");
    }
    let pause = metrics.of("pause_remaining_seconds", "paused").expect("it has an end");
    assert!(pause > 3000.0 && pause <= 3600.0, "{pause}");
    let age = |of: &str| metrics.of(&format!("oldest_{of}_age_seconds"), name).expect("it is there");
    assert!(0.0 < age("waiter") && age("waiter") < age("holder"), "{metrics:?}");
    assert!(metrics.of("recovering_seconds", name).is_some());
    assert!(metrics.of("grants_total", name) >= Some(1.0));
    assert!(metrics.of("wait_seconds_sum", "moved") > Some(0.0), "{metrics:?}");
    assert_eq!((metrics.store("up"), metrics.store("semaphores")), (1.0, 6.0));
    assert_eq!(metrics.store("semaphores_omitted"), 0.0);
    assert!(metrics.store("scrape_duration_seconds") > 0.0);

    let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let open = serve.get("/metrics").header("Accept", accept).send();
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(media));
    let body = open.body.strip_suffix("# EOF\n").expect("the end of the format");
    assert_eq!(Metrics::parse(body, "_total").help, metrics.help);
    lint(&reply.body);
}

/// Runs the linter of Prometheus, if it is installed.
#[track_caller]
fn lint(metrics: &str) {
    if skip::without_program("promtool") {
        return;
    }
    let mut linter = Command::new("promtool");
    linter.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut linter = linter.spawn().expect("it is installed");
    linter.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).expect("it is read");
    let linted = linter.wait_with_output().expect("it ends");
    assert!(linted.status.success() && linted.stderr.is_empty(), "{linted:?}");
}

#[test]
fn the_number_of_series_is_bounded() {
    let store = Local::new();
    let client = permits::Client::connect(&store.url()).wait().expect("the store is up");
    for number in 0..30 {
        let semaphore = client.named(format!("s{number:02}"), permits::Limit::Stored);
        semaphore.set_limit(3).wait().expect("it can be set");
    }
    let read = |options: &[&str]| {
        let serve = Serve::start(&store, &[&["--max-semaphores", "20"], options].concat());
        Metrics::parse(&serve.read("/metrics").body, "")
    };
    let metrics = read(&[]);
    assert_eq!((metrics.store("semaphores"), metrics.store("semaphores_omitted")), (30.0, 10.0));
    assert_eq!((metrics.of("held", "s19"), metrics.of("held", "s20")), (Some(0.0), None));
    assert_eq!(metrics.store("longest_stall_seconds"), 0.0);
    assert_eq!(metrics.store("semaphores_omitted_urgent"), 0.0, "a pin is no need");

    // The semaphores that were asked for come first, then those that need a look.
    let _holder = Holder::start(&store, "s25", "");
    let _waiter = waiter(&store, "s25", "--weight 3", (1, 1));
    let metrics = read(&["--under", "s28", "--under", "s29"]);
    let known = ["s17", "s25", "s28", "s29"].map(|name| metrics.of("held", name));
    assert_eq!(known, [None, Some(1.0), Some(0.0), Some(0.0)]);
    assert_eq!(metrics.of("held", "s16"), Some(0.0));
    let stall = metrics.store("longest_stall_seconds");
    assert!(stall > 0.0 && Some(stall) <= metrics.of("oldest_waiter_age_seconds", "s25"), "{stall}");
    // A semaphore that needs a look has no metrics if the semaphores that were asked for take all places.
    let all = client.named("s25", permits::Limit::Stored);
    all.set_alert(permits::Alert::new(None, Some(1)).expect("it is in range")).wait().expect("it can be set");
    let urgent = |options: &[&str]| read(options).store("semaphores_omitted_urgent");
    let (_second, alert) =
        (waiter(&store, "s25", "--weight 3", (1, 2)), &["--under", "s0", "--under", "s1"][..]);
    assert_eq!((urgent(&[]), urgent(alert)), (0.0, 1.0));
    let serve = Serve::start(&store, &[]);
    let listed = serve.read("/api/v1/semaphores").json();
    assert_eq!(listed.as_array().map(Vec::len), Some(30), "the list has all");
}

#[test]
fn a_line_that_moves_does_not_stall_and_one_may_wait_by_design() {
    let store = Local::new();
    let first = Holder::start(&store, "batch", "--limit 1");
    let _waiters = [1, 2].map(|place| {
        let waiter = Running::start(&mut run(&store, "batch", "", "exec sleep 1000"));
        until_counts(&store, "batch", (1, place));
        waiter
    });
    first.release();
    until_counts(&store, "batch", (1, 1));
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let stall_and_wait = || {
        let before = now() - 0.001;
        let metrics = Metrics::parse(&Serve::start(&store, &[]).read("/metrics").body, "");
        let (read_at, after) = (metrics.store("scrape_timestamp_seconds"), now());
        assert!(before <= read_at && read_at <= after, "{read_at} in {before}..{after}");
        let wait = metrics.of("oldest_waiter_age_seconds", "batch").expect("one waits");
        (metrics.store("longest_stall_seconds"), wait)
    };
    let (stall, wait) = stall_and_wait();
    assert!(0.0 < stall && stall < wait, "the first grant came after the second waiter: {stall}, {wait}");
    output(&mut permits(&store.url(), ["pause", "batch"])).ends(0);
    assert_eq!(stall_and_wait().0, 0.0, "an operator has paused it");
    output(&mut permits(&store.url(), ["resume", "batch"])).ends(0);
    assert!(stall_and_wait().0 > 0.0);
    output(&mut permits(&store.url(), ["alert", "batch", "--wait", "8h"])).ends(0);
    assert_eq!(stall_and_wait().0, 0.0);
}

/// The commands of the page, with a directory and a server of the test.
#[test]
fn a_file_of_metrics_is_replaced_as_a_whole() {
    if skip::without_program("curl") {
        return;
    }
    let store = Local::new();
    let pages = documents::pages();
    let [block] = documents::blocks_of(&pages, "metrics.rs")[..] else { panic!("one is tested") };
    let directory = tempfile::tempdir().expect("a directory");
    let script = block.text.replace("/var/lib/node_exporter", directory.path().to_str().expect("text"));
    let path = directory.path().join("permits.prom");
    let write = |address: SocketAddr| {
        let script = script.replace("127.0.0.1:9710", &address.to_string());
        output(&mut shell(&store.url(), &script))
    };
    write(Serve::start(&store, &[]).address).prints(0, "");
    let reader = fs::File::open(&path).expect("it is there");
    output(&mut permits(&store.url(), ["limit", "exports", "3"])).ends(0);
    let serve = Serve::start(&store, &[]);
    let address = serve.address;
    write(address).prints(0, "");
    let text = fs::read_to_string(&path).expect("it is there");
    assert_eq!(Metrics::parse(&text, "").of("limit", "exports"), Some(3.0));
    let before = std::io::read_to_string(reader).expect("it can be read");
    assert!(!before.contains("exports"), "a reader of the old file sees the old one: {before}");
    serve.end(Signal::TERM).ends(0);
    let failed = write(address);
    assert!(failed.code == 7 && failed.stderr.contains("curl: "), "{failed:?}");
    assert_eq!(fs::read_to_string(&path).expect("it stays"), text);
    let names: Vec<_> = fs::read_dir(directory.path()).expect("ours").collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn the_ten_largest_lanes_of_a_semaphore_have_numbers() {
    let store = Local::new();
    let client = permits::Client::connect(&store.url()).wait().expect("the store is up");
    let semaphore = client.named("api", 30);
    let in_lane =
        |lane: &str, weight| semaphore.acquire_with(permits::AcquireOptions::new().lane(lane).weight(weight));
    let lanes: Vec<String> = (0..12).map(|number| format!("tenant\\{number:02}")).collect();
    let held =
        lanes.iter().zip(1..).map(|(lane, weight)| in_lane(lane, if weight > 10 { 10 } else { 1 }).wait());
    let held: Vec<_> = held.map(|permit| permit.expect("it is free")).collect();
    let _waiter =
        waiter(&store, "api", "--lane tenant\\00 --weight 29 --lane-limit 29 --lane-floor 3", (12, 1));
    let serve = Serve::start(&store, &[]);
    let metrics = Metrics::parse(&serve.read("/metrics").body, "");
    let of =
        |lane: &str| ["waiting", "held", "limit", "floor"].map(|name| metrics.of_lane(name, "api", lane));
    // Units that the lane held before it had a limit do not count.
    assert_eq!(of(&lanes[0]), [Some(1.0), Some(0.0), Some(29.0), Some(3.0)]);
    assert_eq!(of(&lanes[11]), [Some(0.0), Some(10.0), None, None]);
    let count = |name: &str| {
        let name = format!("permits_lane_{name}");
        metrics.samples.keys().filter(|(metric, _)| *metric == name).count()
    };
    assert_eq!(["waiting", "held", "limit", "floor"].map(count), [10, 10, 1, 1]);
    drop(held);
}

/// The metrics of a store whose semaphore `name` is in use, so that each metric has a sample.
#[track_caller]
pub(crate) fn in_use(store: &dyn Store, name: &str) -> Metrics {
    let _holder = Holder::start(store, name, "--limit 1");
    let _waiter = waiter(store, name, "--lane a --lane-limit 1 --lane-floor 1", (1, 1));
    let alert = ["alert", name, "--wait", "90s", "--waiting", "7"];
    output(&mut permits(&store.url(), alert)).ends(0);
    let serve = Serve::start(store, &[]);
    Metrics::parse(&serve.read("/metrics").body, "")
}

fn the_documented_metrics_are_the_real_ones(store: &dyn Store, name: &str) {
    let metrics = in_use(store, name);
    let real: BTreeSet<&String> = metrics.help.keys().collect();
    let with_samples: BTreeSet<&str> = metrics.samples.keys().map(|(name, _)| described(name)).collect();
    // Only a pause with an end has this sample, and the semaphore is not paused.
    let without = BTreeSet::from(["permits_semaphore_pause_remaining_seconds"]);
    let names: BTreeSet<&str> = real.iter().map(|name| name.as_str()).collect();
    assert_eq!(&names - &with_samples, without, "each other one has a sample");
    let documented = documents::table("reference/metrics.md", "Metrics of the store");
    let documented: Vec<String> = documented.iter().flat_map(|row| documents::quoted(&row[0])).collect();
    assert_eq!(real, documented.iter().collect());
}
