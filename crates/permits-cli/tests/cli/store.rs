//! Which store it is: `--url`, the environment, or a file of this user; and what is never said of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use permits_testkit::Server;

use crate::support::{
    EVERY_VERB, Local, NOBODY, Running, Store as _, assert_own_lines, fresh, gate, output, permits,
};

/// A call that names no store, by one whose state directory this is.
fn at_home<const N: usize>(state: &Path, arguments: [&str; N]) -> Command {
    let mut command = permits("", arguments);
    command.env_remove("PERMITS_URL").env("XDG_STATE_HOME", state);
    command
}

#[test]
fn without_a_url_it_is_a_file_of_this_user() {
    let state = tempfile::tempdir().expect("a directory");
    let script = ["run", "x", "--limit", "2", "--", "sh", "-c", "echo ready; read x"];
    let mut holder = at_home(state.path(), script);
    let gate = gate(&mut holder);
    let _holder = Running::until(&mut holder, "ready");
    let mode = |path: &str| {
        std::fs::metadata(state.path().join(path)).expect("it is there").permissions().mode() & 0o777
    };
    assert_eq!((mode("permits"), mode("permits/semaphores.db")), (0o700, 0o600));
    let same = format!("local:{}/permits/semaphores.db", state.path().display());
    let other_home = tempfile::tempdir().expect("a directory");
    let in_use = "x: 1 of 2 held, 0 waiting\n";
    for (what, mut command, expected) in [
        ("the same", at_home(state.path(), ["status", "x"]), in_use),
        ("the same, in words", at_home(state.path(), ["status", "x", "--url", "local:"]), in_use),
        ("the same, by its path", permits(&same, ["status", "x"]), in_use),
        ("another user's", at_home(other_home.path(), ["status", "x"]), "x: not in use, no limit is set\n"),
    ] {
        let text = output(&mut command).stdout;
        assert!(text.starts_with(expected), "{what}: {text}");
    }
    let empty = output(at_home(state.path(), ["status", "x"]).env("PERMITS_URL", ""));
    assert!(empty.stdout.starts_with(in_use), "an empty variable is none: {}", empty.stderr);
    drop(gate);
}

#[test]
fn where_no_file_can_be_the_store_cannot_be_reached() {
    for arguments in EVERY_VERB {
        // The home is no directory.
        let output = output(permits("", *arguments).env_remove("PERMITS_URL"));
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{arguments:?}: {}", output.stderr);
        assert_own_lines(&output.stderr);
    }
    let homeless = output(permits("", ["list"]).env_remove("HOME"));
    assert_eq!((homeless.code, homeless.stdout.as_str()), (64, ""));
    assert!(homeless.stderr.contains("name a file, local:/path/file.db"), "{}", homeless.stderr);
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
fn a_wrong_url_is_64() {
    let cases = [
        ("localhost", "did you mean redis://localhost?"),
        ("http://localhost/", "unknown URL scheme \"http\""),
        ("redis://:secret@host:99999999/", "the URL is not valid"),
    ];
    for arguments in EVERY_VERB {
        for (url, reason) in cases {
            for mut command in
                [permits(url, *arguments), permits(NOBODY, [&["--url", url], *arguments].concat())]
            {
                let output = output(&mut command);
                assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{}", output.stderr);
                assert!(output.stderr.contains(reason), "{}", output.stderr);
                assert!(!output.stderr.contains("secret"), "{}", output.stderr);
                assert_own_lines(&output.stderr);
            }
        }
        // Not the default, which might not be what was meant.
        let empty = output(&mut permits(NOBODY, [&["--url", ""], *arguments].concat()));
        assert_eq!((empty.code, empty.stdout.as_str()), (64, ""), "{}", empty.stderr);
        let mut not_text = permits("", *arguments);
        let not_text = output(not_text.env("PERMITS_URL", OsStr::from_bytes(b"redis://\xff")));
        assert_eq!((not_text.code, not_text.stderr.as_str()), (64, "permits: PERMITS_URL is not UTF-8\n"));
    }
}

#[test]
fn a_store_that_is_not_there_is_69() {
    for arguments in EVERY_VERB {
        let output = output(&mut permits(NOBODY, *arguments));
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{arguments:?}");
        assert!(output.stderr.contains("cannot be reached: 127.0.0.1:1"), "{}", output.stderr);
        assert_own_lines(&output.stderr);
    }
}

#[test]
fn a_store_that_denies_is_69_and_no_password_is_shown() {
    let server = Server::builder().password("t0p secret").start();
    let address = server.address();
    for url in [
        format!("redis://:wr0ng@{address}/"),
        format!("redis://user:wr0ng@{address}/"),
        format!("redis://{address}/"),
    ] {
        for arguments in EVERY_VERB {
            let output = output(&mut permits(&url, [&["-vvv"], *arguments].concat()));
            assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{}", output.stderr);
            assert!(output.stderr.contains("denies access"), "{}", output.stderr);
            assert!(!output.stderr.contains("wr0ng"), "{}", output.stderr);
            assert_own_lines(&output.stderr);
        }
    }
}

#[test]
fn the_right_password_is_not_shown_either() {
    let server = Server::builder().password("t0p-secret").start();
    for arguments in EVERY_VERB {
        let output = output(&mut permits(&server.url(), [&["-vvv"], *arguments].concat()));
        assert!([0, 1].contains(&output.code), "{arguments:?}: {}", output.stderr);
        assert!(!(output.stdout + &output.stderr).contains("t0p-secret"), "{arguments:?}");
    }
}

#[test]
fn a_url_in_the_wrong_place_is_shown_without_its_password() {
    for arguments in [
        &["redis://:secret@host/"][..],
        &["--urlredis://:secret@host/", "list"],
        &["list", "redis://user:a 'secret'@host/"],
        &["status", "x", "redis+unix:///run/r.sock?pass=secret"],
        &["completions", "redis://:secret@host/"],
        &["man", "redis://:secret@host/"],
    ] {
        let output = output(&mut permits(NOBODY, arguments));
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{arguments:?}");
        assert!(!output.stderr.contains("secret"), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains("***"), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn a_file_of_somebody_else_is_69() {
    let store = Local::new();
    let path = store.url().trim_start_matches("local:").to_owned();
    std::fs::write(&path, "not a database, but a text of some length. ".repeat(100))
        .expect("it can be written");
    for arguments in EVERY_VERB {
        let output = output(&mut permits(&store.url(), *arguments));
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{}", output.stderr);
        assert!(output.stderr.contains("is not a database"), "{}", output.stderr);
    }
}
