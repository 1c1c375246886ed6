//! The line: never more than the limit, first come, first served, and what is shown of it.

use std::fs;

use permits_testkit::wait;

use crate::support::{
    LIMIT, Output, Running, assert_own_lines, counts, fresh, gate, output, run, status, until_counts,
};

#[test]
fn twenty_processes_never_run_more_than_three_at_once() {
    let (server, name) = fresh();
    let directory = tempfile::tempdir().expect("a directory");
    // The slot's file is made only if there is none: two holders of one slot would fail. A line for the
    // beginning is written after it, and one for the end before it, so what the lines show has happened.
    let script = r#"
        set -C
        : > "$DIR/slot.$PERMITS_SLOT" || exit 99
        echo + >> "$DIR/log"; sleep 0.05; echo - >> "$DIR/log"
        rm "$DIR/slot.$PERMITS_SLOT""#;
    let all: Vec<Running> = std::iter::repeat_with(|| {
        Running::start(run(&server, &name, "--limit 3", script).env("DIR", directory.path()))
    })
    .take(20)
    .collect();
    for running in all {
        let Output { code, stderr, .. } = running.finish();
        assert_eq!((code, stderr.as_str()), (0, ""));
    }
    let log = fs::read_to_string(directory.path().join("log")).expect("it was written");
    assert_eq!(log.lines().filter(|line| *line == "+").count(), 20);
    let mut at_once = 0;
    for line in log.lines() {
        at_once += if line == "+" { 1 } else { -1 };
        assert!((0..=3).contains(&at_once), "{log}");
    }
    assert_eq!(counts(&server, &name), (0, 0));
}

#[test]
fn who_came_first_runs_first() {
    let (server, name) = fresh();
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let mut first = run(&server, &name, "--limit 2 --weight 2", "echo ready; read x");
    let gate = gate(&mut first);
    let first = Running::until(&mut first, "ready");
    // The heavy one in the middle is not overtaken by lighter ones that came later.
    let weights = [2, 1, 2, 1, 1, 2];
    let waiters: Vec<Running> = weights
        .iter()
        .enumerate()
        .map(|(place, weight)| {
            let script = format!("echo {place} >> {}", log.display());
            let waiter = Running::start(&mut run(&server, &name, &format!("--weight {weight}"), &script));
            until_counts(&server, &name, (1, place + 1));
            waiter
        })
        .collect();
    let line: Vec<u64> = status(&server, &name)["waiters"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|waiter| waiter["position"].as_u64().expect("a number"))
        .collect();
    assert_eq!(line, [0, 1, 2, 3, 4, 5]);
    drop(gate);
    assert_eq!(first.finish().code, 1);
    for waiter in waiters {
        assert_eq!(waiter.finish().code, 0);
    }
    // 3 and 4 run together, in whichever order.
    let log = fs::read_to_string(log).expect("it was written");
    assert!(["0\n1\n2\n3\n4\n5\n", "0\n1\n2\n4\n3\n5\n"].contains(&log.as_str()), "{log}");
}

#[test]
fn nothing_is_said_where_nobody_looks() {
    let (server, name) = fresh();
    let mut first = run(&server, &name, "--limit 1", "echo ready; read x");
    let gate = gate(&mut first);
    let _first = Running::until(&mut first, "ready");
    let silent = Running::start(&mut run(&server, &name, "", "true"));
    let verbose = Running::start(&mut run(&server, &name, "-v", "true"));
    assert!(wait::until(LIMIT, || verbose.stderr().contains("1 of 1 held by")), "{}", verbose.stderr());
    drop(gate);
    assert_eq!(silent.finish().stderr, "");
    let Output { code, stderr, .. } = verbose.finish();
    assert_eq!(code, 0);
    assert_own_lines(&stderr);
    assert!(stderr.contains(" granted to "), "{stderr}");
    assert!(!stderr.contains('\x1b'), "{stderr}");
}

#[test]
fn a_wait_is_over_when_the_permit_comes() {
    let (server, name) = fresh();
    let mut first = run(&server, &name, "--limit 1", "echo ready; read x");
    let gate = gate(&mut first);
    let _first = Running::until(&mut first, "ready");
    let waiter = Running::start(&mut run(&server, &name, "--wait 1h", "echo ran"));
    until_counts(&server, &name, (1, 1));
    drop(gate);
    assert_eq!(waiter.finish().stdout, "ran\n");
    assert_eq!(output(&mut run(&server, &name, "--no-wait", "true")).code, 0, "nothing is left behind");
}
