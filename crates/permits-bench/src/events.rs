//! Permits that several processes asked for, held and released, with times by the clock that they share.

use serde_json::Value;

use crate::Failure;

/// The time by which a request must be later than another to have been overtaken in the queue: a request
/// takes a moment to the server, and more among many on two processors.
const LATER_US: f64 = 5000.0;

/// A permit from its request to its release.
#[derive(Clone, Copy)]
pub struct Event {
    process: usize,
    /// The time of the request.
    pub asked: f64,
    /// The time at which the caller had the permit.
    pub got: f64,
    /// The time at which the release was called.
    pub freed: f64,
    /// The order of the grants: the fencing token of a system that has one, else the time.
    pub order: f64,
}

/// Reads the answers of the processes, in the order of grants.
///
/// # Errors
/// If an answer is malformed, or no process was granted a permit.
pub fn parse(answers: &[Value]) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    for (process, answer) in answers.iter().enumerate() {
        for event in answer["events"].as_array().ok_or("no events")? {
            let field = |index: usize| event[index].as_f64();
            let (Some(asked), Some(got), Some(freed)) = (field(0), field(1), field(2)) else {
                return Err(format!("not an event: {event}").into());
            };
            events.push(Event { process, asked, got, freed, order: field(3).unwrap_or(got) });
        }
    }
    if events.is_empty() {
        return Err("nothing was granted".into());
    }
    events.sort_by(|left, right| left.order.total_cmp(&right.order));
    Ok(events)
}

/// The average number of permits held, from the first grant until the first process ran out of work: the
/// throughput, as a part of what holds of this length allow.
pub fn occupied(events: &[Event]) -> f64 {
    let begin = events.iter().map(|event| event.got).fold(f64::MAX, f64::min);
    let end = events.iter().map(|event| event.asked).fold(f64::MIN, f64::max);
    let held: f64 = events.iter().map(|event| event.freed.min(end) - event.got.min(end)).sum();
    held / (end - begin)
}

/// The permits that were granted before a permit for which a process had clearly asked earlier.
pub fn inversions(events: &[Event]) -> usize {
    let mut earliest = f64::MAX;
    let mut count = 0;
    // Walk back from the last grant. `earliest` is the earliest request among all grants that came later.
    for event in events.iter().rev() {
        count += usize::from(earliest + LATER_US < event.asked);
        earliest = earliest.min(event.asked);
    }
    count
}

/// The time to the grant of each request that waited while another process released, counted from the first
/// release by another process after the request, even if that release served another request.
pub fn hand_offs(events: &[Event]) -> Vec<f64> {
    let wait = |event: &Event| {
        let others = events.iter().filter(|other| other.process != event.process);
        let first = others.map(|other| other.freed).filter(|freed| *freed > event.asked);
        let first = first.fold(f64::MAX, f64::min);
        (first < event.got).then_some(event.got - first)
    };
    // The first and the last tenth are left out: a process may have been alone then.
    let (few, most) = (events.len() / 10, events.len() * 9 / 10);
    events[few..most].iter().filter_map(wait).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(answers: &[Value]) -> Vec<Event> {
        parse(answers).expect("events")
    }

    #[test]
    fn one_who_asked_earlier_and_got_it_later_was_overtaken() {
        let fair = [json!({ "events": [[0, 10, 20], [30_000, 30_010, 30_020]] })];
        assert_eq!(inversions(&of(&fair)), 0);
        let unfair =
            [json!({ "events": [[0, 90_000, 90_001]] }), json!({ "events": [[30_000, 30_010, 30_020]] })];
        assert_eq!(inversions(&of(&unfair)), 1);
    }

    #[test]
    fn a_token_says_more_than_the_time_of_a_grant() {
        let answers = [
            json!({ "events": [[0, 90_000, 90_001, 1]] }),
            json!({ "events": [[30_000, 30_010, 30_020, 2]] }),
        ];
        assert_eq!(inversions(&of(&answers)), 0);
    }

    #[test]
    fn a_hand_off_counts_from_the_first_release_while_waiting() {
        let mut holder: Vec<_> = (0..20).map(|turn| [turn * 100, turn * 100 + 1, turn * 100 + 50]).collect();
        holder.truncate(10);
        let answers = [json!({ "events": holder }), json!({ "events": [[420, 680, 690]] })];
        assert_eq!(hand_offs(&of(&answers)), [230.0]);
    }
}
