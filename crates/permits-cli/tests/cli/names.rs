//! Names, holders and reasons: every verb takes printable text unchanged, and refuses anything else.

use serde_json::{Value, json};

use crate::support::{CLOSED_PORT, Local, Running, Store as _, output, permits, status};

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

#[test]
fn any_name_and_any_holder_can_be_used() {
    let store = Local::new();
    let long = "ä".repeat(100);
    for name in TEXTS.into_iter().chain([long.as_str()]) {
        let holder = if name == long { "h" } else { name };
        // Inside, the name is in the environment, in `status` and in `list`, unchanged.
        let script = r#"[ "$PERMITS_NAME" = "$NAME" ] && "$P" status --json -- "$NAME" && "$P" list --json
            echo; printf '%s\n' "$PERMITS_HOLDER"; exec sleep 1000"#;
        let options = ["run", "--limit", "1", &format!("--holder={holder}"), "--", name, "sh", "-c", script];
        let mut command = permits(&store.url(), options);
        command.env("NAME", name).env("P", env!("CARGO_BIN_EXE_permits"));
        let running = Running::until(&mut command, &format!("\n\n{holder}\n"));
        let stdout = running.stdout();
        let lines = stdout.lines().take(2).map(|line| serde_json::from_str(line).expect("JSON"));
        let lines: Vec<Value> = lines.collect();
        assert_eq!((&lines[0]["name"], &lines[0]["held"]), (&json!(name), &json!(1)));
        let listed = lines[1].as_array().expect("an array");
        assert!(listed.iter().any(|semaphore| semaphore["name"] == name && semaphore["held"] == 1), "{name}");
        assert_eq!(status(&store, name)["holders"][0]["holder"], holder);

        // Each line begins with the unchanged name.
        let reason = format!("because of {holder}");
        for (verb, rest, says) in [
            ("limit", &["3"][..], "limit 3, pinned"),
            ("pause", &[], "paused, 1 of 3 held"),
            ("resume", &[], "resumed, 1 of 3 held"),
            ("status", &[], "1 of 3 held, 0 waiting, limit pinned"),
            ("revoke", &[holder, "--reason", &reason], "revoked, 0 of 3 held"),
        ] {
            let (rest, options) = rest.split_at(rest.len().min(1));
            let output = output(permits(&store.url(), [verb]).args(options).args(["--", name]).args(rest));
            assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{verb} {name}");
            let says = if verb == "revoke" { format!("{holder} {says}") } else { says.to_owned() };
            assert!(output.stdout.starts_with(&format!("{name}: {says}")), "{}", output.stdout);
            assert!(
                verb != "status" || output.stdout.contains(&format!("\n{holder}  ")),
                "{}",
                output.stdout
            );
        }
        let ended = running.finish();
        assert!(ended.code == 76 && ended.stderr.contains(&reason), "{ended:?}");
    }
}

#[test]
fn invalid_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = std::ffi::OsStr::from_bytes(b"\xff");
    let output = output(permits(CLOSED_PORT, ["status"]).arg(name));
    output.prints(64, "");
    assert!(output.stderr.contains("invalid UTF-8"), "{}", output.stderr);
}
