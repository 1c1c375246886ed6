//! `permits-lab startup`: the cost of running a command under a permit, from start to end.
//!
//! The references are the least that does something similar: a lock on a file, and a lock of two requests by
//! `redis-cli`. Each round runs both, one after the other, so that other load on the machine meets both. The
//! command prints one word: when the word arrives, the command has begun to run; when the process has ended,
//! the permit has been released, too. The figures for the time to the end go to `lab/performance.md`.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
use std::time::Instant;

use permits_testkit::Server;

use permits_bench::Failure;
use permits_bench::aims::{Aim, Bound, figures, part, table};
use permits_bench::modes::{Awake, Mode, available};
use permits_bench::stats::{median, micros, percentile};

/// The rounds that are measured, after a few that are not.
const ROUNDS: usize = 200;
const WARM_UP: usize = 10;

pub(crate) fn run() -> Result<(), Failure> {
    let mut bench = Bench { permits: permits()?, directory: tempfile::tempdir()?, server: Server::start() };
    let mut aims = Vec::new();
    println!("medians of {ROUNDS} rounds, and the middle 80 %: ours / the other's");
    let (modes, _) = available(vec![Mode::Quiet, Mode::Awake]);
    for mode in modes {
        let awake = if mode == Mode::Awake { Some(Awake::start()?) } else { None };
        if let Some(awake) = &awake {
            awake.pin_server(bench.server.pid())?;
            // The commands start on the core of this process.
            awake.pin_client(id())?;
        }
        aims.extend([bench.local(mode)?, bench.redis(mode)?]);
        if let Some(awake) = &awake {
            awake.free(id())?;
        }
    }
    aims.sort_by_key(|aim| aim.workload);
    let table = table(&aims);
    println!("\n{table}");
    part("<!-- aims: figures of scripts/lab startup -->")
        .put(&figures(&aims), Path::new("lab/performance.md"))
}

/// The command, which is built beside this program.
pub(crate) fn permits() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name("permits");
    if path.exists() {
        Ok(path)
    } else {
        Err("build the command first: cargo build --release -p permits-cli".into())
    }
}

/// The command, and the places of its semaphores.
struct Bench {
    permits: PathBuf,
    directory: tempfile::TempDir,
    server: Server,
}

impl Bench {
    fn under_permit(&self, url: &str) -> Command {
        let mut command = Command::new(&self.permits);
        command.args(["run", "startup", "--limit", "1", "--", "echo", "x"]).env("PERMITS_URL", url);
        command
    }

    fn local(&mut self, mode: Mode) -> Result<Aim, Failure> {
        let url = format!("local:{}", self.directory.path().join("permits").display());
        let flock = || {
            let mut command = Command::new("flock");
            command.arg(self.directory.path().join("lock")).args(["echo", "x"]);
            vec![command]
        };
        let what = "`permits run` on `local:` / `flock`";
        compare("local", what, mode, Bound::AtMost(1.5), || vec![self.under_permit(&url)], flock)
    }

    fn redis(&mut self, mode: Mode) -> Result<Aim, Failure> {
        let url = self.server.url();
        let request = |words: &[&str]| {
            let mut command = Command::new("redis-cli");
            command.args(["-p", &self.server.port().to_string()]).args(words);
            command
        };
        let lock = || {
            vec![request(&["SET", "startup-lock", "x", "NX", "EX", "15"]), request(&["DEL", "startup-lock"])]
        };
        let what = "`permits run` on a server / two `redis-cli`, to lock and to unlock";
        compare("redis", what, mode, Bound::AtMost(1.5), || vec![self.under_permit(&url)], lock)
    }
}

/// Measures both in turn. Returns the aim for the time from start to end.
fn compare(
    workload: &'static str,
    what: &str,
    mode: Mode,
    bound: Bound,
    ours: impl Fn() -> Vec<Command>,
    other: impl Fn() -> Vec<Command>,
) -> Result<Aim, Failure> {
    let (mut ours_taken, mut other_taken) = (Taken::default(), Taken::default());
    for round in 0..WARM_UP + ROUNDS {
        let (ours, other) = (measure(ours())?, measure(other())?);
        if round >= WARM_UP {
            ours_taken.note(ours);
            other_taken.note(other);
        }
    }
    let ratio = |ours: &[f64], other: &[f64]| median(ours.to_vec()) / median(other.to_vec());
    for (until, ours, other) in [
        ("to the first word", &ours_taken.to_word, &other_taken.to_word),
        ("to the end", &ours_taken.to_end, &other_taken.to_end),
    ] {
        let measured = format!("{} / {} ms", spread(ours.clone()), spread(other.clone()));
        println!("{}: {what}, {until}: {measured}, ratio {:.2}", mode.name(), ratio(ours, other));
    }
    let value = Some(ratio(&ours_taken.to_end, &other_taken.to_end));
    Ok(Aim { workload, what: what.to_owned(), mode, value, bound })
}

/// Times of one kind of process, in microseconds.
#[derive(Default)]
struct Taken {
    to_word: Vec<f64>,
    to_end: Vec<f64>,
}

impl Taken {
    fn note(&mut self, (to_word, to_end): (f64, f64)) {
        self.to_word.push(to_word);
        self.to_end.push(to_end);
    }
}

/// Runs the commands one after the other. Returns the times until the first byte of the first, and until the
/// end of the last.
fn measure(commands: Vec<Command>) -> Result<(f64, f64), Failure> {
    let began = Instant::now();
    let mut to_word = None;
    for mut command in commands {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut byte = [0];
        let read = child.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(&mut byte));
        to_word.get_or_insert_with(|| micros(began.elapsed()));
        let status = child.wait()?;
        if read? != 1 || !status.success() {
            return Err(format!("{command:?} failed: {status}").into());
        }
    }
    Ok((to_word.ok_or("no command")?, micros(began.elapsed())))
}

fn spread(mut values: Vec<f64>) -> String {
    let [low, high] = [0.1, 0.9].map(|part| percentile(&mut values, part) / 1e3);
    format!("{:.2} ({low:.2}–{high:.2})", median(values) / 1e3)
}
