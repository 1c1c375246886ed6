//! Mutants of a record: its reply or its events changed in one thing. The model gives one answer alone, so a
//! replay has to find each of them.
//!
//! A replay compares replies and events as wholes, by the equality that the compiler derives. So a mutant for
//! each field of a reply and of an event is enough, and answers are changed by exchanging them with other
//! answers of the same history, of which each kind is one.

use crate::history::Record;
use permits_core::protocol::{
    AcquireOutcome, Answers, Event, EventKind, Grant, Holder, RenewOutcome, RequestId, SessionId,
};

/// The distance of the other records that lend their answers and events.
const NEAR: usize = 12;

/// The record at `number` with one change, for each change; with the name of the change.
pub fn mutants(records: &[Record], number: usize) -> Vec<(&'static str, Record)> {
    let record = &records[number];
    let mut all: Vec<(&'static str, Record)> = Vec::new();
    let mut add = |what: &'static str, change: &dyn Fn(&mut Record)| {
        let mut changed = record.clone();
        change(&mut changed);
        if changed != *record && !all.iter().any(|(_, known)| *known == changed) {
            all.push((what, changed));
        }
    };
    add("now", &|it| it.reply.now_us += 1);
    add("sequence up", &|it| it.reply.sequence += 1);
    add("sequence down", &|it| it.reply.sequence = it.reply.sequence.saturating_sub(1));
    add("limit", &|it| it.reply.limit += 1);
    add("limit version", &|it| it.reply.limit_version += 1);
    add("pinned", &|it| it.reply.pinned = !it.reply.pinned);
    add("keepable", &|it| it.reply.keepable = !it.reply.keepable);
    add("recalled", &|it| it.recalled = !it.recalled);
    add("recovering", &|it| it.reply.recovering_ms += 1);
    add("replaced", &|it| {
        it.reply.replaced_limit = Some(it.reply.replaced_limit.map_or(1, |limit| limit + 1))
    });
    add("recheck", &|it| it.reply.recheck_ms = Some(it.reply.recheck_ms.map_or(5, |ms| ms + 1)));
    add("no recheck", &|it| it.reply.recheck_ms = None);
    add("an answer less", &|it| shorten(&mut it.reply.answers));
    add("a token up", &|it| grants(&mut it.reply.answers).into_iter().for_each(|grant| grant.token += 1));
    add("a token down", &|it| grants(&mut it.reply.answers).into_iter().for_each(|grant| grant.token -= 1));
    add("a slot", &|it| grants(&mut it.reply.answers).into_iter().for_each(|grant| grant.slot += 1));
    add("an event more", &|it| it.events.push(invented(record)));
    for index in 0..record.events.len() {
        add("an event less", &|it| drop(it.events.remove(index)));
        add("an event twice", &|it| it.events.insert(index, it.events[index].clone()));
        add("the session of an event", &|it| it.events[index].session = invented(record).session);
        add("the holder of an event", &|it| it.events[index].holder = invented(record).holder);
        add("the request of an event", &|it| it.events[index].request = invented(record).request);
        add("the kind of an event", &|it| it.events[index].kind = invented(record).kind);
    }
    let near = &records[number.saturating_sub(NEAR)..records.len().min(number + NEAR)];
    for other in near {
        add("another answer", &|it| it.reply.answers.clone_from(&other.reply.answers));
        add("other events", &|it| it.events.clone_from(&other.events));
    }
    all
}

fn shorten(answers: &mut Answers) {
    match answers {
        Answers::Acquire(answers) => drop(answers.pop()),
        Answers::Release(answers) => drop(answers.pop()),
        Answers::Renew(answers) => drop(answers.pop()),
        Answers::Inspect(seen) => drop((seen.holders.pop(), seen.waiters.pop())),
        _ => {}
    }
}

fn grants(answers: &mut Answers) -> Vec<&mut Grant> {
    match answers {
        Answers::Acquire(answers) => {
            let answers = answers.iter_mut();
            answers
                .filter_map(|it| if let AcquireOutcome::Granted(it) = it { Some(it) } else { None })
                .collect()
        }
        Answers::Renew(answers) => {
            let answers = answers.iter_mut();
            answers
                .filter_map(|it| if let RenewOutcome::Granted(it) = it { Some(it) } else { None })
                .collect()
        }
        Answers::Inspect(seen) => seen.holders.iter_mut().map(|holder| &mut holder.grant).collect(),
        _ => Vec::new(),
    }
}

/// A grant to an unknown request.
fn invented(record: &Record) -> Event {
    Event {
        session: SessionId::new("unknown").expect("it is valid"),
        semaphore: record.command.semaphore.clone(),
        holder: Holder::new("another").expect("it is valid"),
        request: RequestId::new("unknown").expect("it is valid"),
        kind: EventKind::Granted(Grant { token: record.now_us, slot: 9 }),
    }
}
