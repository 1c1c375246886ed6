//! Remedies for common mistakes: a run inside a run, arguments in a wrong order, options of other programs.

use permits_testkit::wait;
use rustix::process::Signal;

use crate::support::{
    CLOSED_PORT, Holder, Local, Output, Running, Store, on_both_stores, output, permits, run,
};

on_both_stores! {
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
        [(&["run", "--limit", "4", "echo", "no-such-program"][..], 127), (&["run", "echo", "hi"], 64)]
    {
        let ended = output(&mut permits(&store.url(), arguments));
        // The second one declares no limit.
        let url = Local::new().url();
        let ended = if code == 64 { output(&mut permits(&url, arguments)) } else { ended };
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""));
        assert!(ended.stderr.ends_with(says), "{}", ended.stderr);
    }
    let ended = output(&mut permits(&store.url(), ["run", "a-name", "--limit", "1", "no-such-program"]));
    assert_eq!(ended.stderr, "permits: command not found: \"no-such-program\"\n");
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
        (&["run", "x", "--max", "3", "true"][..], "--limit"),
        (&["run", "x", "-c", "3", "true"], "--limit"),
        (&["run", "-j4", "x", "true"], "--limit"),
        (&["hold", "x", "--concurrency=3"], "--limit"),
        (&["acquire", "x", "--ttl", "60"], "--lease"),
    ] {
        let refused = output(&mut permits(CLOSED_PORT, arguments));
        assert_eq!(refused.code, 64, "{arguments:?}");
        let tip = format!("permits:   tip: did you mean {meant}?\n");
        assert!(refused.stderr.contains(&tip), "{arguments:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("as a value"), "{}", refused.stderr);
    }
    let other = output(&mut permits(CLOSED_PORT, ["status", "x", "-c"]));
    assert!(!other.stderr.contains("--limit"), "{}", other.stderr);
}
