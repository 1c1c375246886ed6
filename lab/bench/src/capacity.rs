//! `permits-lab capacity`: the load of a server as a sum of constants, and whether that sum is right.
//!
//! - **Measures**: the cost of each kind of load alone: cycles that no request waits for, one by one and in
//!   batches, grants that are handed over, renewals; the bytes of sessions, semaphores, permits and waiters.
//! - **Checks**: three loads of a thousand clients, each a tenth of an example of the page, and what the sum
//!   says of them; and ten processes that keep permits.
//! - **Run**: `scripts/lab capacity`, which takes 5 minutes; `--quick` for a little of everything, which is
//!   only printed.
//! - **Result**: two tables in `lab/capacity.md`.
//!
//! A client is a connection with a session of its own, as a process has. Some hundreds of them share a
//! process here, which makes no difference to the server.

use std::fmt::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use permits_testkit::Server;

use permits_bench::Failure;
use permits_bench::meter::Spent;
use permits_bench::modes::{Mode, available};
use permits_bench::page::{Part, digits};
use permits_bench::system::{KEEPING, OWN, PERMITS, Process, System};
use permits_bench::workloads::{Bench, Scale, all, number};

const CONSTANTS: Part<'_> = Part {
    begin: "<!-- figures: constants, written by scripts/lab capacity -->",
    end: "<!-- end of figures -->",
};
const LOADS: Part<'_> = Part {
    begin: "<!-- figures: loads, written by scripts/lab capacity -->",
    end: "<!-- end of figures -->",
};

/// The processes among which clients are divided.
const PROCESSES: usize = 4;
/// Two scripts that do nothing.
static FLOOR: &System = &OWN[2];
/// Longer than a run.
const FOREVER: Duration = Duration::from_secs(3600);
/// The sizes of the page's examples, divided by the sizes that are measured for their checks.
const TIMES: usize = 10;

/// Clients that acquire, hold, release and pause, each on one of several semaphores.
struct Load {
    name: &'static str,
    clients: usize,
    semaphores: usize,
    limit: usize,
    hold: Duration,
    pause: Duration,
}

/// The work of a server in a second, and its memory.
struct Sum {
    grants: f64,
    waiting: f64,
    calls: f64,
    server_ms: f64,
    bytes: f64,
}

/// The costs of each kind of load: microseconds of the server, and bytes.
struct Constants {
    /// The cost of a cycle and of a turn, by [`Pace`].
    cycle: [f64; 2],
    turn: [f64; 2],
    batched: f64,
    floor: f64,
    turns_per_s: f64,
    renewal: f64,
    renewed: f64,
    /// The costs of a server without clients, and of a session that does nothing, in a second.
    alone: f64,
    connected: f64,
    empty: f64,
    session: f64,
    semaphore: f64,
    holder: f64,
    waiter: f64,
}

/// A server that sleeps between calls, or one that is never idle.
#[derive(Clone, Copy)]
enum Pace {
    Calm,
    Busy,
}

/// A load that was run.
struct Run {
    spent: Spent,
    grants: f64,
    /// The memory of the server, connections included.
    bytes: f64,
}

/// `[--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (scale, size, page) = match arguments {
        [] => (Scale::FULL, 1000, Some(Path::new("lab/capacity.md"))),
        ["--quick"] => (Scale::QUICK, 100, None),
        _ => return Err(format!("no such options: {arguments:?}").into()),
    };
    let mut bench = Bench::new(scale, Server::start())?;
    let (modes, not_awake) = available(vec![Mode::Awake]);
    for &mode in &modes {
        bench.enter(mode)?;
    }
    let constants = constants(&mut bench, size)?;
    let mut rows = Vec::new();
    for load in loads(size) {
        eprintln!("{}", load.name);
        let expected = load.sum(&constants, scale, Pace::Calm);
        rows.push((
            load.larger().sum(&constants, scale, Pace::Busy),
            expected,
            run_load(&mut bench, &load)?,
            load,
        ));
    }
    let kept = keep(&mut bench)?;
    bench.enter(Mode::Quiet)?;

    let mut first = constants.table()?;
    if let Some(reason) = not_awake {
        writeln!(first, "\nTaken with cores that halt: {reason}.")?;
    }
    let second = table(&rows, &kept)?;
    println!("{first}\n{second}");
    let Some(page) = page else { return Ok(()) };
    CONSTANTS.put(&first, page)?;
    LOADS.put(&second, page)
}

fn constants(bench: &mut Bench, size: usize) -> Result<Constants, Failure> {
    let second = Duration::from_secs(1);
    let idle =
        Load { name: "", clients: size, semaphores: 1, limit: size, hold: Duration::ZERO, pause: FOREVER };
    let few = Load { clients: size / 5, limit: size / 5, pause: Duration::ZERO, ..idle };
    let empty = run_load(bench, &Load { clients: 0, ..idle })?;
    let alone = empty.spent.processor_us / empty.spent.seconds;
    let connections = run_load(bench, &idle)?;
    let connected = (connections.spent.processor_us / connections.spent.seconds - alone) / size as f64;
    // Leaves out what the server and its connections take by themselves.
    let processor_us = |run: &Run, clients: usize| {
        run.spent.processor_us - (alone + connected * clients as f64) * run.spent.seconds
    };

    let held = run_load(bench, &Load { hold: FOREVER, ..idle })?;
    let waiting = run_load(bench, &Load { hold: FOREVER, limit: 1, ..idle })?;
    let renewals = [&held, &waiting];
    let renewal = renewals.map(|run| processor_us(run, size)).iter().sum::<f64>()
        / renewals.map(|run| run.spent.calls).iter().sum::<f64>();

    let each = |run: &Run| processor_us(run, few.clients) / run.grants;
    let calm_cycles = run_load(bench, &Load { pause: second, ..few })?;
    let busy_cycles = run_load(bench, &few)?;
    let calm_turns = run_load(bench, &Load { semaphores: size / 50, limit: 1, hold: second / 10, ..few })?;
    let busy_turns = run_load(bench, &Load { limit: 1, ..few })?;

    bench.meter.empty()?;
    for system in [PERMITS, FLOOR] {
        let mut process = bench.start(system)?;
        bench.many_tasks(system.name, &mut process, 64)?;
    }
    let in_batches = |system: &System| bench.results.median(bench.mode, system.name, "B64.server_us");
    let [batched, floor] = [PERMITS, FLOOR].map(|system| in_batches(system).ok_or("no batches"));
    let (batched, floor) = (batched?, floor?);

    bench.meter.empty()?;
    let many = bench.scale.many;
    let mut process = bench.start(PERMITS)?;
    process.ask(&format!("hoard many {many}"))?;
    // Renewals have begun after one interval.
    sleep(bench.scale.renewal());
    let (_, spent) = bench.grants(&mut [], 2 * bench.scale.renewal())?;
    let held_bytes = bench.meter.memory()?;
    let renewed = many as f64 * spent.seconds / bench.scale.renewal().as_secs_f64();
    process.ask("free")?;
    bench.meter.empty()?;
    process.ask(&format!("turn turn {many}"))?;
    let semaphores_bytes = bench.meter.memory()?;
    bench.meter.empty()?;
    bench.waiters_memory(PERMITS)?;
    let waiter = bench.results.median(bench.mode, PERMITS.name, "G.waiter_bytes").ok_or("no waiters")?;
    Ok(Constants {
        cycle: [&calm_cycles, &busy_cycles].map(each),
        turn: [&calm_turns, &busy_turns].map(each),
        batched,
        floor,
        turns_per_s: busy_turns.grants / busy_turns.spent.seconds,
        renewal,
        renewed: spent.processor_us / renewed,
        alone,
        connected,
        empty: empty.bytes,
        // Take sessions that send requests, because their buffers are in use.
        session: (calm_cycles.bytes - empty.bytes) / few.clients as f64,
        semaphore: (semaphores_bytes - empty.bytes) / many as f64,
        holder: (held_bytes - empty.bytes) / many as f64,
        waiter,
    })
}

fn run_load(bench: &mut Bench, load: &Load) -> Result<Run, Failure> {
    bench.meter.empty()?;
    let mut processes = bench.start_many(PERMITS, PROCESSES, bench.scale.lease)?;
    let (hold, pause) = (load.hold.as_millis(), load.pause.as_millis());
    let each = load.clients / PROCESSES;
    all(&mut processes, &format!("clients load {} {} {each} {hold} {pause}", load.semaphores, load.limit))?;
    sleep(2 * bench.scale.renewal());
    let (grants, spent) = bench.grants(&mut processes, 2 * bench.scale.renewal())?;
    let bytes = bench.meter.memory()? + bench.meter.memory_of_connections()?;
    processes.into_iter().for_each(Process::kill);
    Ok(Run { spent, grants, bytes })
}

/// Ten processes that keep permits of one semaphore: cycles, calls and milliseconds of the server, a second.
fn keep(bench: &mut Bench) -> Result<[f64; 3], Failure> {
    const LIMIT: usize = 4;
    bench.meter.empty()?;
    let mut processes = bench.start_many(&KEEPING[0], TIMES, bench.scale.lease)?;
    let limit = TIMES * LIMIT;
    let command = |seconds: f64| format!("cycle kept {limit} {LIMIT} {seconds}");
    all(&mut processes, &command(bench.scale.warm_up))?;
    let before = bench.meter.read()?;
    let answers = all(&mut processes, &command(bench.scale.idle))?;
    let spent = bench.meter.since(before)?;
    let cycles: f64 = answers.iter().map(|answer| number(answer, "cycles")).sum::<Result<f64, _>>()?;
    Ok([cycles, spent.calls, spent.processor_us / 1e3].map(|figure| figure / spent.seconds))
}

/// The loads of the page.
fn loads(clients: usize) -> [Load; 3] {
    let ms = Duration::from_millis;
    let load = |name, semaphores, hold, pause| Load { name, clients, semaphores, limit: 10, hold, pause };
    [
        load("requests", clients / 10, ms(50), ms(950)),
        load("a line", clients / 100, ms(1000), ms(1000)),
        load("leaders", clients / 10, FOREVER, Duration::ZERO),
    ]
}

impl Load {
    fn larger(&self) -> Self {
        Self { clients: TIMES * self.clients, semaphores: TIMES * self.semaphores, ..*self }
    }

    /// The sum of the constants for it.
    fn sum(&self, constants: &Constants, scale: Scale, pace: Pace) -> Sum {
        let [clients, semaphores, units] =
            [self.clients, self.semaphores, self.semaphores * self.limit].map(|count| count as f64);
        let [hold, pause, interval] = [self.hold, self.pause, scale.renewal()].map(|time| time.as_secs_f64());
        // All that ask at once, if none has to wait.
        let wanted = clients * hold / (hold + pause);
        let waits = wanted > units;
        let grants = if waits { units / hold } else { clients / (hold + pause) };
        let held = grants * hold;
        let waiting = if waits { clients - held - grants * pause } else { 0.0 };
        // Each permit and request has one renewal for each interval that it lasts.
        let renewed = |time: f64| grants * (time / interval).floor();
        let renewals = renewed(hold) + if waits { renewed(waiting / grants) } else { 0.0 };
        let each = if waits { constants.turn } else { constants.cycle }[pace as usize];
        let bytes = constants.empty
            + clients * constants.session
            + semaphores * constants.semaphore
            + held * constants.holder
            + waiting * constants.waiter;
        let server_us =
            constants.alone + clients * constants.connected + grants * each + renewals * constants.renewal;
        let (calls, server_ms) = (2.0 * grants + renewals, server_us / 1e3);
        Sum { grants, waiting, calls, server_ms, bytes }
    }
}

impl Constants {
    fn table(&self) -> Result<String, Failure> {
        let mut text = "| constant | | |\n|---|---|---:|\n".to_owned();
        for (name, what, value) in [
            (
                "cycle, calm",
                "µs of an acquisition and its release, a call each, of a server that sleeps",
                self.cycle[0],
            ),
            ("cycle", "the same, of a server that is never idle", self.cycle[1]),
            ("batched", "µs of the same, of a program with 64 tasks", self.batched),
            ("turn, calm", "µs of a grant that is handed over, with its request and release", self.turn[0]),
            ("turn", "the same, of a server that is never idle", self.turn[1]),
            ("renewal", "µs of a renewal", self.renewal),
            ("renewed", "µs of a permit in a renewal of many", self.renewed),
            ("alone", "µs a second of a server without clients", self.alone),
            ("connected", "µs a second of a session, whatever it does", self.connected),
            ("empty", "bytes of a server without clients", self.empty),
            (
                "session",
                "bytes of a session that sends requests: its connection and the buffers of it",
                self.session,
            ),
            ("semaphore", "bytes of a semaphore, idle or not", self.semaphore),
            ("holder", "bytes of a permit that is held", self.holder),
            ("waiter", "bytes of a request that waits", self.waiter),
            ("", "grants a second of one hot semaphore, from process to process", self.turns_per_s),
            ("", "for the speed of this machine: µs of two scripts that do nothing, 64 at once", self.floor),
        ] {
            writeln!(text, "| {name} | {what} | {} |", digits(value))?;
        }
        Ok(text)
    }
}

fn table(rows: &[(Sum, Sum, Run, Load)], kept: &[f64; 3]) -> Result<String, Failure> {
    let mut text = "| load | clients | grants/s | waiting | calls/s | of a core | MiB |\n\
                    |---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let mut row = |name: &str, clients: String, figures: [String; 5]| {
        writeln!(text, "| {name} | {clients} | {} |", figures.join(" | "))
    };
    let mib = |bytes: f64| digits(bytes / f64::from(1 << 20));
    let percent = |ms: f64| format!("{} %", digits(ms / 10.0));
    let summed = |sum: &Sum| {
        [digits(sum.grants), digits(sum.waiting), digits(sum.calls), percent(sum.server_ms), mib(sum.bytes)]
    };
    for (larger, expected, run, load) in rows {
        let [grants, calls, server_ms] = [run.grants, run.spent.calls, run.spent.processor_us / 1e3]
            .map(|figure| figure / run.spent.seconds);
        let clients = load.clients.to_string();
        let measured = [digits(grants), "".to_owned(), digits(calls), percent(server_ms), mib(run.bytes)];
        row(&format!("{}, measured", load.name), clients.clone(), measured)?;
        row(&format!("{}, by the sum", load.name), clients, summed(expected))?;
        row(&format!("**{}**", load.name), load.larger().clients.to_string(), summed(larger))?;
    }
    let [cycles, calls, server_ms] = *kept;
    row(
        "kept permits, measured",
        TIMES.to_string(),
        [digits(cycles), "0".to_owned(), digits(calls), percent(server_ms), "".to_owned()],
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Constants = Constants {
        cycle: [2.0, 1.0],
        turn: [20.0, 10.0],
        batched: 0.0,
        floor: 0.0,
        turns_per_s: 0.0,
        renewal: 100.0,
        renewed: 0.0,
        alone: 1000.0,
        connected: 1.0,
        empty: 1e6,
        session: 1e3,
        semaphore: 100.0,
        holder: 10.0,
        waiter: 1.0,
    };

    #[test]
    fn a_load_without_waiters_is_its_cycles() {
        let [requests, _, _] = loads(1000);
        let sum = requests.sum(&UNIT, Scale::FULL, Pace::Calm);
        assert_eq!((sum.grants, sum.waiting, sum.calls), (1000.0, 0.0, 2000.0));
        assert!((sum.server_ms - 4.0).abs() < 1e-9, "1,000 alone, 1,000 connected, 1,000 cycles of 2");
        assert!((sum.bytes - 2_010_500.0).abs() < 1e-6, "empty, sessions, 100 semaphores, 50 holders");
    }

    #[test]
    fn a_line_makes_as_many_grants_as_its_units_allow_and_renews_what_waits() {
        let [_, line, _] = loads(1000);
        let sum = line.sum(&UNIT, Scale::FULL, Pace::Busy);
        // 100 units of a second each; of the others 100 pause, and 800 wait for 8 s, with a renewal after 5.
        assert_eq!((sum.grants, sum.waiting, sum.calls), (100.0, 800.0, 300.0));
        assert!((sum.server_ms - 13.0).abs() < 1e-9, "2 ms, 100 grants of 10 µs, 100 renewals of 100 µs");
    }

    #[test]
    fn leaders_are_renewed_once_an_interval() {
        let [_, _, leaders] = loads(1000);
        let sum = leaders.sum(&UNIT, Scale::FULL, Pace::Calm);
        assert!((sum.calls - 200.0).abs() < 1.0, "{}", sum.calls);
    }
}
