//! The figures in one screen: where `permits` is behind, first; then a few figures of all systems.

use std::fmt::Write as _;

use permits_bench::modes::Mode;
use permits_bench::page::digits;
use permits_bench::results::Results;
use permits_bench::system::{Kind, PERMITS, System};

/// The figures: name, divisor, and text; and true if more is better.
const FACTS: [(&str, f64, &str, bool); 13] = [
    ("A.p50_us", 1.0, "a cycle without contention, p50, µs", false),
    ("B64.per_s", 1e3, "64 tasks within the limit, 1,000 cycles/s", true),
    ("C.wait_p99_ms", 1.0, "64 tasks on 4 places: wait p99, ms", false),
    ("C.inversions", 1.0, "the same: grants that overtook", false),
    ("C.calls", 1.0, "the same: calls of the server a grant", false),
    ("D.p50_us", 1.0, "hand-off to another process, p50, µs", false),
    ("F100000.per_s", 1.0, "grants/s out of a line of 100,000", true),
    ("E.calls_per_min", 1.0, "10,000 permits held idle, calls/min", false),
    ("G.holder_bytes", 1.0, "bytes of a holder", false),
    ("G.waiter_bytes", 1.0, "bytes of a waiter", false),
    ("I.beyond_lease_ms", 1.0, "a holder killed: free after its lease, ms", false),
    ("J.ms", 1.0, "from connect to the first permit, ms", false),
    ("K.p50_us", 1.0, "a unit that another process keeps, p50, µs", false),
];

/// The mode of the figures: quiet, since all of them are taken in it.
const MODE: Mode = Mode::Quiet;

/// The section, with its heading.
pub(super) fn section(systems: &[System], results: &Results) -> String {
    let shown: Vec<&System> = systems.iter().filter(|system| system.kind != Kind::Floor).collect();
    let mut text = "### In one screen\n\nMedians of the mode quiet.\n\n".to_owned();
    let behind = losses(&shown, results);
    let _ = match behind.is_empty() {
        true => writeln!(text, "`permits` is behind no other system in a figure of this table.\n"),
        false => writeln!(text, "`permits` is behind here:\n\n{}\n", behind.join("\n")),
    };
    let titles: Vec<&str> = shown.iter().map(|system| system.title).collect();
    let _ = writeln!(text, "| | {} |\n|---|{}", titles.join(" | "), "---:|".repeat(titles.len()));
    for (figure, by, words, _) in FACTS {
        let cell = |system: &&System| {
            results
                .median(MODE, system.name, figure)
                .map_or_else(|| "–".to_owned(), |value| digits(value / by))
        };
        let cells: Vec<String> = shown.iter().map(cell).collect();
        let _ = writeln!(text, "| {words} | {} |", cells.join(" | "));
    }
    text
}

/// The figures in which a peer is ahead of `permits`, with the peer that is furthest ahead.
fn losses(shown: &[&System], results: &Results) -> Vec<String> {
    let lost = |(figure, by, words, more): (&str, f64, &str, bool)| {
        let own = results.median(MODE, PERMITS.name, figure)?;
        let is_ahead = |value: f64, other: f64| if more { value > other } else { value < other };
        let peers = shown.iter().filter(|system| system.kind == Kind::Peer);
        let (value, title) = peers
            .filter_map(|peer| Some((results.median(MODE, peer.name, figure)?, peer.title)))
            .filter(|(value, _)| is_ahead(*value, own))
            .reduce(|best, other| if is_ahead(other.0, best.0) { other } else { best })?;
        Some(format!("- {words}: {} against {} of {title}.", digits(own / by), digits(value / by)))
    };
    FACTS.into_iter().filter_map(lost).collect()
}

#[cfg(test)]
mod tests {
    use permits_bench::system::Program;

    use super::*;

    #[test]
    fn a_figure_in_which_a_peer_is_ahead_is_said_first() {
        let peer = |name| System { name, title: name, kind: Kind::Peer, program: Program::Own };
        let systems = [PERMITS.clone(), peer("slow"), peer("quick")];
        let mut results = Results::default();
        for (system, cycle, rate) in
            [("permits", 100.0, 50_000.0), ("slow", 900.0, 40_000.0), ("quick", 80.0, 9_000.0)]
        {
            results.note(MODE, system, "A.p50_us", cycle);
            results.note(MODE, system, "B64.per_s", rate);
        }
        let text = section(&systems, &results);
        assert_eq!(text.matches("\n- ").count(), 1, "{text}");
        assert!(text.contains("- a cycle without contention, p50, µs: 100 against 80 of quick."), "{text}");
        assert!(text.contains("| 64 tasks within the limit, 1,000 cycles/s | 50 | 40 | 9 |"), "{text}");
        assert!(text.contains("| bytes of a waiter | – | – | – |"), "{text}");
    }
}
