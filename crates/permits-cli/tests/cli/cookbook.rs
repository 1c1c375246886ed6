//! The commands of docs/cookbook.md, as they stand there: several copies of each at once, beside a log of the
//! scripts that they start. The Python package tests the blocks in Python.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use permits_testkit::Server;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Running, gate, output, status, without_home};

/// A script: its name, how often it runs, and how many run at once at most.
type Script = (&'static str, usize, usize);

/// The entries of the page: the heading, the number of copies that run at once, and the scripts.
const ENTRIES: [(&str, usize, &[Script]); 19] = [
    ("A mutex", 4, &[("post.sh", 4, 1)]),
    ("So many a minute, and so many at once", 12, &[("call-api.sh", 12, 8)]),
    ("Tokens a minute of a paid API", 12, &[("call-api.sh", 12, 12)]),
    ("When the API says no", 10, &[("call-api.sh", 10, 8)]),
    ("A limit that adapts", 0, &[]),
    ("A door that opens every 200 ms", 4, &[("step.sh", 4, 1)]),
    ("A limit for each tenant, within a limit for all", 12, &[("call-api.sh", 12, 10)]),
    ("Tenants of one API", 12, &[("call-api.sh", 12, 8)]),
    ("Interactive before batch", 10, &[("reindex.sh", 10, 8), ("answer.sh", 10, 8)]),
    ("Room for urgent work", 8, &[("reindex.sh", 8, 6), ("answer.sh", 8, 8)]),
    ("Readers and a writer", 4, &[("read.sh", 4, 4), ("write.sh", 4, 1)]),
    ("A licence that lingers", 8, &[("simulate.sh", 8, 8)]),
    ("One cron job over many hosts", 4, &[("backup.sh", 1, 1)]),
    ("A deploy lock", 4, &[("deploy.sh", 4, 1)]),
    ("A busy API client", 0, &[]),
    ("Database migrations", 4, &[("migrate.sh", 4, 1)]),
    ("The workers of a job queue", 0, &[]),
    ("A Kubernetes Job", 6, &[("report.sh", 6, 4)]),
    ("A CI job", 6, &[("test.sh", 6, 2)]),
];

/// Writes its name and `+` when it begins, its name and `-` when it ends. A short line is appended at once.
const SCRIPT: &str = "#!/bin/sh\necho \"${0##*/} +\" >>log\nsleep 0.2\necho \"${0##*/} -\" >>log\n";

#[track_caller]
fn page() -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cookbook.md"));
    page.expect("the page is there")
}

/// The entries of the page: headings and texts.
fn entries(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n## ").skip(1).map(|entry| entry.split_once('\n').expect("a heading is a line"))
}

/// The commands of the page by heading, as a shell runs them.
fn commands(page: &str) -> BTreeMap<&str, String> {
    let mut found = BTreeMap::new();
    for (heading, text) in entries(page) {
        let mut commands = String::new();
        for block in text.split("\n```").skip(1).step_by(2) {
            let (kind, block) = block.split_once('\n').expect("a fence is a line");
            for line in block.lines() {
                commands += &command(kind, line);
            }
        }
        found.insert(heading, commands);
    }
    found
}

/// The command in a line of a block of this kind.
pub(crate) fn command(kind: &str, line: &str) -> String {
    let rest = match kind {
        "sh" => Some(line.to_owned()),
        // Behind the five fields of the time; other lines set variables.
        "crontab" => line.splitn(6, ' ').nth(5).map(str::to_owned),
        "yaml" => line.trim().strip_prefix("command: ").map_or_else(
            || line.trim().strip_prefix("- permits").map(|rest| format!("permits{rest}")),
            |list| {
                let words: Vec<String> = serde_json::from_str(list).expect("it is a list of words");
                // Kubernetes replaces $(POD).
                Some(
                    words
                        .iter()
                        .map(|word| format!("'{word}' "))
                        .collect::<String>()
                        .replace("$(POD)", "pod-1"),
                )
            },
        ),
        _ => None,
    };
    rest.map(|command| command + "\n").unwrap_or_default()
}

/// The commands in a shell that finds `permits`.
fn shell(server: &Server, commands: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_permits")).parent().expect("it is in a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("there is one"));
    let mut command = Command::new("bash");
    command.args(["-euc", commands]).stdin(Stdio::null()).env("PATH", path).env("CI_JOB_ID", "1");
    // A new server grants nothing at first, because it may have lost its state.
    command.env("PERMITS_URL", format!("{}?recovery=off", server.url()));
    without_home(&mut command);
    command
}

/// Makes a script that the commands start.
fn add_script(directory: &TempDir, name: &str, text: &str) {
    let path = directory.path().join(name);
    fs::write(&path, text).expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
}

/// Starts `copies` of the commands at once, and returns the log of the scripts.
pub(crate) fn log_of(commands: &str, copies: usize, scripts: &[&str]) -> String {
    let (server, directory) = (Server::start(), TempDir::new().expect("a directory"));
    for script in scripts {
        add_script(&directory, script, SCRIPT);
    }
    let running: Vec<Running> =
        (0..copies).map(|_| Running::start(shell(&server, commands).current_dir(directory.path()))).collect();
    for running in running {
        let output = running.finish();
        assert_eq!(output.code, 0, "{commands}{}", output.stderr);
    }
    fs::read_to_string(directory.path().join("log")).expect("a script ran")
}

#[test]
fn the_commands_of_the_cookbook_do_what_it_says() {
    let page = page();
    let commands = commands(&page);
    let headings: Vec<&str> = ENTRIES.iter().map(|(heading, ..)| *heading).collect();
    let mut sorted = headings.clone();
    sorted.sort_unstable();
    assert_eq!(commands.keys().copied().collect::<Vec<_>>(), sorted, "each entry of the page is tested");

    for (heading, copies, scripts) in ENTRIES.iter().filter(|(_, copies, _)| *copies > 0) {
        let names: Vec<&str> = scripts.iter().map(|(name, ..)| *name).collect();
        let log = log_of(&commands[heading], *copies, &names);
        let mut running: BTreeMap<&str, usize> = names.iter().map(|name| (*name, 0)).collect();
        let mut runs = running.clone();
        for line in log.lines() {
            let (name, event) = line.split_once(' ').expect("a name and what happened");
            let of_name = running.get_mut(name).expect("the script is known");
            if event == "-" {
                *of_name -= 1;
                continue;
            }
            *of_name += 1;
            *runs.get_mut(name).expect("the script is known") += 1;
            let most = scripts.iter().find(|(script, ..)| *script == name).expect("it is known").2;
            assert!(*of_name <= most, "{heading}: {of_name} of {name} at once:\n{log}");
            let all: usize = running.values().sum();
            assert!(
                running.get("write.sh").is_none_or(|writers| *writers == 0 || all == 1),
                "{heading}:\n{log}"
            );
        }
        let expected: BTreeMap<&str, usize> = scripts.iter().map(|(name, runs, _)| (*name, *runs)).collect();
        assert_eq!(runs, expected, "{heading}");
    }
}

/// Ends with 29 after a 429 of the server at `$API`.
const CALL_API: &str = r#"#!/bin/bash
exec 3<>"/dev/tcp/127.0.0.1/$API"
printf 'GET / HTTP/1.0\r\n\r\n' >&3
read -r _ code _ <&3
[ "$code" != 429 ] || exit 29
"#;

#[test]
fn a_429_pauses_the_line_of_all_hosts() {
    let page = page();
    let commands = &commands(&page)["When the API says no"];
    let (server, directory) = (Server::start(), TempDir::new().expect("a directory"));
    add_script(&directory, "call-api.sh", CALL_API);
    let api = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = api.local_addr().expect("it is bound").port().to_string();
    let busy = "HTTP/1.0 429 Too Many Requests\r\nRetry-After: 30\r\n\r\n";
    let answer = std::thread::spawn(move || {
        let mut call = api.accept()?.0;
        // A request that is not read is reset with the connection.
        call.read_exact(&mut [0; 18])?;
        call.write_all(busy.as_bytes())
    });
    let called = output(shell(&server, commands).current_dir(directory.path()).env("API", port));
    assert_eq!(called.code, 29, "the command ends as the script does: {called:?}");
    answer.join().expect("no panic").expect("it was called");
    let status = status(&server, "api");
    assert_eq!(
        (&status["held"], &status["paused"], &status["pause_reason"]),
        (&json!(0), &json!(true), &json!("429"))
    );
    assert!(status["pause_remaining_ms"].as_u64().is_some_and(|left| left <= 30_000), "{status}");
    let next = output(&mut shell(&server, "permits run api --no-wait true"));
    assert_eq!(next.code, 75, "it waits for the end of the pause: {next:?}");
}

#[test]
fn the_holds_of_the_cookbook_are_its_runs_without_the_command() {
    let (page, server) = (page(), Server::start());
    let commands = commands(&page);
    let mut checked = 0;
    for (heading, text) in entries(&page) {
        for hold in text.split('`').filter(|code| code.starts_with("permits hold ")) {
            let run = hold.replacen("hold", "run", 1);
            assert!(commands[heading].contains(&format!("{run} ./")), "{heading}: {hold}");
            let mut command = shell(&server, &format!("TENANT=acme; {hold}"));
            let input = gate(&mut command);
            let running = Running::until(&mut command, "\"granted\"");
            drop(input);
            assert_eq!(running.finish().code, 0, "{hold}");
            checked += 1;
        }
    }
    assert_eq!(checked, 8, "each of the page");
}
