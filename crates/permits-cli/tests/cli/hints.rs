//! Remedies for common mistakes: options of other programs.

use crate::support::{CLOSED_PORT, Local, Running, gate, output, permits, run};

#[test]
fn the_options_of_flock_are_known() {
    let store = Local::new();
    let mut holder = run(&store, "x", "--limit 1", "echo ready; read x");
    let _gate = gate(&mut holder);
    let _holder = Running::until(&mut holder, "ready");
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
