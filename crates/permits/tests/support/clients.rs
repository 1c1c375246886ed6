//! Connected clients on a server that now and then restarts and forgets everything.
//!
//! They behave as a session does: they renew within a third of the lease, ask again when told to, stop at
//! their own deadline, and date a pushed grant from their last renewal. Judged is what they believe (P2): at
//! every moment the units of all who think that they hold are within the limit.

use permits::model::{self, ServerClock, State};
use permits::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Declaration, Event, EventKind, Grant, Holder, Label,
    Name, Operation, Recovery, ReleaseRequest, RenewOutcome, RenewRequest, RequestId, SessionId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const CLIENTS: usize = 6;
const LEASE_MS: u64 = 3_000;

/// With the longest tick still within the recovery window, a third of the lease.
const RENEW_MS: u64 = LEASE_MS / 3 - TICK_MS - 50;
const TICK_MS: u64 = 200;

/// What happens, tick by tick.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    limit: u32,
    ticks: Vec<Tick>,
}

#[derive(Debug, Clone)]
struct Tick {
    elapse_ms: u64,
    /// The server dies, forgets everything, and is back after so long.
    restart_ms: Option<u64>,
    /// Who comes first.
    first: usize,
    /// Of each client, whether it would now go on: acquire, or release.
    goes_on: Vec<bool>,
    weight: u32,
}

pub(crate) fn scripts() -> impl Strategy<Value = Script> {
    let goes_on = vec(prop::bool::weighted(0.15), CLIENTS);
    let tick = (1..=TICK_MS, option::weighted(0.02, 0_u64..2_500), 0..CLIENTS, goes_on, 0_u32..3).prop_map(
        |(elapse_ms, restart_ms, first, goes_on, weight)| Tick {
            elapse_ms,
            restart_ms,
            first,
            goes_on,
            weight,
        },
    );
    (1_u32..=4, vec(tick, 1..200)).prop_map(|(limit, ticks)| Script { limit, ticks })
}

/// What a run met.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) reclaimed: u64,
    pub(crate) granted_after_restart: u64,
}

#[derive(Debug, Clone)]
enum Belief {
    Idle,
    Waits,
    Holds { grant: Grant, until_ms: u64 },
}

#[derive(Debug, Clone)]
struct Client {
    belief: Belief,
    request: RequestId,
    weight: u32,
    renewed_ms: u64,
}

/// All clients, and the server.
pub(crate) struct Clients<'a> {
    limit: u32,
    recovery: Recovery,
    clients: Vec<Client>,
    state: Option<State>,
    now_ms: u64,
    up_at_ms: u64,
    run_id: String,
    made: u64,
    seen: &'a mut Seen,
}

impl Clients<'_> {
    /// Runs a script; an error says at which tick too much was held.
    pub(crate) fn run(script: &Script, recovery: Recovery, seen: &mut Seen) -> Result<(), String> {
        let request = RequestId::new("none").expect("it is plain");
        let idle = Client { belief: Belief::Idle, request, weight: 1, renewed_ms: 0 };
        let now_ms = 4_102_444_800_000;
        let mut run = Clients {
            limit: script.limit,
            recovery,
            clients: vec![idle; CLIENTS],
            state: None,
            now_ms,
            up_at_ms: now_ms - 1_000_000_000,
            run_id: "run0".into(),
            made: 0,
            seen,
        };
        for (number, tick) in script.ticks.iter().enumerate() {
            run.tick(tick).map_err(|reason| format!("P2 at tick {number}, {tick:?}: {reason}"))?;
        }
        Ok(())
    }

    fn tick(&mut self, tick: &Tick) -> Result<(), String> {
        self.now_ms += tick.elapse_ms;
        if let Some(down_ms) = tick.restart_ms {
            self.up_at_ms = self.now_ms + down_ms;
            self.run_id = format!("run{}", self.up_at_ms);
            self.state = None;
        }
        for turn in 0..CLIENTS {
            let who = (tick.first + turn) % CLIENTS;
            if let Belief::Holds { until_ms, .. } = self.clients[who].belief
                && until_ms <= self.now_ms
            {
                self.clients[who].belief = Belief::Idle;
            }
            if self.now_ms >= self.up_at_ms {
                self.turn(who, tick);
            }
            self.bound()?;
        }
        Ok(())
    }

    fn turn(&mut self, who: usize, tick: &Tick) {
        let is_idle = matches!(self.clients[who].belief, Belief::Idle);
        match (is_idle, tick.goes_on[who]) {
            (true, true) => self.acquire(who, tick.weight % self.limit + 1),
            (false, true) => self.release(who),
            (false, false) if self.now_ms - self.clients[who].renewed_ms >= RENEW_MS => self.renew(who),
            _ => {}
        }
    }

    fn acquire(&mut self, who: usize, weight: u32) {
        self.made += 1;
        let request = RequestId::new(&format!("r{}", self.made)).expect("it is plain");
        let asked = AcquireRequest {
            holder: holder(who),
            request: request.clone(),
            weight,
            lease_ms: LEASE_MS,
            wait: true,
            label: Label::default(),
        };
        let client = &mut self.clients[who];
        *client = Client { belief: Belief::Waits, request, weight, renewed_ms: self.now_ms };
        let answers = self.send(who, Operation::Acquire { queue_max: 100, requests: vec![asked] });
        match answers {
            Answers::Acquire(answers) => match answers[0] {
                AcquireOutcome::Granted(grant) => self.holds(who, grant),
                AcquireOutcome::Waiting { .. } => {}
                AcquireOutcome::Refused(_) => self.clients[who].belief = Belief::Idle,
            },
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, who: usize) {
        let request = self.clients[who].request.clone();
        self.clients[who].belief = Belief::Idle;
        self.send(who, Operation::Release(vec![ReleaseRequest { holder: holder(who), request }]));
    }

    fn renew(&mut self, who: usize) {
        let Client { belief, request, weight, .. } = self.clients[who].clone();
        let grant = if let Belief::Holds { grant, .. } = belief { Some(grant) } else { None };
        let renewal = RenewRequest {
            holder: holder(who),
            request,
            weight,
            lease_ms: LEASE_MS,
            grant,
            label: Label::default(),
        };
        let known = self.state.as_ref().is_some_and(|state| state.entries.contains_key(&holder(who)));
        let Answers::Renew(answers) = self.send(who, Operation::Renew(vec![renewal])) else { unreachable!() };
        match (&answers[0], grant) {
            // Its renewal is still due.
            (RenewOutcome::RetryLater, _) => return,
            (RenewOutcome::Lost | RenewOutcome::ExceedsLimit, _) => self.clients[who].belief = Belief::Idle,
            (RenewOutcome::Held, Some(grant)) => {
                self.seen.reclaimed += u64::from(!known);
                self.clients[who].renewed_ms = self.now_ms;
                self.holds(who, grant);
            }
            (RenewOutcome::Granted(grant), _) => {
                self.clients[who].renewed_ms = self.now_ms;
                self.holds(who, *grant);
            }
            _ => {}
        }
        self.clients[who].renewed_ms = self.now_ms;
    }

    /// A permit is held from the last renewal sent, or from the request.
    fn holds(&mut self, who: usize, grant: Grant) {
        let client = &mut self.clients[who];
        client.belief = Belief::Holds { grant, until_ms: client.renewed_ms + LEASE_MS };
    }

    fn send(&mut self, who: usize, operation: Operation) -> Answers {
        let command = Command {
            semaphore: Name::new("exports").expect("it is valid"),
            session: SessionId::new(&format!("s{who}")).expect("it is plain"),
            lease_ms: LEASE_MS,
            recovery: self.recovery,
            declaration: Declaration::Fallback(self.limit),
            operation,
        };
        let uptime_ms = self.now_ms - self.up_at_ms;
        let server = ServerClock { now_us: self.now_ms * 1000, run_id: &self.run_id, uptime_ms };
        let (reply, events) = model::apply(&mut self.state, &server, &command);
        for Event { holder, request, kind: news, .. } in events {
            let told = (0..CLIENTS).find(|who| self::holder(*who) == holder).expect("it is a client's");
            if let (EventKind::Granted(grant), true) = (news, self.clients[told].request == request) {
                self.seen.granted_after_restart += u64::from(uptime_ms < LEASE_MS);
                self.holds(told, grant);
            }
        }
        reply.answers
    }

    /// P2: all who believe that they hold.
    fn bound(&self) -> Result<(), String> {
        let believes = |client: &&Client| match client.belief {
            Belief::Holds { until_ms, .. } => self.now_ms < until_ms,
            Belief::Idle | Belief::Waits => false,
        };
        let held: u32 = self.clients.iter().filter(believes).map(|client| client.weight).sum();
        if held <= self.limit {
            Ok(())
        } else {
            Err(format!("{held} of {} are held: {:?}", self.limit, self.clients))
        }
    }
}

fn holder(who: usize) -> Holder {
    Holder::new(&format!("client-{who}")).expect("it is valid")
}
