//! `--lane`: the requests of a lane keep their order, and lanes that wait share the units.

use std::fs;

use permits_testkit::wait;
use serde_json::json;

use crate::support::{
    Holder, Output, Running, Store, assert_matches_schema, counts, on_a_server, output, permits, prepare,
    run, status, until_counts,
};

on_a_server! {
    a_long_lane_does_not_stand_before_another,
    a_share_of_100_is_granted_before_one_of_1,
    the_wait_names_the_lane,
    each_verb_that_acquires_names_a_lane,
    a_lane_of_also_is_that_of_the_other_semaphore,
    a_lane_without_a_number_before_it_is_explained,
}

/// The order in which requests of these lanes are granted that come in this order, while one is held.
#[track_caller]
fn order(store: &dyn Store, name: &str, lanes: &[&str]) -> Vec<usize> {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let first = Holder::start(store, name, "--limit 1");
    let waiters = lanes.iter().enumerate().map(|(place, lane)| {
        let mut command = run(store, name, &format!("--limit 1 {lane}"), r#"echo "$PLACE" >> "$LOG""#);
        let waiter = Running::start(command.env("PLACE", place.to_string()).env("LOG", log.path()));
        until_counts(store, name, (1, place + 1));
        waiter
    });
    let waiters: Vec<Running> = waiters.collect();
    first.release();
    for waiter in waiters {
        let Output { code, stderr, .. } = waiter.finish();
        assert_eq!(code, 0, "{stderr}");
    }
    assert_eq!(counts(store, name), (0, 0));
    let log = fs::read_to_string(log.path()).expect("it was written");
    log.lines().map(|place| place.parse().expect("a number")).collect()
}

fn a_long_lane_does_not_stand_before_another(store: &dyn Store, name: &str) {
    let lanes = ["--lane a", "--lane a", "--lane a", "--lane b", ""];
    assert_eq!(order(store, name, &lanes), [0, 3, 4, 1, 2]);
}

fn a_share_of_100_is_granted_before_one_of_1(store: &dyn Store, name: &str) {
    let (batch, interactive) = ("--lane batch", "--lane interactive=100");
    let lanes = [batch, batch, batch, interactive, interactive, interactive];
    assert_eq!(order(store, name, &lanes), [0, 3, 4, 5, 1, 2]);
}

fn the_wait_names_the_lane(store: &dyn Store, name: &str) {
    let first = Holder::start(store, name, "--limit 1 --holder first");
    let other = Running::start(&mut run(store, name, "--lane a", "echo ran"));
    until_counts(store, name, (1, 1));
    let waiter = Running::start(&mut run(store, name, "-v --lane tenant-7=10", "echo ran"));
    let expected = format!("for {name:?} in lane \"tenant-7\": 1 before you, 1 of 1 held by first");
    assert!(wait::until(|| waiter.stderr().contains(&expected)), "{}", waiter.stderr());
    let state = status(store, name);
    let lane = |lane: Option<&str>, waiting: u64, held: u64| json!({ "lane": lane, "waiting": waiting, "held": held });
    let lanes = json!([lane(Some("a"), 1, 0), lane(Some("tenant-7"), 1, 0), lane(None, 0, 1)]);
    assert_eq!((&state["lanes"], &state["waiters"][1]["lane"]), (&lanes, &json!("tenant-7")), "{state}");
    assert_matches_schema("status.schema.json", &state);
    let text = output(&mut permits(&store.url(), ["status", name])).stdout;
    let has = |line: &str, parts: [&str; 3]| {
        let mut words = line.split_whitespace();
        parts.iter().all(|part| words.next() == Some(part))
    };
    assert!(text.lines().any(|line| has(line, ["tenant-7", "1", "0"])), "{text}");
    assert!(text.contains("[LANE] LABEL\n") && text.contains("  [tenant-7]\n"), "{text}");
    first.release();
    assert_eq!([other, waiter].map(|waiter| waiter.finish().stdout), ["ran\n", "ran\n"]);
}

fn each_verb_that_acquires_names_a_lane(store: &dyn Store, name: &str) {
    let acquired = output(&mut permits(&store.url(), ["acquire", name, "--limit", "3", "--lane", "a"]));
    assert_eq!(acquired.code, 0, "{}", acquired.stderr);
    let mut hold = permits(&store.url(), ["hold", name, "--limit", "3", "--lane", "b=7"]);
    let gate = crate::support::gate(&mut hold);
    let hold = Running::until(&mut hold, "granted");
    let run = Holder::start(store, name, "--limit 3 --lane c");
    let state = status(store, name);
    let mut lanes: Vec<_> =
        state["holders"].as_array().expect("a list").iter().map(|info| &info["lane"]).collect();
    lanes.sort_by_key(|lane| lane.to_string());
    assert_eq!(lanes, ["a", "b", "c"], "{state}");
    run.release();
    drop(gate);
    assert_eq!(hold.finish().code, 0);
    assert_eq!(output(&mut permits(&store.url(), ["release", acquired.stdout.trim()])).code, 0);
    assert_eq!(counts(store, name), (0, 0));
}

fn a_lane_of_also_is_that_of_the_other_semaphore(store: &dyn Store, name: &str) {
    let other = format!("{name}@host");
    prepare(store, &other);
    let options = format!("--limit 1 --lane here --also {other}=4:2@there=3");
    let holder = Holder::start(store, name, &options);
    for (name, weight, lane) in [(name, 1, "here"), (&*other, 2, "there")] {
        let info = &status(store, name)["holders"][0];
        assert_eq!((&info["weight"], &info["lane"]), (&json!(weight), &json!(lane)), "{info}");
    }
    holder.release();
    assert_eq!((counts(store, name), counts(store, &other)), ((0, 0), (0, 0)));
}

fn a_lane_without_a_number_before_it_is_explained(store: &dyn Store, name: &str) {
    let Output { code, stderr, .. } =
        output(&mut run(store, name, "--limit 1 --also api@tenant", "echo ran"));
    let expected = "permits: semaphore \"api@tenant\" has no limit yet: give one with --also NAME=LIMIT, or set one with: permits limit NAME N; a lane needs a limit or a weight before it: --also 'api:1@tenant'\n";
    assert_eq!((code, stderr.as_str()), (64, expected));
}
