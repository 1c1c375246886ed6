//! The rows of the fault matrix for a moment each. `scripts/lab faults` runs all of them for longer, with
//! several limits.

use std::time::Duration;

use permits_testkit::faults::{Cell, ROWS, Verdict};
use permits_testkit::mutants::Split;
use permits_testkit::random;
use permits_testkit::worker::test_command;

/// Long enough for a fault or two.
const TIME: Duration = Duration::from_secs(2);

fn run(name: &str, mutant: Option<Split>) -> Verdict {
    let row = ROWS.iter().find(|row| row.name == name).expect("the matrix has the row");
    let worker = || test_command("worker_process");
    let verdict =
        Cell { row, limit: 5, time: TIME, seed: random::seed(), worker, driver: None, mutant, brief: false }
            .run();
    println!("{verdict:#?}");
    verdict
}

#[track_caller]
fn holds(name: &str) {
    let verdict = run(name, None);
    assert!(verdict.violations.is_empty() && verdict.grants > 0, "{verdict:#?}");
}

macro_rules! rows {
    ($($(#[$attribute:meta])* $row:ident,)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $row() {
                holds(&stringify!($row).replace('_', "-"));
            }
        )*

        #[test]
        fn every_row_has_a_test() {
            let tested = [$(stringify!($row).replace('_', "-")),*];
            assert_eq!(tested.as_slice(), ROWS.each_ref().map(|row| row.name));
        }
    };
}

rows! {
    client_kill,
    lanes_client_kill,
    sets_client_kill,
    client_pause,
    client_fork,
    operator,
    reply_lost,
    reply_late,
    partition,
    wakeup_cut,
    server_pause,
    restart_aof,
    restart_always,
    restart_empty,
    flushall,
    keys_vanish,
    script_flush,
    oom,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    sentinel_kill,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    sentinel_pause,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    sentinel_pause_loose,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    sentinel_failover,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    sentinel_split,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    sentinel_split_loose,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    cluster_kill,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    cluster_failover,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    cluster_migrate,
    keep_recall_lost,
    keep_keeper_killed,
    keep_keeper_stopped,
    keep_server_restarted,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    keep_failover,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    keep_lanes_cluster_kill,
    #[ignore = "a deployment, and slow: scripts/lab faults runs it"]
    keep_lanes_cluster_migrate,
    mixed,
}

/// Half of the workers use another semaphore, so the units that they hold come on top of the others'.
#[test]
fn more_than_the_limit_is_found() {
    let verdict = run("script-flush", Some(Split));
    let found = |texts: &[&str]| {
        verdict.violations.iter().any(|violation| texts.iter().all(|text| violation.contains(text)))
    };
    assert!(found(&["P2: ", "units at once, with a limit of 5"]), "{verdict:#?}");
    assert!(found(&["slots: two in one slot"]), "{verdict:#?}");
    assert!(verdict.excess.times > 0, "{verdict:#?}");
}
