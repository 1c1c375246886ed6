//! The measurements: for each system and figure a value from each round, and the reasons for missing ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Failure;
use crate::compare::system::Cannot;
use crate::stats::median;

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Results {
    figures: BTreeMap<(String, String), Vec<f64>>,
    cannot: BTreeMap<(String, String), String>,
}

/// The median of a figure, and its least and most.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Results {
    pub(crate) fn note(&mut self, system: &str, figure: &str, value: f64) {
        self.figures.entry((system.to_owned(), figure.to_owned())).or_default().push(value);
    }

    /// Keeps the reason if a workload ended because the system cannot do it, or failed at it.
    pub(crate) fn settle(&mut self, system: &str, workload: &str, ended: Result<(), Failure>) {
        if let Err(error) = ended {
            if error.downcast_ref::<Cannot>().is_none() {
                eprintln!("{system}, {workload}: {error}");
            }
            self.cannot.insert((system.to_owned(), workload.to_owned()), error.to_string());
        }
    }

    pub(crate) fn get(&self, system: &str, figure: &str) -> Option<Spread> {
        let values = self.figures.get(&(system.to_owned(), figure.to_owned()))?;
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        Some(Spread { median: median(values.clone()), low, high })
    }

    pub(crate) fn median(&self, system: &str, figure: &str) -> Option<f64> {
        Some(self.get(system, figure)?.median)
    }

    pub(crate) fn why_not(&self, system: &str, workload: &str) -> Option<&str> {
        Some(self.cannot.get(&(system.to_owned(), workload.to_owned()))?)
    }

    /// All figures with all their values.
    pub(crate) fn json(&self) -> Value {
        let mut systems = json!({});
        for ((system, figure), values) in &self.figures {
            systems[system][figure] = json!(values);
        }
        for ((system, workload), reason) in &self.cannot {
            systems[system]["cannot"][workload] = json!(reason);
        }
        systems
    }
}
