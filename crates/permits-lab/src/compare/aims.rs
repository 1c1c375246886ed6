//! The aims of the project for the comparison's figures, and whether they are met.

use serde_json::{Value, json};

use crate::compare::results::Results;

/// A figure, or the ratio of two of one run, and its bound.
pub(crate) struct Aim {
    pub(crate) workload: &'static str,
    pub(crate) what: String,
    /// `None` if it was not measured.
    pub(crate) value: Option<f64>,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Aim {
    /// Returns whether it is met; `None` if it was not measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.value.map(|value| match self.bound {
            Bound::AtMost(bound) => value <= bound,
            Bound::AtLeast(bound) => value >= bound,
        })
    }

    pub(crate) fn json(&self) -> Value {
        let (kind, bound) = match self.bound {
            Bound::AtMost(bound) => ("at most", bound),
            Bound::AtLeast(bound) => ("at least", bound),
        };
        json!({
            "workload": self.workload,
            "what": self.what,
            "value": self.value,
            kind: bound,
            "met": self.is_met(),
        })
    }
}

/// All aims.
pub(crate) fn aims(results: &Results) -> Vec<Aim> {
    use Bound::{AtLeast, AtMost};
    let ours = |figure: &str| results.median("permits", figure);
    let most = |figure: &str| results.get("permits", figure).map(|spread| spread.high);
    let over = |figure: &str, other: &str| Some(ours(figure)? / results.median(other, figure)?);
    let under = |figure: &str, other: &str| over(figure, other).map(|ratio| 1.0 / ratio);
    let mut aims = Vec::new();
    let mut aim = |workload, what: &str, value, bound| {
        aims.push(Aim { workload, what: what.to_owned(), value, bound });
    };
    aim("A", "cycle / two no-op EVALSHA, p50", over("A.p50_us", "noop"), AtMost(1.25));
    let beside = "cycle / two no-op EVALSHA in a task beside the connection's, p50";
    aim("A", beside, over("A.p50_us", "noop-worker"), AtMost(1.25));
    let dropped = results.median("permits-dropped", "A.p50_us").zip(results.median("noop", "A.p50_us"));
    let ratio = dropped.map(|(ours, floor)| ours / floor);
    aim("A", "cycle that drops the permit / two no-op EVALSHA, p50", ratio, AtMost(1.25));
    let rate = "B64.per_s";
    aim("B", "rate, 64 tasks / Redisson permit-expirable", over(rate, "redisson-permits"), AtLeast(5.0));
    aim("B", "rate, 64 tasks / redis-semaphore", over(rate, "redis-semaphore"), AtLeast(8.0));
    aim("B", "rate, 64 tasks / half the no-op EVALSHA rate", over(rate, "noop"), AtLeast(1.5));
    aim("B", "rate, 64 tasks / half the INCR EVALSHA rate", over(rate, "incr"), AtLeast(1.5));
    aim("C", "throughput / the ideal", ours("C.of_ideal"), AtLeast(0.9));
    aim("C", "wait p99 / p50", ours("C.wait_p99_p50"), AtMost(2.0));
    aim("C", "order inversions, most of all rounds", most("C.inversions"), AtMost(0.0));
    aim("C", "server calls a grant, 64 tasks", ours("C.calls"), AtMost(2.2));
    for length in [10, 1000, 100_000] {
        let what = format!("server calls a grant, {length} waiters");
        aim("C", &what, ours(&format!("F{length}.calls")), AtMost(2.2));
    }
    aim("D", "hand-off / PUBLISH to receive, p50", over("D.p50_us", "noop"), AtMost(1.3));
    let times = "times as fast as Redisson";
    let (permits, semaphore) = ("redisson-permits", "redisson-semaphore");
    aim("D", &format!("{times}'s permit-expirable, p50"), under("D.p50_us", permits), AtLeast(2.0));
    aim("D", &format!("{times}'s RSemaphore, p50"), under("D.p50_us", semaphore), AtLeast(2.0));
    aim("E", "calls for 500 permits and a renewal interval", ours("E.calls_of_aim"), AtMost(1.0));
    let ratio = ours("F100000.server_us").zip(ours("F10.server_us")).map(|(many, few)| many / few);
    aim("F", "server time a grant, 100,000 / 10 waiters", ratio, AtMost(1.5));
    aim("G", "bytes a waiter", ours("G.waiter_bytes"), AtMost(300.0));
    aim("G", "bytes a holder", ours("G.holder_bytes"), AtMost(300.0));
    aim(
        "I",
        "grant after the lease's end, ms, latest of all rounds",
        most("I.beyond_lease_ms"),
        AtMost(100.0),
    );
    aims
}
