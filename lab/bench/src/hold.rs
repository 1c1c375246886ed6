//! `permits-lab hold`: the cost of permits for programs without a library, held by one
//! `permits hold --many` and by a process of `permits hold` each.
//!
//! - **Measures**: connections to the store, resident memory, processor time of permits that are only held,
//!   and cycles of acquiring and releasing; these also beside a program with the library.
//! - **Run**: `scripts/lab hold`, which takes a minute; `--quick` for a little of everything.
//! - **Result**: a table in `docs/languages/any.md`.
//!
//! The memory of several processes is the sum of their proportional sets, in which a page that n of them
//! share counts as an nth for each.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::{ChildGuard, Server};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::startup::permits;
use permits_bench::Failure;
use permits_bench::page::{Part, digits};

/// The place of the table.
const TABLE: Part<'_> =
    Part { begin: "<!-- figures: written by scripts/lab hold -->", end: "<!-- end of figures -->" };

/// The permits of one process, and the processes of one permit.
struct Scale {
    many: usize,
    processes: usize,
    idle: Duration,
    cycles: Duration,
}

/// The cost of one way.
struct Cost {
    connections: usize,
    memory_kib: f64,
    /// The processor time while all permits are held, in milliseconds a second.
    idle_ms: f64,
    cycles: f64,
}

/// `[--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let second = Duration::from_secs(1);
    let (scale, page) = match arguments {
        [] => (
            Scale { many: 1000, processes: 100, idle: 20 * second, cycles: 10 * second },
            "docs/languages/any.md",
        ),
        ["--quick"] => (Scale { many: 50, processes: 5, idle: second, cycles: second }, "target/hold.md"),
        _ => return Err(format!("no such options: {arguments:?}").into()),
    };
    let bench = Bench { permits: permits()?, server: Server::start(), scale };
    let none = bench.many(0)?;
    let many = bench.many(bench.scale.many)?;
    let processes = bench.processes()?;
    let mut text = bench.table(&none, &many, &processes)?;
    writeln!(
        text,
        "\n| cycles a second | the lines | the library in a program | ratio |\n|---|---:|---:|---:|"
    )?;
    for width in [1, 64] {
        let [lines, library] = bench.speeds(width)?;
        let at_a_time = if width == 1 { "1 request".into() } else { format!("{width} requests") };
        let [one, other, ratio] = [lines, library, library / lines].map(digits);
        writeln!(text, "| {at_a_time} at a time | {one} | {other} | {ratio} |")?;
    }
    println!("{text}");
    TABLE.put(&text, Path::new(page))
}

struct Bench {
    permits: PathBuf,
    server: Server,
    scale: Scale,
}

/// A process, its lines and its events.
struct Hold {
    guard: ChildGuard,
    /// Lines for the thread that writes, so that events are read meanwhile.
    lines: mpsc::Sender<String>,
    events: std::io::Lines<BufReader<ChildStdout>>,
}

impl Bench {
    fn url(&self) -> String {
        format!("{}?recovery=off", self.server.url())
    }

    fn start(&self, options: &[&str]) -> Result<Hold, Failure> {
        let mut command = Command::new(&self.permits);
        command.arg("hold").args(options).env("PERMITS_URL", self.url());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) =
            (child.stdin.take().ok_or("no input")?, child.stdout.take().ok_or("no output")?);
        let guard = ChildGuard::new(child);
        let (lines, queue) = mpsc::channel();
        std::thread::spawn(move || write(input, &queue));
        Ok(Hold { guard, lines, events: BufReader::new(output).lines() })
    }

    /// The cost of a process with so many permits.
    fn many(&self, permits: usize) -> Result<Cost, Failure> {
        let before = self.connections()?;
        let mut hold = self.start(&["--many"])?;
        hold.write(acquire(0))?;
        hold.until("granted")?;
        (1..permits).try_for_each(|id| hold.write(acquire(id)))?;
        for _ in 1..permits {
            hold.until("granted")?;
        }
        let connections = self.connections()? - before;
        let memory_kib = resident_kib(&[hold.guard.pid()], "Rss")?;
        let idle_ms = self.idle(&[hold.guard.pid()])?;
        let cycles = if permits == 0 { 0.0 } else { self.cycles(&mut hold, permits)? };
        Ok(Cost { connections, memory_kib, idle_ms, cycles })
    }

    /// Releases what the process holds by the ids below `permits`, and acquires it again: so many requests at
    /// a time. Returns the cycles a second.
    fn cycles(&self, hold: &mut Hold, permits: usize) -> Result<f64, Failure> {
        let (began, mut cycles) = (Instant::now(), 0);
        (0..permits).try_for_each(|id| hold.write(release(&json!(id))))?;
        while began.elapsed() < self.scale.cycles {
            let event = hold.next()?;
            match event["event"].as_str() {
                Some("released") => {
                    cycles += 1;
                    let id = event["id"].as_u64().ok_or("no id")?;
                    hold.write(acquire(usize::try_from(id)?))?;
                }
                Some("granted") => hold.write(release(&event["id"]))?,
                _ => {}
            }
        }
        Ok(f64::from(cycles) / began.elapsed().as_secs_f64())
    }

    /// The cycles a second of so many requests at a time: by the lines, and in a program with the library.
    fn speeds(&self, width: usize) -> Result<[f64; 2], Failure> {
        let mut hold = self.start(&["--many"])?;
        (0..width).try_for_each(|id| hold.write(acquire(id)))?;
        (0..width).try_for_each(|_| hold.until("granted"))?;
        let lines = self.cycles(&mut hold, width)?;
        drop(hold);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok([lines, runtime.block_on(self.library(width))?])
    }

    async fn library(&self, width: usize) -> Result<f64, Failure> {
        let client = Client::connect(&self.url()).await?;
        let semaphore = client.semaphore("library", 100_000)?;
        let (began, time) = (Instant::now(), self.scale.cycles);
        let mut tasks = JoinSet::new();
        for _ in 0..width {
            let semaphore = semaphore.clone();
            tasks.spawn(async move {
                let mut cycles = 0;
                while began.elapsed() < time {
                    semaphore.acquire().await?.release().await?;
                    cycles += 1;
                }
                Ok::<u32, Failure>(cycles)
            });
        }
        let cycles: u32 = tasks.join_all().await.into_iter().sum::<Result<_, _>>()?;
        Ok(f64::from(cycles) / began.elapsed().as_secs_f64())
    }

    /// A process for each permit.
    fn processes(&self) -> Result<Cost, Failure> {
        let before = self.connections()?;
        let start = || self.start(&["one", "--limit", "100000"]);
        let mut holds: Vec<Hold> = (0..self.scale.processes).map(|_| start()).collect::<Result<_, _>>()?;
        holds.iter_mut().try_for_each(|hold| hold.until("granted"))?;
        let connections = self.connections()? - before;
        let pids: Vec<u32> = holds.iter().map(|hold| hold.guard.pid()).collect();
        let memory_kib = resident_kib(&pids, "Pss")?;
        let idle_ms = self.idle(&pids)?;
        let (began, mut cycles) = (Instant::now(), 0);
        // As many at once as there are processes: each is replaced when it has released.
        while began.elapsed() < self.scale.cycles {
            holds.iter().try_for_each(|hold| hold.write("release\n".to_owned()))?;
            for hold in &mut holds {
                hold.until("released")?;
                *hold = start()?;
                cycles += 1;
            }
            holds.iter_mut().try_for_each(|hold| hold.until("granted"))?;
        }
        Ok(Cost {
            connections,
            memory_kib,
            idle_ms,
            cycles: f64::from(cycles) / began.elapsed().as_secs_f64(),
        })
    }

    /// The processor time of a second of the processes, while their permits are only held.
    fn idle(&self, pids: &[u32]) -> Result<f64, Failure> {
        let all = || pids.iter().map(|pid| processor_ms(*pid)).sum::<Result<f64, Failure>>();
        let before = all()?;
        std::thread::sleep(self.scale.idle);
        Ok((all()? - before) / self.scale.idle.as_secs_f64())
    }

    fn connections(&self) -> Result<usize, Failure> {
        let list = self.server.connect()?.call(&["CLIENT", "LIST"])?;
        let addresses =
            list.text().lines().filter_map(|line| line.split(' ').find(|part| part.starts_with("addr=")));
        // The difference of two calls leaves out the connection that asks.
        Ok(addresses.collect::<HashSet<_>>().len())
    }

    fn table(&self, none: &Cost, many: &Cost, processes: &Cost) -> Result<String, Failure> {
        let Scale { many: permits, processes: count, .. } = self.scale;
        let mut text = String::new();
        writeln!(
            text,
            "| | one process, {permits} permits | {count} processes, a permit each | times less, for each permit |"
        )?;
        writeln!(text, "|---|---:|---:|---:|")?;
        let mib = |kib: f64| digits(kib / 1024.0);
        let each = |of_many: f64, of_processes: f64| {
            digits((of_processes / count as f64) / (of_many / permits as f64))
        };
        let row = |what: &str, of: fn(&Cost) -> f64, shown: &dyn Fn(f64) -> String| {
            let (one, other) = (of(many), of(processes));
            format!("| {what} | {} | {} | {} |", shown(one), shown(other), each(one, other))
        };
        let connections = row("connections to the store", |cost| cost.connections as f64, &|it| digits(it));
        writeln!(text, "{connections}")?;
        writeln!(text, "{}", row("resident memory, MiB", |cost| cost.memory_kib, &mib))?;
        writeln!(text, "{}", row("processor, ms a second, all held", |cost| cost.idle_ms, &|it| digits(it)))?;
        let faster = digits(many.cycles / processes.cycles);
        let [one, other] = [many, processes].map(|cost| digits(cost.cycles));
        writeln!(text, "| cycles a second, of all permits | {one} | {other} | {faster} times more |")?;
        writeln!(
            text,
            "\nThe one process takes {} MiB when it holds a single permit.",
            mib(none.memory_kib)
        )?;
        Ok(text)
    }
}

impl Hold {
    fn write(&self, line: String) -> Result<(), Failure> {
        Ok(self.lines.send(line)?)
    }

    fn next(&mut self) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.events.next().ok_or("the process has ended")??)?)
    }

    fn until(&mut self, event: &str) -> Result<(), Failure> {
        while self.next()?["event"] != event {}
        Ok(())
    }
}

fn write(mut input: ChildStdin, queue: &mpsc::Receiver<String>) {
    while let Ok(mut lines) = queue.recv() {
        lines.extend(queue.try_iter());
        // The process has ended: its reader reports that.
        if input.write_all(lines.as_bytes()).is_err() {
            return;
        }
    }
}

fn acquire(id: usize) -> String {
    json!({"id": id, "acquire": "many", "limit": 100_000}).to_string() + "\n"
}

fn release(id: &Value) -> String {
    json!({"id": id, "release": true}).to_string() + "\n"
}

/// A field of the memory of processes.
fn resident_kib(pids: &[u32], field: &str) -> Result<f64, Failure> {
    let of = |pid: &u32| -> Result<f64, Failure> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(number.ok_or("no such field")?.parse()?)
    };
    pids.iter().map(of).sum()
}

/// The processor time of a process so far.
fn processor_ms(pid: u32) -> Result<f64, Failure> {
    let mut total = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // schedstat counts in nanoseconds, which /proc/PID/stat does not.
        let schedstat = fs::read_to_string(task?.path().join("schedstat"))?;
        total += schedstat.split(' ').next().ok_or("no time")?.parse::<f64>()? / 1e6;
    }
    Ok(total)
}
