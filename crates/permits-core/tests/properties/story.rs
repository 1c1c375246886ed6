//! Short histories written by hand, on one semaphore with a limit of 2.

use permits_core::model::{self, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Declaration, Event, EventKind, Grant, Holder, LaneName,
    LimitChange, Operation, PermitTerms, Recovery, RenewOutcome, RenewRequest, Reply, RequestKey,
};
use permits_testkit::history::{checks::check, step::Step};

use crate::command;
use crate::simulation::Simulation;

/// A semaphore with a limit of 2, and the commands on it.
pub(crate) struct Story {
    pub(crate) state: Option<State>,
    pub(crate) simulation: Simulation,
}

impl Story {
    pub(crate) fn new() -> Self {
        let mut story = Self { state: None, simulation: Simulation::new(0) };
        story.send(Operation::SetLimit {
            origin: Simulation::session_id(9).request(0).into(),
            change: LimitChange::Set(2),
            expected_version: None,
        });
        story
    }

    pub(crate) fn send(&mut self, operation: Operation) -> Step {
        self.send_declaring(Declaration::Fallback(2), operation)
    }

    fn send_declaring(&mut self, declaration: Declaration, operation: Operation) -> Step {
        let before = self.state.clone();
        let recovery = Recovery::Interval;
        let command =
            Command { lease_ms: 3_000, recovery, declaration, ..command(&self.simulation, operation) };
        self.simulation.now_us += 1_000;
        let (reply, events) = model::apply(&mut self.state, &self.simulation.server(), &command);
        Step { now_us: self.simulation.now_us, before, command, reply, events, after: self.state.clone() }
    }

    pub(crate) fn acquire(&mut self, holders: &[&str]) -> Step {
        let requests = holders.iter().map(|name| request(name, 3_000));
        self.send(Operation::Acquire { queue_max: 9, requests: requests.collect() })
    }

    /// Acquisitions, each in a lane.
    pub(crate) fn acquire_in(&mut self, holders: &[(&str, &str)]) -> Step {
        let requests = holders.iter().map(|(name, lane)| {
            let plain = request(name, 3_000);
            let lane = LaneName::new(lane).expect("it is valid");
            AcquireRequest { terms: PermitTerms { lane, ..plain.terms }, ..plain }
        });
        self.send(Operation::Acquire { queue_max: 9, requests: requests.collect() })
    }

    /// An acquisition by a session that may keep the permit.
    pub(crate) fn acquire_to_keep(&mut self, name: &str) -> Step {
        let plain = request(name, 3_000);
        let terms = PermitTerms { keep: true, ..plain.terms };
        self.send(Operation::Acquire { queue_max: 9, requests: vec![AcquireRequest { terms, ..plain }] })
    }

    pub(crate) fn release(&mut self, name: &str) -> Step {
        self.send(Operation::Release(vec![
            RequestKey { holder: holder(name), request: Simulation::session_id(1).request(0) }.into(),
        ]))
    }

    /// A and B hold, C and D wait.
    pub(crate) fn full() -> Self {
        let mut story = Self::new();
        story.acquire(&["a", "b", "c", "d"]);
        story
    }
}

pub(crate) fn holder(name: &str) -> Holder {
    Holder::new(name).expect("it is valid")
}

/// An acquisition that would wait.
pub(crate) fn request(name: &str, lease_ms: u64) -> AcquireRequest {
    AcquireRequest {
        holder: holder(name),
        request: Simulation::session_id(1).request(0),
        terms: PermitTerms::new(1, lease_ms),
        wait: true,
        supersedes: false,
    }
}

#[test]
fn a_waiter_that_is_due_is_granted_before_a_lower_limit_counts() {
    // A's lease ends, so that C is due under the limit of 2. D finds the queue full under its own limit of 1,
    // and then empty, when C has been granted.
    let mut story = Story::new();
    let (operator, unpinned) = (Simulation::session_id(9).request(1), LimitChange::Unpin);
    story.send(Operation::SetLimit { origin: operator.into(), change: unpinned, expected_version: None });
    story.send(Operation::Acquire { queue_max: 9, requests: vec![request("a", 100)] });
    story.acquire(&["b", "c"]);
    story.simulation.now_us += 100_000;

    let late = Operation::Acquire { queue_max: 1, requests: vec![request("d", 3_000)] };
    let step = story.send_declaring(Declaration::Declare(1), late);
    assert_eq!(step.reply.answers, Answers::Acquire(vec![AcquireOutcome::Waiting { position: 0 }]));
    assert_eq!((step.reply.limit, step.reply.replaced_limit), (1, Some(2)));
    assert_eq!(step.events.len(), 1, "C is granted: {:?}", step.events);
    check(&step).expect("C was granted under the limit of 2");

    // A newcomer that is granted above the limit is still seen.
    let mut wrong = step;
    let Some(Event { holder, kind: EventKind::Granted(grant), .. }) = wrong.events.pop() else { panic!() };
    let Operation::Acquire { requests, .. } = &mut wrong.command.operation else { panic!() };
    (requests[0].holder, wrong.reply.answers) =
        (holder, Answers::Acquire(vec![AcquireOutcome::Granted(grant)]));
    assert_eq!(check(&wrong).expect_err("one too many").rule, "P1");
}

#[test]
fn a_renewal_returns_a_grant_whose_event_was_lost() {
    // The event is lost: each renewal returns the grant, the same one each time.
    let mut story = Story::full();
    let step = story.release("a");
    let EventKind::Granted(grant) = step.events[0].kind else { panic!("{:?}", step.events) };
    let renew = RenewRequest {
        holder: holder("c"),
        request: Simulation::session_id(1).request(0),
        terms: PermitTerms::new(1, 3_000),
        lease_version: 0,
        grant: None,
    };
    for _ in 0..2 {
        let Reply { answers, .. } = story.send(Operation::Renew(vec![renew.clone()])).reply;
        assert_eq!(answers, Answers::Renew(vec![RenewOutcome::Granted(grant)]));
    }
}

#[test]
fn a_slot_handed_on_while_recovering_is_not_that_of_a_forgotten_holder() {
    // A restart forgets A and B. B is put back first and releases, and its unit goes to C. If C were given
    // the lowest free slot, A's, then A could not be put back, and at the end of the window its unit would go
    // to another waiter.
    let mut story = Story::new();
    let Answers::Acquire(granted) = story.acquire(&["a", "b"]).reply.answers else { unreachable!() };
    let grants = granted.iter().map(|answer| match answer {
        AcquireOutcome::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    });
    let grants: Vec<Grant> = grants.collect();
    story.state = None;
    story.simulation.restart(0);
    let renew = |story: &mut Story, name: &str, grant: Grant| {
        let (holder, request) = (holder(name), Simulation::session_id(1).request(0));
        let renewal = RenewRequest {
            holder,
            request,
            terms: PermitTerms::new(1, 3_000),
            lease_version: 0,
            grant: Some(grant),
        };
        story.send(Operation::Renew(vec![renewal])).reply.answers
    };
    let held = Answers::Renew(vec![RenewOutcome::Held]);
    assert_eq!(renew(&mut story, "b", grants[1]), held);
    assert!(story.acquire(&["c"]).events.is_empty(), "nothing is granted out of free capacity");
    let released = story.release("b");
    let EventKind::Granted(grant) = released.events[0].kind else { panic!("{:?}", released.events) };
    assert_eq!(grant.slot, grants[1].slot);
    assert_eq!(renew(&mut story, "a", grants[0]), held);
}
