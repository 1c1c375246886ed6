//! Names, holders and reasons: every verb takes printable text unchanged, and refuses anything else.

use serde_json::{Value, json};

use crate::support::{
    CLOSED_PORT, Running, Store, on_a_server, output, permits, prepare, status, until_counts,
};

on_a_server! {
    any_name_can_be_used,
    any_holder_can_be_listed_and_revoked,
}

const TEXTS: [&str; 11] = [
    "quo\"te's",
    "{br}ace{}",
    "100%41%",
    "back\\slash\\n",
    "ünïcödé ✓ 名",
    "🦀 emo👩‍👩‍👧ji",
    "עברית ثم ABC",
    " spaces  ",
    "$(id) `id` *",
    "a:b/c?d#e@f",
    "permits:{x}:state",
];

fn any_name_can_be_used(store: &dyn Store, _: &str) {
    let long = "ä".repeat(100);
    assert_eq!(long.len(), 200);
    for name in TEXTS.into_iter().chain([long.as_str()]) {
        prepare(store, name);
        // Inside, the name is in the environment, in `status` and in `list`, unchanged.
        let script = r#"[ "$PERMITS_NAME" = "$NAME" ] && "$P" status --json -- "$NAME" && "$P" list --json"#;
        let mut command = permits(&store.url(), ["run", "--limit", "1", name, "--", "sh", "-c", script]);
        let output = output(command.env("NAME", name).env("P", env!("CARGO_BIN_EXE_permits")));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{name}");
        let lines: Vec<Value> =
            output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((&lines[0]["name"], &lines[0]["held"]), (&json!(name), &json!(1)));
        let listed = lines[1].as_array().expect("an array");
        assert!(listed.iter().any(|semaphore| semaphore["name"] == name && semaphore["held"] == 1), "{name}");
        administer(store, name);
    }
}

/// Each line begins with the unchanged name.
#[track_caller]
fn administer(store: &dyn Store, name: &str) {
    for (verb, rest, says) in [
        ("limit", &["3"][..], "limit 3, pinned"),
        ("pause", &[], "paused, 0 of 3 held"),
        ("resume", &[], "resumed, 0 of 3 held"),
        ("status", &[], "0 of 3 held, 0 waiting, limit pinned"),
    ] {
        let output = output(permits(&store.url(), [verb, "--", name]).args(rest));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{verb} {name}");
        assert!(output.stdout.starts_with(&format!("{name}: {says}")), "{}", output.stdout);
    }
}

fn any_holder_can_be_listed_and_revoked(store: &dyn Store, name: &str) {
    for text in TEXTS {
        let script = r#"printf '%s\n' "$PERMITS_HOLDER"; exec sleep 1000"#;
        let mut command =
            permits(&store.url(), ["run", name, "--limit", "1", &format!("--holder={text}"), "--", "sh"]);
        let running = Running::until(command.args(["-c", script]), &format!("{text}\n"));
        assert_eq!(status(store, name)["holders"][0]["holder"], text);
        let table = output(&mut permits(&store.url(), ["status", name])).stdout;
        assert!(table.contains(&format!("\n{text}  ")), "{table}");
        let reason = format!("because of {text}");
        let revoked = output(&mut permits(&store.url(), ["revoke", "--reason", &reason, "--", name, text]));
        assert_eq!((revoked.code, revoked.stderr.as_str()), (0, ""), "{text}");
        let output = running.finish();
        assert_eq!(output.code, 76);
        assert!(output.stderr.contains(&reason), "{}", output.stderr);
        until_counts(store, name, (0, 0));
    }
}

#[test]
fn invalid_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = std::ffi::OsStr::from_bytes(b"\xff");
    let output = output(permits(CLOSED_PORT, ["status"]).arg(name));
    assert_eq!((output.code, output.stdout.as_str()), (64, ""));
    assert!(output.stderr.contains("invalid UTF-8"), "{}", output.stderr);
}
