//! `permits-bench local`: the cost of a semaphore in a file. The time until a waiter wakes, the processor
//! time of waiters and holders, and the time of commands when many processes write at once. `startup` has the
//! time that `permits run` takes.

use std::io::BufRead as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use permits::Client;
use permits_testkit::own_program;
use tempfile::TempDir;

use crate::Failure;
use crate::stats::{median, micros, percentile, shared_clock_us};

/// The time for which processor time is counted, after a while in which all settles.
const COUNTED: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_secs(3);

/// The processes that write at once, and the time for which they do.
const BUSY: usize = 40;
const BUSY_FOR: Duration = Duration::from_secs(5);

pub(crate) fn run() -> Result<(), Failure> {
    let directory = TempDir::new()?;
    let url = |name: &str| format!("local:{}", directory.path().join(name).display());
    println!("what                                                     measured     ratio   aim");
    wake_up(&url("wake-up.db"))?;
    idle(&url("idle.db"))?;
    busy(&url("busy.db"))
}

fn line(what: &str, measured: &str, ratio: Option<f64>, aim: &str) {
    let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    println!("{what:50} {measured:>14} {ratio:>9}   {aim}");
}

/// (a) From the call that releases in one process to the return of acquire in another, which has waited for
/// some milliseconds.
fn wake_up(url: &str) -> Result<(), Failure> {
    let peers = [peer("turns", url, "500")?, peer("turns", url, "500")?];
    let mut latencies = latencies(&collect(peers)?);
    let [half, most] = [0.5, 0.99].map(|part| percentile(&mut latencies, part));
    line("(a) hand-off between processes, p50 / p99", &format!("{half:.0}/{most:.0} µs"), None, "a few ms");
    Ok(())
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

/// One of two processes that take turns.
pub(crate) fn peer_turns(url: &str, turns: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = String::new();
    runtime.block_on(async {
        let client = Client::connect(url).await?;
        let semaphore = client.semaphore("turns", 1).expect("valid");
        for turn in 0..turns.parse::<u64>()? {
            let permit = semaphore.acquire().await?;
            let got = shared_clock_us();
            // Out of step with the polls of the other.
            tokio::time::sleep(Duration::from_micros(5000 + turn * 7919 % 5000)).await;
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

/// (b) Processor time of waiters and of a holder.
fn idle(url: &str) -> Result<(), Failure> {
    let mut holder = peer("idle", url, "hold")?;
    let mut first = String::new();
    std::io::BufReader::new(holder.stdout.take().ok_or("no output")?).read_line(&mut first)?;
    for waiters in [1, 40] {
        let waiting = (0..waiters).map(|_| peer("idle", url, "wait")).collect::<Result<Vec<_>, _>>()?;
        let mut shares = Vec::new();
        for waiter in waiting {
            let output = waiter.wait_with_output()?;
            shares.push(String::from_utf8(output.stdout)?.trim().parse::<f64>()?);
        }
        let (sum, most) = (shares.iter().sum::<f64>(), shares.iter().copied().fold(0.0, f64::max));
        line(
            &format!("(b) a core for {waiters} that wait: all / most for one"),
            &format!("{sum:.2}/{most:.2} %"),
            None,
            "1-2 % for one",
        );
    }
    holder.kill()?;
    holder.wait()?;
    line("(b) a core for one that holds", &format!("{:.2} %", first.trim().parse::<f64>()?), None, "< 0.5 %");
    Ok(())
}

/// A process that holds or waits, and prints the share of a core that it took.
pub(crate) fn peer_idle(url: &str, task: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let semaphore = Client::connect(url).await?.semaphore("idle", 1).expect("valid");
        let acquiring = tokio::spawn(async move { semaphore.acquire().await });
        tokio::time::sleep(SETTLING).await;
        let before = processor_seconds();
        tokio::time::sleep(COUNTED).await;
        println!("{:.4}", (processor_seconds() - before) / COUNTED.as_secs_f64() * 100.0);
        if task == "hold" {
            std::future::pending::<()>().await;
        }
        // Kept until here, because it waits.
        acquiring.abort();
        Ok(())
    })
}

/// Processor time of this process so far.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// (c) The time of a cycle while many processes write at once, each to a semaphore of its own: they compete
/// for the file alone.
fn busy(url: &str) -> Result<(), Failure> {
    let peers =
        (0..BUSY).map(|number| peer("busy", url, &number.to_string())).collect::<Result<Vec<_>, _>>()?;
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for peer in peers {
        let output = String::from_utf8(peer.wait_with_output()?.stdout)?;
        let cycles = output.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        counts.push(cycles.len() as f64);
        all.extend(cycles);
    }
    let parts = [0.5, 0.99, 1.0].map(|part| percentile(&mut all, part) / 1000.0);
    let measured = format!("{:.1}/{:.0}/{:.0} ms", parts[0], parts[1], parts[2]);
    line(&format!("(c) a cycle among {BUSY} processes, p50 / p99 / max"), &measured, None, "");
    let (least, middle) = (counts.iter().copied().fold(f64::MAX, f64::min), median(counts));
    let rate = format!("{:.0}/s", all.len() as f64 / BUSY_FOR.as_secs_f64());
    line("(c) cycles of all; of the slowest / of the middle one", &rate, Some(least / middle), "near 1");
    Ok(())
}

/// One of many processes that acquire and release, and print the time of each cycle.
pub(crate) fn peer_busy(url: &str, number: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut cycles = String::new();
    runtime.block_on(async {
        let client = Client::connect(url).await?;
        let semaphore = client.semaphore(format!("busy {number}"), 1).expect("valid");
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

fn peer(kind: &str, url: &str, argument: &str) -> Result<Child, Failure> {
    Ok(Command::new(own_program()).args(["peer", kind, url, argument]).stdout(Stdio::piped()).spawn()?)
}
