//! `contrib/grafana.json`.

use std::collections::BTreeSet;

use permits_testkit::skip;
use serde_json::{Value, json};

use super::alerts::alerts;
use super::{labels_of_result, promtool, read};

/// The columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// Variables that Grafana itself sets, each with a value.
const BUILT_IN: [(&str, &str); 1] = [("$__rate_interval", "5m")];

#[track_caller]
fn dashboard() -> Value {
    serde_json::from_str(&read("grafana.json")).expect("it is JSON")
}

#[track_caller]
fn list<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no list {pointer}: {value}"))
}

#[track_caller]
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {pointer}: {value}"))
}

/// The panels that show values.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(dashboard, "/panels").iter().filter(|panel| panel["type"] != "row")
}

/// The queries of panels, each with its panel's title.
fn queries(dashboard: &Value) -> impl Iterator<Item = (&str, &Value)> {
    panels(dashboard)
        .flat_map(|panel| list(panel, "/targets").iter().map(|query| (text(panel, "/title"), query)))
}

/// An expression as Prometheus gets it, except for the variables in strings.
fn expression(query: &Value) -> String {
    let with_value = |text: String, (name, value): (&str, &str)| text.replace(name, value);
    BUILT_IN.into_iter().fold(text(query, "/expr").to_owned(), with_value)
}

#[test]
fn each_panel_has_its_own_id_and_place_a_title_a_description_and_a_unit() {
    let dashboard = dashboard();
    let (mut ids, mut titles, mut cells) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard, "/panels") {
        let title = text(panel, "/title");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "the id of {title:?} is taken");
        assert!(!title.is_empty() && titles.insert(title), "the title {title:?} is taken");
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{title:?} leaves the grid");
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |line| (column, line))) {
            assert!(cells.insert(cell), "{title:?} overlaps another panel at {cell:?}");
        }
    }
    for panel in panels(&dashboard) {
        let title = text(panel, "/title");
        assert!(text(panel, "/description").ends_with('.'), "{title}");
        // The colours of a heatmap are counts; its axis has the unit.
        let unit =
            if panel["type"] == "heatmap" { "/options/yAxis/unit" } else { "/fieldConfig/defaults/unit" };
        assert!(!text(panel, unit).is_empty(), "{title}");
        assert_eq!(text(panel, "/datasource/uid"), "${datasource}", "{title}");
        let names: BTreeSet<&str> =
            list(panel, "/targets").iter().map(|query| text(query, "/refId")).collect();
        assert_eq!(names.len(), list(panel, "/targets").len(), "{title}: two queries of one name");
    }
}

#[test]
fn the_panels_and_variables_use_metrics_labels_and_variables_that_exist() {
    let dashboard = dashboard();
    let variables = list(&dashboard, "/templating/list");
    let known: BTreeSet<&str> = variables.iter().map(|variable| text(variable, "/name")).collect();
    for (title, query) in queries(&dashboard) {
        let expression = expression(query);
        let labels = labels_of_result(&expression);
        for used in expression.split('$').skip(1) {
            let name =
                used.split(|end: char| !end.is_alphanumeric() && end != '_').next().unwrap_or_default();
            assert!(known.contains(name), "{title}: there is no variable ${name}");
        }
        let legend = query["legendFormat"].as_str().unwrap_or_default();
        for used in legend.split("{{").skip(1) {
            let label = used.split("}}").next().unwrap_or_default();
            assert!(labels.contains(label), "{title}: {expression} has no label {label}");
        }
    }
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let query = text(variable, "/query/query");
        let values = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (series, label) =
            values.and_then(|values| values.rsplit_once(", ")).expect("a series and a label");
        assert!(labels_of_result(series).contains(label), "{query}");
    }
}

#[test]
fn the_expressions_are_valid() {
    if skip::without_program("promtool") {
        return;
    }
    let dashboard = dashboard();
    let rules: Vec<Value> = queries(&dashboard)
        .enumerate()
        .map(|(number, (_, query))| json!({"record": format!("panel:{number}"), "expr": expression(query)}))
        .collect();
    assert!(rules.len() > 30, "only {} queries were found", rules.len());
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    // JSON is YAML.
    let rules = json!({"groups": [{"name": "panels", "rules": rules}]});
    std::fs::write(file.path(), rules.to_string()).expect("it can be written");
    promtool("check", file.path());
}

#[test]
fn a_line_at_the_threshold_of_an_alert_has_its_value() {
    let (dashboard, alerts) = (dashboard(), alerts());
    let mut compared = 0;
    for panel in panels(&dashboard) {
        let Some((_, after)) = text(panel, "/description").split_once("threshold of the alert ") else {
            continue;
        };
        let name = after.trim_end_matches('.');
        let alert =
            alerts.iter().find(|alert| alert.name == name).unwrap_or_else(|| panic!("no alert {name}"));
        let steps = list(panel, "/fieldConfig/defaults/thresholds/steps");
        let last = steps.last().and_then(|step| step["value"].as_f64());
        assert_eq!(last, Some(alert.threshold()), "{}", text(panel, "/title"));
        compared += 1;
    }
    assert_eq!(compared, 4, "panels that name the threshold of an alert");
}
