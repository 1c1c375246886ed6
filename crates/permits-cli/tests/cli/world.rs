//! A store, programs that use it, and the terminal of an operator: for the commands of the
//! [`documents`](crate::documents) and of [`calls`](crate::calls).

use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use permits::{AcquireOptions, Client};
use permits_testkit::sound::Named as _;
use permits_testkit::{HANGS, Proxy, Sentinels, Server, skip, wait};
use regex::Regex;
use tempfile::TempDir;

use crate::support::{Output, Running, Store, code, json, output, permits, prepare, shell, until_counts};

/// The semaphore of the page.
const NAME: &str = "exports";

/// The program that uses it. It does not end.
const PROGRAM: &str = "export.sh";

/// The address of `permits serve` on the page.
const SERVE: &str = "127.0.0.1:9710";

/// The lease of a permit that is kept.
const LEASE: Duration = Duration::from_secs(3_600);

/// The programs that the page uses, apart from programs that every system has.
const PROGRAMS: [&str; 3] = ["redis-cli", "curl", "jq"];

/// The beginnings of commands that change nothing. They are repeated until their output is as on the page,
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

/// A command, and its output.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) output: String,
}

/// The commands in these lines: each begins with `$ `, or with `& ` if it is a program that is started, and
/// its output follows.
#[track_caller]
pub(crate) fn steps<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        if line.starts_with("$ ") || line.starts_with("& ") {
            steps.push(Step { command: line.trim_start_matches("$ ").to_owned(), output: String::new() });
        } else {
            let step = steps.last_mut().unwrap_or_else(|| panic!("no command is above {line:?}"));
            step.output += line;
            step.output.push('\n');
        }
    }
    steps
}

/// A situation.
pub(crate) struct World {
    // Declared before the server and the directories: the programs end first.
    programs: Vec<Running>,
    /// The client of a program with the library.
    client: Option<Client>,
    /// The URL of the store that the programs and the operator use: the directory, the server, the proxy
    /// before it, or the sentinels.
    url: String,
    proxy: Option<Proxy>,
    sentinels: Option<Sentinels>,
    server: Option<Server>,
    directory: TempDir,
    /// Texts of the page, and those that replace them in commands.
    replaced: Vec<(&'static str, String)>,
}

impl World {
    fn new(directory: TempDir, url: String, server: Option<Server>) -> Self {
        let (programs, replaced) = (Vec::new(), Vec::new());
        Self { programs, client: None, url, proxy: None, sentinels: None, server, directory, replaced }
    }

    /// A local store, in the directory of the commands.
    #[track_caller]
    pub(crate) fn local() -> Self {
        let directory = TempDir::new().expect("a directory");
        let url = format!("local:{}", directory.path().join("permits").display());
        Self::new(directory, url, None)
    }

    /// A server, on which semaphores grant at once.
    #[track_caller]
    pub(crate) fn server() -> Self {
        let server = Server::start();
        let url = format!("{}?recovery=off", server.url());
        Self::new(TempDir::new().expect("a directory"), url, Some(server))
    }

    /// A server that keeps its data, on which the semaphore of the page grants at once.
    #[track_caller]
    pub(crate) fn of_page() -> Self {
        let server = Server::builder().append_only().start();
        prepare(&server, NAME);
        let world = Self::new(TempDir::new().expect("a directory"), server.url(), Some(server));
        world.run(&format!("printf '#!/bin/sh\\nexec sleep 1000\\n' >{PROGRAM}; chmod +x {PROGRAM}"));
        world
    }

    #[track_caller]
    fn on_server(&self) -> &Server {
        self.server.as_ref().expect("the store is a server")
    }

    /// Kills the server. It is restarted by [`restart`](Self::restart).
    #[track_caller]
    pub(crate) fn kill_server(&self) {
        self.on_server().kill();
    }

    #[track_caller]
    pub(crate) fn restart(&self) {
        self.on_server().restart();
    }

    /// Delays each reply of the server.
    pub(crate) fn delay(&mut self, delay: Duration) {
        let proxy = Proxy::start(self.on_server().address());
        proxy.delay_replies(delay);
        self.url = proxy.url();
        self.proxy = Some(proxy);
    }

    /// Uses the primary that sentinels name.
    pub(crate) fn use_sentinels(&mut self) {
        let sentinels = Sentinels::start();
        self.url = sentinels.url();
        self.replaced.push(("sentinel-1", "127.0.0.1".to_owned()));
        self.replaced.push(("26379", sentinels.sentinels()[0].port().to_string()));
        self.sentinels = Some(sentinels);
    }

    /// Replaces the primary by a replica.
    #[track_caller]
    pub(crate) fn fail_over(&self) {
        self.sentinels.as_ref().expect("there are sentinels").failover();
    }

    /// A shell with the operator's environment: the process ids of the programs are `$P1` and so on, and the
    /// server's address is `$ADDRESS`.
    fn shell(&self, script: &str) -> Command {
        let mut shell = shell(&self.url, script);
        shell.current_dir(self.directory.path()).env_remove("TERM").env("LC_ALL", "C");
        // The user of the labels on the page.
        shell.env("USER", "app").env_remove("PERMITS_LABEL");
        for (number, program) in self.programs.iter().enumerate() {
            shell.env(format!("P{}", number + 1), program.guard.pid().to_string());
        }
        shell.envs(self.server.iter().map(|server| ("ADDRESS", server.address().to_string())));
        shell
    }

    /// Runs a command of a page to its end. `& COMMAND` starts one that makes a request, and has no output;
    /// `said NUMBER` has what it has printed so far, and `wait NUMBER` waits for its end.
    #[track_caller]
    pub(crate) fn call(&mut self, command: &str) -> Output {
        if let Some(command) = command.strip_prefix("& ") {
            self.request(command);
            return Output { code: 0, stdout: String::new(), stderr: String::new() };
        }
        let program = |number: &str| number.parse::<usize>().expect("a number") - 1;
        if let Some(number) = command.strip_prefix("said ") {
            let program = &self.programs[program(number)];
            return Output { code: 0, stdout: program.stdout(), stderr: program.stderr() };
        }
        let Some(number) = command.strip_prefix("wait ") else { return output(&mut self.shell(command)) };
        let program = &mut self.programs[program(number)];
        let ended = program.guard.wait_timeout(HANGS).map(code);
        let code = ended.unwrap_or_else(|| panic!("it runs: {}{}", program.stdout(), program.stderr()));
        Output { code, stdout: program.stdout(), stderr: program.stderr() }
    }

    /// Runs commands that are not on the page.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) {
        let output = output(&mut self.shell(&format!("set -e\n{script}")));
        assert_eq!(output.code, 0, "{script}: {}{}", output.stdout, output.stderr);
    }

    /// Starts a program in the background, and returns its number.
    fn start(&mut self, command: &str) -> usize {
        self.programs.push(Running::start(&mut self.shell(&format!("exec {command}"))));
        self.programs.len() - 1
    }

    /// The units that are held and the requests that wait, of all semaphores.
    #[track_caller]
    fn in_use(&self) -> u64 {
        let listed = json(&mut permits(&self.url, ["list", "--json"]));
        let rows = listed.as_array().expect("a list").iter();
        rows.flat_map(|row| [&row["held"], &row["waiting"]]).filter_map(|count| count.as_u64()).sum()
    }

    /// Starts a program in the background, and waits until it holds or waits. Returns its number.
    #[track_caller]
    pub(crate) fn request(&mut self, command: &str) -> usize {
        let before = self.in_use();
        let number = self.start(command);
        let came = wait::until(|| self.in_use() > before);
        assert!(came, "{command}: {}", self.programs[number].stderr());
        number
    }

    /// Starts `permits run exports OPTIONS` with a command that does not end, and waits until it holds or
    /// waits. Returns its number.
    #[track_caller]
    pub(crate) fn job(&mut self, options: &str) -> usize {
        self.request(&format!("permits run {NAME} {options} ./{PROGRAM}"))
    }

    /// Lets a program with the library keep a permit with this label, for longer than any situation takes.
    #[track_caller]
    pub(crate) fn keep(&mut self, label: &str) {
        let client = Client::connect(&self.url).wait().expect("the server is up");
        let semaphore = client.named(NAME, 1).keep(LEASE / 3);
        let options = AcquireOptions::new().label(label).lease(LEASE);
        let permit = semaphore.acquire_with(options).wait().expect("it is free");
        permit.release().wait().expect("it is held");
        self.client = Some(client);
    }

    /// Starts `permits serve`, whose address takes the place of the address on the page. Returns its number.
    #[track_caller]
    pub(crate) fn serve(&mut self, options: &str) -> usize {
        let number = self.start(&format!("permits serve --listen 127.0.0.1:0 {options}"));
        let program = &self.programs[number];
        program.prints("/\n");
        let line = program.stdout();
        let address =
            line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix('/'));
        self.replaced.push((SERVE, address.unwrap_or_else(|| panic!("{line}")).to_owned()));
        number
    }

    /// Lets a process id of the page stand for the process id of a program.
    pub(crate) fn is_process(&mut self, number: usize, id: &'static str) {
        self.replaced.push((id, self.programs[number].guard.pid().to_string()));
    }

    /// Stops a program, which renews nothing from then on.
    pub(crate) fn pause(&mut self, number: usize) {
        self.programs[number].guard.pause();
    }

    pub(crate) fn resume(&mut self, number: usize) {
        self.programs[number].guard.resume();
    }

    /// Ends a program as an operator does.
    #[track_caller]
    pub(crate) fn end(&mut self, number: usize) {
        self.programs[number].guard.terminate();
        self.until_end(number);
    }

    #[track_caller]
    pub(crate) fn until_end(&mut self, number: usize) {
        let program = &mut self.programs[number];
        assert!(program.guard.wait_timeout(HANGS).is_some(), "it runs: {}", program.stderr());
    }

    /// Waits for these numbers of holders and waiters.
    #[track_caller]
    pub(crate) fn until_counts(&self, expected: (usize, usize)) {
        until_counts(self, NAME, expected);
    }

    /// Runs the commands of a page. One that ends in ` &` is started, and holds, waits or serves when the
    /// next one is run; `$!` is its process id.
    #[track_caller]
    pub(crate) fn walk(&mut self, steps: Vec<Step>) {
        if is_missing_a_program(&steps) {
            return;
        }
        for Step { command, output } in steps {
            match command.strip_suffix(" &") {
                Some(serve) if serve.starts_with("permits serve") => {
                    self.serve("");
                }
                Some(program) => {
                    self.request(program);
                }
                None => {
                    let last = format!("$P{}", self.programs.len());
                    self.prints(&command.replace("$!", &last), &output);
                }
            }
        }
    }

    /// Runs a command, and compares its output with the page's.
    #[track_caller]
    fn prints(&mut self, command: &str, shown: &str) {
        let command = self.replaced.iter().fold(command.to_owned(), |all, (old, new)| all.replace(old, new));
        let script = format!("exec 2>&1\n{command}");
        let limit = if READS.iter().any(|read| command.starts_with(read)) { HANGS } else { Duration::ZERO };
        let mut printed = String::new();
        let is_shown = wait::within(limit, || {
            printed = self.call(&script).stdout;
            constant_part(&printed) == constant_part(shown)
        });
        assert!(is_shown, "$ {command}\n{printed}\nin place of\n{shown}\nof the page");
    }
}

impl Store for World {
    fn url(&self) -> String {
        self.url.clone()
    }
}

/// True if this machine does not have a program of the commands.
pub(crate) fn is_missing_a_program(steps: &[Step]) -> bool {
    let needed = |program: &&&str| steps.iter().any(|step| step.command.contains(**program));
    PROGRAMS.iter().filter(needed).any(|program| skip::without_program(program))
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
