//! An aim of the project for a figure, and whether it is met.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::modes::Mode;
use crate::page::{Part, digits};

/// A figure, or the ratio of two of one run and one mode, and its bound.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The workload, by its letter or its name.
    pub workload: &'static str,
    /// The figure.
    pub what: String,
    /// The mode in which it was taken.
    pub mode: Mode,
    /// `None` if it was not measured.
    pub value: Option<f64>,
    /// The aim.
    pub bound: Bound,
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The figure should not exceed it.
    AtMost(f64),
    /// The figure should reach it.
    AtLeast(f64),
}

impl Bound {
    fn shown(self) -> String {
        match self {
            Self::AtMost(bound) => format!("≤ {bound}"),
            Self::AtLeast(bound) => format!("≥ {bound}"),
        }
    }
}

impl Aim {
    /// An aim in the modes quiet and awake, with a bound for each.
    pub fn both(
        workload: &'static str,
        what: &str,
        bounds: [Bound; 2],
        value: impl Fn(Mode) -> Option<f64>,
    ) -> [Self; 2] {
        let [quiet, awake] = [(Mode::Quiet, bounds[0]), (Mode::Awake, bounds[1])];
        [quiet, awake].map(|(mode, bound)| Self {
            workload,
            what: what.to_owned(),
            mode,
            value: value(mode),
            bound,
        })
    }

    /// Returns whether it is met; `None` if it was not measured.
    fn is_met(&self) -> Option<bool> {
        self.value.map(|value| match self.bound {
            Bound::AtMost(bound) => value <= bound,
            Bound::AtLeast(bound) => value >= bound,
        })
    }

    /// The aim in a record.
    pub fn json(&self) -> Value {
        let (kind, bound) = match self.bound {
            Bound::AtMost(bound) => ("at most", bound),
            Bound::AtLeast(bound) => ("at least", bound),
        };
        json!({
            "workload": self.workload,
            "what": self.what,
            "mode": self.mode.name(),
            "value": self.value,
            kind: bound,
            "met": self.is_met(),
        })
    }

    fn cell(&self) -> String {
        let verdict = self.is_met().map(|met| if met { "met" } else { "**not met**" });
        match (self.value, verdict) {
            (Some(value), Some(verdict)) => format!("{}, {verdict}", digits(value)),
            _ => "not measured".to_owned(),
        }
    }
}

/// A table of aims: a row for each figure, a column for each mode.
pub fn table(aims: &[Aim]) -> String {
    let mut table = "| | figure | aim | quiet | awake |\n|---|---|---:|---:|---:|\n".to_owned();
    for row in aims.chunk_by(|one, next| one.workload == next.workload && one.what == next.what) {
        let of = |mode| row.iter().find(|aim| aim.mode == mode);
        let mut bounds: Vec<_> = row.iter().map(|aim| aim.bound).collect();
        bounds.dedup();
        let bounds: Vec<_> = bounds.into_iter().map(Bound::shown).collect();
        let [quiet, awake] =
            [Mode::Quiet, Mode::Awake].map(|mode| of(mode).map(Aim::cell).unwrap_or_default());
        let (workload, what, bounds) = (row[0].workload, &row[0].what, bounds.join("; "));
        writeln!(table, "| {workload} | {what} | {bounds} | {quiet} | {awake} |")
            .expect("a string takes any text");
    }
    table
}

/// A table of the figures alone, for pages: readers of a page want to know the cost, not the plan.
pub fn figures(aims: &[Aim]) -> String {
    let mut table = "| | figure | quiet | awake |\n|---|---|---:|---:|\n".to_owned();
    for row in aims.chunk_by(|one, next| one.workload == next.workload && one.what == next.what) {
        let of = |mode| row.iter().find(|aim| aim.mode == mode).and_then(|aim| aim.value);
        let [quiet, awake] = [Mode::Quiet, Mode::Awake].map(|mode| of(mode).map(digits).unwrap_or_default());
        writeln!(table, "| {} | {} | {quiet} | {awake} |", row[0].workload, row[0].what)
            .expect("a string takes any text");
    }
    table
}

/// The place of the aims of one command, in the page on performance.
pub const fn part(begin: &'static str) -> Part<'static> {
    Part { begin, end: "<!-- end of aims -->" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aim(mode: Mode, value: Option<f64>, bound: f64) -> Aim {
        Aim { workload: "A", what: "cycle".to_owned(), mode, value, bound: Bound::AtMost(bound) }
    }

    #[test]
    fn a_row_has_both_modes_and_both_bounds() {
        let aims = [aim(Mode::Quiet, Some(1.2), 1.3), aim(Mode::Awake, Some(1.5), 1.4)];
        assert!(table(&aims).contains("| A | cycle | ≤ 1.3; ≤ 1.4 | 1.20, met | 1.50, **not met** |"));
        assert!(figures(&aims).contains("| A | cycle | 1.20 | 1.50 |"));
    }

    #[test]
    fn a_figure_that_was_not_measured_is_not_met() {
        let aims = [aim(Mode::Quiet, None, 1.3)];
        assert!(table(&aims).contains("| A | cycle | ≤ 1.3 | not measured |  |"));
        assert_eq!(aims[0].is_met(), None);
    }
}
