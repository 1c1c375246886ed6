//! Wrong calls: refused with 64 before any store is asked, with a reason.

use crate::support::{NOBODY, assert_own_lines, fresh, output, permits};

#[test]
fn wrong_usage_is_64_and_says_why() {
    let long = "x".repeat(201);
    let cases: &[(&[&str], &str)] = &[
        (&[], "requires a subcommand"),
        (&["wlak"], "unrecognized subcommand 'wlak'"),
        (&["run"], "<NAME>"),
        (&["run", "--", "true"], "<NAME>"),
        (&["run", "x"], "<CMD>"),
        (&["run", "x", "--"], "<CMD>"),
        (&["run", "x", "true"], "unexpected argument 'true'"),
        (&["run", "", "--", "true"], "the semaphore's name is empty"),
        (&["run", "a\nb", "--", "true"], r"control character '\n' at byte 1"),
        (&["run", &long, "--", "true"], "the semaphore's name has 201 bytes: at most 200"),
        (&["run", "x", "--limit", "0", "--", "true"], "the limit is 0: it must be at least 1"),
        (&["run", "x", "--limit", "-1", "--", "true"], "a number from 1 to 4294967295"),
        (&["run", "x", "--limit", "many", "--", "true"], "a number from 1 to 4294967295"),
        (&["run", "x", "--limit", "4294967296", "--", "true"], "a number from 1 to 4294967295"),
        (&["run", "x", "--weight", "0", "--", "true"], "the weight is 0"),
        (&["run", "x", "--lease", "50ms", "--", "true"], "a lease of 50 ms is out of range"),
        (&["run", "x", "--lease", "25h", "--", "true"], "out of range"),
        (&["run", "x", "--lease", "15x", "--", "true"], "such as 500ms, 15s or 2m"),
        (&["run", "x", "--wait", "soon", "--", "true"], "such as 500ms, 15s or 2m"),
        (&["run", "x", "--wait", "", "--", "true"], "--wait"),
        (&["run", "x", "--wait", "99999999999999999999", "--", "true"], "it is too long"),
        (&["run", "x", "--wait", "1s", "--no-wait", "--", "true"], "cannot be used with"),
        (&["run", "x", "--holder", "", "--", "true"], "the holder is empty"),
        (&["run", "x", "--frobnicate", "--", "true"], "unexpected argument '--frobnicate'"),
        (&["status"], "<NAME>"),
        (&["status", ""], "the semaphore's name is empty"),
        (&["status", "x", "y"], "unexpected argument 'y'"),
    ];
    for (arguments, reason) in cases {
        let output = output(&mut permits(NOBODY, *arguments));
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(reason), "{arguments:?}: {}", output.stderr);
        assert_own_lines(&output.stderr);
    }
}

#[test]
fn a_wrong_url_is_64() {
    let cases = [
        ("", "set PERMITS_URL, for example PERMITS_URL=redis://127.0.0.1/"),
        ("localhost", "does not begin with one of"),
        ("http://localhost/", "unknown URL scheme \"http\""),
        ("redis://:secret@host:99999999/", "the URL is not valid"),
    ];
    for (url, reason) in cases {
        for arguments in [&["run", "x", "--limit", "1", "--", "true"][..], &["status", "x"]] {
            let output = output(&mut permits(url, arguments));
            assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{}", output.stderr);
            assert!(output.stderr.contains(reason), "{}", output.stderr);
            assert!(!output.stderr.contains("secret"), "{}", output.stderr);
        }
    }
}

#[test]
fn the_option_names_the_store_before_the_environment() {
    let (server, name) = fresh();
    let url = server.url();
    for arguments in [["--url", &url, "status", &name], ["status", &name, "--url", &url]] {
        assert_eq!(output(&mut permits(NOBODY, arguments)).code, 0);
    }
}

#[test]
fn help_is_an_answer() {
    let secret = "redis://:secret@127.0.0.1:1/";
    for (arguments, text) in [
        (&["--help"][..], "permits run exports --limit 4 -- ./export.sh"),
        (&["run", "--help"], "Exit code:"),
        (&["run", "-h"], "PERMITS_TOKEN"),
        (&["status", "--help"], "permits status exports --json"),
        (&["--version"], concat!("permits ", env!("CARGO_PKG_VERSION"))),
    ] {
        let output = output(&mut permits(secret, arguments));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(output.stdout.contains(text), "{arguments:?}: {}", output.stdout);
        assert!(!output.stdout.contains("secret"), "{arguments:?}: {}", output.stdout);
    }
}
