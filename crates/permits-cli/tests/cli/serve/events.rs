//! `/api/v1/events`.

use std::iter::repeat_with;

use permits_testkit::Server;
use serde_json::json;

use super::Serve;
use crate::support::{Holder, Local, Store, on_a_server, output, permits, run};

on_a_server! {
    a_grant_and_a_release_are_events,
    a_refusal_is_an_event,
}

fn a_grant_and_a_release_are_events(store: &dyn Store, name: &str) {
    let serve = Serve::start(store, &[]);
    let mut clients = [(), ()].map(|()| serve.get("/api/v1/events").open());
    let mut at_first = json!(null);
    for events in &mut clients {
        assert!(events.head.starts_with("HTTP/1.1 200 "), "{}", events.head);
        assert!(events.head.contains("content-type: text/event-stream\r\n"), "{}", events.head);
        assert!(events.head.contains("x-accel-buffering: no\r\n"), "{}", events.head);
        let all = events.event("all");
        assert_eq!(all["writable"], false);
        assert_eq!(all["interval_ms"], 100);
        assert!(all["error"].is_null() && all["store"].is_string(), "{all}");
        at_first = all["at_ms"].clone();
    }
    output(&mut permits(&store.url(), ["limit", "other", "3"])).ends(0);
    let holder = Holder::start(store, name, "--limit 3 --weight 2");
    let row = |change: &serde_json::Value| {
        let rows = change["changed"].as_array().expect("an array").clone();
        rows.into_iter().find(|row| row["name"] == name)
    };
    for events in &mut clients {
        let granted = repeat_with(|| events.event("change"))
            .find_map(|change| row(&change).filter(|row| row["held"] == 2))
            .expect("an event");
        assert_eq!((&granted["limit"], &granted["waiting"]), (&3.into(), &0.into()));
        assert!(granted["oldest_holder_age_ms"].is_u64(), "{granted}");
    }
    output(&mut permits(&store.url(), ["limit", "other", "4"])).ends(0);
    for events in &mut clients {
        let mut has_changed = false;
        while !has_changed {
            let change = events.event("change");
            assert!(row(&change).is_none(), "its age alone has changed: {change}");
            has_changed = change["changed"][0]["limit"] == 4;
        }
    }
    holder.release();
    for events in &mut clients {
        let change = events.event("change");
        let [all, since, at] =
            [&at_first, &change["since_ms"], &change["at_ms"]].map(serde_json::Value::as_u64);
        assert!(all <= since && since < at, "{at_first}, {change}");
        assert_eq!(change["changed"].as_array().map(Vec::len), Some(1), "only what changed: {change}");
        assert_eq!(row(&change).expect("it has changed")["held"], 0);
    }
}

fn a_refusal_is_an_event(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 1");
    let serve = Serve::start(store, &[]);
    let mut events = serve.get("/api/v1/events").open();
    let row = &events.event("all")["semaphores"][0];
    assert_eq!((&row["held"], &row["refused"]), (&1.into(), &0.into()));
    output(&mut run(store, name, "--limit 1 --no-wait", "true")).ends(75);
    let row = &events.event("change")["changed"][0];
    assert_eq!((&row["held"], &row["refused"]), (&1.into(), &1.into()), "the counter alone has changed");
}

#[test]
fn an_outage_of_the_store_and_its_end_are_events() {
    let server = Server::start();
    output(&mut permits(&server.url(), ["limit", "exports", "3"])).ends(0);
    let serve = Serve::start(&server, &["--store-timeout", "1s"]);
    let mut events = serve.get("/api/v1/events").open();
    events.event("all");
    server.kill();
    let outage = events.event("change");
    assert!(outage["error"].as_str().is_some_and(|error| error.contains("cannot be reached")), "{outage}");
    assert_eq!((&outage["changed"], &outage["removed"]), (&json!([]), &json!([])), "the last values stay");
    let all = serve.get("/api/v1/events").open().event("all");
    assert_eq!((&all["error"], &all["semaphores"][0]["name"]), (&outage["error"], &json!("exports")));
    server.restart();
    // The server keeps nothing on disk.
    let end =
        repeat_with(|| events.event("change")).find(|change| change["error"].is_null()).expect("endless");
    assert_eq!((&end["changed"], &end["removed"]), (&json!([]), &json!(["exports"])));
    output(&mut permits(&server.url(), ["limit", "exports", "4"])).ends(0);
    assert_eq!(events.event("change")["changed"][0]["limit"], 4);
}

#[test]
fn a_deleted_semaphore_is_an_event() {
    let store = Local::new();
    output(&mut permits(&store.url(), ["limit", "other", "3"])).ends(0);
    let serve = Serve::start(&store, &[]);
    let mut events = serve.get("/api/v1/events").open();
    assert_eq!(events.event("all")["semaphores"][0]["name"], "other");
    output(&mut permits(&store.url(), ["delete", "other"])).ends(0);
    let change = events.event("change");
    assert_eq!((&change["removed"], &change["changed"]), (&json!(["other"]), &json!([])));
}

#[test]
fn the_number_of_clients_is_bounded() {
    let store = Local::new();
    let serve = Serve::start(&store, &[]);
    let mut clients: Vec<_> = (0..64).map(|_| serve.get("/api/v1/events").open()).collect();
    for events in &mut clients {
        events.event("all");
    }
    assert_eq!(serve.read("/api/v1/events").refusal(), (503, "64 clients follow events already".to_owned()));
    assert_eq!(serve.read("/metrics").status, 200, "other requests are answered");
    clients.pop();
    // The server notices the end of a client when it reads from its connection.
    let freed = || serve.get("/api/v1/events").open().head.starts_with("HTTP/1.1 200 ");
    assert!(permits_testkit::wait::until(freed));
}
