//! The measurements: for each mode, system and figure a value from each round, and the reasons for missing
//! ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Failure;
use crate::modes::Mode;
use crate::page::digits;
use crate::stats::median;
use crate::system::Cannot;

/// All figures of a run, each by its mode, its system and its name.
#[derive(Default)]
pub struct Results {
    figures: BTreeMap<(Mode, String, String), Vec<f64>>,
    /// The reasons, by mode, system and workload.
    cannot: BTreeMap<(Mode, String, String), Reason>,
}

/// The reason for a missing figure.
#[derive(Clone)]
struct Reason {
    text: String,
    /// The system is not made for the workload, which is not run again.
    for_good: bool,
}

/// The median of a figure, and its least and most.
#[derive(Clone, Copy)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Spread {
    /// The median, and if they differ the least and the most, each divided by `by`.
    pub fn shown(self, by: f64) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(|value| digits(value / by));
        if low == high { median } else { format!("{median} ({low}–{high})") }
    }
}

fn key(mode: Mode, system: &str, what: &str) -> (Mode, String, String) {
    (mode, system.to_owned(), what.to_owned())
}

impl Results {
    /// Adds the value of a round.
    pub fn note(&mut self, mode: Mode, system: &str, figure: &str, value: f64) {
        self.figures.entry(key(mode, system, figure)).or_default().push(value);
    }

    /// Keeps the reason if a workload ended because the system cannot do it, or failed at it.
    pub fn settle(&mut self, mode: Mode, system: &str, workload: &str, ended: Result<(), Failure>) {
        if let Err(error) = ended {
            let for_good = error.downcast_ref::<Cannot>().is_some();
            if !for_good {
                eprintln!("{system}, {workload}, {}: {error}", mode.name());
            }
            let reason = Reason { text: error.to_string(), for_good };
            self.cannot.insert(key(mode, system, workload), reason);
        }
    }

    /// A figure of all rounds; `None` if it was not measured.
    pub fn get(&self, mode: Mode, system: &str, figure: &str) -> Option<Spread> {
        let values = self.figures.get(&key(mode, system, figure))?;
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        Some(Spread { median: median(values.clone()), low, high })
    }

    /// The median of a figure.
    pub fn median(&self, mode: Mode, system: &str, figure: &str) -> Option<f64> {
        Some(self.get(mode, system, figure)?.median)
    }

    /// The median of a figure of one system, divided by the median of another system.
    pub fn ratio(&self, mode: Mode, figure: &str, system: &str, other: &str) -> Option<f64> {
        Some(self.median(mode, system, figure)? / self.median(mode, other, figure)?)
    }

    /// The reason why a system has no figures of a workload.
    pub fn why_not(&self, mode: Mode, system: &str, workload: &str) -> Option<&str> {
        let own = self.cannot.get(&key(mode, system, workload));
        Some(&own.or_else(|| self.for_good(system, workload))?.text)
    }

    /// Returns whether the system is not made for the workload, by an earlier answer.
    pub fn cannot(&self, system: &str, workload: &str) -> bool {
        self.for_good(system, workload).is_some()
    }

    /// The reason that holds in every mode.
    fn for_good(&self, system: &str, workload: &str) -> Option<&Reason> {
        let mut reasons = Mode::ALL.iter().filter_map(|mode| self.cannot.get(&key(*mode, system, workload)));
        reasons.find(|reason| reason.for_good)
    }

    /// Takes all figures out, and the reasons; those that hold for good stay.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let figures = std::mem::take(&mut self.figures);
        let cannot = self.cannot.clone();
        self.cannot.retain(|_, reason| reason.for_good);
        Self { figures, cannot }
    }

    /// All figures with all their values, by mode and system, and the reasons for missing ones.
    pub fn json(&self) -> Value {
        let mut modes = json!({});
        for ((mode, system, figure), values) in &self.figures {
            modes[mode.name()][system][figure] = json!(values);
        }
        for ((mode, system, workload), reason) in &self.cannot {
            let kept = json!({ "text": reason.text, "for good": reason.for_good });
            modes[mode.name()][system]["cannot"][workload] = kept;
        }
        modes
    }

    /// Adds what [`json`](Self::json) made.
    ///
    /// # Errors
    /// If it is not of that form.
    pub fn add(&mut self, modes: &Value) -> Result<(), Failure> {
        for mode in Mode::ALL {
            for (system, figures) in modes[mode.name()].as_object().into_iter().flatten() {
                for (figure, values) in figures.as_object().into_iter().flatten() {
                    if figure == "cannot" {
                        self.add_reasons(mode, system, values)?;
                        continue;
                    }
                    let values: Vec<f64> = serde_json::from_value(values.clone())?;
                    values.into_iter().for_each(|value| self.note(mode, system, figure, value));
                }
            }
        }
        Ok(())
    }

    fn add_reasons(&mut self, mode: Mode, system: &str, reasons: &Value) -> Result<(), Failure> {
        for (workload, reason) in reasons.as_object().into_iter().flatten() {
            let text = reason["text"].as_str().ok_or("a reason without a text")?.to_owned();
            let for_good = reason["for good"] == true;
            self.cannot.insert(key(mode, system, workload), Reason { text, for_good });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_were_kept_as_json_are_one_with_those_taken_since() {
        let mut bench = Results::default();
        bench.note(Mode::Awake, "permits", "A.p50_us", 200.0);
        bench.settle(Mode::Awake, "peer", "K", Err(Box::new(Cannot("it keeps nothing".to_owned()))));
        bench.settle(Mode::Awake, "peer", "C", Err("it timed out".into()));
        let kept = bench.take().json();
        assert!(bench.get(Mode::Awake, "permits", "A.p50_us").is_none());
        assert!(bench.cannot("peer", "K") && !bench.cannot("peer", "C"));

        let mut all = Results::default();
        all.note(Mode::Awake, "permits", "A.p50_us", 100.0);
        all.note(Mode::Awake, "permits", "A.p50_us", 150.0);
        all.add(&kept).expect("it is of this form");
        let spread = all.get(Mode::Awake, "permits", "A.p50_us").expect("both are there");
        assert_eq!((spread.low, spread.median, spread.high), (100.0, 150.0, 200.0));
        assert_eq!(all.why_not(Mode::Quiet, "peer", "K"), Some("it keeps nothing"));
        assert_eq!(all.why_not(Mode::Awake, "peer", "C"), Some("it timed out"));
    }
}
