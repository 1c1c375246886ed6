//! A store made of the model, with the records that the scripts publish; and a random history of it, with
//! every kind of answer.

use permits_core::model::{ServerClock, State, apply, keepable_limit, recalls};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, AdoptRequest, Answers, Command, Declaration, DeleteOutcome, Event,
    EventKind, Grant, Holder, Label, LaneName, LimitChange, Name, Operation, Pause, PermitTerms, Recovery,
    RenewOutcome, RenewRequest, Reply, RequestId, RequestKey, SessionId,
};
use permits_testkit::history::Record;
use permits_testkit::mutants::model::Store;

pub(crate) const LEASE_MS: u64 = 3_000;

/// A semaphore with a limit of 2, and the record of its commands.
pub(crate) struct Story {
    store: Store,
    pub(crate) records: Vec<Record>,
    pub(crate) state: Option<State>,
    pub(crate) now_us: u64,
    pub(crate) run: u32,
    pub(crate) uptime_ms: u64,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self::of(apply)
    }

    /// The story of a store that may be a mutant.
    pub(crate) fn of(store: Store) -> Self {
        Self {
            store,
            records: Vec::new(),
            state: None,
            now_us: 4_102_444_800_000_000,
            run: 0,
            uptime_ms: 1_000_000,
        }
    }

    pub(crate) fn pass(&mut self, milliseconds: u64) {
        self.now_us += 1000 * milliseconds;
        self.uptime_ms += milliseconds;
    }

    /// A restart of the server that keeps its state.
    pub(crate) fn restart(&mut self) {
        (self.run, self.uptime_ms) = (self.run + 1, 0);
    }

    /// Executes the command, and records it.
    pub(crate) fn send(&mut self, operation: Operation) -> (Reply, Vec<Event>) {
        self.pass(1);
        let command = Command {
            semaphore: Name::new("exports").expect("it is valid"),
            session: SessionId::new("session").expect("it is valid"),
            lease_ms: LEASE_MS,
            recovery: Recovery::Interval,
            declaration: Declaration::Fallback(2),
            operation,
        };
        let run_id = format!("run{}", self.run);
        let server = ServerClock { now_us: self.now_us, run_id: &run_id, uptime_ms: self.uptime_ms };
        let keepable = keepable_limit(self.state.as_ref(), self.now_us);
        let (reply, events) = (self.store)(&mut self.state, &server, &command);
        let recalled = recalls(keepable, self.state.as_ref(), &reply, self.now_us);
        self.records.push(Record {
            semaphore: "permits:{exports}:state".to_owned(),
            now_us: self.now_us,
            run_id,
            uptime_ms: self.uptime_ms,
            command,
            reply: reply.clone(),
            events: events.clone(),
            recalled,
        });
        (reply, events)
    }

    pub(crate) fn acquire(&mut self, name: &str) -> AcquireOutcome {
        match self.send(acquire(name, name, 1, true)).0.answers {
            Answers::Acquire(answers) => answers[0].clone(),
            other => panic!("no answer to acquire: {other:?}"),
        }
    }

    pub(crate) fn release(&mut self, name: &str) {
        self.send(Operation::Release(vec![RequestKey { holder: holder(name), request: id(name) }.into()]));
    }

    pub(crate) fn renew(&mut self, name: &str, grant: Option<Grant>) -> RenewOutcome {
        match self.send(renew(name, name, grant)).0.answers {
            Answers::Renew(answers) => answers[0].clone(),
            other => panic!("no answer to renew: {other:?}"),
        }
    }

    /// Releases all entries.
    pub(crate) fn end(&mut self) {
        let known = |state: &State| {
            let entries = state.entries.iter();
            entries
                .map(|(holder, entry)| {
                    RequestKey { holder: holder.clone(), request: entry.request.clone() }.into()
                })
                .collect()
        };
        let left = self.state.as_ref().map(known).unwrap_or_default();
        self.send(Operation::Release(left));
    }
}

pub(crate) fn holder(name: &str) -> Holder {
    Holder::new(name).expect("it is valid")
}

pub(crate) fn id(text: &str) -> RequestId {
    RequestId::new(text).expect("it is valid")
}

pub(crate) fn acquire(name: &str, request: &str, weight: u32, wait: bool) -> Operation {
    let (holder, request, lease_ms) = (holder(name), id(request), LEASE_MS);
    Operation::Acquire {
        queue_max: 2,
        requests: vec![AcquireRequest {
            holder,
            request,
            terms: PermitTerms {
                at_least_ms: at_least_ms(name),
                label: label(name),
                keep: keep(name),
                lane: lane(name),
                ..PermitTerms::new(weight, lease_ms)
            },
            wait,
            supersedes: false,
        }],
    }
}

/// A label for one of two holders.
fn label(name: &str) -> Label {
    Label::new(if name.len().is_multiple_of(2) { "by night" } else { "" }).expect("it is valid")
}

/// The sessions of two of the holders of a random history may keep their permits.
fn keep(name: &str) -> bool {
    matches!(name, "h1" | "h2")
}

/// Some holders of a random history name a lane.
fn lane(name: &str) -> LaneName {
    let lane = match name {
        "h0" | "h1" => "day",
        "h2" | "h3" => "night",
        _ => "",
    };
    LaneName::new(lane).expect("it is valid")
}

/// The grants of two of the holders of a random history count for some time.
fn at_least_ms(name: &str) -> u64 {
    if matches!(name, "h3" | "h4") { 2 * LEASE_MS } else { 0 }
}

/// A change of the limit with a request of its own.
pub(crate) fn set_limit(limit: u32) -> Operation {
    let (request, change) = (id(&format!("limit-{limit}")), LimitChange::Set(limit));
    Operation::SetLimit { origin: request.into(), change, expected_version: None }
}

fn renew(name: &str, request: &str, grant: Option<Grant>) -> Operation {
    let (holder, request) = (holder(name), id(request));
    Operation::Renew(vec![RenewRequest {
        holder,
        request,
        terms: PermitTerms {
            at_least_ms: at_least_ms(name),
            label: label(name),
            keep: keep(name),
            lane: lane(name),
            ..PermitTerms::new(1, LEASE_MS)
        },
        lease_version: 0,
        grant,
    }])
}

/// A random history of `commands` commands, over flushes, and restarts with all state, with an older one, and
/// with none.
pub(crate) fn random(random: &mut fastrand::Rng, commands: usize) -> Story {
    random_of(apply, random, commands)
}

/// A random history of a store, which may be a mutant.
pub(crate) fn random_of(store: Store, random: &mut fastrand::Rng, commands: usize) -> Story {
    let mut story = Story::of(store);
    // The grants, as the clients know them.
    let mut known: Vec<(String, Grant)> = Vec::new();
    // The state on disk or on a replica, for a restart.
    let mut copy = None;
    while story.records.len() < commands {
        story.pass(random.u64(0..60) * random.u64(0..60));
        match random.u32(0..150) {
            0 => (story.state, copy) = (None, None),
            1 => {
                (story.state, copy) = (None, None);
                story.restart();
            }
            2 => story.restart(),
            3..8 => copy = story.state.clone(),
            8 => {
                story.state = copy.clone();
                story.restart();
            }
            _ => {}
        }
        let name = format!("h{}", random.u32(0..7));
        let grant = known.iter().rev().find(|(holder, _)| *holder == name).map(|(_, grant)| *grant);
        let operation = match random.u32(0..24) {
            0..7 => acquire(&name, &name, random.u32(1..4), random.u8(0..4) > 0),
            7 => acquire(&name, "another", 1, true),
            8..11 => {
                Operation::Release(vec![RequestKey { holder: holder(&name), request: id(&name) }.into()])
            }
            11..15 => renew(&name, &name, grant.filter(|_| random.bool())),
            15 => Operation::Adopt(AdoptRequest {
                holder: holder(&name),
                request: id(&name),
                terms: PermitTerms { at_least_ms: at_least_ms(&name), ..PermitTerms::new(1, LEASE_MS) },
                grant: grant.unwrap_or(Grant { token: 1, slot: 0 }),
                new_request: id(&name),
                last_token: grant.map(|grant| grant.token),
            }),
            16..19 => Operation::SetLimit {
                origin: id(&format!("limit-{}", random.u32(0..50))).into(),
                change: match random.u8(0..4) {
                    0 => LimitChange::Unpin,
                    1 => LimitChange::Adjust(random.i64(-2..3)),
                    _ => LimitChange::Set(random.u32(1..4)),
                },
                expected_version: (random.u8(0..3) == 0).then(|| random.u64(0..9)),
            },
            19 => Operation::Pause {
                origin: id(&format!("pause-{}", random.u32(0..50))).into(),
                pause: (random.u8(0..3) == 0).then(|| Pause {
                    for_ms: random.bool().then(|| random.u64(1..2_000)),
                    reason: "429".into(),
                }),
            },
            20 => Operation::Revoke {
                origin: id(&format!("revoke-{}", random.u32(0..50))).into(),
                holder: holder(&name),
                cooling: grant.filter(|_| random.bool()).map(|grant| grant.token),
                reason: "late".into(),
            },
            21 => Operation::Delete { unreadable: false },
            22 => Operation::CloseLine {
                origin: id(&format!("line-{}", random.u32(0..50))).into(),
                reason: (random.u8(0..4) == 0).then(|| "moved".into()),
            },
            _ => Operation::Inspect { max: 9 },
        };
        let (reply, events) = story.send(operation);
        if reply.answers == Answers::Delete(DeleteOutcome::Deleted) {
            // A replay does not go back beyond a deletion.
            copy = None;
        }
        if let Answers::Acquire(answers) = &reply.answers
            && let AcquireOutcome::Granted(grant) = answers[0]
        {
            known.push((name, grant));
        }
        for event in events {
            if let EventKind::Granted(grant) = event.kind {
                known.push((event.holder.as_str().to_owned(), grant));
            }
        }
    }
    story
}
