//! Stories whose subject is real time, such as a lease that ends or a renewal before its end.
//!
//! Everywhere else barriers, proxies and fixed clocks make the order of events. Here the order depends on the
//! machine: a process that gets no processor for half a lease loses its permit, and no code is at fault. So a
//! thread on each processor measures for how long it stands still while the story runs: the host of a virtual
//! machine may stop one of them. On Linux the kernel also says for what part of the time some program waited
//! for a processor. While a machine has more work than processors, its kernel may leave out one process for
//! many seconds, and give threads that sleep their turn.
//!
//! A failure counts if the machine neither stood still nor was overloaded. Otherwise the story is repeated,
//! with a line `EXCUSED` on standard error, and fails if it never comes to pass. The failure of a check that
//! no slowness excuses ([`always_counts`]), such as of the limit, counts at once.

use std::cell::Cell;
use std::fs;
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

/// A machine is overloaded if some program waited for a processor in this part of the time.
const OVERLOAD: f64 = 0.9;

/// The most attempts.
const ATTEMPTS: u32 = 5;

/// The time between two beats of a pulse.
const BEAT: Duration = Duration::from_millis(1);

thread_local! {
    /// A check is running whose failure always counts.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a check whose failure counts on the slowest machine.
pub fn always_counts<T>(check: impl FnOnce() -> T) -> T {
    let before = COUNTS.replace(true);
    let result = check();
    COUNTS.set(before);
    result
}

/// Threads that sleep for a beat again and again, and are late when their processors stand still.
struct Pulse {
    began: Instant,
    /// [`waited_for_processors`] then.
    waited: Duration,
    threads: Vec<(Sender<()>, JoinHandle<Duration>)>,
}

/// What a machine did during a story.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// The longest time in which a processor did not run a thread that had slept.
    stood_still: Duration,
    /// The part of the time in which some program waited for a processor.
    overload: f64,
}

impl Machine {
    /// Returns true if a story that failed in this attempt is to be repeated.
    fn excuses(self, attempt: u32) -> bool {
        let was_slow = self.stood_still >= STANDSTILL || self.overload >= OVERLOAD;
        was_slow && !COUNTS.get() && attempt < ATTEMPTS
    }
}

/// The time in which some program waited for a processor, since the start of the machine, as far as its
/// kernel says it.
fn waited_for_processors() -> Duration {
    waited(&fs::read_to_string("/proc/pressure/cpu").unwrap_or_default())
}

/// The time in such a text of the kernel, which has it in microseconds.
fn waited(pressure: &str) -> Duration {
    let total = |line: &str| line.strip_prefix("some ")?.split("total=").nth(1)?.parse().ok();
    pressure.lines().find_map(total).map_or(Duration::ZERO, Duration::from_micros)
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
        let threads = pins().into_iter().map(beats).collect();
        Self { began: Instant::now(), waited: waited_for_processors(), threads }
    }

    /// Returns true if a story that failed is to be repeated.
    fn excuses(self, attempt: u32) -> bool {
        let (stops, threads): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        drop(stops);
        let longest = threads.into_iter().map(|thread| thread.join().expect("a pulse does not panic"));
        let stood_still = longest.max().unwrap_or_default();
        let (waited, lasted) = (waited_for_processors().saturating_sub(self.waited), self.began.elapsed());
        let machine = Machine { stood_still, overload: waited.as_secs_f64() / lasted.as_secs_f64() };
        eprintln!("attempt {attempt} failed; {machine:?}");
        let excuses = machine.excuses(attempt) && lasted < HANGS;
        if excuses {
            // As a skipped test does, past the harness, which shows nothing of a test that passes.
            let test = thread::current().name().unwrap_or("a test").to_owned();
            let line = format!("EXCUSED {test}: attempt {attempt}, {machine:?}\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
        excuses
    }
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

/// Runs a story, again if it fails on a machine that was slow meanwhile: at most five times.
pub fn in_real_time(story: impl Fn()) {
    for attempt in 1.. {
        let pulse = Pulse::start();
        match catch_unwind(AssertUnwindSafe(&story)) {
            Ok(()) => return,
            Err(_) if pulse.excuses(attempt) => {}
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
            Err(_) if pulse.excuses(attempt) => {}
            Err(cause) => resume_unwind(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Machine = Machine { stood_still: Duration::ZERO, overload: 0.5 };

    #[test]
    fn a_failure_counts_on_a_machine_that_was_not_slow() {
        assert!(!QUIET.excuses(1));
    }

    #[test]
    fn a_failure_on_a_slow_machine_is_excused_four_times() {
        for slow in [Machine { stood_still: STANDSTILL, ..QUIET }, Machine { overload: OVERLOAD, ..QUIET }] {
            assert!((1..ATTEMPTS).all(|attempt| slow.excuses(attempt)), "{slow:?}");
            assert!(!slow.excuses(ATTEMPTS), "{slow:?}");
        }
    }

    #[test]
    fn a_failure_that_nothing_excuses_counts_on_a_slow_machine() {
        let slow = Machine { stood_still: STANDSTILL, overload: OVERLOAD };
        let ended = catch_unwind(|| always_counts(|| panic!("too many")));
        assert!(ended.is_err() && !slow.excuses(1));
        COUNTS.set(false);
        always_counts(|| ());
        assert!(slow.excuses(1));
    }

    #[test]
    fn a_story_that_passes_is_run_once() {
        let runs = Cell::new(0);
        in_real_time(|| runs.set(runs.get() + 1));
        assert_eq!(runs.get(), 1);
    }

    #[test]
    fn the_kernel_says_how_long_programs_waited() {
        let pressure = "some avg10=97.25 avg60=92.85 avg300=65.68 total=1500000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=26113398\n";
        assert_eq!(waited(pressure), Duration::from_millis(1500));
        assert_eq!(waited(""), Duration::ZERO);
    }
}
