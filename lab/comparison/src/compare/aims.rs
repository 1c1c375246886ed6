//! The aims of the project for the comparison's figures: beside peers, and for `permits` alone.

use permits_bench::aims::Aim;
use permits_bench::aims::Bound::{AtLeast, AtMost};
use permits_bench::core_bench;
use permits_bench::modes::Mode;
use permits_bench::results::Results;
use permits_bench::system::{KEEPING, Kind, System};

/// All aims, in the order of the workloads.
pub(crate) fn aims(results: &Results, systems: &[System]) -> Vec<Aim> {
    let mut aims = core_bench::aims(results);
    aims.extend(beside_peers(results, systems));
    aims.sort_by_key(|aim| aim.workload);
    aims
}

fn beside_peers(results: &Results, systems: &[System]) -> Vec<Aim> {
    let best = |mode: Mode, figure: &str, best: fn(f64, f64) -> f64| {
        let peers = systems.iter().filter(|system| system.kind == Kind::Peer);
        peers.filter_map(|peer| results.median(mode, peer.name, figure)).reduce(best)
    };
    let mut aims = Vec::new();
    for (system, kind, bound) in [("permits", "awaited", 1.1), ("permits-dropped", "dropped", 0.8)] {
        let what = format!("cycle {kind} / the fastest peer's, p50");
        aims.extend(Aim::both("A", &what, [AtMost(bound); 2], |mode| {
            Some(results.median(mode, system, "A.p50_us")? / best(mode, "A.p50_us", f64::min)?)
        }));
    }
    let what = "kept: the fastest peer's cycle / ours, p50";
    aims.extend(Aim::both("A", what, [AtLeast(50.0); 2], |mode| {
        Some(best(mode, "A.p50_us", f64::min)? / results.median(mode, KEEPING[0].name, "A.p50_us")?)
    }));
    for (tasks, bound) in [(64, 1.6), (512, 1.8)] {
        let figure = format!("B{tasks}.per_s");
        let what = format!("rate, {tasks} tasks / the fastest peer's");
        aims.extend(Aim::both("B", &what, [AtLeast(bound); 2], |mode| {
            Some(results.median(mode, "permits", &figure)? / best(mode, &figure, f64::max)?)
        }));
    }
    aims.extend(Aim::both("D", "rueidislock's hand-off / ours, p50", [AtLeast(1.8); 2], |mode| {
        results.ratio(mode, "D.p50_us", "rueidislock", "permits")
    }));
    aims
}
