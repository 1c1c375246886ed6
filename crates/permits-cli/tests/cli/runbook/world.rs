//! A server, programs that use it, and the terminal of an operator.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use permits::{AcquireOptions, Client};
use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, Proxy, Sentinels, Server, skip, wait};
use regex::Regex;
use tempfile::TempDir;

use super::page::Step;
use crate::support::{Running, Store, counts, output, prepare, until_counts, without_home};

/// The semaphore of the page.
const NAME: &str = "exports";

/// The program that uses it. It does not end.
const PROGRAM: &str = "export.sh";

/// The address of `permits serve` on the page.
const SERVE: &str = "127.0.0.1:9710";

/// The lease of a permit that is kept.
const LEASE: Duration = Duration::from_secs(3_600);

/// The programs that the page uses, apart from those of every system.
const PROGRAMS: [&str; 3] = ["redis-cli", "curl", "jq"];

/// The beginnings of commands that change nothing. They are repeated until their output is that of the page,
/// because the effect of a command may come a moment later.
const READS: [&str; 8] = [
    "permits status ",
    "permits list",
    "permits doctor",
    "redis-cli -u \"$PERMITS_URL\" INFO",
    "redis-cli -h sentinel-1 ",
    "grep ",
    "tail ",
    "curl ",
];

/// The parts of an output that differ from run to run, and the words that replace them on both sides.
const VARYING: [(&str, &str); 12] = [
    (r"\b[\w.-]+:\d+/[\w-]+\.\d+", "HOLDER"),
    (r"[\w.-]+@[\w.-]+", "OPERATOR"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d+-\d+-\d+T\d+:\d+:\d+Z", "MOMENT"),
    (r"\b\d{16}\b", "TOKEN"),
    (r"\b\d+(\.\d+)? ?(ms|[smhd])( \d+ [smh])?\b", "TIME"),
    (r"(_seconds |uptime_in_seconds:)[\d.e-]+", "${1}NUMBER"),
    (r"longest TIME of \d+", "longest TIME of NUMBER"),
    (r"\b\d{10}\b", "SECONDS"),
    (r"(?m)^\d{4,5}$", "PORT"),
    (r"\d+ % of maxmemory", "PART of maxmemory"),
    (" +", " "),
];

/// A situation.
pub(super) struct World {
    // Declared before the server and the directory: the programs end first.
    programs: Vec<Running>,
    /// The client of a program with the library.
    client: Option<Client>,
    /// The store of the programs and the operator: the server, the proxy before it, or that of the sentinels.
    url: String,
    proxy: Option<Proxy>,
    sentinels: Option<Sentinels>,
    pub(super) server: Server,
    directory: TempDir,
    /// Texts of the page, and those that replace them in commands.
    replaced: Vec<(&'static str, String)>,
}

impl World {
    /// A server that keeps its data, on which the semaphore grants at once.
    #[track_caller]
    pub(super) fn new() -> Self {
        let server = Server::builder().append_only().start();
        prepare(&server, NAME);
        let world = Self {
            programs: Vec::new(),
            client: None,
            url: server.url(),
            proxy: None,
            sentinels: None,
            server,
            directory: TempDir::new().expect("a directory"),
            replaced: Vec::new(),
        };
        world.run(&format!("printf '#!/bin/sh\\nexec sleep 1000\\n' >{PROGRAM}; chmod +x {PROGRAM}"));
        world
    }

    /// Delays each reply of the server.
    pub(super) fn delay(&mut self, delay: Duration) {
        let proxy = Proxy::start(self.server.address());
        proxy.delay_replies(delay);
        self.url = proxy.url();
        self.proxy = Some(proxy);
    }

    /// Uses the primary that sentinels name.
    pub(super) fn use_sentinels(&mut self) {
        let sentinels = Sentinels::start();
        self.url = sentinels.url();
        self.replaced.push(("sentinel-1", "127.0.0.1".to_owned()));
        self.replaced.push(("26379", sentinels.sentinels()[0].port().to_string()));
        self.sentinels = Some(sentinels);
    }

    /// Replaces the primary by a replica.
    #[track_caller]
    pub(super) fn fail_over(&self) {
        self.sentinels.as_ref().expect("there are sentinels").failover();
    }

    /// A shell with the operator's environment.
    fn shell(&self, script: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_permits")).parent().expect("it is in a directory");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("there is one"));
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).current_dir(self.directory.path()).stdin(Stdio::null());
        without_home(&mut shell).env("PATH", path).env("PERMITS_URL", &self.url).env_remove("TERM");
        // The user of the labels on the page.
        shell.env("USER", "app").env_remove("PERMITS_LABEL");
        shell
    }

    /// Runs commands that are not on the page.
    #[track_caller]
    pub(super) fn run(&self, script: &str) {
        let output = output(&mut self.shell(&format!("set -e\n{script}")));
        assert_eq!(output.code, 0, "{script}: {}{}", output.stdout, output.stderr);
    }

    /// Starts a program in the background, and returns its number.
    fn start(&mut self, command: &str) -> usize {
        self.programs.push(Running::start(&mut self.shell(&format!("exec {command}"))));
        self.programs.len() - 1
    }

    /// Starts `permits run exports OPTIONS` with a command that does not end, and waits until it holds or
    /// waits. Returns its number.
    #[track_caller]
    pub(super) fn job(&mut self, options: &str) -> usize {
        let (holders, waiters) = counts(self, NAME);
        let number = self.start(&format!("permits run {NAME} {options} ./{PROGRAM}"));
        let came = wait::until(|| {
            let now = counts(self, NAME);
            now.0 + now.1 > holders + waiters
        });
        assert!(came, "{options}: {}", self.programs[number].stderr());
        number
    }

    /// Lets a program with the library keep a permit with this label, for longer than any situation takes.
    #[track_caller]
    pub(super) fn keep(&mut self, label: &str) {
        let client = Client::connect(&self.url).wait().expect("the server is up");
        let semaphore = client.named(NAME, 1).keep(LEASE / 3);
        let options = AcquireOptions::new().label(label).lease(LEASE);
        let permit = semaphore.acquire_with(options).wait().expect("it is free");
        permit.release().wait().expect("it is held");
        self.client = Some(client);
    }

    /// Starts `permits serve`, which takes the place of the one of the page. Returns its number.
    #[track_caller]
    pub(super) fn serve(&mut self, options: &str) -> usize {
        let number = self.start(&format!("permits serve --listen 127.0.0.1:0 {options}"));
        let program = &self.programs[number];
        program.prints("/\n");
        let line = program.stdout();
        let address =
            line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix('/'));
        self.replaced.push((SERVE, address.unwrap_or_else(|| panic!("{line}")).to_owned()));
        number
    }

    /// Lets a process id of the page stand for that of a program.
    pub(super) fn is_process(&mut self, number: usize, id: &'static str) {
        self.replaced.push((id, self.programs[number].guard.pid().to_string()));
    }

    /// Stops a program, which renews nothing from then on.
    pub(super) fn pause(&mut self, number: usize) {
        self.programs[number].guard.pause();
    }

    pub(super) fn resume(&mut self, number: usize) {
        self.programs[number].guard.resume();
    }

    pub(super) fn kill(&mut self, number: usize) {
        self.programs[number].guard.kill();
    }

    /// Ends a program as an operator does.
    #[track_caller]
    pub(super) fn end(&mut self, number: usize) {
        self.programs[number].guard.terminate();
        self.until_end(number);
    }

    #[track_caller]
    pub(super) fn until_end(&mut self, number: usize) {
        let program = &mut self.programs[number];
        assert!(program.guard.wait_timeout(HANGS).is_some(), "it runs: {}", program.stderr());
    }

    /// Waits for these numbers of holders and waiters.
    #[track_caller]
    pub(super) fn until_counts(&self, expected: (usize, usize)) {
        until_counts(self, NAME, expected);
    }

    /// Runs the commands of the page, and compares their output with the page's.
    #[track_caller]
    pub(super) fn run_steps(&self, steps: &[Step]) {
        let needed = |program: &&&str| steps.iter().any(|step| step.command.contains(**program));
        if PROGRAMS.iter().filter(needed).any(|program| skip::without_program(program)) {
            return;
        }
        for Step { command, output: shown } in steps {
            let command = self.replaced.iter().fold(command.clone(), |all, (old, new)| all.replace(old, new));
            let script = format!("exec 2>&1\n{command}");
            let limit =
                if READS.iter().any(|read| command.starts_with(read)) { HANGS } else { Duration::ZERO };
            let mut printed = String::new();
            let is_shown = wait::within(limit, || {
                printed = output(&mut self.shell(&script)).stdout;
                constant_part(&printed) == constant_part(shown)
            });
            assert!(is_shown, "$ {command}\n{printed}\nin place of\n{shown}\nof the page");
        }
    }
}

impl Store for World {
    fn url(&self) -> String {
        self.url.clone()
    }
}

/// The text without the parts that differ from run to run.
fn constant_part(text: &str) -> String {
    static EXPRESSIONS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let compiled = |(expression, word)| (Regex::new(expression).expect("it is valid"), word);
        VARYING.map(compiled).into()
    });
    let replaced = EXPRESSIONS
        .iter()
        .fold(text.to_owned(), |text, (expression, word)| expression.replace_all(&text, *word).into_owned());
    replaced.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn constant_parts_differ_if_numbers_of_units_do() {
    let [one, same, other] = [
        "e: 2 of 2 held, PAUSED by a@b-1 3 m 4 s ago\nvm:25/vj-_.0  1  0  1795369458839350  14.4 s",
        "e: 2 of 2 held, PAUSED by dana@ops 0.1 s ago\nweb-1:4/y.0   1 0 1795369458843571    1 h 3 m",
        "e: 2 of 3 held, PAUSED by a@b-1 3 m 4 s ago\nvm:25/vj-_.0  1  0  1795369458839350  14.4 s",
    ]
    .map(constant_part);
    assert_eq!(one, same);
    assert_ne!(one, other);
}
