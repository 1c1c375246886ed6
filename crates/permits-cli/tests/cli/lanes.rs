//! `--lane`: the requests of a lane keep their order, and lanes that wait share the units.

use permits_testkit::wait;
use serde_json::json;

use crate::support::{
    Holder, Output, Running, Store, assert_matches_schema, counts, on_a_server, output, permits, prepare,
    run, status, until_counts,
};

on_a_server! {
    the_wait_names_the_lane,
    a_lane_of_also_is_that_of_the_other_semaphore,
    a_lane_without_a_number_before_it_is_explained,
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
