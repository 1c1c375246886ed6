//! Wrong usage: refused with 64 and a reason before a store is asked. For wrong options of a request see
//! [`requests`](crate::requests).

use crate::support::{CLOSED_PORT, Running, assert_own_lines, fresh, output, permits, shell, status};

#[test]
fn wrong_usage_is_64_and_says_why() {
    let (long, reason) = ("x".repeat(201), "x".repeat(1001));
    let socket = format!("unix:{long}");
    let cases: &[(&[&str], &str)] = &[
        (&["-v"], "requires a subcommand"),
        (&["wlak"], "unrecognized subcommand 'wlak'"),
        (&["run"], "<NAME>"),
        (&["acquire", "x", "--limit", "1", "--url", "memory:"], "memory: ends with this process"),
        (&["run", "--", "true"], "<CMD>"),
        (&["run", "x"], "<CMD>"),
        (&["run", "x", "--"], "<CMD>"),
        (&["run", "", "--", "true"], "the semaphore's name is empty"),
        (&["run", "a\nb", "--", "true"], r"control character '\n' at byte 1"),
        (&["run", &long, "--", "true"], "the semaphore's name has 201 bytes: at most 200"),
        (&["limit", "\u{1b}[31m", "2"], r"control character '\u{1b}' at byte 0"),
        (&["pause", "a\u{7f}"], r"control character '\u{7f}' at byte 1"),
        (&["revoke", "ä\u{85}", "h"], r"control character '\u{85}' at byte 2"),
        (&["run", "x", "--limit", "0", "--", "true"], "the limit is 0: it must be at least 1"),
        (&["run", "x", "--limit", "-1", "--", "true"], "a whole number from 1 to 4294967295, not -1"),
        (&["run", "x", "--limit", "many", "--", "true"], "not the string \"many\""),
        (&["run", "x", "--limit", "4294967296", "--", "true"], "not 4294967296"),
        (&["run", "x", "--supersede", "main", "--no-wait", "true"], "supersede needs a wait"),
        (&["run", "x", "--lease", "15x", "--", "true"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["run", "x", "--wait", "soon", "--", "true"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["run", "x", "--wait", "", "--", "true"], "--wait"),
        (&["run", "x", "--wait", "-1", "--", "true"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["run", "x", "--lease", "-1", "--", "true"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["run", "x", "--at-least", "-1", "--", "true"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["run", "x", "--max-hold", "-1", "--", "true"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["list", "--store-timeout", "-1"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["run", "x", "--wait", "1s", "--no-wait", "--", "true"], "cannot be used with"),
        (&["run", "x", "--also", "", "true"], "the semaphore's name is empty"),
        (&["run", "x", "--also", "y=4:5", "true"], "a weight of 5 exceeds the limit of 4"),
        (&["run", "x", "--also", "x=4", "true"], "semaphore \"x\" is named twice"),
        (&["run", "x", "--also", "y", "--also", "y:2", "true"], "semaphore \"y\" is named twice"),
        (&["run", "x", "--require-limit", "true"], "--limit <N>"),
        (&["run", "x", "-E", "256", "true"], "it must be a whole number from 0 to 255"),
        (&["run", "x", "--recovery", "maybe", "true"], "off, interval, strict"),
        (&["run", "x", "--prefix", "a b", "true"], "the key prefix \"a b\" is not valid"),
        (&["run", "x", "--frobnicate", "--", "true"], "unexpected argument '--frobnicate'"),
        (&["hold"], "<NAME>"),
        (&["hold", "--many", "x"], "cannot be used with '[NAME]'"),
        (&["hold", "--many", "--limit", "1"], "--limit <N>"),
        (&["hold", "--many", "--also", "x"], "cannot be used with '--also <SEMAPHORE>'"),
        (&["hold", "--listen", "unix:s", "x"], "cannot be used with '[NAME]'"),
        (&["hold", "--listen", "/run/s"], "write unix: and the path of a socket"),
        (&["hold", "--listen", "unix:"], "write unix: and the path of a socket"),
        (&["hold", "--listen", &socket], "the path has 201 bytes, too many for the address of a socket"),
        (&["hold", "x", "--limit", "0"], "the limit is 0: it must be at least 1"),
        (&["hold", "x", "--", "true"], "unexpected argument 'true'"),
        (&["hold", "x", "--also", "x"], "semaphore \"x\" is named twice"),
        (&["acquire"], "<NAME>"),
        (&["acquire", "x", "--also", "y"], "unexpected argument '--also'"),
        (&["acquire", "x", "--limit", "1", "--max-hold", "1h"], "--max-hold is for run and hold"),
        (&["renew"], "<HANDLE>"),
        (
            &["renew", "x"],
            "not a permit handle: it does not begin with permits and a number, as what `permits acquire` prints does",
        ),
        (&["renew", "permits11:n:h:s.1:1:99:5:0"], "a lease of 99 ms is out of range"),
        (&["release", ""], "not a permit handle"),
        (&["release", "-", "--count", "x"], "it must be a whole number from 0 to 4294967295"),
        (&["release", "-", "--count", "-1"], "it must be a whole number from 0 to 4294967295"),
        (&["status"], "<NAME|--under <PREFIX>>"),
        (&["status", ""], "the semaphore's name is empty"),
        (&["status", "x", "y"], "unexpected argument 'y'"),
        (&["list", "x"], "unexpected argument 'x'"),
        (&["limit"], "<NAME|--under <PREFIX>>"),
        (&["limit", "x", "0"], "it must be at least 1 (to stop all grants, pause the semaphore)"),
        (&["limit", "x", "2", "--unpin"], "cannot be used with"),
        (&["limit", "x", "--declare"], "<N>"),
        (&["limit", "x", "2", "--declare", "--unpin"], "cannot be used with"),
        (&["limit", "x", "+2", "--declare"], "--declare takes a limit without a sign"),
        (&["limit", "x", "0", "--declare"], "it must be at least 1"),
        (&["close"], "<NAME|--under <PREFIX>>"),
        (&["close", "x", "y"], "unexpected argument 'y'"),
        (&["close", "x", "--reason", "a\tb"], r"control character '\t' at byte 1"),
        (&["close", "x", "--reason", &reason], "the reason has 1001 bytes: at most 1000"),
        (&["open"], "<NAME|--under <PREFIX>>"),
        (&["open", "x", "--reason", "r"], "unexpected argument '--reason'"),
        (&["delete"], "<NAME>"),
        (&["delete", "x", "y"], "unexpected argument 'y'"),
        (&["pause"], "<NAME|--under <PREFIX>>"),
        (&["pause", "x", "y"], "unexpected argument 'y'"),
        (&["pause", "x", "--for", "-1"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["lane", "x"], "the lane is missing: <LANE>"),
        (&["lane", "--under", "x"], "the lane is missing: <LANE>"),
        (&["lane", "x", ""], "the lane is empty: give it 1 to 120 bytes"),
        (&["lane", "--under", "x", ""], "the semaphore's name is empty"),
        (&["lane", "x", "a", "--limit", "0"], "the limit of the lane is 0: it must be at least 1"),
        (&["lane", "x", "a", "--limit", "-1"], "lane_limit is a whole number from"),
        (
            &["lane", "x", "a", "--floor", "0"],
            "neither a limit nor a floor of the lane is given: name one of them",
        ),
        (
            &["lane", "x", "a", "--limit", "1", "--floor", "2"],
            "the floor of the lane is 2: it must be at most 1",
        ),
        (&["lane", "x", "a", "--unpin", "--floor", "2"], "cannot be used with"),
        (&["lane", "x", "a", "--under", "y", "--unpin"], "the name \"x\" cannot be used with --under"),
        (&["alert", "x", "--wait", "-1"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["alert", "x", "--waiting", "-1"], "it must be a whole number from 1 to 4294967295"),
        (&["resume"], "<NAME|--under <PREFIX>>"),
        (&["pause", "x", "--under", "y"], "the name \"x\" cannot be used with --under"),
        (&["limit", "--under", "y", "many"], "\"many\" for [N]: limit is a whole number from 1"),
        (&["limit", "--under", "y", "x", "3"], "the name \"x\" cannot be used with --under"),
        (&["limit", "--under", "y", "3", "--unpin"], "a limit cannot be used with --unpin"),
        (&["revoke", "--under", "y"], "--under revokes all holders and waiters: write --all, and no holder"),
        (
            &["revoke", "--under", "y", "h"],
            "--under revokes all holders and waiters: write --all, and no holder",
        ),
        (&["revoke", "x"], "<HOLDER>"),
        (&["revoke", "x", "h", "--all"], "cannot be used with"),
        (&["revoke", "x", ""], "the holder is empty"),
        (&["revoke", "x", "h", "--reason", "a\tb"], r"control character '\t' at byte 1"),
        (&["revoke", "x", "h", "--reason", &reason], "the reason has 1001 bytes: at most 1000"),
        (&["serve", "x"], "unexpected argument 'x'"),
        (&["serve", "--listen", "localhost:9710"], "such as 127.0.0.1:9710 or [::1]:9710"),
        (&["serve", "--listen", "127.0.0.1"], "write an IP address and a port"),
        (&["serve", "--listen", "0.0.0.0:9710"], "give a token with --token-file PATH"),
        (&["serve", "--host", "http://x"], "write a host name without scheme and port"),
        (&["serve", "--interval", "99ms"], "it must be at least 100ms"),
        (&["serve", "--allow-write"], "--token-file PATH; create it with: openssl rand -hex 32 >token"),
        (&["serve", "--max-semaphores", "many"], "invalid value 'many'"),
        (&["top", "--sort", "age"], "invalid value 'age'"),
        (&["top", ""], "the semaphore's name is empty"),
        (&["watch"], "<NAME|--under <PREFIX>>"),
        (&["watch", ""], "the semaphore's name is empty"),
        (&["watch", "x", "y"], "unexpected argument 'y'"),
        (&["watch", "x", "--interval", "99ms"], "it must be at least 100ms"),
        (&["watch", "x", "--interval", "soon"], "such as 500ms, 1.5s, 15s or 1h30m"),
        (&["completions"], "<SHELL>"),
        (&["completions", "tcsh"], "invalid value 'tcsh'"),
        (&["man", "run", "status"], "unexpected argument 'status'"),
    ];
    for (arguments, reason) in cases {
        let output = output(&mut permits(CLOSED_PORT, *arguments));
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(reason), "{arguments:?}: {}", output.stderr);
        assert!(!output.stderr.contains('\u{1b}'), "{arguments:?}: {}", output.stderr);
        assert_own_lines(&output.stderr);
    }
}

#[test]
fn without_arguments_the_verbs_are_shown() {
    let output = output(&mut permits("redis://:secret@127.0.0.1:1/", [""; 0]));
    output.prints(64, "");
    assert!(output.stderr.contains("Usage: permits [OPTIONS] <VERB>"), "{}", output.stderr);
    assert!(output.stderr.lines().count() < 49, "{}", output.stderr);
    assert!(!output.stderr.contains("secret"), "{}", output.stderr);
}

#[test]
fn help_is_an_answer() {
    let secret = "redis://:secret@127.0.0.1:1/";
    for (arguments, text) in [
        (&["--help"][..], "permits run exports --limit 4 echo "),
        (&["--help"], "PERMITS_URL_FILE"),
        (&["help"], "Exit code:"),
        (&["help", "run"], "PERMITS_TOKEN"),
        (&["run", "-h"], "PERMITS_TOKEN"),
        (&["--version"], concat!("permits ", env!("CARGO_PKG_VERSION"))),
    ] {
        let output = output(&mut permits(secret, arguments));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(output.stdout.contains(text), "{arguments:?}: {}", output.stdout);
        assert!(!output.stdout.contains("secret"), "{arguments:?}: {}", output.stdout);
    }
}

/// The examples of a verb's help.
#[track_caller]
fn examples(verb: &str) -> Vec<String> {
    let help = output(&mut permits(CLOSED_PORT, [verb, "--help"])).stdout;
    assert!(help.contains("\nExit code:\n"), "{help}");
    let examples = help.split("\nExamples:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let examples = examples.expect("every verb has examples");
    examples.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn the_examples_of_the_help_work_as_they_stand() {
    let state = tempfile::tempdir().expect("a directory");
    let as_shell = |script: &str| {
        // `jq` is replaced, since it may not be installed.
        let mut shell = shell("", &format!("jq() {{ cat; }}; set -o pipefail; {script}"));
        shell.current_dir(state.path()).env_remove("PERMITS_URL").env("XDG_STATE_HOME", state.path());
        shell
    };
    // The holders that the examples revoke.
    let holders = ["web-3", "db1:30220/1", "other"].map(|holder| {
        let script = format!(
            "exec permits run exports --limit 4 --holder {holder} sh -c 'echo ready; exec sleep 1000'"
        );
        Running::until(&mut as_shell(&script), "ready")
    });
    for verb in [
        "run", "hold", "acquire", "renew", "release", "status", "list", "limit", "pause", "resume", "close",
        "open", "revoke", "delete",
    ] {
        let examples = examples(verb);
        assert!(!examples.is_empty());
        for example in examples {
            let output = output(&mut as_shell(&example));
            assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{example}: {}", output.stdout);
            let is_silent = ["acquire", "renew", "release"].contains(&verb);
            assert_eq!(output.stdout.is_empty(), is_silent, "{example}");
        }
    }
    assert_eq!(holders.map(|holder| holder.finish().code), [76, 76, 76]);
    for verb in ["completions", "man"] {
        assert!(!examples(verb).is_empty());
    }
}

#[test]
fn an_option_of_another_program_gets_the_tip_that_is_meant() {
    for (arguments, meant) in [
        (&["run", "x", "--max", "3", "true"][..], "did you mean --limit?"),
        (&["run", "-j4", "x", "true"], "did you mean --limit?"),
        (&["hold", "x", "--concurrency=3"], "did you mean --limit?"),
        (&["acquire", "x", "--ttl", "60"], "did you mean --lease?"),
        (&["serve", "--port", "80"], "did you mean --listen 127.0.0.1:PORT?"),
        // flock
        (&["run", "x", "-c", "a && b"], "there is no shell: write sh -c 'COMMAND'"),
        (&["run", "x", "--command", "a"], "there is no shell: write sh -c 'COMMAND'"),
        (&["run", "-s", "x", "true"], "readers and a writer: "),
        (&["run", "--shared", "x", "true"], "readers and a writer: "),
        (&["run", "-x", "x", "true"], "that is --limit 1"),
        (&["run", "-e", "x", "true"], "that is --limit 1"),
        (&["run", "--exclusive", "x", "true"], "that is --limit 1"),
        (&["run", "-u", "x", "true"], "leave it out"),
        (&["run", "--unlock", "x", "true"], "leave it out"),
        (&["run", "-o", "x", "true"], "leave it out"),
        (&["run", "--close", "x", "true"], "leave it out"),
        (&["run", "-F", "x", "true"], "leave it out"),
        (&["run", "--no-fork", "x", "true"], "leave it out"),
        // sem
        (&["run", "--fg", "x", "true"], "leave it out"),
        (&["run", "--bg", "x", "true"], "write & behind"),
        (&["run", "--id", "x", "true"], "the name is the first argument"),
        (&["run", "--semaphorename", "x", "true"], "the name is the first argument"),
        (&["run", "x", "--jobs", "3", "true"], "did you mean --limit?"),
        (&["run", "x", "--st", "3", "true"], "did you mean --wait?"),
        (&["run", "x", "--semaphoretimeout", "3", "true"], "did you mean --wait?"),
        (&["run", "x", "--pipe", "true"], "leave it out"),
        // consul lock
        (&["run", "x", "-n=3", "true"], "-n is --no-wait; the limit is --limit N"),
        (&["run", "x", "-n3", "true"], "-n is --no-wait; the limit is --limit N"),
        (&["run", "x", "-try=3s", "true"], "did you mean --wait?"),
        (&["run", "x", "-timeout=3s", "true"], "did you mean --wait?"),
        (&["run", "x", "-monitor-retry=3", "true"], "did you mean --lease?"),
        (&["run", "x", "-name=y", "true"], "the name is the first argument"),
        (&["run", "x", "-child-exit-code", "true"], "leave it out"),
        (&["run", "x", "-pass-stdin", "true"], "leave it out"),
        (&["run", "x", "-shell=false", "true"], "leave it out"),
        (&["run", "x", "--limits", "3", "true"], "did you mean --limit?"),
        // Other verbs
        (&["list", "api"], "did you mean --under api?"),
        (&["ps"], "did you mean: permits status NAME?"),
        (&["lock", "x", "true"], "did you mean: permits run NAME COMMAND?"),
        (&["unlock", "x"], "did you mean: permits release HANDLE"),
        (&["unpin", "x"], "did you mean: permits limit NAME --unpin?"),
        (&["rnu", "x", "true"], "did you mean: permits run?"),
        (&["exports"], "a semaphore comes after a verb: permits status exports"),
    ] {
        let refused = output(&mut permits(CLOSED_PORT, arguments));
        assert_eq!(refused.code, 64, "{arguments:?}");
        let is_tip = |line: &str| line.starts_with("permits:   tip: ") && line.contains(meant);
        assert!(refused.stderr.lines().any(is_tip), "{arguments:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("as a value"), "{}", refused.stderr);
    }
    let other = output(&mut permits(CLOSED_PORT, ["status", "x", "-c"]));
    assert!(!other.stderr.contains("--limit"), "{}", other.stderr);
    let other = output(&mut permits(CLOSED_PORT, ["status", "--limits"]));
    assert!(!other.stderr.contains("as a value"), "{}", other.stderr);
}

#[test]
fn a_label_that_is_too_long_is_cut() {
    let (server, name) = fresh();
    let long = format!("x{}", "ü".repeat(64));
    let shown = format!("x{}", "ü".repeat(59));
    for (arguments, variable, source) in
        [(&["--label", &long][..], "short", "--label"), (&[], long.as_str(), "PERMITS_LABEL")]
    {
        let mut command = permits(&server.url(), ["run", &name, "--limit", "1"]);
        command.args(arguments).env("PERMITS_LABEL", variable).args([
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]);
        let running = Running::until(&mut command, "ready");
        assert_eq!(status(&server, &name)["holders"][0]["label"], shown);
        running.signal(rustix::process::Signal::TERM);
        let warned = format!("permits: {source} has 129 bytes: the first 119 are shown as the label\n");
        assert_eq!(running.finish().stderr, warned);
    }
    let refused =
        output(&mut permits(&server.url(), ["run", &name, "--label", "a\nb", "--limit", "1", "true"]));
    assert_eq!(refused.code, 64, "{}", refused.stderr);
}
