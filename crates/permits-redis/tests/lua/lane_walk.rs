//! Long histories of a line whose lanes have bounds, in the ordinary courses: one request in each command,
//! and little else than requests, releases and renewals. Histories with all ideas seldom stay in these
//! courses.

use permits_core::protocol::{AcquireOutcome, Declaration, Operation, RenewRequest};

use crate::fixture::{Both, holder, in_lane, release};
use crate::operations::renewal;

/// The lanes, with their limits and floors.
const LANES: [(&str, u32, u32); 6] =
    [("", 0, 0), ("free", 0, 0), ("two", 2, 0), ("three", 3, 1), ("floor", 0, 2), ("both", 4, 3)];

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn walk(seed: u64) {
    let mut both = Both::start();
    both.declaration = Declaration::Fallback(6);
    let (mut numbers, mut names) = (Numbers(seed), Vec::<String>::new());
    for step in 0..400 {
        both.set_time(both.now_us + 1_000);
        let pick = numbers.below(names.len().max(1));
        match numbers.below(20) {
            0..2 if !names.is_empty() => {
                let entry = &both.state.as_ref().expect("it is in use").entries[&holder(&names[pick])];
                let (terms, grant) = (entry.terms.clone(), entry.place.taken());
                let request = RenewRequest { terms, ..renewal(&names[pick], grant) };
                both.same(&Operation::Renew(vec![request]));
            }
            2..10 if !names.is_empty() => {
                both.same(&release(&names.swap_remove(pick)));
            }
            _ => {
                let (lane, limit, floor) = LANES[numbers.below(LANES.len())];
                let name = format!("{lane}{step}");
                let mut asked = in_lane(&name, lane, 1 + u32::from(numbers.below(6) == 0));
                // Some requests name other bounds, and some name no bounds.
                (asked.terms.lane_limit, asked.terms.lane_floor) = match numbers.below(16) {
                    0 => (limit.min(1), floor),
                    1 => (0, 0),
                    _ => (limit, floor),
                };
                if numbers.below(8) == 0 {
                    asked.terms.lease_ms -= 1_000;
                }
                if let AcquireOutcome::Granted(_) | AcquireOutcome::Waiting { .. } =
                    both.acquired(vec![asked]).remove(0)
                {
                    names.push(name);
                }
            }
        }
    }
}

#[test]
fn the_ordinary_courses_of_bounds_are_the_same() {
    (1..9).for_each(walk);
}
