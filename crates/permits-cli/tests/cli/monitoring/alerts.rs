//! `contrib/alerts.yml`.

use std::collections::BTreeSet;

use permits_testkit::{documents, skip};
use saphyr::{LoadableYamlNode as _, Yaml};

use super::{contrib, labels_of_result, promtool, read};

/// An alerting rule.
#[derive(Debug)]
pub(super) struct Alert {
    pub(super) name: String,
    pub(super) expression: String,
    severity: String,
    duration: String,
    /// Names and texts.
    annotations: Vec<(String, String)>,
}

impl Alert {
    /// The number that the expression is compared with.
    #[track_caller]
    pub(super) fn threshold(&self) -> f64 {
        let after = self.expression.rsplit('>').next().expect("a part");
        let number = after.split_whitespace().next().and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{} has no threshold", self.name))
    }
}

#[track_caller]
fn text(value: &Yaml<'_>) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value:?}")).trim_end().to_owned()
}

pub(super) fn alerts() -> Vec<Alert> {
    let file = read("alerts.yml");
    let documents = Yaml::load_from_str(&file).expect("it is YAML");
    let groups = documents[0]["groups"].as_sequence().expect("a list");
    let rules = groups.iter().flat_map(|group| group["rules"].as_sequence().expect("a list"));
    let alert = |rule: &Yaml<'_>| Alert {
        name: text(&rule["alert"]),
        expression: text(&rule["expr"]),
        severity: text(&rule["labels"]["severity"]),
        duration: text(&rule["for"]),
        annotations: rule["annotations"]
            .as_mapping()
            .expect("a mapping")
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    };
    rules.map(alert).collect()
}

#[test]
fn each_alert_has_a_severity_a_duration_and_texts_with_labels_that_it_has() {
    for Alert { name, expression, severity, duration, annotations } in alerts() {
        assert!(["critical", "warning"].contains(&severity.as_str()), "{name}: {severity}");
        assert!(duration.ends_with(['m', 'h']), "{name}: {duration}");
        let names: Vec<&str> = annotations.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["summary", "description", "documentation", "runbook"], "{name}");
        let labels = labels_of_result(&expression);
        for (annotation, text) in &annotations {
            for used in text.split("$labels.").skip(1) {
                let label = used.split(|end: char| !end.is_alphanumeric()).next().unwrap_or_default();
                assert!(
                    labels.contains(label),
                    "{annotation} of {name} names {label}, which {expression} has not"
                );
            }
        }
        assert_section_exists(&name, &annotations[2].1);
        assert!(annotations[3].1.starts_with("docs/operate/runbook"), "{name}: {}", annotations[3].1);
        assert_section_exists(&name, &annotations[3].1);
    }
    assert!(
        documents::read("reference/metrics.md").contains("job_name: permits\n"),
        "PermitsServeDown names this job"
    );
}

/// Demands the section of a text such as `docs/operate/runbook.md, Paused`.
#[track_caller]
fn assert_section_exists(alert: &str, text: &str) {
    let (document, section) = text.split_once(", ").expect("a document and its section");
    let document = documents::read(document.strip_prefix("docs/").expect("below docs"));
    let exists = document.lines().any(|line| line.trim_start_matches('#') == format!(" {section}"));
    assert!(exists, "{alert}: there is no section {text:?}");
}

#[test]
fn the_documented_alerts_are_those_of_the_file() {
    let documented = documents::table("operate/monitor.md", "Alerts and a dashboard");
    let documented: Vec<(String, String)> =
        documented.into_iter().map(|row| (documents::quoted(&row[0]).remove(0), row[1].clone())).collect();
    let real =
        alerts().into_iter().map(|alert| (alert.name, format!("{}, {}", alert.severity, alert.duration)));
    assert_eq!(documented, real.collect::<Vec<_>>());
}

#[test]
fn each_alert_fires_in_a_test_and_the_tests_pass() {
    let tests = read("alerts.test.yml");
    let firing = tests.split("ALERTS{alertname=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let firing: BTreeSet<String> = firing.map(str::to_owned).collect();
    assert_eq!(firing, alerts().into_iter().map(|alert| alert.name).collect());
    if skip::without_program("promtool") {
        return;
    }
    promtool("check", &contrib("alerts.yml"));
    promtool("test", &contrib("alerts.test.yml"));
}
