//! The aims of the project for the comparison's figures.

use permits_lab::aims::Aim;
use permits_lab::aims::Bound::{self, AtLeast, AtMost};
use permits_lab::modes::Mode;

use crate::compare::results::Results;
use crate::compare::system::{Kind, SYSTEMS};

/// All aims, each with its figure in each mode in which it is taken.
pub(crate) fn aims(results: &Results) -> Vec<Aim> {
    let mut all = Aims { results, aims: Vec::new() };
    all.cycles();
    all.crowds();
    all.queues();
    all.aims
}

/// The aims so far.
struct Aims<'a> {
    results: &'a Results,
    aims: Vec<Aim>,
}

/// A figure in the modes quiet and awake.
const BOTH: [Mode; 2] = [Mode::Quiet, Mode::Awake];

impl Aims<'_> {
    fn ours(&self, mode: Mode, figure: &str) -> Option<f64> {
        self.results.median(mode, "permits", figure)
    }

    /// The highest value of all rounds.
    fn most(&self, mode: Mode, figure: &str) -> Option<f64> {
        self.results.get(mode, "permits", figure).map(|spread| spread.high)
    }

    fn over(&self, mode: Mode, figure: &str, other: &str) -> Option<f64> {
        Some(self.ours(mode, figure)? / self.results.median(mode, other, figure)?)
    }

    /// The figure of the peer that has the best one.
    fn best_peer(&self, mode: Mode, figure: &str, best: fn(f64, f64) -> f64) -> Option<f64> {
        let peers = SYSTEMS.iter().filter(|system| system.kind == Kind::Peer);
        peers.filter_map(|peer| self.results.median(mode, peer.name, figure)).reduce(best)
    }

    fn add(&mut self, workload: &'static str, what: &str, mode: Mode, value: Option<f64>, bound: Bound) {
        self.aims.push(Aim { workload, what: what.to_owned(), mode, value, bound });
    }

    /// An aim with one bound for both modes.
    fn both(
        &mut self,
        workload: &'static str,
        what: &str,
        bound: Bound,
        value: impl Fn(&Self, Mode) -> Option<f64>,
    ) {
        for mode in BOTH {
            self.add(workload, what, mode, value(self, mode), bound);
        }
    }

    /// A and B: cycles within the limit.
    fn cycles(&mut self) {
        let what = "cycle awaited / two no-op scripts, p50";
        for (mode, bound) in BOTH.into_iter().zip([1.3, 1.45]) {
            self.add("A", what, mode, self.over(mode, "A.p50_us", "noop"), AtMost(bound));
        }
        for (system, kind, bound) in [("permits", "awaited", 1.1), ("permits-dropped", "dropped", 0.8)] {
            let what = format!("cycle {kind} / the fastest peer's, p50");
            self.both("A", &what, AtMost(bound), |all, mode| {
                let ours = all.results.median(mode, system, "A.p50_us")?;
                Some(ours / all.best_peer(mode, "A.p50_us", f64::min)?)
            });
        }
        for (tasks, bound) in [(64, 1.6), (512, 1.8)] {
            let figure = format!("B{tasks}.per_s");
            let what = format!("rate, {tasks} tasks / the fastest peer's");
            self.both("B", &what, AtLeast(bound), |all, mode| {
                Some(all.ours(mode, &figure)? / all.best_peer(mode, &figure, f64::max)?)
            });
        }
        for (side, bound) in [("server", 7.0), ("client", 5.5)] {
            let figure = format!("B64.{side}_us");
            let what = format!("{side} µs a cycle, 64 tasks");
            self.both("B", &what, AtMost(bound), |all, mode| all.ours(mode, &figure));
        }
    }

    /// C and D: several processes.
    fn crowds(&mut self) {
        for (mode, bound) in BOTH.into_iter().zip([0.88, 0.9]) {
            self.add("C", "throughput / the ideal", mode, self.ours(mode, "C.of_ideal"), AtLeast(bound));
        }
        let what = "order inversions, most of all rounds";
        self.both("C", what, AtMost(0.0), |all, mode| all.most(mode, "C.inversions"));
        let what = "server calls a grant";
        self.both("C", what, AtMost(2.2), |all, mode| all.ours(mode, "C.calls"));
        let what = "hand-off / PUBLISH to receive, p50";
        self.both("D", what, AtMost(1.4), |all, mode| all.over(mode, "D.p50_us", "noop"));
        self.both("D", "rueidislock's hand-off / ours, p50", AtLeast(1.8), |all, mode| {
            all.over(mode, "D.p50_us", "rueidislock").map(|ratio| 1.0 / ratio)
        });
    }

    /// E to I: idle permits, queues, memory, a crash.
    fn queues(&mut self) {
        let quiet = Mode::Quiet;
        let what = "calls for 500 permits and a renewal interval";
        self.add("E", what, quiet, self.ours(quiet, "E.calls_of_aim"), AtMost(1.0));
        for (length, name, bound) in [(10, "10", 70.0), (100_000, "100,000", 95.0)] {
            let figure = format!("F{length}.server_us");
            let what = format!("server µs a grant out of {name}");
            self.both("F", &what, AtMost(bound), |all, mode| all.ours(mode, &figure));
        }
        let what = "server µs a grant, out of 100,000 / out of 10";
        self.both("F", what, AtMost(1.5), |all, mode| {
            Some(all.ours(mode, "F100000.server_us")? / all.ours(mode, "F10.server_us")?)
        });
        for (length, name) in [(10, "10"), (1000, "1,000"), (100_000, "100,000")] {
            let figure = format!("F{length}.calls");
            let what = format!("server calls a grant out of {name}");
            self.both("F", &what, AtMost(2.2), |all, mode| all.ours(mode, &figure));
        }
        self.add("G", "bytes a waiter", quiet, self.ours(quiet, "G.waiter_bytes"), AtMost(350.0));
        self.add("G", "bytes a holder", quiet, self.ours(quiet, "G.holder_bytes"), AtMost(300.0));
        let what = "grant after the lease's end, ms, latest of all rounds";
        self.add("I", what, quiet, self.most(quiet, "I.beyond_lease_ms"), AtMost(100.0));
    }
}
