//! (c) From one process to another: how long from the call that releases to the return of the other's acquire,
//! against how long a published message takes to its subscriber.
//!
//! Two processes pass one permit back and forth; each writes down when it called release and when acquire
//! returned, on the clock that they share. The floor is a message passed back and forth in the same way.

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};

use futures_util::StreamExt as _;
use permits::Client;

use crate::Failure;
use crate::stats::{median, percentile, shared_clock_us};

const ROUNDS: usize = 5;
const HANDOFFS: usize = 2000;

/// Runs both, in turn, and prints the ratio.
pub(crate) fn compare(url: &str) -> Result<(), Failure> {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(latency(&pair("permits", url)?));
        floor.push(latency(&pair("raw", url)?));
    }
    let (ours, floor) = (median(ours), median(floor));
    let measured = format!("{ours:.0}/{floor:.0} µs");
    println!("{:50} {measured:>14} {:9.2}   <= 1.5", "(c) hand-off / PUBLISH to receive", ours / floor);
    Ok(())
}

/// Starts two of a kind and collects what they wrote: order, when it got it, when it passed it on.
fn pair(kind: &str, url: &str) -> Result<Vec<(u64, f64, f64)>, Failure> {
    let program = std::env::current_exe()?;
    let start = || {
        let rounds = HANDOFFS.to_string();
        Command::new(&program).args(["peer", kind, url, &rounds]).stdout(Stdio::piped()).spawn()
    };
    collect([start()?, start()?])
}

/// Waits for two, and returns what both wrote, in order.
pub(crate) fn collect(children: [Child; 2]) -> Result<Vec<(u64, f64, f64)>, Failure> {
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

/// The median time between passing on and getting.
fn latency(events: &[(u64, f64, f64)]) -> f64 {
    percentile(&mut latencies(events), 0.5)
}

/// The times between passing on and getting. The ends, where one is alone, are left out.
pub(crate) fn latencies(events: &[(u64, f64, f64)]) -> Vec<f64> {
    let middle = &events[events.len() / 10..events.len() * 9 / 10];
    middle.windows(2).map(|pair| pair[1].1 - pair[0].2).collect()
}

/// One of two processes that pass a permit back and forth.
pub(crate) fn peer_permits(url: &str, rounds: &str) -> Result<(), Failure> {
    let rounds: usize = rounds.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = String::new();
    runtime.block_on(async {
        let client = Client::connect(url).await?;
        let semaphore = client.semaphore("hand-off", 1);
        for _ in 0..rounds {
            let permit = semaphore.acquire().await?;
            let got = shared_clock_us();
            let token = permit.token();
            // Passed on as soon as it is had; the other stands in line by then.
            let passed = shared_clock_us();
            permit.release().await?;
            writeln!(lines, "{token} {got} {passed}")?;
        }
        client.close().await?;
        Ok::<_, Failure>(())
    })?;
    print!("{lines}");
    Ok(())
}

/// One of two processes that pass a message back and forth.
pub(crate) fn peer_raw(url: &str, rounds: &str) -> Result<(), Failure> {
    let rounds: u64 = rounds.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = String::new();
    runtime.block_on(async {
        let info = redis::IntoConnectionInfo::into_connection_info(url)?;
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(settings))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let seats = ["permits-lab:left", "permits-lab:right"];
        let mut wakeups = client.get_async_pubsub().await?;
        // The first to come sits left, and waits until somebody sits right.
        let seat: u64 = redis::cmd("INCR").arg("permits-lab:seat").query_async(&mut connection).await?;
        let (mine, other) = if seat % 2 == 1 { (seats[0], seats[1]) } else { (seats[1], seats[0]) };
        wakeups.subscribe(mine).await?;
        let mut messages = wakeups.on_message();
        let mut order = 0_u64;
        if mine == seats[1] {
            loop {
                let heard: u64 =
                    redis::cmd("PUBLISH").arg(other).arg(order).query_async(&mut connection).await?;
                if heard > 0 {
                    break;
                }
            }
        }
        while order < 2 * rounds {
            let Some(message) = messages.next().await else { return Err("no more messages".into()) };
            let got = shared_clock_us();
            order = message.get_payload::<u64>()? + 1;
            let passed = shared_clock_us();
            redis::cmd("PUBLISH").arg(other).arg(order).exec_async(&mut connection).await?;
            writeln!(lines, "{order} {got} {passed}")?;
        }
        Ok::<_, Failure>(())
    })?;
    print!("{lines}");
    Ok(())
}
