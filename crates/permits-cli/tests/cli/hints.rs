//! Remedies for common mistakes: a run inside a run, arguments in a wrong order, options of other programs.

use std::os::unix::fs::PermissionsExt as _;

use permits_testkit::wait;
use rustix::process::Signal;

use crate::support::{CLOSED_PORT, Holder, Local, Output, Running, Store, on_a_server, output, permits, run};

on_a_server! {
    a_run_that_waits_for_its_own_parent_says_so,
    a_run_beside_its_parent_is_not_said_to_wait_for_itself,
}

fn a_run_that_waits_for_its_own_parent_says_so(store: &dyn Store, name: &str) {
    let nested = |options: &str| {
        // Shells stand between the two.
        let script = format!("sh -c '\"$P\" run {name} {options} echo ran'; exit $?");
        let mut outer = run(store, name, "--limit 2", &script);
        outer.env("P", env!("CARGO_BIN_EXE_permits"));
        outer
    };
    let refused = output(&mut nested("--weight 2 --no-wait"));
    let says = "permits: no permit now: 1 of 2 held by this command's own parent, 0 waiting\n";
    assert_eq!((refused.code, refused.stdout.as_str()), (75, ""));
    assert!(refused.stderr.ends_with(says), "{}", refused.stderr);
    let waiting = Running::start(&mut nested("--weight 2"));
    let says = format!(
        "for {name:?}: first in line, 1 of 2 held by this command's own parent: it waits for itself\n"
    );
    assert!(wait::until(|| waiting.stderr().contains(&says)), "{}", waiting.stderr());
    assert!(waiting.stderr().starts_with("permits: waiting 0 s "), "at once: {}", waiting.stderr());
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().code, 143);
    let beside = output(&mut nested("--weight 1"));
    assert_eq!((beside.code, beside.stdout.as_str(), beside.stderr.as_str()), (0, "ran\n", ""));
}

fn a_run_beside_its_parent_is_not_said_to_wait_for_itself(store: &dyn Store, name: &str) {
    // The environment of a run whose permit has been released.
    let Output { stdout, .. } = output(&mut run(store, name, "--limit 1", "echo $PERMITS_TOKEN"));
    let _holder = Holder::start(store, name, "--limit 1 --holder other");
    let mut later = run(store, name, "--no-wait", "true");
    let refused = output(later.env("PERMITS_NAME", name).env("PERMITS_TOKEN", stdout.trim()));
    assert!(refused.stderr.contains("1 of 1 held by other for "), "{}", refused.stderr);
}

#[test]
fn a_limit_behind_the_command_belongs_to_the_command() {
    let store = Local::new();
    for limit in [&["--limit", "3"][..], &["--limit=3"]] {
        let refused = output(permits(&store.url(), ["run", "new", "echo", "hi"]).args(limit));
        let says = "permits: semaphore \"new\" has no limit yet: \
                    --limit behind the command belongs to the command: write it before\n";
        assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr.as_str()), (64, "", says));
    }
}

#[test]
fn a_command_in_the_place_of_the_name_is_told() {
    let store = Local::new();
    let says = "; \"echo\" was taken as the name of the semaphore, which precedes the command\n";
    for (arguments, code) in
        [(&["run", "--limit", "4", "echo", "no-such-program"][..], 127), (&["run", "echo", "true"], 64)]
    {
        let ended = output(&mut permits(&store.url(), arguments));
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""));
        assert!(ended.stderr.ends_with(says), "{}", ended.stderr);
    }
    let ended = output(&mut permits(&store.url(), ["run", "a-name", "--limit", "1", "no-such-program"]));
    assert_eq!(ended.stderr, "permits: command not found: \"no-such-program\"\n");
    let listed = output(&mut permits(&store.url(), ["list"]));
    assert_eq!(listed.stderr, "permits: there are no semaphores\n", "no word became one");
}

#[test]
fn a_command_that_is_none_is_told() {
    let (store, directory) = (Local::new(), tempfile::tempdir().expect("a directory"));
    let script = directory.path().join("x.py");
    std::fs::write(&script, "#!/no/such/python\n").expect("it can be written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    let script = script.to_str().expect("plain text");
    for (options, command, code, says) in [
        (&["-n"][..], &["3", "./job"][..], 127, "\"3\"; -n is --no-wait, and the limit is --limit 3\n"),
        (&[], &["echo hi; echo you"], 127, "; there is no shell: write sh -c 'echo hi; echo you'\n"),
        (&[], &[script], 126, "its interpreter \"/no/such/python\" was not found\n"),
    ] {
        let call = [&["run", "a-name", "--limit", "1"], options, command].concat();
        let ended = output(&mut permits(&store.url(), call));
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.ends_with(says), "{}", ended.stderr);
    }
}

#[test]
fn the_options_of_flock_are_known() {
    let store = Local::new();
    let _holder = Holder::start(&store, "x", "--limit 1");
    for (options, says) in [
        ("-n", "no permit now"),
        ("--nonblock", "no permit now"),
        ("-w 0.2", "no permit within 200ms"),
        ("--timeout 200ms", "no permit within 200ms"),
    ] {
        let refused = output(&mut run(&store, "x", options, "true"));
        assert_eq!(refused.code, 75, "{options}: {}", refused.stderr);
        assert!(refused.stderr.contains(says), "{options}: {}", refused.stderr);
    }
}

#[test]
fn an_option_of_another_program_gets_the_tip_that_is_meant() {
    for (arguments, meant) in [
        (&["run", "x", "--max", "3", "true"][..], "did you mean --limit?"),
        (&["run", "-j4", "x", "true"], "did you mean --limit?"),
        (&["hold", "x", "--concurrency=3"], "did you mean --limit?"),
        (&["acquire", "x", "--ttl", "60"], "did you mean --lease?"),
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
        // Other verbs
        (&["list", "api"], "did you mean --under api?"),
        (&["ps"], "did you mean: permits status NAME?"),
        (&["lock", "x", "true"], "did you mean: permits run NAME COMMAND?"),
        (&["unlock", "x"], "did you mean: permits release HANDLE"),
        (&["unpin", "x"], "did you mean: permits limit NAME --unpin?"),
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
}
