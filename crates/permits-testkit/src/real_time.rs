//! Stories whose subject is real time, such as a lease that ends or a renewal before its end.
//!
//! Everywhere else barriers, proxies and fixed clocks make the order of events. Here the order depends on the
//! machine: a process that gets no processor for half a lease loses its permit, and no code is at fault. So a
//! thread on each processor measures for how long it stands still while the story runs: the host of a virtual
//! machine may stop one of them. A failure counts if none was still for long; otherwise the story is
//! repeated, with a line `EXCUSED` on standard error, and fails if it never comes to pass. The failure of a
//! check that no slowness excuses ([`always_counts`]), such as of the limit, counts at once.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::wait::HANGS;

/// The standstill of a machine that a short lease may not survive.
const STANDSTILL: Duration = Duration::from_millis(20);

/// The most attempts.
const ATTEMPTS: u32 = 10;

/// The time between two beats of a pulse.
const BEAT: Duration = Duration::from_millis(1);

thread_local! {
    /// A check is running whose failure always counts.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a check whose failure counts on the slowest machine. A panic leaves `COUNTS` set, for `is_excused`.
pub fn always_counts<T>(check: impl FnOnce() -> T) -> T {
    let before = COUNTS.replace(true);
    let result = check();
    COUNTS.set(before);
    result
}

/// Threads that sleep for a beat again and again, and are late when their processors stand still.
struct Pulse {
    began: Instant,
    threads: Vec<(Sender<()>, JoinHandle<Duration>)>,
}

impl Pulse {
    fn start() -> Self {
        let beats = |pin: Box<dyn FnOnce() + Send>| {
            let (stop, stopped) = channel();
            let beats = move || {
                pin();
                let mut longest = Duration::ZERO;
                loop {
                    let slept = Instant::now();
                    if stopped.recv_timeout(BEAT) != Err(RecvTimeoutError::Timeout) {
                        return longest;
                    }
                    longest = longest.max(slept.elapsed() - BEAT);
                }
            };
            (stop, thread::spawn(beats))
        };
        Self { began: Instant::now(), threads: pins().into_iter().map(beats).collect() }
    }

    /// Returns true if a story that failed is to be repeated.
    fn repeats(self, attempt: u32) -> bool {
        let (stops, threads): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        drop(stops);
        let longest = threads.into_iter().map(|thread| thread.join().expect("a pulse does not panic"));
        let longest = longest.max().unwrap_or_default();
        eprintln!("attempt {attempt} failed; the machine stood still for up to {longest:?}");
        let repeats = is_excused(longest, attempt) && self.began.elapsed() < HANGS;
        if repeats {
            // As a skipped test does, past the harness, which shows nothing of a test that passes.
            let test = thread::current().name().unwrap_or("a test").to_owned();
            let still = format!("attempt {attempt}, the machine stood still for {longest:?}");
            let line = format!("EXCUSED {test}: {still}\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
        repeats
    }
}

/// Returns true if the failure of an attempt does not count, because the machine stood still for so long.
fn is_excused(longest: Duration, attempt: u32) -> bool {
    longest >= STANDSTILL && !COUNTS.get() && attempt < ATTEMPTS
}

/// The most processors that are watched: a machine with more has one to spare.
#[cfg(target_os = "linux")]
const PROCESSORS: usize = 8;

/// For each processor a function that keeps the calling thread there. Where that is not known, one that does
/// nothing.
fn pins() -> Vec<Box<dyn FnOnce() + Send>> {
    #[cfg(target_os = "linux")]
    if let Ok(all) = sched_getaffinity(None) {
        let pin = |cpu: usize| {
            move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                // If it fails, the thread beats somewhere.
                let _ = sched_setaffinity(None, &only);
            }
        };
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        return cpus.take(PROCESSORS).map(|cpu| Box::new(pin(cpu)) as Box<dyn FnOnce() + Send>).collect();
    }
    vec![Box::new(|| {})]
}

/// Runs a story, again if it fails on a machine that stood still meanwhile: at most ten times.
pub fn in_real_time(story: impl Fn()) {
    for attempt in 1.. {
        let pulse = Pulse::start();
        match catch_unwind(AssertUnwindSafe(&story)) {
            Ok(()) => return,
            Err(_) if pulse.repeats(attempt) => {}
            Err(cause) => resume_unwind(cause),
        }
    }
}

/// Runs a story as [`in_real_time`] does, which awaits.
pub async fn awaited_in_real_time(story: impl AsyncFn()) {
    for attempt in 1.. {
        let pulse = Pulse::start();
        let ended = {
            let mut running = pin!(story());
            std::future::poll_fn(|context| {
                match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
                    Ok(poll) => poll.map(Ok),
                    Err(cause) => Poll::Ready(Err(cause)),
                }
            })
            .await
        };
        match ended {
            Ok(()) => return,
            Err(_) if pulse.repeats(attempt) => {}
            Err(cause) => resume_unwind(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_counts_on_a_machine_that_never_stood_still() {
        assert!(!is_excused(STANDSTILL - BEAT, 1));
    }

    #[test]
    fn a_failure_on_a_machine_that_stood_still_is_excused_but_the_last_time() {
        assert!((1..ATTEMPTS).all(|attempt| is_excused(STANDSTILL, attempt)));
        assert!(!is_excused(STANDSTILL, ATTEMPTS));
    }

    #[test]
    fn a_failure_that_nothing_excuses_counts_on_a_slow_machine() {
        let ended = catch_unwind(|| always_counts(|| panic!("too many")));
        assert!(ended.is_err() && !is_excused(STANDSTILL, 1));
        COUNTS.set(false);
        always_counts(|| ());
        assert!(is_excused(STANDSTILL, 1));
    }

    #[test]
    fn a_story_that_passes_is_run_once() {
        let runs = Cell::new(0);
        in_real_time(|| runs.set(runs.get() + 1));
        assert_eq!(runs.get(), 1);
    }
}
