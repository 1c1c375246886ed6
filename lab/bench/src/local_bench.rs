//! `permits-lab local`: the cost of a semaphore of one machine. The time until a waiter wakes, the
//! processor time of waiters and of a holder, and the time of commands, of one process alone and when many
//! write at once. `startup` has the time that `permits run` takes. The figures go to `lab/performance.md`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _, pipe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::own_program;
use tempfile::TempDir;

use permits_bench::Failure;
use permits_bench::page::{Part, digits};
use permits_bench::stats::{median, micros, percentile, shared_clock_us};

/// The place of the table, in the page on performance.
const TABLE: Part<'_> =
    Part { begin: "<!-- figures: written by scripts/lab local -->", end: "<!-- end of figures -->" };

/// The hand-offs, and the bytes through a pipe.
const TURNS: u64 = 1000;

/// The processes that wait.
const WAITERS: usize = 100;

/// The time for which processor time is counted, after a while in which all settles.
const COUNTED: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(3);

/// The cycles of one process alone.
const CYCLES: u32 = 1000;

/// The processes that write at once, and the time for which they do.
const BUSY: usize = 40;
const BUSY_FOR: Duration = Duration::from_secs(5);

pub(crate) fn run() -> Result<(), Failure> {
    let directory = TempDir::new()?;
    let url = |name: &str| format!("local:{}", directory.path().join(name).display());
    let rows = [wake_up(&url("wake-up"))?, idle(&url("idle"))?, alone(&url("alone"))?, busy(&url("busy"))?];
    let table = format!("| figure | | ratio |\n|---|---:|---:|\n{}", rows.concat());
    println!("{table}");
    TABLE.put(&table, Path::new("lab/performance.md"))
}

/// A row of the table.
fn row(what: &str, measured: &str, ratio: Option<f64>) -> String {
    let ratio = ratio.map(digits).unwrap_or_default();
    format!("| {what} | {measured} | {ratio} |\n")
}

/// The time from the call that releases in one process to the return of acquire in another, which has waited
/// for some milliseconds, beside a byte through a pipe to a thread that has waited for as long.
fn wake_up(url: &str) -> Result<String, Failure> {
    let turns = (TURNS / 2).to_string();
    let peers = [peer(&["turns", url, &turns])?, peer(&["turns", url, &turns])?];
    let mut latencies = latencies(&collect(peers)?);
    let [half, most] = [0.5, 0.99].map(|part| percentile(&mut latencies, part));
    let byte = median(bytes_through_a_pipe()?);
    let pipe = row("a byte through a pipe between two threads, p50", &format!("{byte:.0} µs"), None);
    let measured = format!("{half:.0} / {most:.0} µs");
    let hand_off = row(
        "hand-off between two processes, p50 / p99; the first beside the byte",
        &measured,
        Some(half / byte),
    );
    Ok(pipe + &hand_off)
}

/// The times from a write to the return of the read.
fn bytes_through_a_pipe() -> Result<Vec<f64>, Failure> {
    let (mut reader, mut writer) = pipe()?;
    let read = move || (0..TURNS).map(|_| reader.read_exact(&mut [0]).map(|()| shared_clock_us())).collect();
    let reading = spawn::<_, io::Result<Vec<f64>>>(read);
    let mut written = Vec::new();
    for turn in 0..TURNS {
        sleep(pause(turn));
        written.push(shared_clock_us());
        writer.write_all(&[0])?;
    }
    let read = reading.join().map_err(|_| "the reader panicked")??;
    Ok(read.iter().zip(&written).map(|(read, written)| read - written).collect())
}

/// The time before a turn is passed on. It varies, so that no poll can be in step with it.
fn pause(turn: u64) -> Duration {
    Duration::from_micros(5000 + turn * 7919 % 5000)
}

/// Waits for two, and returns what both wrote, in order.
fn collect(children: [Child; 2]) -> Result<Vec<(u64, f64, f64)>, Failure> {
    let mut events = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("a peer ended with {}", output.status).into());
        }
        for line in String::from_utf8(output.stdout)?.lines() {
            let mut fields = line.split(' ');
            let mut next = || fields.next().ok_or("a short line");
            events.push((next()?.parse()?, next()?.parse()?, next()?.parse()?));
        }
    }
    events.sort_by_key(|(order, ..)| *order);
    Ok(events)
}

/// The times from a release to the next acquire. The ends, where one process is alone, are left out.
fn latencies(events: &[(u64, f64, f64)]) -> Vec<f64> {
    let middle = &events[events.len() / 10..events.len() * 9 / 10];
    middle.windows(2).map(|pair| pair[1].1 - pair[0].2).collect()
}

/// Runs one of two processes that take turns.
pub(crate) fn peer_turns(url: &str, turns: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = String::new();
    runtime.block_on(async {
        let client = Client::connect(url).await?;
        let semaphore = client.semaphore("turns", 1)?;
        for turn in 0..turns.parse::<u64>()? {
            let permit = semaphore.acquire().await?;
            let got = shared_clock_us();
            tokio::time::sleep(pause(turn)).await;
            let passed = shared_clock_us();
            let token = permit.token();
            permit.release().await?;
            lines.push_str(&format!("{token} {got} {passed}\n"));
        }
        client.close().await?;
        Ok::<_, Failure>(())
    })?;
    print!("{lines}");
    Ok(())
}

/// Processor time of this process, which holds, and of many that wait.
fn idle(url: &str) -> Result<String, Failure> {
    let client = Client::connect(url).wait()?;
    let permit = client.semaphore("idle", 1)?.acquire().wait()?;
    let mut waiting = (0..WAITERS).map(|_| peer(&["idle", url])).collect::<Result<Vec<_>, _>>()?;
    let holder = processor_share();
    let mut shares = Vec::new();
    for waiter in &mut waiting {
        let mut share = String::new();
        BufReader::new(waiter.stdout.take().ok_or("no output")?).read_line(&mut share)?;
        shares.push(share.trim().parse::<f64>()?);
    }
    for mut waiter in waiting {
        waiter.kill()?;
        waiter.wait()?;
    }
    permit.release().wait()?;
    client.close().wait()?;
    let (all, most) = (shares.iter().sum::<f64>(), shares.iter().copied().fold(0.0, f64::max));
    let time = format!("{:.2} s", all * COUNTED.as_secs_f64());
    Ok([
        row(&format!("processor time of {WAITERS} processes that wait, in a minute"), &time, None),
        row("of a core for the one of them that takes most", &format!("{:.3} %", most * 100.0), None),
        row("of a core for a process that holds", &format!("{:.3} %", holder * 100.0), None),
    ]
    .concat())
}

/// A process that waits, and prints the share of a core that it took.
pub(crate) fn peer_idle(url: &str) -> Result<(), Failure> {
    let semaphore = Client::connect(url).wait()?.semaphore("idle", 1)?;
    spawn(move || semaphore.acquire().wait());
    println!("{}", processor_share());
    // The process waits until it is killed.
    loop {
        sleep(COUNTED);
    }
}

/// The share of a core that this process takes, once it has settled.
fn processor_share() -> f64 {
    sleep(SETTLING);
    let before = processor_seconds();
    sleep(COUNTED);
    (processor_seconds() - before) / COUNTED.as_secs_f64()
}

/// Processor time of this process so far.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Cycles of acquire and release while no other process uses the semaphore.
fn alone(url: &str) -> Result<String, Failure> {
    let client = Client::connect(url).wait()?;
    let semaphore = client.semaphore("alone", 1)?;
    let began = Instant::now();
    for _ in 0..CYCLES {
        semaphore.acquire().wait()?.release().wait()?;
    }
    let taken = format!("{:.1} ms", micros(began.elapsed()) / 1000.0);
    client.close().wait()?;
    Ok(row(&format!("{CYCLES} cycles of one process"), &taken, None))
}

/// The time of a cycle while many processes write at once to one semaphore that has a unit for each: they
/// compete for the store alone.
fn busy(url: &str) -> Result<String, Failure> {
    let peers = (0..BUSY).map(|_| peer(&["busy", url])).collect::<Result<Vec<_>, _>>()?;
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for peer in peers {
        let output = String::from_utf8(peer.wait_with_output()?.stdout)?;
        let cycles = output.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        counts.push(cycles.len() as f64);
        all.extend(cycles);
    }
    let parts = [0.5, 0.99, 1.0].map(|part| percentile(&mut all, part) / 1000.0);
    let measured = format!("{:.1} / {:.0} / {:.0} ms", parts[0], parts[1], parts[2]);
    let cycle =
        row(&format!("a cycle of one of {BUSY} processes at once, p50 / p99 / most"), &measured, None);
    let (least, middle) = (counts.iter().copied().fold(f64::MAX, f64::min), median(counts));
    let rate = format!("{:.0}/s", all.len() as f64 / BUSY_FOR.as_secs_f64());
    let rate =
        row("cycles of all; of the slowest beside those of the middle one", &rate, Some(least / middle));
    Ok(cycle + &rate)
}

/// Runs one of many processes that acquire and release, and print the time of each cycle.
pub(crate) fn peer_busy(url: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut cycles = String::new();
    runtime.block_on(async {
        let client = Client::connect(url).await?;
        let semaphore = client.semaphore("busy", BUSY as u32)?;
        let began = Instant::now();
        while began.elapsed() < BUSY_FOR {
            let cycle = Instant::now();
            semaphore.acquire().await?.release().await?;
            cycles.push_str(&format!("{:.1}\n", micros(cycle.elapsed())));
        }
        client.close().await?;
        Ok::<_, Failure>(())
    })?;
    print!("{cycles}");
    Ok(())
}

fn peer(arguments: &[&str]) -> Result<Child, Failure> {
    Ok(Command::new(own_program()).arg("peer").args(arguments).stdout(Stdio::piped()).spawn()?)
}
