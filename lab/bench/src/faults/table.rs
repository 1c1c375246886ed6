//! The results as a table in Markdown.

use std::fmt::Write as _;
use std::time::Duration;

use permits_testkit::faults::{Excess, Verdict};

const HEAD: &str = "\
| row | limit | operations | grants | of kept permits | lost | failed | faults | violations | above the limit | \
late writes refused | worst recovery | longest wait | all served |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|
";

/// The table of these results: name of the row, limit, verdict.
pub(crate) fn table(results: &[(&str, u32, Verdict)]) -> String {
    let mut text = HEAD.to_owned();
    for (name, limit, verdict) in results {
        let Verdict { operations, grants, granted_again, lost, failed, faults, violations, refused, .. } =
            verdict;
        let _ = writeln!(
            text,
            "| {name} | {limit} | {operations} | {grants} | {granted_again} | {lost} | {failed} | {faults} | {} | {} \
             | {refused} | {} | {} | {} |",
            violations.len(),
            above(&verdict.excess),
            seconds(verdict.recovery),
            seconds(verdict.waited),
            seconds(verdict.served),
        );
    }
    let sum = |of: fn(&Verdict) -> usize| results.iter().map(|(_, _, verdict)| of(verdict)).sum::<usize>();
    let worst = results.iter().filter_map(|(_, _, verdict)| verdict.recovery).max();
    let _ = writeln!(
        text,
        "| all | | {} | {} | {} | {} | {} | {} | {} | | {} | {} | {} | |",
        sum(|it| it.operations),
        sum(|it| it.grants),
        sum(|it| it.granted_again),
        sum(|it| it.lost),
        sum(|it| it.failed),
        sum(|it| it.faults),
        sum(|it| it.violations.len()),
        sum(|it| it.refused),
        seconds(worst),
        seconds(results.iter().filter_map(|(_, _, verdict)| verdict.waited).max()),
    );
    text
}

pub(crate) fn above(excess: &Excess) -> String {
    if excess.times == 0 {
        return "never".to_owned();
    }
    let (longest, total) = (seconds(Some(excess.longest)), seconds(Some(excess.total)));
    format!("{} units, {} times, longest {longest}, together {total}", excess.units, excess.times)
}

pub(crate) fn seconds(duration: Option<Duration>) -> String {
    duration.map_or("-".to_owned(), |duration| format!("{:.2} s", duration.as_secs_f64()))
}
