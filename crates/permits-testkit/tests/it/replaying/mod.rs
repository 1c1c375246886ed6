//! The replay agrees with the model, and finds every violation.

mod story;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use permits_core::protocol::{AcquireOutcome, Answers, Grant, RenewOutcome};
use permits_testkit::history::{Loss, Record, Replayed, Violation, replay};
use permits_testkit::mutants::{model, record};
use permits_testkit::random::{cases, rng};

use story::{Story, random};

/// The rule that is violated.
fn rule<T: std::fmt::Debug>(verdict: Result<T, Violation>) -> &'static str {
    verdict.expect_err("the history has a violation").rule
}

/// A and B hold, C and D wait; C is granted, and all leave.
fn sound() -> Story {
    let mut story = full();
    story.release("a");
    story.release("d");
    story.end();
    story
}

/// A and B hold, C and D wait.
fn full() -> Story {
    let mut story = Story::new();
    for name in ["a", "b", "c", "d"] {
        story.acquire(name);
    }
    story
}

fn grant_of(answer: AcquireOutcome) -> Grant {
    match answer {
        AcquireOutcome::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_sound_history_passes() {
    let replayed = replay(&sound().records).expect("it is sound");
    assert_eq!((replayed.commands, replayed.events, replayed.permits.len()), (7, 1, 3));
    assert_eq!((replayed.check_kept(), replayed.check_at_rest()), (Ok(()), Ok(())));
    assert_eq!(replay(&[]).expect("nothing is sound").commands, 0);
}

#[test]
fn random_histories_pass_with_all_that_was_lost() {
    let mut random_numbers = rng();
    for _ in 0..20 * cases() {
        let story = random(&mut random_numbers, 300);
        let replayed = replay(&story.records).unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(replayed.states.values().next(), Some(&story.state));
    }
}

/// The model with a defect gives other replies than the model, in some history.
#[test]
fn every_mutant_of_the_model_is_found() {
    let mut random_numbers = rng();
    for (property, store) in model::ALL {
        let found = (0..500).any(|_| {
            // The model panics on a state that does not add up.
            let story = catch_unwind(AssertUnwindSafe(|| story::random_of(store, &mut random_numbers, 300)));
            let Ok(story) = story else { return true };
            // A mutant whose replies are the model's may reach a state that the model does not reach.
            let replayed = replay(&story.records);
            !replayed.is_ok_and(|replayed| replayed.states.values().next() == Some(&story.state))
        });
        assert!(found, "the mutant that breaks {property} was not found");
    }
}

/// The model cannot know tokens that it has forgotten; the history does. For example with a server's clock
/// that was set back.
#[test]
fn a_token_that_sinks_with_the_state_is_found() {
    for back_us in [0, 60_000_000] {
        let mut story = Story::new();
        story.acquire("a");
        story.state = None;
        story.now_us -= back_us;
        story.acquire("b");
        if back_us == 0 {
            replay(&story.records).expect("tokens rise with the time");
        } else {
            assert_eq!(rule(replay(&story.records)), "P4");
        }
    }
}

#[test]
fn capacity_that_is_lost_at_the_end_is_found() {
    let mut story = sound();
    story.records.pop();
    let replayed = replay(&story.records).expect("what there is is sound");
    assert_eq!(rule(replayed.check_at_rest()), "P10");
}

/// Returns whether the record has an effect that its absence or change shows: some state is left, and a
/// record follows.
fn is_followed(records: &[Record], number: usize) -> bool {
    let sequence = records[number].reply.sequence;
    let next = records.get(number + 1).map_or(0, |next| next.reply.sequence);
    !records[number].command.only_looks() && sequence > 0 && next == sequence + 1
}

/// Returns whether the replay fails, or finds other losses than these.
fn found(records: &[Record], wanted: &Replayed) -> bool {
    replay(records).map_or(true, |replayed| replayed.losses != wanted.losses)
}

#[test]
fn records_that_are_missing_or_repeated_or_out_of_order_are_found() {
    let story = random(&mut rng(), 200);
    let wanted = replay(&story.records).expect("it is sound");
    let followed = (0..200).filter(|number| is_followed(&story.records, *number));
    let mut tried = 0;
    for number in followed {
        let mut missing = story.records.clone();
        missing.remove(number);
        assert!(found(&missing, &wanted), "record {number} is missing");
        let mut repeated = story.records.clone();
        repeated.insert(number, repeated[number].clone());
        assert!(found(&repeated, &wanted), "record {number} stands there twice");
        let mut exchanged = story.records.clone();
        exchanged.swap(number, number + 1);
        assert!(found(&exchanged, &wanted), "record {number} comes late");
        tried += 1;
    }
    assert!(tried > 100, "{tried} records could be tried");
}

/// The kinds of answers and events, by their names.
fn kinds(records: &[Record]) -> BTreeSet<String> {
    let first = |text: String| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
    let mut kinds = BTreeSet::new();
    for Record { reply, events, recalled, .. } in records {
        match &reply.answers {
            Answers::Acquire(answers) => {
                let of = |answer: &AcquireOutcome| match answer {
                    AcquireOutcome::Refused(refusal) => format!("acquire {}", first(format!("{refusal:?}"))),
                    other => format!("acquire {}", first(format!("{other:?}"))),
                };
                kinds.extend(answers.iter().map(of));
            }
            Answers::Release(answers) => kinds.extend(answers.iter().map(|was| format!("release {was:?}"))),
            Answers::Renew(answers) => {
                kinds.extend(answers.iter().map(|answer| format!("renew {}", first(format!("{answer:?}")))));
            }
            other => drop(kinds.insert(first(format!("{other:?}")))),
        }
        kinds.extend(recalled.then(|| "recall".to_owned()));
        kinds.extend(events.iter().map(|event| format!("event {}", first(format!("{:?}", event.kind)))));
    }
    kinds
}

/// A waiter that is heavier than the lowered limit comes to the head of the line: too rare for chance.
fn refused() -> Story {
    let mut story = Story::new();
    story.acquire("a");
    story.send(story::acquire("heavy", "heavy", 2, true));
    story.send(story::set_limit(1));
    story.release("a");
    story
}

/// A waiter renews that is heavier than the lowered limit: too rare for chance.
fn too_heavy() -> Story {
    let mut story = Story::new();
    story.acquire("a");
    story.send(story::acquire("heavy", "heavy", 2, true));
    story.send(story::set_limit(1));
    assert_eq!(story.renew("heavy", None), RenewOutcome::ExceedsLimit);
    story
}

/// All kinds but two that [`Story`] does not reach: it always brings a limit, and requires none.
const KINDS: [&str; 29] = [
    "acquire Granted",
    "acquire Waiting",
    "acquire NoPermits",
    "acquire ExceedsLimit",
    "acquire LineClosed",
    "acquire AlreadyHeld",
    "acquire QueueFull",
    "release Held",
    "release Waiting",
    "release Unknown",
    "renew Held",
    "renew Granted",
    "renew Waiting",
    "renew Lost",
    "renew RetryLater",
    "renew ExceedsLimit",
    "Adopt",
    "SetLimit",
    "Pause",
    "CloseLine",
    "Revoke",
    "Delete",
    "Inspect",
    "event Granted",
    "event Revoked",
    "event Refused",
    "event LineClosed",
    "recall",
    "loss",
];

#[test]
fn every_field_of_every_reply_and_message_counts() {
    let mut random_numbers = rng();
    let (mut tried, mut seen) = (0, BTreeSet::new());
    // Rare kinds do not come in every history.
    let stories = (0..100).map(|_| random(&mut random_numbers, 60));
    for story in [refused(), too_heavy()].into_iter().chain(stories) {
        let wanted = replay(&story.records).expect("it is sound");
        let mut kinds = kinds(&story.records);
        if !wanted.losses.is_empty() {
            kinds.insert("loss".to_owned());
        }
        if kinds.is_subset(&seen) {
            continue;
        }
        seen.extend(kinds);
        for number in 0..story.records.len() {
            // Up to the next record: after a changed sequence number, the next record shows it.
            let end = (number + 2).min(story.records.len());
            let mut wanted = wanted.clone();
            wanted.losses.retain(|loss| loss.record < end);
            for (what, changed) in record::mutants(&story.records, number) {
                let mut records = story.records[..end].to_vec();
                records[number] = changed;
                assert!(
                    found(&records, &wanted),
                    "record {number} changed: {what}\n{:?}",
                    story.records[number]
                );
                tried += 1;
            }
        }
    }
    println!("{tried} changes, all found, of {seen:?}");
    for kind in KINDS {
        assert!(seen.contains(kind), "{kind} did not come in {seen:?}");
    }
}

#[test]
fn a_flushed_state_is_followed_and_reported() {
    let mut story = Story::new();
    let grant = grant_of(story.acquire("a"));
    story.state = None;
    assert_eq!(story.renew("a", Some(grant)), RenewOutcome::Held, "it is put back");
    story.end();
    let replayed = replay(&story.records).expect("it is explained");
    let semaphore = "permits:{exports}:state".to_owned();
    assert_eq!(replayed.losses, [Loss { semaphore, record: 1, from: 1, to: 0, restarted: false }]);
    assert_eq!(rule(replayed.check_kept()), "kept");
}

/// A restart from an older copy on disk, or a failover to a replica that lags.
#[test]
fn a_state_that_went_back_with_a_restart_is_followed_and_reported() {
    let mut story = full();
    let before = story.state.clone();
    story.release("a");
    story.acquire("e");
    story.state = before;
    story.restart();
    story.release("b");
    story.end();
    let replayed = replay(&story.records).expect("it is explained");
    assert_eq!(replayed.losses.len(), 1);
    let Loss { record, from, to, restarted, .. } = replayed.losses[0];
    assert_eq!((record, from, to, restarted), (6, 6, 4, true));
}

#[test]
fn a_state_that_went_back_without_a_restart_is_found() {
    let mut story = full();
    let before = story.state.clone();
    story.release("a");
    story.state = before;
    story.release("b");
    assert_eq!(rule(replay(&story.records)), "sequence");
}

#[test]
fn an_idle_semaphore_that_expires_is_no_loss() {
    let mut story = Story::new();
    story.acquire("a");
    story.pass(5 * story::LEASE_MS);
    story.acquire("b");
    story.end();
    assert_eq!(story.records[1].reply.sequence, 1);
    assert_eq!(replay(&story.records).expect("it is sound").check_kept(), Ok(()));
}

#[test]
fn semaphores_are_replayed_apart() {
    let (one, mut other) = (full(), sound());
    for record in &mut other.records {
        record.semaphore = "permits:{imports}:state".to_owned();
    }
    let mixed: Vec<Record> = one.records.into_iter().zip(other.records).flat_map(|(a, b)| [a, b]).collect();
    let replayed = replay(&mixed).expect("both are sound");
    assert_eq!(replayed.states.len(), 2);
}
