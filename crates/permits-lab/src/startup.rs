//! `permits-lab startup`: the cost of running a command under a permit, from start to end.
//!
//! The references are the least that does something similar: a lock on a file, and a request to the server. Each round
//! runs both, one after the other, so that other load on the machine meets both. The command prints one word: when the
//! word arrives, the command has begun to run; when the process has ended, the permit has been released, too.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use permits_testkit::Server;

use crate::Failure;
use crate::stats::{median, micros, percentile};

/// The rounds that are measured, after a few that are not.
const ROUNDS: usize = 200;
const WARM_UP: usize = 10;

pub(crate) fn run() -> Result<(), Failure> {
    let permits = permits()?;
    let directory = tempfile::tempdir()?;
    let server = Server::start();
    let file = directory.path().join("lock");
    let under_permit = |url: &str| {
        let mut command = Command::new(&permits);
        command.args(["run", "startup", "--limit", "1", "--", "echo", "x"]).env("PERMITS_URL", url);
        command
    };
    let what = format!("medians of {ROUNDS} rounds, and the middle 80 %");
    println!("{what:55} {:>38} ratio   aim", "ours / the other's");
    compare(
        "local: permits run / flock",
        || under_permit(&format!("local:{}", directory.path().join("semaphores.db").display())),
        || {
            let mut command = Command::new("flock");
            command.arg(&file).args(["echo", "x"]);
            command
        },
    )?;
    compare(
        "redis: permits run / redis-cli PING",
        || under_permit(&server.url()),
        || {
            let mut command = Command::new("redis-cli");
            command.args(["-p", &server.port().to_string(), "PING"]);
            command
        },
    )
}

/// The command, which is built beside this program.
fn permits() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name("permits");
    if path.exists() {
        Ok(path)
    } else {
        Err("build the command first: cargo build --release -p permits-cli".into())
    }
}

fn compare(what: &str, ours: impl Fn() -> Command, floor: impl Fn() -> Command) -> Result<(), Failure> {
    let (mut ours_taken, mut floor_taken) = (Taken::default(), Taken::default());
    for round in 0..WARM_UP + ROUNDS {
        let (ours, floor) = (measure(ours())?, measure(floor())?);
        if round >= WARM_UP {
            ours_taken.note(ours);
            floor_taken.note(floor);
        }
    }
    for (until, ours, floor) in [
        ("runs", ours_taken.to_word, floor_taken.to_word),
        ("has ended", ours_taken.to_end, floor_taken.to_end),
    ] {
        let ratio = median(ours.clone()) / median(floor.clone());
        let measured = format!("{} / {} ms", spread(ours), spread(floor));
        println!("{:55} {measured:>38} {ratio:5.2}   <= 3", format!("{what}, until it {until}"));
    }
    Ok(())
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

/// Runs it. Returns the times until its first byte and until its end.
fn measure(mut command: Command) -> Result<(f64, f64), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn()?;
    let mut byte = [0];
    let read = child.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(&mut byte));
    let to_word = micros(began.elapsed());
    let status = child.wait()?;
    let to_end = micros(began.elapsed());
    if read? == 1 && status.success() {
        Ok((to_word, to_end))
    } else {
        Err(format!("{command:?} failed: {status}").into())
    }
}

fn spread(mut values: Vec<f64>) -> String {
    let [low, high] = [0.1, 0.9].map(|part| percentile(&mut values, part) / 1e3);
    format!("{:.2} ({low:.2}–{high:.2})", median(values) / 1e3)
}
