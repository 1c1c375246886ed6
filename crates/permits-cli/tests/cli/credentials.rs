//! A password that is replaced while `run`, `hold --many` and `serve` use it, from a file and from a command.
//! `PERMITS_CASES` multiplies the rotations; `scripts/lab rotations` runs them for more than a minute.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use permits_testkit::{Connection, Resp, Server, random, wait};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::hold::Hold;
use crate::serve::Serve;
use crate::support::{CLOSED_PORT, Running, gate, output, permits, prepare};

/// The number of rotations, times `PERMITS_CASES`, and the time between two of them.
const ROTATIONS: u32 = 4;
const EVERY: Duration = Duration::from_millis(400);

/// A server with a user whose password is in a file.
struct Rotated {
    server: Server,
    operator: Connection,
    directory: TempDir,
}

fn ask(server: &mut Connection, command: &[&str]) {
    let reply = server.call(command).expect("it replies");
    assert!(!matches!(reply, Resp::Error(_)), "{command:?}: {reply:?}");
}

impl Rotated {
    fn start() -> Self {
        let server = Server::start();
        prepare(&server, "semaphore");
        let mut operator = server.connect().expect("it is up");
        ask(&mut operator, &["ACL", "SETUSER", "app", "on", ">s3cr3t-0", "~*", "&*", "+@all"]);
        let directory = tempfile::tempdir().expect("there is room");
        let rotated = Self { server, operator, directory };
        rotated.write("s3cr3t-0");
        rotated
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("password")
    }

    fn write(&self, password: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, format!("{password}\n")).expect("there is room");
        std::fs::rename(new, self.file()).expect("it is ours");
    }

    /// Replaces the password, and makes all clients connect again.
    fn rotate(&mut self, number: u32) {
        let (old, new) = (format!("<s3cr3t-{}", number - 1), format!("s3cr3t-{number}"));
        self.write(&new);
        // New connections are refused for a moment, because the server does not have the new password yet.
        ask(&mut self.operator, &["CLIENT", "KILL", "TYPE", "pubsub"]);
        std::thread::sleep(Duration::from_millis(30));
        ask(&mut self.operator, &["ACL", "SETUSER", "app", &format!(">{new}"), &old]);
        ask(&mut self.operator, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    fn permits<const N: usize>(&self, arguments: [&str; N], from: Source) -> Command {
        let mut command = permits(&format!("redis://app@{}/", self.server.address()), arguments);
        match from {
            Source::File => command.env("PERMITS_PASSWORD_FILE", self.file()),
            Source::Command => {
                command.env("PERMITS_PASSWORD_COMMAND", format!("cat {}", self.file().display()))
            }
        };
        command
    }
}

#[derive(Clone, Copy)]
enum Source {
    File,
    Command,
}

#[test]
fn a_password_is_replaced_under_run_hold_and_serve() {
    let mut rotated = Rotated::start();
    let mut gates = Vec::new();
    let mut runs = Vec::new();
    for (name, from) in [("a", Source::File), ("b", Source::Command)] {
        let arguments = ["run", name, "--limit", "1", "--lease", "2s", "--recovery", "off"];
        let mut run = rotated.permits(arguments, from);
        run.args(["sh", "-c", "echo ready; read x; exit 3"]);
        gates.push(gate(&mut run));
        runs.push(Running::until(&mut run, "ready"));
    }
    let mut many = Hold::of(&mut rotated.permits(["hold", "--many"], Source::Command));
    many.write(json!({"id": "held", "acquire": "held", "limit": 1, "lease_ms": 2000}));
    many.event("held", "granted");
    let mut serve =
        rotated.permits(["serve", "--listen", "127.0.0.1:0", "--interval", "100ms"], Source::Command);
    let serve = Serve::of(&mut serve, None);
    let mut id = 0;
    let rotations = ROTATIONS * random::cases();
    for number in 1..=rotations {
        rotated.rotate(number);
        let until = std::time::Instant::now() + EVERY;
        while std::time::Instant::now() < until {
            id += 1;
            many.write(json!({"id": id, "acquire": "semaphore", "limit": 1}));
            many.event(id, "granted");
            many.write(json!({"id": id, "release": true}));
            many.event(id, "released");
            assert_eq!(serve.read("/api/v1/semaphores").status, 200);
        }
    }
    println!("{rotations} rotations, {id} cycles and reads");
    assert!(id > rotations, "{id} cycles in {rotations} rotations");
    many.write(json!({"id": "held", "renew": true}));
    many.event("held", "held");
    drop(gates);
    let mut said = String::new();
    for run in runs {
        let ran = run.finish();
        ran.prints(3, "ready\n");
        said += &ran.stderr;
    }
    let (held, events) = many.finish();
    held.ends(0);
    let failed: Vec<_> = events
        .iter()
        .filter(|event| ["lost", "failed"].contains(&event["event"].as_str().unwrap_or("")))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    said += &held.stderr;
    said += &serve.end(Signal::TERM).stderr;
    assert!(!said.contains("s3cr3t"), "{said}");
}

/// A password command that fails later leaves open connections alone, and the failure is reported once.
#[test]
fn a_command_that_fails_later_is_a_warning() {
    let rotated = Rotated::start();
    let flag = rotated.directory.path().join("broken");
    let mut run = permits(
        &format!("redis://app@{}/", rotated.server.address()),
        ["run", "semaphore", "--limit", "1", "sh", "-c", "echo ready; read x; exit 3"],
    );
    let printed = r#"{"password": "s3cr3t-0", "expires_in_s": 0.5}"#;
    let command = format!("test -e {} && echo s3cr3t && exit 9; echo '{printed}'", flag.display());
    run.env("PERMITS_PASSWORD_COMMAND", command);
    let gate = gate(&mut run);
    let run = Running::until(&mut run, "ready");
    std::fs::write(&flag, "").expect("there is room");
    let says = "the command in PERMITS_PASSWORD_COMMAND: it ended with exit code 9";
    assert!(wait::until(|| run.stderr().contains(says)), "{}", run.stderr());
    drop(gate);
    let ran = run.finish();
    ran.prints(3, "ready\n");
    assert_eq!(ran.stderr.matches(says).count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("s3cr3t"), "{}", ran.stderr);
}

#[test]
fn a_password_with_two_sources_or_a_bad_one_is_named() {
    let directory = tempfile::tempdir().expect("there is room");
    let file = directory.path().join("password");
    std::fs::write(&file, "s3cr3t\n").expect("there is room");
    let file = file.display().to_string();
    let server = Server::start();
    let url = server.url();
    let closed = CLOSED_PORT.to_owned();
    let with_password = "redis://:s3cr3t@127.0.0.1:1/".to_owned();
    let with_file = format!("{closed}?password_file={file}");
    const FILE: &str = "PERMITS_PASSWORD_FILE";
    const COMMAND: &str = "PERMITS_PASSWORD_COMMAND";
    for (url, variables, code, says) in [
        (&closed, vec![(FILE, &*file), (COMMAND, "echo p")], 64, vec![FILE, COMMAND, "unset one"]),
        (&closed, vec![(FILE, "")], 64, vec!["PERMITS_PASSWORD_FILE is empty"]),
        (&closed, vec![(COMMAND, " ")], 64, vec!["PERMITS_PASSWORD_COMMAND is empty"]),
        (&closed, vec![(FILE, "/nowhere/password")], 64, vec!["/nowhere/password", "cannot be read"]),
        (&with_password, vec![(FILE, &*file)], 64, vec!["it has a password itself", &file]),
        (&with_password, vec![(COMMAND, "echo p")], 64, vec!["it has a password itself", COMMAND]),
        (&with_file, vec![(COMMAND, "echo p")], 64, vec![&*file, COMMAND]),
        (&"memory:".to_owned(), vec![(FILE, &*file)], 64, vec!["no passwords", &file]),
        (&url, vec![(COMMAND, "echo s3cret; exit 1")], 69, vec![COMMAND, "exit code 1"]),
        (&url, vec![(COMMAND, "yes s3cret")], 69, vec![COMMAND, "more than 16 kB"]),
        (&url, vec![(FILE, &*file)], 69, vec!["the server has no password", &file]),
    ] {
        let mut command = permits(url, ["list", "--store-timeout", "100ms"]);
        let refused = output(command.envs(variables.iter().copied()));
        refused.prints(code, "");
        assert!(says.iter().all(|part| refused.stderr.contains(part)), "{says:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("s3cr"), "{}", refused.stderr);
    }
}
