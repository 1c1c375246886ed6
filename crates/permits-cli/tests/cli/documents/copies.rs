//! The commands in blocks with the words `copies=N`: several copies of each at once, beside a log of the
//! programs that they start. `post.sh=8/1` is run 8 times by them, and once at once at most. The packages for
//! Python and Node run the blocks in their languages.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use permits_testkit::Server;
use permits_testkit::documents::{self, Block, Page, Run};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Running, add_program, gate, output, status};

/// Writes its name and `+` when it begins, its name and `-` when it ends. A short line is appended at once.
const SCRIPT: &str = "#!/bin/sh\necho \"${0##*/} +\" >>log\nsleep 0.2\necho \"${0##*/} -\" >>log\n";

/// The languages of the packages, which run their blocks themselves.
const IN_PACKAGES: [&str; 2] = ["python", "ts"];

/// The commands of a block, as a shell runs them: of none, if it is a program.
fn commands(block: &Block<'_>) -> String {
    block.text.lines().map(|line| command(block.language, line)).collect()
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

/// The commands in a shell of a host.
fn shell(server: &Server, commands: &str) -> Command {
    // A new server grants nothing at first, because it may have lost its state.
    let url = format!("{}?recovery=off", server.url());
    // The shell runs in the directory that has the programs of the commands.
    let commands = commands.replace("redis://127.0.0.1/", &url);
    let mut shell = crate::support::shell(&url, &format!("set -eu\nPATH=$PWD:$PATH\n{commands}"));
    shell.env("CI_JOB_ID", "1").env("BRANCH", "main").env("USER", "app");
    shell
}

/// Starts `copies` of the commands at once, and returns the log of the scripts.
pub(crate) fn log_of(commands: &str, copies: usize, scripts: &[&str]) -> String {
    let (server, directory) = (Server::start(), TempDir::new().expect("a directory"));
    for script in scripts {
        add_program(directory.path(), script, SCRIPT);
    }
    let running: Vec<Running> =
        (0..copies).map(|_| Running::start(shell(&server, commands).current_dir(directory.path()))).collect();
    for running in running {
        let output = running.finish();
        assert_eq!(output.code, 0, "{commands}{}", output.stderr);
    }
    fs::read_to_string(directory.path().join("log")).unwrap_or_default()
}

#[test]
fn copies_of_a_block_call_their_scripts_as_often_as_its_words_say() {
    let pages = documents::pages();
    let mut found = 0;
    for block in pages.iter().flat_map(Page::blocks).filter(|block| !IN_PACKAGES.contains(&block.language)) {
        let Some(Run::Copies(copies, scripts)) = block.run() else { continue };
        found += 1;
        let place = format!("{}: {}", block.page, block.heading);
        // Counts by name: the runs so far, the runs at present, the runs that there must be, and the most at
        // once.
        let scripts = scripts.into_iter().map(|(name, runs, most)| (name, [0, 0, runs, most]));
        let mut scripts: BTreeMap<&str, [usize; 4]> = scripts.collect();
        let names: Vec<&str> = scripts.keys().copied().collect();
        let log = log_of(&commands(&block), copies, &names);
        for line in log.lines() {
            let (name, event) = line.split_once(' ').expect("a name and what happened");
            let [ran, at_once, _, most] = scripts.get_mut(name).expect("the script is known");
            if event == "-" {
                *at_once -= 1;
                continue;
            }
            (*ran, *at_once) = (*ran + 1, *at_once + 1);
            assert!(at_once <= most, "{place}: {at_once} of {name} at once:\n{log}");
            let all: usize = scripts.values().map(|[_, at_once, ..]| at_once).sum();
            let writers = scripts.get("write.sh").map_or(0, |[_, at_once, ..]| *at_once);
            assert!(writers == 0 || all == 1, "{place}:\n{log}");
        }
        assert!(scripts.values().all(|[ran, _, runs, _]| ran == runs), "{place}: {scripts:?}");
    }
    assert!(found > 20, "only {found} blocks were found");
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
    let pages = documents::pages();
    let mut blocks = pages.iter().flat_map(Page::blocks).filter(|block| block.language == "sh");
    let block = blocks.find(|block| block.text.contains("--reason 429")).expect("a page has it");
    let commands = commands(&block);
    let (server, directory) = (Server::start(), TempDir::new().expect("a directory"));
    add_program(directory.path(), "call-api.sh", CALL_API);
    let api = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = api.local_addr().expect("it is bound").port().to_string();
    let busy = "HTTP/1.0 429 Too Many Requests\r\nRetry-After: 30\r\n\r\n";
    let answer = std::thread::spawn(move || {
        let mut call = api.accept()?.0;
        // A request that is not read is reset with the connection.
        call.read_exact(&mut [0; 18])?;
        call.write_all(busy.as_bytes())
    });
    let called = output(shell(&server, &commands).current_dir(directory.path()).env("API", port));
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
    let (pages, server) = (documents::pages(), Server::start());
    let page = pages.iter().find(|page| page.path.ends_with("/cookbook.md")).expect("it is there");
    let holds: Vec<&str> = page.text.split('`').filter(|code| code.starts_with("permits hold ")).collect();
    assert_eq!(holds.len(), 7, "each of the page");
    for hold in holds {
        let run = format!("{} ./", hold.replacen("hold", "run", 1));
        assert!(page.blocks().any(|block| commands(&block).contains(&run)), "{hold}");
        let mut command = shell(&server, &format!("TENANT=acme; {hold}"));
        let input = gate(&mut command);
        let running = Running::until(&mut command, "\"granted\"");
        drop(input);
        assert_eq!(running.finish().code, 0, "{hold}");
    }
}
