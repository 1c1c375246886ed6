//! The log on standard error: its filter and its form.

use serde_json::Value;

use crate::support::{Local, Output, Store as _, assert_own_lines, output, permits};

/// A run with this filter and these options, of a command that prints nothing.
fn logged(filter: &str, options: &[&str]) -> Output {
    let store = Local::new();
    let arguments = [options, &["run", "exports", "--limit", "1", "--holder", "web-3", "true"]].concat();
    output(permits(&store.url(), arguments).env("PERMITS_LOG", filter))
}

#[test]
fn the_filter_selects_events_by_their_target() {
    let shown = logged("warn,permits::granted=debug", &[]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(
        shown.stderr.starts_with("permits: debug: granted (semaphore=exports, holder=web-3, "),
        "{}",
        shown.stderr
    );
    assert_own_lines(&shown.stderr);
    assert_eq!(logged("warn", &[]).stderr, "");
    let verbose = logged("off", &["-vv"]).stderr;
    assert!(verbose.contains("debug: granted"), "an option counts more than the environment: {verbose}");
}

#[test]
fn a_filter_that_is_not_valid_is_64() {
    let refused = logged("info,loud", &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (64, ""));
    assert!(refused.stderr.contains("PERMITS_LOG: \"loud\""), "{}", refused.stderr);
    assert_own_lines(&refused.stderr);
}

#[test]
fn each_line_can_be_a_json_object() {
    let shown = logged("", &["-vv", "--log-format", "json"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let lines: Vec<Value> =
        shown.stderr.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let granted = lines.iter().find(|line| line["target"] == "permits::granted").expect("it was granted");
    assert_eq!((&granted["level"], &granted["message"]), (&"debug".into(), &"granted".into()));
    assert_eq!((&granted["fields"]["holder"], &granted["fields"]["slot"]), (&"web-3".into(), &0.into()));
    assert!(granted["time_ms"].as_u64().is_some_and(|time| time > 1_600_000_000_000), "{granted}");
    let own = lines.iter().find(|line| line["target"] == "permits").expect("the command says something");
    assert!(own["message"].as_str().is_some_and(|message| message.starts_with("store ")), "{own}");
}
