//! Requests through the doors of Rust, of the command and of Go: the table of `permits_testkit::requests`,
//! which the tests of the tower layer and of the packages for Python and Node walk, too.

use std::collections::HashMap;
use std::process::Command;

use permits::{AcquireOptions, Client, Permit};
use permits_testkit::requests::{Effect, Request, Requests};
use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, Monitor, Server, skip};
use serde_json::{Value, json};

use crate::driver::go_driver;
use crate::hold::Hold;
use crate::serve::{Serve, TOKEN};
use crate::support::{
    CLOSED_PORT, Local, Store as _, against_openapi, against_schema, assert_own_lines, output, permits,
};

/// Makes the requests of the table by a door, and demands their effects. The door makes one for a semaphore,
/// and returns the reason if it is refused, or its permit is lost; `None` if it has no way to write it.
#[track_caller]
fn walk(door: impl Fn(&str, &str, &Request) -> Option<String>) {
    let (server, requests) = (Server::start(), Requests::read());
    let url = format!("{}?recovery=off", server.url());
    let client = Client::connect(&url).wait().expect("the server is up");
    for (number, row) in requests.options.iter().enumerate() {
        let name = format!("{number}/{}", row.field);
        match &row.effect {
            Effect::Arrives(expected) => {
                let monitor = Monitor::start(&server);
                if door(&url, &name, row).is_some() {
                    assert_eq!(Requests::arrived(&monitor.stop(&server), &name), *expected, "{name}");
                }
            }
            Effect::Refused(words) => {
                let all = AcquireOptions::new().weight(9);
                let held = client.named(&name, 9).acquire_with(all).wait().expect("none holds");
                let reason = door(&url, &name, row);
                assert!(reason.as_ref().is_none_or(|reason| reason.contains(words)), "{name}: {reason:?}");
                held.release().wait().expect("it is held");
            }
            Effect::Lost(words) => {
                let reason = door(&url, &name, row);
                assert!(reason.as_ref().is_none_or(|reason| reason.contains(words)), "{name}: {reason:?}");
            }
        }
    }
}

/// Reading a field calls the method of its name.
#[test]
fn every_option_is_a_field() {
    walk(|url, name, row| {
        let client = Client::builder(url).label("").connect().wait().expect("the server is up");
        let lost = |permit: Permit| permit.lost_within(HANGS).map(|lost| lost.to_string());
        match client.named(name, 9).acquire_with(row.options()).wait() {
            Ok(permit) if matches!(row.effect, Effect::Lost(_)) => lost(permit),
            Ok(_) => Some(String::new()),
            Err(error) => Some(error.to_string()),
        }
    });
}

#[test]
fn every_option_is_a_flag_of_run() {
    walk(|url, name, row| {
        let work: &[&str] =
            if matches!(row.effect, Effect::Lost(_)) { &["sleep", "1000"] } else { &["true"] };
        let mut run = permits(url, ["run", name, "--limit", "9"]);
        Some(output(run.args(row.flags.as_ref()?).args(work)).stderr)
    });
}

/// A handle gets its lease after the grant, and has no longest hold.
#[test]
fn every_other_option_is_a_flag_of_acquire() {
    walk(|url, name, row| {
        let applies = row.field != "lease_ms" && !matches!(row.effect, Effect::Lost(_));
        let flags = row.flags.as_ref().filter(|_| applies)?;
        Some(output(permits(url, ["acquire", name, "--limit", "9"]).args(flags)).stderr)
    });
}

/// A waiter that dies leaves the line long before the lease of the handle would end.
#[test]
fn a_handle_is_waited_for_with_the_lease_of_run() {
    let server = Server::start();
    let url = format!("{}?recovery=off", server.url());
    let arrived = |arguments: &[&str]| {
        let monitor = Monitor::start(&server);
        assert_eq!(output(&mut permits(&url, arguments)).code, 0, "{arguments:?}");
        Requests::arrived(&monitor.stop(&server), "exports")
    };
    let of_run = arrived(&["run", "exports", "--limit", "9", "true"]);
    assert_eq!(arrived(&["acquire", "exports", "--limit", "9", "--lease", "5h"]), of_run);
}

/// The reason of the event by which the effect of an option shows.
#[track_caller]
fn reason(hold: &Hold, row: &Request) -> String {
    let event = match row.effect {
        Effect::Arrives(_) => "granted",
        Effect::Refused(_) => "failed",
        Effect::Lost(_) => "lost",
    };
    hold.any_event(event)["reason"].as_str().unwrap_or_default().to_owned()
}

/// The line of a request for a permit of this semaphore.
fn line(semaphore: &str, row: &Request) -> Value {
    let mut line = row.json.clone();
    line["id"] = json!(1);
    line["acquire"] = json!(semaphore);
    line["limit"] = json!(9);
    line
}

#[test]
fn every_option_is_a_flag_of_hold() {
    walk(|url, name, row| {
        let mut hold = permits(url, ["hold", name, "--limit", "9"]);
        Some(reason(&Hold::of(hold.args(row.flags.as_ref()?)), row))
    });
}

#[test]
fn every_option_is_a_field_of_a_line_of_hold() {
    walk(|url, name, row| {
        let mut hold = Hold::of(&mut permits(url, ["hold", "--many"]));
        hold.write(line(name, row));
        Some(reason(&hold, row))
    });
}

#[test]
fn every_option_is_a_function_of_go() {
    if skip::without_program("go") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = go_driver(&directory, "", "", "");
    walk(|url, name, row| {
        let mut driver = Command::new(&program);
        driver.envs([("PERMITS_URL", url), ("PERMITS_PROGRAM", env!("CARGO_BIN_EXE_permits"))]);
        let mut driver = Hold::of(&mut driver);
        let hello = driver.any_event("hello");
        let has = hello["has"].as_array().expect("a list");
        let mut options = row.json.as_object().expect("an object").keys();
        if !options.all(|option| has.contains(&json!(option))) {
            return None;
        }
        let mut line = line(name, row);
        // Else the permit has the name of the program.
        line.as_object_mut().expect("an object").entry("label").or_insert("".into());
        driver.write(line);
        Some(reason(&driver, row))
    });
}

/// What Go's types cannot hold, such as a text for a number or a time of 10³⁰⁰ ms, is left out.
#[test]
fn a_wrong_request_has_the_same_words_in_go() {
    if skip::without_program("go") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (store, table) = (Local::new(), Requests::read());
    let mut driver = Command::new(go_driver(&directory, "", "", ""));
    driver.env("PERMITS_URL", store.url()).env("PERMITS_PROGRAM", env!("CARGO_BIN_EXE_permits"));
    let mut driver = Hold::of(&mut driver);
    let is_typed = |(field, value): (&String, &Value)| {
        let valid = table.options.iter().find(|row| row.field == *field && row.field != "auto_renew");
        valid.and_then(|row| row.json.get(field)).is_some_and(|valid| {
            let is_time = field.ends_with("_ms") && value.as_f64().is_some_and(|ms| ms < 1e12);
            is_time || valid.is_i64() && value.is_i64() || valid.is_string() && value.is_string()
        })
    };
    let mut expected = HashMap::new();
    for (id, row) in (0_u64..).zip(&table.wrong) {
        let typed = |json: &&Value| json.as_object().expect("an object").iter().all(is_typed);
        let Some(mut line) = row.json.as_ref().filter(typed).cloned() else { continue };
        (line["id"], line["acquire"], line["limit"]) = (id.into(), "x".into(), 9.into());
        driver.write_text(&line.to_string());
        expected.insert(id, &row.words);
    }
    assert!(expected.len() >= 20, "{expected:?}");
    for (id, words) in expected {
        let failed = driver.event(id, "failed");
        assert_eq!(failed["exit_code"], 64, "{failed}");
        assert!(failed["reason"].as_str().expect("a text").contains(words), "{words}: {failed}");
    }
}

#[test]
fn a_wrong_request_has_the_same_words_as_flags() {
    for row in Requests::read().wrong {
        let Some(flags) = row.flags else { continue };
        for (verb, work) in [("run", &["true"][..]), ("acquire", &[]), ("hold", &[])] {
            let output = output(permits(CLOSED_PORT, [verb, "x"]).args(&flags).args(work));
            assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{flags:?}: {}", output.stderr);
            assert!(output.stderr.contains(&row.words), "{flags:?}: {}", output.stderr);
            assert_own_lines(&output.stderr);
        }
    }
}

/// Returns true if the schemas leave this to the command: characters, the longest time, and what compares two
/// options.
fn is_left(words: &str) -> bool {
    ["control character", "1e300", "its limit"].iter().any(|of_command| words.contains(of_command))
}

#[test]
fn a_wrong_request_has_the_same_words_as_a_line_of_hold() {
    let store = Local::new();
    let mut hold = Hold::of(&mut permits(&store.url(), ["hold", "--many"]));
    let mut expected = HashMap::new();
    for (id, row) in (0_u64..).zip(Requests::read().wrong) {
        let Some(mut line) = row.json else { continue };
        line.as_object_mut()
            .expect("an object")
            .extend([("id".to_owned(), id.into()), ("acquire".to_owned(), "x".into())]);
        hold.write_text(&line.to_string());
        assert!(is_left(&row.words) || against_schema("hold-many.schema.json", &line).is_err(), "{line}");
        expected.insert(id, row.words);
    }
    for (id, words) in expected {
        let reason = hold.event(id, "invalid")["reason"].to_string();
        assert!(
            serde_json::from_str::<String>(&reason).expect("a text").contains(&words),
            "{words}: {reason}"
        );
    }
    assert_eq!(hold.finish().0.code, 0);
}

#[test]
fn a_wrong_request_has_the_same_words_over_http() {
    let store = Local::new();
    let serve = Serve::acquiring(&store.url(), TOKEN, &[]);
    for row in Requests::read().wrong {
        let Some(mut body) = row.json else { continue };
        body["acquire"] = json!("x");
        assert!(is_left(&row.words) || against_openapi("Request", &body).is_err(), "{body}");
        let refused = serve.post("/v1/acquire", &body.to_string()).send();
        let problem = refused.problem();
        assert_eq!((refused.status, &problem["code"]), (422, &json!("INVALID_INPUT")), "{body}: {problem}");
        assert!(problem["detail"].as_str().expect("a text").contains(&row.words), "{body}: {problem}");
    }
}
