//! The choice of the store by `--url`, the environment, or default; and passwords, which are never printed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use permits_testkit::{Server, wait};

use crate::support::{
    CLOSED_PORT, EVERY_VERB, Local, Running, Store as _, assert_own_lines, fresh, gate, output, permits,
    status,
};
use crate::terminal::Terminal;
use crate::top::view::View;

/// A call without a URL, with this state directory.
fn at_home<const N: usize>(state: &Path, arguments: [&str; N]) -> Command {
    let mut command = permits("", arguments);
    command.env_remove("PERMITS_URL").env("XDG_STATE_HOME", state);
    command
}

#[test]
fn the_default_store_is_a_directory_of_this_user() {
    let state = tempfile::tempdir().expect("a directory");
    let script = ["run", "x", "--limit", "2", "--", "sh", "-c", "echo ready; read x"];
    let mut holder = at_home(state.path(), script);
    let gate = gate(&mut holder);
    let _holder = Running::until(&mut holder, "ready");
    let mode = |path: &str| {
        std::fs::metadata(state.path().join(path)).expect("it is there").permissions().mode() & 0o777
    };
    assert_eq!((mode("permits"), mode("permits/permits:x.state")), (0o700, 0o600));
    let same = format!("local:{}/permits", state.path().display());
    let other_home = tempfile::tempdir().expect("a directory");
    let in_use = "x: 1 of 2 held, 0 waiting\n";
    for (case, mut command, expected) in [
        ("the same", at_home(state.path(), ["status", "x"]), in_use),
        ("the same, in words", at_home(state.path(), ["status", "x", "--url", "local:"]), in_use),
        ("the same, by its path", permits(&same, ["status", "x"]), in_use),
        ("another user's", at_home(other_home.path(), ["status", "x"]), "x: not in use, no limit is set\n"),
    ] {
        let text = output(&mut command).stdout;
        assert!(text.starts_with(expected), "{case}: {text}");
    }
    drop(gate);
}

#[test]
fn an_empty_variable_is_64_and_no_other_store_is_used() {
    let state = tempfile::tempdir().expect("a directory");
    for variable in ["PERMITS_URL", "PERMITS_URL_FILE"] {
        for arguments in [&["run", "x", "--limit", "1", "true"][..], &["list"], &["top"]] {
            let empty = output(at_home(state.path(), [""; 0]).args(arguments).env(variable, ""));
            assert_eq!((empty.code, empty.stdout.as_str()), (64, ""), "{variable}, {arguments:?}");
            let expected = format!("permits: {variable} is empty: give it a value, or unset it\n");
            // Without a terminal, `top` may report that first.
            assert!(arguments == ["top"] || empty.stderr == expected, "{}", empty.stderr);
        }
    }
    assert_eq!(std::fs::read_dir(state.path()).expect("it is there").count(), 0);
}

#[test]
fn the_url_can_be_read_from_a_file() {
    let server = Server::builder().password("t0p-secret").start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("url");
    let status = |command: &mut Command| output(command.env("PERMITS_URL_FILE", &path));
    for (text, code, says) in [
        (format!("{}\n", server.url()), 66, "x: not in use"),
        (" \n".into(), 64, "is empty"),
        (format!("{0}\n{0}\n", server.url()), 64, "has several lines"),
    ] {
        std::fs::write(&path, text).expect("there is room");
        let output = status(permits("", ["status", "x"]).env_remove("PERMITS_URL"));
        assert_eq!(output.code, code, "{}", output.stderr);
        assert!((output.stdout + &output.stderr).contains(says), "{says}");
    }
    let both = status(&mut permits(CLOSED_PORT, ["status", "x"]));
    assert_eq!((both.code, both.stdout.as_str()), (64, ""));
    assert!(both.stderr.contains("are both set"), "{}", both.stderr);
    std::fs::remove_file(&path).expect("it is there");
    let missing = status(permits("", ["status", "x"]).env_remove("PERMITS_URL"));
    assert_eq!(missing.code, 64);
    assert!(missing.stderr.contains("cannot be read"), "{}", missing.stderr);
}

#[test]
fn where_a_server_is_required_no_other_store_is_used() {
    let (server, local) = (Server::start(), Local::new());
    let required =
        |url: &str, value: &str| output(permits(url, ["status", "x"]).env("PERMITS_REQUIRE_SERVER", value));
    for url in [&local.url(), "memory:"] {
        let refused = required(url, "1");
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""));
        assert!(refused.stderr.contains("asks for a server, and the store is "), "{}", refused.stderr);
    }
    for (url, value) in [(&server.url(), "1"), (&local.url(), "0")] {
        assert_eq!(required(url, value).stdout, "x: not in use, no limit is set\n");
    }
    let unclear = required(&server.url(), "yes");
    assert_eq!(
        (unclear.code, unclear.stderr.as_str()),
        (64, "permits: PERMITS_REQUIRE_SERVER must be 1 or 0\n")
    );
}

#[test]
fn the_store_is_named_without_its_password() {
    let server = Server::builder().password("t0p-secret").start();
    let named = format!("permits: store redis://***@{}/", server.address());
    for arguments in
        [&["run", "x", "--limit", "1", "--recovery", "off", "true"][..], &["status", "x"], &["list"]]
    {
        let output = output(&mut permits(&server.url(), [&["-v"], arguments].concat()));
        assert!(output.stderr.starts_with(&named), "{arguments:?}: {}", output.stderr);
    }
    // The URL parser refuses this one: a question mark ends the possible password.
    let unclear =
        output(&mut permits(&format!("redis://:t0p?-secret@{}/", server.address()), ["-v", "list"]));
    assert!(!unclear.stderr.contains("t0p") && !unclear.stderr.contains("-secret"), "{}", unclear.stderr);
    let json = status(&server, "x");
    assert_eq!(json["store"], format!("redis://***@{}/", server.address()));
    let mut terminal = Terminal::start(&mut permits(&server.url(), ["list"]));
    terminal.shows(&named);
    assert_eq!(terminal.finish(), 0);
    let mut view = View::top(&server, &[]);
    view.shows(&format!("permits top: 1 semaphore by need (redis://***@{}/)", server.address()));
    view.quits();
}

#[test]
fn semaphores_with_another_prefix_are_others() {
    let server = Server::start();
    let call = |arguments: &[&str]| output(&mut permits(&server.url(), arguments));
    assert_eq!(call(&["limit", "x", "3", "--prefix", "team-a"]).stdout, "x: limit 3, pinned (version 1)\n");
    assert_eq!(call(&["--prefix", "team-a", "run", "x", "--recovery", "off", "echo", "ran"]).stdout, "ran\n");
    assert!(call(&["list", "--prefix", "team-a"]).stdout.contains("\nx "));
    let by_variable =
        |prefix: &str, verb: &str| output(permits(&server.url(), [verb]).env("PERMITS_PREFIX", prefix));
    assert!(by_variable("team-a", "list").stdout.contains("\nx "));
    for (wrong, says) in
        [("", "PERMITS_PREFIX is empty"), ("a b", "PERMITS_PREFIX: the key prefix \"a b\" is not valid")]
    {
        let refused = by_variable(wrong, "list");
        assert_eq!((refused.code, refused.stdout.as_str()), (64, ""));
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
    assert_eq!(call(&["list"]).stdout, "");
    assert!(call(&["doctor", "--acl", "--prefix", "team-a"]).stdout.contains(r" ~team\-a:{* "));
}

#[test]
fn a_url_without_a_scheme_is_not_shown() {
    for url in ["u:secret@host:6379", "redis:u:secret@host", "secret@host", "u:sec ret@host"] {
        for arguments in [&["-v", "list"][..], &["run", "x", "-v", "--limit", "1", "true"], &["doctor"]] {
            let refused = output(&mut permits(url, arguments));
            assert_eq!(refused.code, 64, "{url}: {}", refused.stderr);
            assert!(!refused.stderr.contains("sec"), "{url}: {}", refused.stderr);
            assert!(refused.stdout.is_empty(), "{url}: {}", refused.stdout);
        }
    }
}

#[test]
fn spaces_around_the_url_of_the_environment_do_not_count() {
    assert_eq!(output(&mut permits(" memory:\n", ["list"])).code, 0);
}

#[test]
fn where_no_directory_can_be_the_store_cannot_be_reached() {
    for arguments in EVERY_VERB {
        // The home is no directory.
        let output = output(permits("", *arguments).env_remove("PERMITS_URL"));
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{arguments:?}: {}", output.stderr);
        assert_own_lines(&output.stderr);
    }
    let homeless = output(permits("", ["list"]).env_remove("HOME").env_remove("PERMITS_URL"));
    assert_eq!((homeless.code, homeless.stdout.as_str()), (64, ""));
    assert!(homeless.stderr.contains("name a directory, local:/path"), "{}", homeless.stderr);
}

#[test]
fn the_option_names_the_store_before_the_environment() {
    let (server, name) = fresh();
    let url = server.url();
    for arguments in [["--url", &url, "status", &name], ["status", &name, "--url", &url]] {
        assert_eq!(output(&mut permits(CLOSED_PORT, arguments)).code, 0);
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
                [permits(url, *arguments), permits(CLOSED_PORT, [&["--url", url], *arguments].concat())]
            {
                let output = output(&mut command);
                assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{}", output.stderr);
                assert!(output.stderr.contains(reason), "{}", output.stderr);
                assert!(!output.stderr.contains("secret"), "{}", output.stderr);
                assert_own_lines(&output.stderr);
            }
        }
        // An empty URL does not select the default store.
        let empty = output(&mut permits(CLOSED_PORT, [&["--url", ""], *arguments].concat()));
        assert_eq!((empty.code, empty.stdout.as_str()), (64, ""), "{}", empty.stderr);
        let mut not_text = permits("", *arguments);
        let not_text = output(not_text.env("PERMITS_URL", OsStr::from_bytes(b"redis://\xff")));
        assert_eq!((not_text.code, not_text.stderr.as_str()), (64, "permits: PERMITS_URL is not UTF-8\n"));
    }
}

#[test]
fn an_unreachable_store_is_69() {
    for arguments in EVERY_VERB {
        let output = output(&mut permits(CLOSED_PORT, [&["--store-timeout", "0"], *arguments].concat()));
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{arguments:?}");
        assert!(output.stderr.contains("cannot be reached: 127.0.0.1:1"), "{}", output.stderr);
        assert_own_lines(&output.stderr);
    }
}

#[test]
fn an_unreachable_store_is_waited_for_and_reported() {
    let server = Server::start();
    let (url, address) = (server.url(), server.address());
    server.kill();
    let waiter = |name: &str, options: &[&str]| {
        let options =
            [&["run", name, "--limit", "1", "--recovery", "off"], options, &["echo", "ran"]].concat();
        Running::start(&mut permits(&url, options))
    };
    let in_time = [waiter("x", &["--wait", "45s"]), waiter("y", &["--store-timeout", "45s", "--no-wait"])];
    let too_late = waiter("x", &["--wait", "1200ms"]).finish();
    assert_eq!((too_late.code, too_late.stdout.as_str()), (69, ""), "{}", too_late.stderr);
    assert!(too_late.stderr.contains(&format!("cannot be reached: {address}")), "{}", too_late.stderr);
    for waiter in &in_time {
        let says = [&address.to_string(), "retrying", "within=45s"];
        let said = wait::until(|| says.iter().all(|text| waiter.stderr().contains(text)));
        assert!(said, "{}", waiter.stderr());
    }
    server.restart();
    for waiter in in_time {
        assert_eq!(waiter.finish().stdout, "ran\n");
    }
}

#[test]
fn permanent_errors_fail_at_once() {
    let server = Server::builder().password("secret").start();
    let address = server.address();
    for (url, code) in [
        (format!("redis://{address}/"), 69),
        (format!("redis://:wrong@{address}/"), 69),
        (format!("redis://:secret@{address}/99"), 69),
        ("http://localhost/".into(), 64),
    ] {
        let options = ["run", "x", "--limit", "1", "--wait", "1h", "true"];
        // If it waited, the test's own timeout would end it.
        let refused = output(&mut permits(&url, options));
        assert_eq!(refused.code, code, "{}", refused.stderr);
        assert!(!refused.stderr.contains("waiting"), "{}", refused.stderr);
    }
}

#[test]
fn a_denied_login_is_69_and_shows_no_password() {
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
        let output = output(&mut permits(CLOSED_PORT, arguments));
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{arguments:?}");
        assert!(!output.stderr.contains("secret"), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains("***"), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn a_file_in_the_place_of_a_directory_is_69() {
    let store = Local::new();
    let path = store.url().trim_start_matches("local:").to_owned();
    for (content, reason) in [("a text", "name a directory"), ("SQLite format 3", "unreleased version")] {
        std::fs::write(&path, content).expect("it can be written");
        for arguments in EVERY_VERB {
            let output = output(&mut permits(&store.url(), *arguments));
            assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{}", output.stderr);
            assert!(output.stderr.contains(reason), "{}", output.stderr);
        }
    }
}
