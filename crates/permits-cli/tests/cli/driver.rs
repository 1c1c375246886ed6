//! The cases that every client must pass, against the command, against Go's driver, and against the driver of
//! `PERMITS_DRIVER`, which `scripts/more/driver` sets.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use permits_testkit::driver::{Case, Outcome, Subject, cases};
use permits_testkit::faults::{Cell, ROWS, Verdict};
use permits_testkit::{Cluster, Server, random, skip};
use tempfile::TempDir;

use crate::support::{Local, Store as _};

/// The command as the driver, on a store.
fn command_on(url: String) -> Subject {
    Subject::command(Path::new(env!("CARGO_BIN_EXE_permits")), url)
}

/// A driver on a server. The URL turns off the pause after the start of a server, which is about other
/// clients.
fn driver_on(server: &Server, driver: PathBuf) -> Subject {
    Subject { driver: vec![driver], ..command_on(format!("{}?recovery=off", server.url())) }
}

/// Runs all cases. Returns how many of each profile have passed, and the names of those that were not run.
#[track_caller]
fn table(subject: &Subject) -> String {
    let cases = cases();
    let outcomes = subject.run_all(&cases);
    let mut table = String::new();
    let mut failures = String::new();
    for profile in cases.chunk_by(|one, next| one.profile == next.profile) {
        let number = cases.iter().take_while(|case| case.profile != profile[0].profile).count();
        let outcomes = &outcomes[number..][..profile.len()];
        let passed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Passed)).count();
        writeln!(table, "{}: {passed} of {} cases pass", profile[0].profile, profile.len())
            .expect("a String");
        for (Case { profile, name, .. }, outcome) in profile.iter().zip(outcomes) {
            match outcome {
                Outcome::Passed => {}
                Outcome::Outside(lacks) => {
                    writeln!(
                        table,
                        "  not run, without {}: {name}",
                        Vec::from_iter(lacks.iter().map(|field| &**field)).join(", ")
                    )
                    .expect("a String");
                }
                Outcome::Failed(text) => {
                    writeln!(failures, "{profile}: {name}\n    {text}").expect("a String")
                }
            }
        }
    }
    assert!(failures.is_empty(), "{table}\nfailed:\n{failures}");
    table
}

#[track_caller]
fn passes_every_case(url: String) {
    let table = table(&command_on(url));
    assert!(!table.contains("not run"), "{table}");
}

#[test]
fn the_command_passes_every_case_on_a_server() {
    let server = Server::start();
    passes_every_case(format!("{}?recovery=off", server.url()));
}

#[test]
fn the_command_passes_every_case_on_a_cluster() {
    // A cluster needs sharded channels, which servers before 7.0 do not have.
    if skip::before(7, 0) {
        return;
    }
    let cluster = Cluster::start();
    passes_every_case(format!("{}/?recovery=off", cluster.url()));
}

#[test]
fn the_command_passes_every_case_on_one_machine() {
    let local = Local::new();
    passes_every_case(local.url());
}

/// Builds Go's driver from a copy of the package, in which one text is replaced.
pub(crate) fn go_driver(directory: &TempDir, file: &str, from: &str, to: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/go");
    let copy = directory.path();
    for of in ["", "internal/driver"] {
        fs::create_dir_all(copy.join(of)).expect("a directory");
        for entry in fs::read_dir(package.join(of)).expect("a package") {
            let path = entry.expect("it can be read").path();
            if path.extension().is_some_and(|extension| extension == "go" || extension == "mod") {
                fs::copy(&path, copy.join(of).join(path.file_name().expect("a name"))).expect("a copy");
            }
        }
    }
    if !file.is_empty() {
        let text = fs::read_to_string(copy.join(file)).expect("a file of the package");
        assert_eq!(text.matches(from).count(), 1, "{file} has this once: {from}");
        fs::write(copy.join(file), text.replace(from, to)).expect("it can be changed");
    }
    let mut command = Command::new("go");
    command.args(["build", "-o", "go-driver", "./internal/driver"]).current_dir(copy);
    command.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    let output = command.output().expect("go runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    copy.join("go-driver")
}

#[test]
fn go_passes_every_case() {
    if skip::without_program("go") {
        return;
    }
    let (server, directory) = (Server::start(), tempfile::tempdir().expect("a directory"));
    let driver = go_driver(&directory, "", "", "");
    let table = table(&driver_on(&server, driver));
    assert!(!table.contains("not run"), "{table}");
}

/// A fault in a copy of the Go package: `to` stands in the file in place of `from`. The case finds the fault
/// at the step.
struct Fault {
    file: &'static str,
    from: &'static str,
    to: &'static str,
    case: &'static str,
    step: &'static str,
}

const FAULTS: [Fault; 7] = [
    // A lost wake-up: a grant that comes beside another request wakes nobody.
    Fault {
        file: "conn.go",
        from: "call.grant = e\n\t\t\tcall.reply <- *e\n",
        to: "call.grant = e\n\t\t\tif len(c.calls) == 1 {\n\t\t\t\tcall.reply <- *e\n\t\t\t}\n",
        case: "waiters are granted in order",
        step: r#"b< {"id":1,"event":"granted","holder":"d"}"#,
    },
    // A permit that stays held after its loss.
    Fault {
        file: "conn.go",
        from: r#"case "released", "lost", "failed", "handed_over":"#,
        to: r#"case "released", "failed", "handed_over":"#,
        case: "a permit is held no longer than asked",
        step: r#"a< {"id":1,"event":"lost"}"#,
    },
    // A release that is not sent.
    Fault {
        file: "conn.go",
        from: "c.conn.put(about(c.id, how, true))",
        to: "c.conn.put(nil)",
        case: "tokens strictly increase",
        step: r#"a< {"id":1,"event":"released"}"#,
    },
    // The slot of an earlier grant.
    Fault {
        file: "permit.go",
        from: "func (p *Permit) Slot() int { return p.grant.Slot }",
        to: "func (p *Permit) Slot() int {\n\tif old == nil {\n\t\told = p.grant\n\t}\n\treturn old.Slot\n}\n\nvar old *event",
        case: "slots are distinct and the lowest free",
        step: r#"a< {"id":2,"event":"granted","slot":2}"#,
    },
    // A refused request that is made again.
    Fault {
        file: "client.go",
        from: "if !hasDied || isRetry || request[\"change\"] != nil {",
        to: "if err == nil || isRetry || request[\"change\"] != nil {",
        case: "a try on a full one is refused for now",
        step: r#"a< {"id":2,"event":"failed","exit_code":75}"#,
    },
    // A set of which only the first permit is requested.
    Fault {
        file: "semaphore.go",
        from: "line[\"also\"] = others",
        to: "_ = others",
        case: "a set is acquired completely or not at all",
        step: r#"a< {"id":1,"event":"failed","exit_code":75}"#,
    },
    // A change that is made whatever the version is.
    Fault {
        file: "changes.go",
        from: "\"if_version\": c.IfVersion",
        to: "\"if_version\": nil",
        case: "a change is made once at its version",
        step: r#"b< {"id":1,"event":"failed"}"#,
    },
];

#[test]
fn faults_in_a_copy_of_the_go_package_are_found() {
    if skip::without_program("go") {
        return;
    }
    let server = Server::start();
    let cases = cases();
    thread::scope(|scope| {
        for fault in &FAULTS {
            scope.spawn(|| {
                let directory = tempfile::tempdir().expect("a directory");
                let driver = go_driver(&directory, fault.file, fault.from, fault.to);
                // Some faults hang: their event never comes, however long the test waits.
                let subject = Subject { patience: Duration::from_secs(10), ..driver_on(&server, driver) };
                let case = cases.iter().find(|case| case.name == fault.case).expect("a case");
                match subject.run(case) {
                    Outcome::Failed(text) => assert!(text.starts_with(fault.step), "{}: {text}", fault.to),
                    other => panic!("{}: {other:?}", fault.to),
                }
            });
        }
    });
}

/// Runs a row of the fault matrix for a moment, with a driver in place of the library.
fn row(name: &str, limit: u32, driver: PathBuf) -> Verdict {
    let row = ROWS.iter().find(|row| row.name == name).expect("the matrix has the row");
    let subject = Subject { driver: vec![driver], ..command_on(String::new()) };
    let server = Server::start();
    let has = Subject { url: server.url(), ..subject.clone() }.has().expect("a hello");
    assert_eq!(row.outside(&has), None);
    let worker = || unreachable!("the workers are drivers");
    let (time, seed, driver) = (Duration::from_secs(2), random::seed(), Some(subject));
    Cell { row, limit, time, seed, worker, driver, mutant: None, brief: false }.run()
}

#[test]
fn rows_of_the_fault_matrix_hold_with_go() {
    if skip::without_program("go") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let driver = go_driver(&directory, "", "", "");
    for name in ["client-kill", "server-pause"] {
        let verdict = row(name, 5, driver.clone());
        assert!(verdict.violations.is_empty() && verdict.grants > 0, "{name}: {verdict:#?}");
    }
}

/// The fault is an old slot in a grant. Rows find other faults as well, such as a grant that is kept after
/// the loss, but a worker whose driver is so wrong may not end for minutes.
#[test]
fn a_fault_in_a_copy_of_the_go_package_is_found_by_a_row() {
    if skip::without_program("go") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let fault = &FAULTS[3];
    let driver = go_driver(&directory, fault.file, fault.from, fault.to);
    // A row of two seconds may not meet the fault, so run several.
    let is_found = |_| {
        let violations = row("client-kill", 5, driver.clone()).violations;
        violations.iter().any(|text| text.starts_with("slots: "))
    };
    assert!((0..8).any(is_found), "no row finds {:?}", fault.to);
}

#[test]
fn the_driver_of_the_variable_passes() {
    if let Some(driver) = env::var_os("PERMITS_DRIVER") {
        let server = Server::start();
        print!("{}", table(&driver_on(&server, driver.into())));
    }
}
