//! Mutants of a record: every way to change the reply and the events of one command. The model gives one
//! answer alone, so a replay has to find each of them.

use crate::history::Record;
use permits::protocol::{
    AcquireOutcome, Answers, ChangeEffect, Counts, DeleteOutcome, Event, EventKind, Grant, Holder,
    Inspection, Label, LimitOutcome, Refusal, ReleaseOutcome, RenewOutcome, Reply, RequestId, SessionId,
};

/// The record with each field of its reply and of its events changed, one at a time; with the name of the
/// change.
pub fn mutants(record: &Record) -> Vec<(String, Record)> {
    let mut all = Vec::new();
    for (what, reply) in replies(&record.reply) {
        all.push((what, Record { reply, ..record.clone() }));
    }
    for (what, events) in events(record) {
        all.push((what, Record { events, ..record.clone() }));
    }
    all
}

fn replies(reply: &Reply) -> Vec<(String, Reply)> {
    let mut all: Vec<(&str, Reply)> = vec![
        ("now", Reply { now_us: reply.now_us + 1, ..reply.clone() }),
        ("sequence up", Reply { sequence: reply.sequence + 1, ..reply.clone() }),
        ("limit", Reply { limit: reply.limit + 1, ..reply.clone() }),
        ("limit version", Reply { limit_version: reply.limit_version + 1, ..reply.clone() }),
        ("pinned", Reply { pinned: !reply.pinned, ..reply.clone() }),
        ("recovering", Reply { recovering_ms: reply.recovering_ms + 1, ..reply.clone() }),
        (
            "replaced",
            Reply {
                replaced_limit: Some(reply.replaced_limit.map_or(1, |limit| limit + 1)),
                ..reply.clone()
            },
        ),
        ("recheck", Reply { recheck_ms: Some(reply.recheck_ms.map_or(5, |ms| ms + 1)), ..reply.clone() }),
    ];
    if reply.sequence > 0 {
        all.push(("sequence down", Reply { sequence: reply.sequence - 1, ..reply.clone() }));
    }
    if reply.recheck_ms.is_some() {
        all.push(("no recheck", Reply { recheck_ms: None, ..reply.clone() }));
    }
    let all = all.into_iter().map(|(what, reply)| (what.to_owned(), reply));
    let answers = answers(&reply.answers).into_iter();
    let answers = answers.map(|answers| (format!("{answers:?}"), Reply { answers, ..reply.clone() }));
    all.chain(answers).collect()
}

fn answers(answers: &Answers) -> Vec<Answers> {
    match answers {
        Answers::Acquire(answers) => each(answers, acquired).into_iter().map(Answers::Acquire).collect(),
        Answers::Release(answers) => each(answers, released).into_iter().map(Answers::Release).collect(),
        Answers::Renew(answers) => each(answers, renewed).into_iter().map(Answers::Renew).collect(),
        Answers::Adopt(done) => vec![Answers::Adopt(!done), Answers::Pause],
        Answers::SetLimit(changed) => {
            changes(*changed).into_iter().map(Answers::SetLimit).chain([Answers::Pause]).collect()
        }
        Answers::Pause => vec![Answers::SetLimit(LimitOutcome::OtherVersion)],
        Answers::CloseLine => vec![Answers::Pause],
        Answers::Revoke(was) => released(was).into_iter().map(Answers::Revoke).collect(),
        Answers::Delete(deleted) => deletions(*deleted).into_iter().map(Answers::Delete).collect(),
        Answers::Inspect(seen) => inspections(seen).into_iter().map(Answers::Inspect).collect(),
    }
}

/// The list with each item changed in each way, without its last item, and with its first two exchanged if
/// they differ.
fn each<T: Clone + PartialEq>(all: &[T], change: impl Fn(&T) -> Vec<T>) -> Vec<Vec<T>> {
    let mut lists = Vec::new();
    for (index, one) in all.iter().enumerate() {
        for changed in change(one) {
            let mut list = all.to_vec();
            list[index] = changed;
            lists.push(list);
        }
    }
    if let [shorter @ .., _] = all {
        lists.push(shorter.to_vec());
    }
    if all.len() > 1 && all[0] != all[1] {
        let mut list = all.to_vec();
        list.swap(0, 1);
        lists.push(list);
    }
    lists
}

fn grants(Grant { token, slot }: Grant) -> [Grant; 3] {
    [(token + 1, slot), (token - 1, slot), (token, slot + 1)].map(|(token, slot)| Grant { token, slot })
}

fn acquired(answer: &AcquireOutcome) -> Vec<AcquireOutcome> {
    let refusals = [
        Refusal::LineClosed("another".into()),
        Refusal::NoPermits,
        Refusal::Recovering,
        Refusal::ExceedsLimit,
        Refusal::AlreadyHeld,
        Refusal::QueueFull,
        Refusal::NoLimit,
        Refusal::LimitMismatch,
    ];
    let mut others: Vec<AcquireOutcome> = refusals.map(AcquireOutcome::Refused).into();
    others.push(AcquireOutcome::Granted(Grant { token: 1, slot: 0 }));
    others.push(AcquireOutcome::Waiting { position: 0 });
    match answer {
        AcquireOutcome::Granted(grant) => others.extend(grants(*grant).map(AcquireOutcome::Granted)),
        AcquireOutcome::Waiting { position } => {
            others.push(AcquireOutcome::Waiting { position: position + 1 })
        }
        AcquireOutcome::Refused(_) => {}
    }
    others.retain(|other| other != answer);
    others
}

fn changes(answer: LimitOutcome) -> Vec<LimitOutcome> {
    let mut others = vec![LimitOutcome::OtherVersion, LimitOutcome::NoLimit, LimitOutcome::OutOfRange];
    if let LimitOutcome::Done { limit, version } = answer {
        others.push(LimitOutcome::Done { limit: limit + 1, version });
        others.push(LimitOutcome::Done { limit, version: version + 1 });
    }
    others.retain(|other| *other != answer);
    others
}

fn deletions(answer: DeleteOutcome) -> Vec<DeleteOutcome> {
    let mut others = vec![DeleteOutcome::Deleted, DeleteOutcome::Unknown, DeleteOutcome::Recovering];
    if let DeleteOutcome::InUse { held, waiting } = answer {
        others.push(DeleteOutcome::InUse { held: held + 1, waiting });
        others.push(DeleteOutcome::InUse { held, waiting: waiting + 1 });
    }
    others.retain(|other| *other != answer);
    others
}

fn other_label(label: &Label) -> Label {
    Label::new(if label.as_str().is_empty() { "another" } else { "" }).expect("it is valid")
}

fn released(answer: &ReleaseOutcome) -> Vec<ReleaseOutcome> {
    let mut others = vec![ReleaseOutcome::Held, ReleaseOutcome::Waiting, ReleaseOutcome::Unknown];
    others.retain(|other| other != answer);
    others
}

fn renewed(answer: &RenewOutcome) -> Vec<RenewOutcome> {
    let mut others = vec![
        RenewOutcome::Held,
        RenewOutcome::Lost,
        RenewOutcome::RetryLater,
        RenewOutcome::ExceedsLimit,
        RenewOutcome::LineClosed("another".into()),
        RenewOutcome::Granted(Grant { token: 1, slot: 0 }),
        RenewOutcome::Waiting { position: 0 },
    ];
    match answer {
        RenewOutcome::Granted(grant) => others.extend(grants(*grant).map(RenewOutcome::Granted)),
        RenewOutcome::Waiting { position } => others.push(RenewOutcome::Waiting { position: position + 1 }),
        _ => {}
    }
    others.retain(|other| other != answer);
    others
}

fn inspections(seen: &Inspection) -> Vec<Inspection> {
    let mut all = vec![
        Inspection { held: seen.held + 1, ..seen.clone() },
        Inspection { waiting: seen.waiting + 1, ..seen.clone() },
        Inspection { paused: !seen.paused, ..seen.clone() },
        Inspection { counts: Counts { grants: seen.counts.grants + 1, ..seen.counts }, ..seen.clone() },
        Inspection { closed: if seen.closed.is_some() { None } else { Some("".into()) }, ..seen.clone() },
    ];
    let holders = each(&seen.holders, |holder| {
        let mut all = vec![holder.clone(); 4];
        all[0].holder = other_holder();
        all[1].weight += 1;
        all[2].lease_remaining_ms += 1;
        all[3].label = other_label(&holder.label);
        all.extend(
            grants(holder.grant).map(|grant| permits::protocol::InspectedHolder { grant, ..holder.clone() }),
        );
        all
    });
    let waiters = each(&seen.waiters, |waiter| {
        let mut all = vec![waiter.clone(); 4];
        all[0].holder = other_holder();
        all[1].weight += 1;
        all[2].ticket += 1;
        all[3].label = other_label(&waiter.label);
        all
    });
    let changes = each(&seen.changes, |change| {
        let mut all = vec![change.clone(); 4];
        all[0].at_us += 1;
        all[1].origin.by = other_label(&change.origin.by);
        all[2].origin.request = unknown();
        all[3].effect =
            if change.effect == ChangeEffect::Pause { ChangeEffect::Resume } else { ChangeEffect::Pause };
        all
    });
    all.extend(changes.into_iter().map(|changes| Inspection { changes, ..seen.clone() }));
    all.extend(holders.into_iter().map(|holders| Inspection { holders, ..seen.clone() }));
    all.extend(waiters.into_iter().map(|waiters| Inspection { waiters, ..seen.clone() }));
    all
}

fn events(record: &Record) -> Vec<(String, Vec<Event>)> {
    let mut all = vec![];
    // A grant to an unknown request.
    let mut invented = record.events.clone();
    invented.push(Event {
        session: record.command.session.clone(),
        semaphore: record.command.semaphore.clone(),
        holder: other_holder(),
        request: unknown(),
        kind: EventKind::Granted(Grant { token: record.now_us, slot: 0 }),
    });
    all.push(("one event more".to_owned(), invented));
    for index in 0..record.events.len() {
        let mut fewer = record.events.clone();
        fewer.remove(index);
        all.push(("one event less".to_owned(), fewer));
        let mut twice = record.events.clone();
        twice.insert(index, twice[index].clone());
        all.push(("an event twice".to_owned(), twice));
        for changed in event(&record.events[index]) {
            let mut events = record.events.clone();
            events[index] = changed;
            all.push((format!("the event {:?}", events[index]), events));
        }
    }
    all
}

fn event(event: &Event) -> Vec<Event> {
    let mut all = vec![event.clone(); 3];
    all[0].holder = other_holder();
    all[1].request = unknown();
    all[2].session = SessionId::new("unknown").expect("it is valid");
    let kinds = match &event.kind {
        EventKind::Granted(grant) => {
            let mut kinds: Vec<EventKind> = grants(*grant).map(EventKind::Granted).into();
            kinds.push(EventKind::Refused);
            kinds
        }
        EventKind::Revoked(reason) => {
            vec![EventKind::Refused, EventKind::Revoked(format!("{reason}!").into())]
        }
        EventKind::LineClosed(reason) => {
            vec![EventKind::Refused, EventKind::LineClosed(format!("{reason}!").into())]
        }
        EventKind::Refused | EventKind::Turn(_) => vec![EventKind::Revoked("why".into())],
    };
    all.extend(kinds.into_iter().map(|kind| Event { kind, ..event.clone() }));
    all
}

fn other_holder() -> Holder {
    Holder::new("another").expect("it is valid")
}

fn unknown() -> RequestId {
    RequestId::new("unknown").expect("it is valid")
}
