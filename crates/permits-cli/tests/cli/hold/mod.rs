//! `permits hold`: requests and events with ids, over one connection to the store; and in [`one`] the form
//! for one permit.

mod ends;
mod lines;
mod one;
mod operations;
mod reader;
mod socket;

use std::io::{PipeWriter, Write as _};
use std::process::Command;

use permits_testkit::{Proxy, in_real_time, wait};
use serde_json::{Value, json};

use crate::support::{
    Output, Running, Store, assert_matches_schema, counts, fresh, gate, json_lines, on_a_server,
    on_both_stores, output, permits, revoke, status, until_counts,
};

on_both_stores! {
    permits_are_granted_renewed_and_released_by_id,
}

on_a_server! {
    a_loss_ends_one_id_alone,
    a_refusal_has_its_code_and_its_reason,
    a_release_corrects_the_units,
    an_id_is_free_after_its_last_event,
    requests_are_granted_in_the_order_of_their_lines,
    a_refusal_names_the_time_of_a_retry,
    a_timeout_says_why,
    a_line_that_moves_shows_the_time_that_is_expected,
}

/// A running `permits hold`, with its standard input.
pub(crate) struct Hold {
    running: Running,
    input: PipeWriter,
}

impl Hold {
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let input = gate(command);
        Self { running: Running::start(command), input }
    }

    /// A hold of many permits.
    #[track_caller]
    fn start(store: &dyn Store) -> Self {
        Self::of(&mut permits(&store.url(), ["hold", "--many"]))
    }

    /// Writes a valid line.
    #[track_caller]
    pub(crate) fn write(&mut self, line: Value) {
        assert_matches_schema("hold-many.schema.json", &line);
        self.write_text(&line.to_string());
    }

    #[track_caller]
    pub(crate) fn write_text(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("a pipe takes a line");
    }

    /// Waits for the last event of this name of an id.
    #[track_caller]
    pub(crate) fn event(&self, id: impl Into<Value>, event: &str) -> Value {
        let id = id.into();
        let find = || named(&self.lines(), &id, event);
        let (stdout, stderr) = (|| self.running.stdout(), || self.running.stderr());
        assert!(wait::until(|| find().is_some()), "no {event} of {id}: {:?}, {:?}", stdout(), stderr());
        find().expect("it was there")
    }

    /// Waits for the first event of this name.
    #[track_caller]
    pub(crate) fn any_event(&self, event: &str) -> Value {
        self.running.prints(&format!("\"event\":\"{event}\""));
        let find = || self.lines().into_iter().find(|line| line["event"] == event);
        assert!(wait::until(|| find().is_some()), "its line has an end");
        find().expect("it was there")
    }

    /// Makes a request, and waits for its grant.
    #[track_caller]
    fn granted(&mut self, line: Value) -> Value {
        let id = line["id"].clone();
        self.write(line);
        self.event(id, "granted")
    }

    /// The names of the events of an id so far.
    #[track_caller]
    fn events(&self, id: impl Into<Value>) -> Vec<String> {
        names_of(&self.lines(), &id.into())
    }

    /// The events so far.
    fn lines(&self) -> Vec<Value> {
        let stdout = self.running.stdout();
        let whole = stdout.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    }

    /// Closes the input, unless it has ended. Returns the result and its events, which match the schema.
    #[track_caller]
    pub(crate) fn finish(self) -> (Output, Vec<Value>) {
        let Self { running, input } = self;
        drop(input);
        let output = running.finish();
        let events = json_lines("hold.schema.json", &output.stdout);
        (output, events)
    }
}

fn named(events: &[Value], id: &Value, event: &str) -> Option<Value> {
    events.iter().rfind(|line| line["id"] == *id && line["event"] == event).cloned()
}

fn names_of(events: &[Value], id: &Value) -> Vec<String> {
    let of = events.iter().filter(|line| line["id"] == *id);
    of.map(|line| line["event"].as_str().expect("each has a name").to_owned()).collect()
}

fn permits_are_granted_renewed_and_released_by_id(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    let granted = many.granted(json!({"id": 1, "acquire": name, "limit": 3, "weight": 2, "holder": "h"}));
    let holder = &status(store, name)["holders"][0];
    for field in ["holder", "weight", "token", "slot"] {
        assert_eq!(granted[field], holder[field], "{field}");
    }
    many.granted(json!({"id": "é\"", "acquire": name}));
    many.write(json!({"id": 3, "acquire": name}));
    assert_eq!(many.event(3, "waiting")["position"], json!(0));
    many.write(json!({"id": 1, "renew": true}));
    many.event(1, "held");
    many.write(json!({"id": 1, "release": true}));
    assert_eq!(many.event(1, "released")["reason"], json!("asked by the program"));
    many.event(3, "granted");
    until_counts(store, name, (2, 0));
    let (output, events) = many.finish();
    output.ends(0);
    assert_eq!(names_of(&events, &json!(1)), ["granted", "held", "released"]);
    assert_eq!(names_of(&events, &json!("é\"")), ["granted", "released"]);
    assert_eq!(names_of(&events, &json!(3)), ["waiting", "granted", "released"]);
    assert_eq!(counts(store, name), (0, 0));
}

fn a_loss_ends_one_id_alone(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 2, "holder": "a"}));
    many.granted(json!({"id": 2, "acquire": name, "holder": "b"}));
    many.write(json!({"id": 3, "acquire": name, "holder": "c"}));
    many.event(3, "waiting");
    revoke(store, name, "a", "enough");
    let lost = many.event(1, "lost");
    assert_eq!((&lost["name"], &lost["reason"]), (&json!(name), &json!("the permit was revoked: enough")));
    many.event(3, "granted");
    many.write(json!({"id": 4, "acquire": name, "holder": "d"}));
    many.event(4, "waiting");
    revoke(store, name, "d", "");
    assert_eq!(many.event(4, "failed")["exit_code"], json!(75));
    assert_eq!(many.events(2), ["granted"]);
    assert_eq!(many.finish().0.code, 0);
}

fn a_refusal_has_its_code_and_its_reason(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 4, "weight": 3, "holder": "h"}));
    many.write(json!({"id": 2, "acquire": name, "weight": 2, "supersede": "main"}));
    many.event(2, "waiting");
    many.write(json!({"id": 3, "acquire": name, "weight": 2, "supersede": "main"}));
    assert_eq!(many.event(2, "failed")["reason"], "a later request with the key \"main\" has superseded it");
    for (id, exit_code, reason, line) in [
        (4, 75, "no permits are free now", json!({"acquire": name, "weight": 2, "timeout_ms": 0})),
        (6, 64, "a limit of 4, not 5", json!({"acquire": name, "limit": 5, "require_limit": true})),
        (7, 64, "a weight of 5 exceeds the limit of 4", json!({"acquire": name, "weight": 5})),
        (8, 75, "holder \"h\" holds or waits", json!({"acquire": name, "holder": "h"})),
        (9, 64, "no limit yet: declare or set one, by \"limit\"", json!({"acquire": "new"})),
    ] {
        let mut line = line;
        line["id"] = id.into();
        many.write(line);
        let failed = many.event(id, "failed");
        assert_eq!(failed["exit_code"], exit_code, "{failed}");
        assert!(failed["reason"].as_str().expect("a text").contains(reason), "{failed}");
    }
    assert_eq!(many.finish().0.code, 0);
}

fn a_release_corrects_the_units(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    let minute = json!({"id": 1, "acquire": name, "limit": 10, "weight": 8, "at_least_ms": 60_000});
    many.granted(minute.clone());
    many.write(json!({"id": 1, "release": true, "count": 1}));
    many.event(1, "released");
    many.granted(json!({"id": 2, "acquire": name, "weight": 9, "timeout_ms": 0}));
    // The count of a set is about its first semaphore, also while the set waits.
    let other = format!("{name}-other");
    many.granted(json!({"id": 3, "acquire": other, "limit": 1}));
    let rate = json!({"acquire": format!("{name}-rate"), "limit": 1, "at_least_ms": 60_000});
    many.write(json!({"id": 4, "acquire": other, "also": [rate]}));
    until_counts(store, &other, (1, 1));
    many.write(json!({"id": 4, "count": 1}));
    let invalid = many.event(4, "invalid");
    assert!(invalid["reason"].as_str().expect("a text").contains("at_least"), "{invalid}");
    assert_eq!(many.finish().0.code, 0);
}

fn a_refusal_names_the_time_of_a_retry(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 1, "at_least_ms": 60_000}));
    many.write(json!({"id": 1, "release": true}));
    many.event(1, "released");
    many.write(json!({"id": 2, "acquire": name, "timeout_ms": 0}));
    let failed = many.event(2, "failed");
    assert_eq!(failed["exit_code"], 75);
    assert!((1..=60_000).contains(&failed["retry_after_ms"].as_u64().expect("a number")), "{failed}");
    // A `hold` of one permit names the time as well.
    let mut one = permits(&store.url(), ["hold", name, "--no-wait"]);
    let input = gate(&mut one);
    let failed = json_lines("hold.schema.json", &output(&mut one).stdout).remove(0);
    drop(input);
    assert!((1..=60_000).contains(&failed["retry_after_ms"].as_u64().expect("a number")), "{failed}");
    drop(many.finish());
}

/// A store that is too slow to say why is asked once more.
fn a_timeout_says_why(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 1, "holder": "web-3", "label": "nightly"}));
    assert_eq!(output(&mut permits(&store.url(), ["pause", name, "--for=1h"])).code, 0);
    let failed = (2..30).find_map(|id| {
        many.write(json!({"id": id, "acquire": name, "timeout_ms": 500}));
        let failed = many.event(id, "failed");
        failed["inspection"].is_object().then_some(failed)
    });
    let failed = failed.expect("the store says why");
    assert_eq!((&failed["exit_code"], &failed["stands_still"]), (&json!(75), &json!(true)), "{failed}");
    assert_eq!(failed["inspection"]["holders"][0]["label"], "nightly");
    let reason = failed["reason"].as_str().expect("a text");
    assert!(
        reason.contains("paused for another") && reason.contains("by \"nightly\" (web-3) for"),
        "{reason}"
    );
    // A `hold` of one permit says so as well.
    for wait in ["--no-wait", "--wait=500ms"] {
        let mut one = permits(&store.url(), ["hold", name, wait]);
        let input = gate(&mut one);
        let failed = json_lines("hold.schema.json", &output(&mut one).stdout).pop().expect("an event");
        drop(input);
        assert_eq!((&failed["event"], &failed["stands_still"]), (&json!("failed"), &json!(true)), "{failed}");
    }
    drop(many.finish());
}

fn a_line_that_moves_shows_the_time_that_is_expected(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 0, "acquire": name, "limit": 1}));
    many.write(json!({"id": 1, "acquire": name}));
    many.event(1, "waiting");
    // Renewals, with which the positions come, are a third of the lease apart.
    let mut one = permits(&store.url(), ["hold", name, "--lease", "1s"]);
    let input = gate(&mut one);
    let one = Running::until(&mut one, "\"position\":1");
    many.write(json!({"id": 2, "acquire": name, "lease_ms": 1000}));
    assert_eq!(many.event(2, "waiting").get("expected_ms"), None, "none has gone");
    many.write(json!({"id": 0, "release": true}));
    one.prints("\"position\":0,\"expected_ms\":");
    assert!(wait::until(|| many.events(2).len() == 2), "{:?}", many.events(2));
    let waiting = many.event(2, "waiting");
    assert!(waiting["position"] == 1 && waiting["expected_ms"].is_u64(), "{waiting}");
    drop((input, many.finish()));
    json_lines("hold.schema.json", &one.finish().stdout);
}

fn an_id_is_free_after_its_last_event(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 1, "acquire": name, "limit": 1}));
    many.write(json!({"id": 1, "acquire": name}));
    many.event(1, "invalid");
    many.write(json!({"id": 1, "release": true}));
    many.event(1, "released");
    many.write(json!({"id": 1, "acquire": name}));
    assert!(wait::until(|| many.events(1).len() == 4), "{:?}", many.events(1));
    assert_eq!(many.events(1), ["granted", "invalid", "released", "granted"]);
    until_counts(store, name, (1, 0));
    assert_eq!(many.finish().0.code, 0);
}

fn requests_are_granted_in_the_order_of_their_lines(store: &dyn Store, name: &str) {
    let mut many = Hold::start(store);
    many.granted(json!({"id": 0, "acquire": name, "limit": 1}));
    let lines: Vec<String> =
        (1..=50).map(|id| json!({"id": id, "acquire": name}).to_string() + "\n").collect();
    many.input.write_all(lines.concat().as_bytes()).expect("a pipe takes them");
    until_counts(store, name, (1, 50));
    let mut tokens = Vec::new();
    for id in 0..=50 {
        tokens.push(many.event(id, "granted")["token"].as_u64().expect("a number"));
        many.write(json!({"id": id, "release": true}));
    }
    assert!(tokens.is_sorted(), "{tokens:?}");
    // A release and the next request, in one write: the unit is free when the store has the request.
    many.granted(json!({"id": "a", "acquire": name}));
    many.write_text(
        "{\"id\":\"a\",\"release\":true}\n{\"id\":\"b\",\"acquire\":\"semaphore\",\"timeout_ms\":0}",
    );
    many.event("b", "granted");
    assert_eq!(many.finish().0.code, 0);
}

#[test]
fn a_server_that_does_not_answer_makes_permits_unsure() {
    let (server, name) = fresh();
    let mut many = Hold::start(&server);
    many.granted(json!({"id": 1, "acquire": name, "limit": 1, "lease_ms": 30_000}));
    let mut client = server.connect().expect("it is up");
    // Renewals fail at once, in place of an answer that never comes: the connection is closed and refused.
    client.call(&["CONFIG", "SET", "requirepass", "s"]).expect("it answers");
    for kind in ["normal", "pubsub"] {
        client.call(&["CLIENT", "KILL", "TYPE", kind]).expect("it answers");
    }
    many.event(1, "unsure");
    client.call(&["CONFIG", "SET", "requirepass", ""]).expect("it answers");
    many.event(1, "held");
    assert_eq!(many.events(1), ["granted", "unsure", "held"]);
    assert_eq!(many.finish().0.code, 0);
}

#[test]
fn a_thousand_permits_share_the_connections_of_one() {
    let (server, name) = fresh();
    let mut client = server.connect().expect("it is up");
    let mut connections = || {
        let list = format!("{:?}", client.call(&["CLIENT", "LIST"]).expect("it answers"));
        list.matches("addr=").count()
    };
    let before = connections();
    let mut many = Hold::start(&server);
    many.granted(json!({"id": 0, "acquire": name, "limit": 1000}));
    let of_one = connections() - before;
    for id in 1..1000 {
        many.write_text(&format!("{{\"id\":{id},\"acquire\":\"{name}\"}}"));
    }
    let granted = || many.running.stdout().matches("\"granted\"").count();
    assert!(wait::until(|| granted() == 1000), "{} of 1000", granted());
    assert_eq!(connections() - before, of_one);
    assert_eq!(counts(&server, &name), (1000, 0));
    let Hold { running, input } = many;
    drop(input);
    let output = running.finish();
    assert_eq!((output.code, output.stdout.matches("\"released\"").count()), (0, 1000));
    assert_eq!(counts(&server, &name), (0, 0));
}

/// The connection of the program dies while the program is stopped. A ping finds that before the timeout of
/// the call that the program sends.
#[test]
fn a_program_that_was_stopped_asks_whether_its_connection_lives() {
    in_real_time(|| {
        let (server, name) = fresh();
        let proxy = Proxy::start(server.address());
        let mut many = Hold::of(&mut permits(&proxy.url(), ["hold", "--many"]));
        many.granted(json!({"id": 1, "acquire": name}));
        many.running.guard.pause();
        // More than twice as long as the session's thread sleeps.
        server.command(&["SET", "stopped", "", "PX", "2500"]);
        assert!(wait::until(|| server.command(&["EXISTS", "stopped"]).int() == 0));
        proxy.swallow_replies(true);
        many.write(json!({"id": 1, "renew": true}));
        many.running.guard.resume();
        let lost = "the server does not answer a ping";
        assert!(wait::until(|| many.running.stderr().contains(lost)), "{}", many.running.stderr());
        proxy.swallow_replies(false);
        many.event(1, "held");
        assert_eq!(many.finish().0.code, 0);
    });
}
