//! Lines that have no effect.

use serde_json::{Value, json};

use super::Hold;
use crate::support::{Local, against_schema, counts, json_lines};

/// Lines, the id of the answer, and a part of its reason. For wrong options see
/// [`requests`](crate::requests).
const INVALID: &[(&str, Option<u64>, &str)] = &[
    ("release", None, "the line is not JSON: expected value at byte 1"),
    ("{\"id\":1", None, "the line is not JSON: EOF while parsing an object at byte"),
    ("[1]", None, "the line is not an object"),
    ("{}", None, "\"id\" is missing"),
    (r#"{"acquire":"x"}"#, None, "\"id\" is missing"),
    (r#"{"id":null,"acquire":"x"}"#, None, "an integer up to 9007199254740991 or a string of 1 to 64 bytes"),
    (r#"{"id":1.5,"acquire":"x"}"#, None, "an integer up to"),
    (r#"{"id":"","acquire":"x"}"#, None, "a string of 1 to 64 bytes"),
    (r#"{"id":9007199254740992,"acquire":"x"}"#, None, "an integer up to"),
    (r#"{"id":1}"#, Some(1), "one of \"acquire\", \"renew\", \"release\", \"count\","),
    (
        r#"{"id":1,"release":true,"renew":true}"#,
        Some(1),
        "one of \"acquire\", \"renew\", \"release\", \"count\",",
    ),
    (r#"{"id":1,"release":true,"id":2}"#, None, "\"id\" is there twice"),
    (r#"{"id":8,"acquire":"x","limit":1,"limit":9}"#, Some(8), "\"limit\" is there twice"),
    (
        r#"{"id":8,"acquire":"x","also":[{"acquire":"y","limit":1,"limit":9}]}"#,
        Some(8),
        "\"limit\" is there twice",
    ),
    (r#"{"id":1,"relase":true}"#, Some(1), "\"relase\" is unknown: write \"release\""),
    (r#"{"id":8,"acquire":"x","limt":3}"#, Some(8), "\"limt\" is unknown: write \"limit\""),
    (r#"{"id":1,"release":true,"limit":3}"#, Some(1), "\"limit\" is unknown: there are id, release, count"),
    (r#"{"id":1,"release":false}"#, Some(1), "\"release\" must be true"),
    (r#"{"id":1,"renew":1}"#, Some(1), "\"renew\" must be true or false"),
    (r#"{"id":1,"renew":null}"#, Some(1), "\"renew\" must be true"),
    (r#"{"id":1,"release":true,"count":-1}"#, Some(1), "\"count\" must be an integer from 0 to 4294967295"),
    (r#"{"id":1,"release":true,"hand_over":true}"#, Some(1), "one of \"acquire\","),
    (r#"{"id":1,"count":null}"#, Some(1), "\"count\" must be a number"),
    (r#"{"id":1,"release_part":0}"#, Some(1), "\"release_part\" must be an integer from 1 to 4294967295"),
    (r#"{"id":1,"set_lease_ms":"1s"}"#, Some(1), "\"set_lease_ms\" must be a time in milliseconds"),
    (r#"{"id":1,"hand_over":false}"#, Some(1), "\"hand_over\" must be true"),
    (r#"{"id":8,"adopt":7}"#, Some(8), "\"adopt\" must be a string"),
    (r#"{"id":8,"inspect":""}"#, Some(8), "the semaphore's name is empty"),
    (r#"{"id":8,"inspect":"x","max":-1}"#, Some(8), "\"max\" must be an integer from 0 to 4294967295"),
    (r#"{"id":8,"inspect":"x","limit":3}"#, Some(8), "\"limit\" is unknown: there are id, inspect, max"),
    (r#"{"id":8,"list":1}"#, Some(8), "\"list\" must be true or false"),
    (r#"{"id":8,"change":"set_limit","limit":3}"#, Some(8), "\"name\" must be a string"),
    (r#"{"id":8,"change":"set_limit","name":"x"}"#, Some(8), "limit"),
    (r#"{"id":8,"acquire":"x","also":{}}"#, Some(8), "\"also\" must be a list of objects"),
    (r#"{"id":8,"acquire":"x","also":[{"limit":3}]}"#, Some(8), "\"also\": \"acquire\" must be a string"),
    (r#"{"id":8,"acquire":"x","also":[{"acquire":"y","id":3}]}"#, Some(8), "\"also\": \"id\" is unknown"),
    (r#"{"id":8,"acquire":""}"#, Some(8), "the semaphore's name is empty"),
    (r#"{"id":8,"acquire":7}"#, Some(8), "\"acquire\" must be a string"),
    (r#"{"id":8,"acquire":"x","limit":0}"#, Some(8), "the limit is 0: it must be at least 1"),
    (r#"{"id":8,"acquire":"x","limit":"4"}"#, Some(8), "limit is a whole number from 1 to 4294967295"),
    (r#"{"id":8,"acquire":"x","limit":4294967296}"#, Some(8), "limit is a whole number from 1 to 4294967295"),
    (r#"{"id":8,"acquire":"x","require_limit":true}"#, Some(8), "\"require_limit\" needs a \"limit\""),
];

/// Valid lines at the wrong time.
const UNTIMELY: &[(&str, Option<u64>, &str)] = &[
    (r#"{"id":1,"acquire":"x"}"#, Some(1), "the id is in use"),
    (
        r#"{"id":1,"release":true,"count":3}"#,
        Some(1),
        "a count is for a permit that was acquired with at_least",
    ),
    (r#"{"id":2,"renew":true}"#, Some(2), "nothing is held yet"),
    (r#"{"id":1,"count":3}"#, Some(1), "a count is for a permit that was acquired with at_least"),
    (r#"{"id":2,"release_part":1}"#, Some(2), "nothing is held yet"),
    (r#"{"id":2,"hand_over":true}"#, Some(2), "nothing is held yet"),
    (r#"{"id":1,"inspect":"x"}"#, Some(1), "the id is in use"),
    (r#"{"id":9,"release":true,"count":null}"#, Some(9), "no request has this id"),
    (r#"{"id":9,"renew":true}"#, Some(9), "no request has this id"),
    (r#"{"id":"1","release":true}"#, None, "no request has this id"),
];

#[test]
fn an_invalid_line_is_answered_and_has_no_effect() {
    let store = Local::new();
    crate::support::prepare(&store, "x");
    let mut many = Hold::start(&store);
    let mut request = json!({"id": 1, "acquire": "x", "limit": 1, "require_limit": null});
    for option in permits::AcquireOptions::FIELDS {
        request[option] = Value::Null;
    }
    many.granted(request);
    many.write(json!({"id": 2, "acquire": "x"}));
    many.event(2, "waiting");
    let lines: Vec<_> = INVALID.iter().chain(UNTIMELY).collect();
    for (line, ..) in &lines {
        many.write_text(line);
    }
    many.write_text("\n"); // Two empty lines, which are counted.
    many.write_text(&format!("{{\"id\":{:?}}}", "i".repeat(65)));
    many.write_text(&format!("{{\"id\":1,\"x\":{:?}}}", "x".repeat(8192)));
    std::io::Write::write_all(&mut many.input, b"{\"id\":\"\xff\"}\n").expect("a pipe takes it");
    many.write(json!({"id": 1, "release": true}));
    many.event(2, "granted");
    assert_eq!(counts(&store, "x"), (1, 0));

    let events = json_lines("hold.schema.json", &many.running.stdout());
    let mut answers = events.iter().filter(|event| event["event"] == "invalid");
    // Two requests came first.
    for (number, (line, id, reason)) in (3_u64..).zip(lines) {
        let answer = answers.next().expect("each is answered");
        assert_eq!(answer["line"], number, "{line}: {answer}");
        let expected = if line.contains(r#""id":"1""#) { json!("1") } else { json!(id) };
        assert_eq!(answer["id"], expected, "{line}: {answer}");
        assert!(answer["reason"].as_str().expect("a text").contains(reason), "{line}: {answer}");
    }
    let last = 2 + (INVALID.len() + UNTIMELY.len()) as u64;
    for (number, reason) in
        [(3, "a string of 1 to 64 bytes"), (4, "longer than 8192 bytes"), (5, "not UTF-8")]
    {
        let answer = answers.next().expect("each is answered");
        assert_eq!((&answer["id"], &answer["line"]), (&Value::Null, &json!(last + number)), "{answer}");
        assert!(answer["reason"].as_str().expect("a text").contains(reason), "{answer}");
    }
    assert!(answers.next().is_none());
    let (output, _) = many.finish();
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}

#[test]
fn the_schema_refuses_what_the_command_refuses() {
    // A parsed line has each key once.
    for (line, ..) in INVALID.iter().filter(|(_, _, reason)| !reason.ends_with("is there twice")) {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        assert!(against_schema("hold-many.schema.json", &line).is_err(), "{line}");
    }
    for (line, ..) in UNTIMELY {
        let line = serde_json::from_str(line).expect("it is JSON");
        assert_eq!(against_schema("hold-many.schema.json", &line), Ok(()), "{line}");
    }
}
