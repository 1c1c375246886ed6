//! The lines of `permits hold` beside the acquisition and release of one permit: the operations of the
//! library's API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Hold, names_of};
use crate::support::{
    Local, Store, assert_matches_schema, counts, on_a_server, on_both_stores, prepare, read_schema, status,
};

on_both_stores! {
    several_are_acquired_all_or_none,
    a_renewal_is_of_all_permits_of_a_set,
    a_part_is_released_and_the_lease_is_changed,
    a_permit_is_handed_over_and_adopted,
    semaphores_are_inspected_listed_and_changed,
}

on_a_server! {
    the_line_of_several_is_that_of_the_semaphore_which_they_wait_for,
}

#[test]
fn the_first_event_says_what_the_lines_can_do() {
    let store = Local::new();
    let many = Hold::start(&store);
    let hello = many.any_event("hello");
    assert_eq!(many.lines()[0], hello);
    assert_eq!((&hello["lines"], &hello["permits"]), (&json!(1), &json!(env!("CARGO_PKG_VERSION"))));
    assert!(hello.get("id").is_none(), "{hello}");
    let has: BTreeSet<&str> =
        hello["has"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let schema = read_schema("hold-many.schema.json");
    let kinds = schema["oneOf"].as_array().expect("a list");
    let of_acquire = kinds[0]["propertyNames"]["enum"].as_array().expect("a list");
    let known = kinds.iter().map(|kind| &kind["required"][0]).chain(of_acquire).filter_map(Value::as_str);
    assert_eq!(has, known.filter(|name| *name != "id").collect());
    assert_eq!(many.finish().0.code, 0);
}

fn several_are_acquired_all_or_none(store: &dyn Store, name: &str) {
    prepare(store, "other");
    let mut many = Hold::start(store);
    let set = json!({"id": 1, "acquire": name, "limit": 2, "weight": 2, "holder": "h",
        "also": [{"acquire": "other", "limit": 1, "holder": "o"}]});
    let granted = many.granted(set);
    assert_eq!((&granted["name"], &granted["weight"]), (&json!(name), &json!(2)));
    let also = &granted["also"][0];
    assert_eq!((&also["name"], &also["holder"], &also["weight"]), (&json!("other"), &json!("o"), &json!(1)));
    assert_eq!((counts(store, name), counts(store, "other")), ((1, 0), (1, 0)));
    // The second set holds nothing, because one of its semaphores is not free.
    many.write(json!({"id": 1, "release_part": 1}));
    many.event(1, "held");
    many.write(json!({"id": 2, "acquire": name, "timeout_ms": 60_000,
        "also": [{"acquire": "other", "timeout_ms": 0}]}));
    let failed = many.event(2, "failed");
    assert_eq!(failed["exit_code"], 75, "{failed}");
    assert!(failed["reason"].as_str().expect("a text").starts_with("\"other\": no permits"), "{failed}");
    many.write(json!({"id": 3, "acquire": name, "also": [{"acquire": name}]}));
    assert_eq!(many.event(3, "failed")["exit_code"], 64);
    many.write(json!({"id": 1, "release": true}));
    many.event(1, "released");
    assert_eq!((counts(store, name), counts(store, "other")), ((0, 0), (0, 0)));
    assert_eq!(many.finish().0.code, 0);
}

/// Nothing else renews them.
fn a_renewal_is_of_all_permits_of_a_set(store: &dyn Store, name: &str) {
    prepare(store, "other");
    let mut many = Hold::start(store);
    let own = |name: &str| json!({"acquire": name, "limit": 1, "lease_ms": 600_000, "auto_renew": false});
    let mut set = own(name);
    (set["id"], set["also"]) = (json!(1), json!([own("other")]));
    many.granted(set);
    let left =
        |name: &str| status(store, name)["holders"][0]["lease_remaining_ms"].as_u64().expect("a number");
    let all_have_passed = || [name, "other"].iter().all(|name| left(name) < 599_900);
    assert!(permits_testkit::wait::until(all_have_passed));
    let before = [left(name), left("other")];
    many.write(json!({"id": 1, "renew": true}));
    many.event(1, "held");
    let after = [left(name), left("other")];
    assert!(after[0] > before[0] && after[1] > before[1], "{after:?} after {before:?}");
    assert_eq!(many.finish().0.code, 0);
}

fn the_line_of_several_is_that_of_the_semaphore_which_they_wait_for(store: &dyn Store, name: &str) {
    prepare(store, "free");
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 1}));
    many.write(json!({"id": 2, "acquire": "free", "limit": 1, "also": [{"acquire": name}]}));
    let waiting = many.event(2, "waiting");
    assert_eq!((&waiting["name"], &waiting["position"]), (&json!(name), &json!(0)));
    many.write(json!({"id": 2, "hand_over": true}));
    assert_eq!(many.event(2, "invalid")["reason"], "nothing is held yet");
    many.write(json!({"id": 1, "release": true}));
    many.event(2, "granted");
    many.write(json!({"id": 2, "hand_over": true}));
    many.running.prints("permits of several semaphores cannot be handed over");
    let (output, events) = many.finish();
    output.ends(0);
    assert_eq!(names_of(&events, &json!(2)), ["waiting", "invalid", "granted", "invalid", "released"]);
}

fn a_part_is_released_and_the_lease_is_changed(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 3, "weight": 3}));
    many.write(json!({"id": 1, "release_part": 2}));
    assert_eq!(many.event(1, "held")["answers"], "release_part");
    assert_eq!(status(store, name)["held"], 1);
    many.write(json!({"id": 1, "release_part": 1}));
    let invalid = many.event(1, "invalid");
    assert_eq!(invalid["line"], 3, "{invalid}");
    assert!(invalid["reason"].as_str().expect("a text").contains("keep at least 1"), "{invalid}");
    many.write(json!({"id": 1, "set_lease_ms": 3_600_000}));
    many.running.prints("\"answers\":\"set_lease_ms\"");
    assert!(many.event(1, "held")["remaining_ms"].as_u64().expect("a number") > 60_000);
    let left = status(store, name)["holders"][0]["lease_remaining_ms"].clone();
    assert!(left.as_u64().is_some_and(|left| left > 60_000), "{left}");
    many.write(json!({"id": 1, "set_lease_ms": 1}));
    many.running.prints("a lease of 1 ms");
    many.write(json!({"id": 1, "renew": true}));
    many.running.prints("\"answers\":\"renew\"");
    let (output, events) = many.finish();
    output.ends(0);
    assert_eq!(
        names_of(&events, &json!(1)),
        ["granted", "held", "invalid", "held", "invalid", "held", "released"]
    );
}

fn a_permit_is_handed_over_and_adopted(store: &dyn Store, name: &str) {
    let (mut one, mut other) = (Hold::start(store), Hold::start(store));
    let granted = one.granted(json!({"id": 1, "acquire": name, "limit": 1, "weight": 1}));
    one.write(json!({"id": 1, "hand_over": true}));
    let handle = one.event(1, "handed_over")["handle"].as_str().expect("a text").to_owned();
    // The id is free, and the permit outlives the process.
    one.write(json!({"id": 1, "acquire": name, "timeout_ms": 0}));
    assert_eq!(one.event(1, "failed")["exit_code"], 75);
    assert_eq!(one.finish().0.code, 0);
    assert_eq!(counts(store, name), (1, 0));
    let adopted = other.granted(json!({"id": "a", "adopt": handle}));
    assert_eq!((&adopted["slot"], &adopted["holder"]), (&granted["slot"], &granted["holder"]));
    other.write(json!({"id": "a", "release": true}));
    other.event("a", "released");
    other.write(json!({"id": "a", "adopt": handle}));
    assert_eq!(other.event("a", "failed")["exit_code"], 76);
    other.write_text("{\"id\":\"b\",\"adopt\":\"permits\"}");
    other.event("b", "invalid");
    // Of two lines that end it the first one counts.
    other.granted(json!({"id": "c", "acquire": name}));
    other.write_text("{\"id\":\"c\",\"release\":true}\n{\"id\":\"c\",\"hand_over\":true}");
    other.event("c", "released");
    // The process that has the permit in the end corrects its units.
    let rate = format!("{name}-rate");
    other.granted(json!({"id": "d", "acquire": rate, "limit": 9, "weight": 8, "at_least_ms": 60_000}));
    other.write(json!({"id": "d", "hand_over": true}));
    let handle = other.event("d", "handed_over")["handle"].clone();
    other.write_text(&format!("{{\"id\":\"e\",\"adopt\":{handle}}}\n{{\"id\":\"e\",\"count\":1}}"));
    other.event("e", "granted");
    other.write(json!({"id": "e", "release": true}));
    other.event("e", "released");
    assert_eq!(status(store, &rate)["cooling"], 1);
    // What a line before the last one asks for counts for the permit that is handed over.
    let part = format!("{name}-part");
    other.granted(json!({"id": "f", "acquire": part, "limit": 3, "weight": 3}));
    other.write_text("{\"id\":\"f\",\"release_part\":2}\n{\"id\":\"f\",\"hand_over\":true}");
    other.event("f", "handed_over");
    assert_eq!(status(store, &part)["held"], 1);
    other.granted(json!({"id": "g", "acquire": part, "weight": 2}));
    other.write_text("{\"id\":\"g\",\"release_part\":2}\n{\"id\":\"g\",\"hand_over\":true}");
    assert!(other.event("g", "invalid")["reason"].as_str().expect("a text").contains("keep at least 1"));
    other.event("g", "handed_over");
    assert_eq!(other.finish().0.code, 0);
}

fn semaphores_are_inspected_listed_and_changed(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 3, "holder": "h"}));
    many.write(json!({"id": 2, "change": "set_limit", "name": name, "limit": 7}));
    let changed = many.event(2, "changed");
    assert_eq!((&changed["found"], &changed["limit"]), (&json!(true), &json!(7)), "{changed}");
    many.write(json!({"id": 3, "inspect": name, "max": 10}));
    let mut inspection = many.event(3, "inspected")["inspection"].clone();
    assert_eq!((&inspection["limit"], &inspection["holders"][0]["holder"]), (&json!(7), &json!("h")));
    inspection["store"] = json!("");
    assert_matches_schema("status.schema.json", &inspection);
    many.write(json!({"id": 3, "inspect": name, "max": 0}));
    assert!(permits_testkit::wait::until(|| many.events(3).len() == 2));
    assert_eq!(many.event(3, "inspected")["inspection"]["holders"], json!([]));
    many.write(json!({"id": 4, "list": true}));
    let names = many.event(4, "listed")["names"].clone();
    assert!(names.as_array().expect("a list").contains(&json!(name)), "{names}");
    many.write(json!({"id": 5, "change": "delete", "name": name}));
    assert_eq!(many.event(5, "failed")["exit_code"], 75, "it is in use");
    many.write(json!({"id": 6, "change": "revoke", "name": name, "holder": "h", "reason": "enough"}));
    assert_eq!(many.event(1, "lost")["reason"], "the permit was revoked: enough");
    assert_eq!(many.event(6, "changed")["limit"], Value::Null);
    assert_eq!(many.finish().0.code, 0);
}

/// The lines of one write are taken before any of them is answered.
#[test]
fn what_is_not_answered_keeps_its_id_and_its_permit() {
    let store = Local::new();
    prepare(&store, "x");
    let mut many = Hold::start(&store);
    many.write_text("{\"id\":1,\"list\":true}\n{\"id\":1,\"acquire\":\"x\",\"limit\":3}");
    many.event(1, "listed");
    assert_eq!(many.events(1), ["invalid", "listed"]);
    assert_eq!(many.event(1, "invalid")["reason"], "the id is in use: it is free after its last event");
    many.granted(json!({"id": 1, "acquire": "x", "limit": 3, "weight": 3}));
    many.write_text("{\"id\":1,\"set_lease_ms\":60000}\n{\"id\":1,\"release_part\":1}");
    assert_eq!(many.event(1, "held")["answers"], "set_lease_ms");
    assert_eq!(many.events(1)[2..], ["granted", "invalid", "held"]);
    let early = "the last operation is not answered yet: wait for its answer";
    assert_eq!(many.event(1, "invalid")["reason"], early);
    assert_eq!(status(&store, "x")["held"], 3);
    many.write_text("{\"id\":1,\"set_lease_ms\":60000}\n{\"id\":1,\"renew\":true}");
    assert!(permits_testkit::wait::until(|| many.events(1).len() == 7), "{:?}", many.events(1));
    assert_eq!(many.events(1)[5..], ["invalid", "held"], "the renewal has no answer but this one");
    many.write_text("{\"id\":1,\"renew\":true}\n{\"id\":1,\"renew\":true}");
    assert!(permits_testkit::wait::until(|| many.events(1).len() == 8), "{:?}", many.events(1));
    assert_eq!(many.event(1, "held")["answers"], "renew");
    let (output, events) = many.finish();
    output.ends(0);
    let answers = events.iter().filter(|event| event["answers"] == "renew").count();
    assert_eq!(answers, 1, "both renewals have one answer: {events:?}");
}

/// The lines of one write are taken before any of them is answered.
#[test]
fn calls_are_bounded_and_those_at_the_end_of_the_lines_are_answered() {
    let store = Local::new();
    prepare(&store, "x");
    let mut many = Hold::start(&store);
    many.any_event("hello");
    let lines: Vec<String> = (0..70).map(|id| json!({"id": id, "list": true}).to_string()).collect();
    many.write_text(&lines.join("\n"));
    let (output, events) = many.finish();
    output.ends(0);
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((of("listed"), of("failed")), (64, 6));
    let refused = events.iter().find(|event| event["event"] == "failed").expect("there are 6");
    assert_eq!(refused["exit_code"], 75, "{refused}");
}
