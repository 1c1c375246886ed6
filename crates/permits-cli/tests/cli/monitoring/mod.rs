//! `contrib/alerts.yml` and `contrib/grafana.json`, beside the metrics that `permits serve` and the library
//! have.

mod alerts;
mod dashboard;
mod expression;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use permits_testkit::documents;

use self::expression::Expression;
use crate::serve::metrics;
use crate::support::{fresh, output};

/// The labels that Prometheus adds to each sample that it scrapes.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

/// The labels of each metric: of a real `permits serve`, and those that the suite `observability` finds in
/// the library, with the series that an exporter makes of a histogram.
static METRICS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let (server, name) = fresh();
    let served = metrics::in_use(&server, &name).samples.into_keys();
    let mut known: Vec<(String, Vec<String>)> = served
        .map(|(name, semaphore)| {
            let labels = match semaphore {
                None => &[][..],
                Some(_) if name.starts_with("permits_lane_") => &["semaphore", "lane"],
                Some(_) if name.ends_with("_bucket") => &["semaphore", "le"],
                Some(_) => &["semaphore"],
            };
            (name, labels.iter().map(|label| (*label).to_owned()).collect())
        })
        .collect();
    for metric in documents::library_metrics() {
        if metric.kind == "histogram" {
            let with_bound = [&metric.labels[..], &["le".to_owned()]].concat();
            known.push((format!("{}_bucket", metric.name), with_bound));
            known.push((format!("{}_sum", metric.name), metric.labels.clone()));
            known.push((format!("{}_count", metric.name), metric.labels));
        } else {
            known.push((metric.name, metric.labels));
        }
    }
    // Prometheus adds the metric of the scrape itself.
    known.push(("up".to_owned(), Vec::new()));
    let with_target =
        |labels: Vec<String>| labels.into_iter().chain(OF_PROMETHEUS.map(str::to_owned)).collect();
    known.into_iter().map(|(name, labels)| (name, with_target(labels))).collect()
});

/// The path of a file in `contrib`.
fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

#[track_caller]
fn read(name: &str) -> String {
    fs::read_to_string(contrib(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Demands that the metrics of an expression exist and have its labels, and returns the labels of its result.
#[track_caller]
fn labels_of_result(expression: &str) -> BTreeSet<String> {
    let Expression { selectors, grouped_by } = Expression::parse(expression);
    assert!(!selectors.is_empty(), "no metric: {expression}");
    let mut of_all = BTreeSet::new();
    for (metric, labels) in selectors {
        let known =
            METRICS.get(&metric).unwrap_or_else(|| panic!("there is no metric {metric}: {expression}"));
        for label in labels.iter().chain(&grouped_by) {
            assert!(known.contains(label), "{metric} has no label {label}: {expression}");
        }
        of_all.extend(known.clone());
    }
    if grouped_by.is_empty() { of_all } else { grouped_by }
}

/// Demands that `promtool` accepts a file.
#[track_caller]
fn promtool(verb: &str, file: &Path) {
    let run = output(Command::new("promtool").args([verb, "rules"]).arg(file));
    assert_eq!(run.code, 0, "promtool {verb} rules {}: {}{}", file.display(), run.stdout, run.stderr);
}
