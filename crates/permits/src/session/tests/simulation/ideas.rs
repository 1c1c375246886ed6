//! Everything that programs and operators can do, in one world, so that each idea meets all others.
//!
//! `tests/support/ideas.rs` has the ideas that a store sees. This module adds ideas of clients and operators.
//! Two ideas meet if a command is executed while both are there.

use std::collections::BTreeSet;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::cases;
use super::client::{Ask, Client};
use super::pairs::{self, Idea, Pairs};
use super::world::{CLIENTS, LEASE, LIMIT, SIMULATED, World};
use crate::clock::millis;
use crate::error::{AcquireError, AdoptError};
use crate::model::{EntryState, State};
use crate::options::{AcquireOptions, Limit};
use crate::protocol::{
    AdoptRequest, Answers, Command, Declaration, Event, LaneName, LimitChange, Name, Operation, Pause,
    PermitTerms, Recovery, ReleaseOutcome, Reply, RequestId, Setting, SupersedeKey,
};
use crate::semaphore::Semaphore;
use crate::session::callers::{Message, PermitGuard, TermsChange};
use crate::session::outbox::channel;
use crate::session::permit_state::HeldPermit;
use crate::session::spec::Wait;
use crate::several::AcquireAll;

/// The other semaphore of each set.
pub(super) const OTHER: &str = "simulated/other";

const SHORT_LEASE: Duration = Duration::from_millis(1_500);

/// The ideas of clients and operators.
const OF_CLIENTS: [Idea; 8] = [
    "sets",
    "longest hold",
    "leases of two lengths",
    "closed line",
    "pinned limit",
    "revocation",
    "loss of state",
    "outage",
];

/// An adoption that waits for its reply, and the last token that was used before it.
pub(super) type Adopting = (oneshot::Receiver<Result<PermitGuard, AdoptError>>, Option<u64>);

/// The ideas of a world.
pub(super) struct Ideas {
    pairs: Pairs,
    /// The holders that were revoked and may not know it.
    revoked: BTreeSet<RequestId>,
    /// The waiters that were revoked.
    revoked_waiters: BTreeSet<RequestId>,
    /// The requests whose permits have a longest hold.
    limited: BTreeSet<RequestId>,
    /// Permits that were handed over, for any client to adopt.
    handles: Vec<AdoptRequest>,
}

impl Ideas {
    fn new() -> Self {
        let ideas: Vec<Idea> = pairs::OF_A_STORE.into_iter().chain(OF_CLIENTS).collect();
        let apart: [&[Idea]; 3] = [
            &["count", "supersede", "hand-over", "revocation"],
            // Only acquisitions require a limit.
            &["count", "exactly", "hand-over", "revocation"],
            // A closed line has no waiter that could be superseded.
            &["supersede", "closed line"],
        ];
        let (pairs, revoked_waiters) = (Pairs::new(&ideas, &apart), BTreeSet::new());
        Self {
            pairs,
            revoked: BTreeSet::new(),
            revoked_waiters,
            limited: BTreeSet::new(),
            handles: Vec::new(),
        }
    }

    pub(super) fn is_revoked(&self, permit: &HeldPermit) -> bool {
        self.revoked.contains(&permit.request)
    }
}

impl Client {
    /// The permits of the client's sets.
    fn in_sets(&self) -> impl Iterator<Item = &HeldPermit> {
        self.sets.iter().flat_map(|set| set.permits()).map(|permit| permit.state())
    }

    fn has_outage(&self) -> bool {
        self.is_down || self.has_failed
    }
}

impl World {
    /// Counts the ideas that meet in a command.
    pub(super) fn note_ideas(
        &mut self,
        states: [Option<&State>; 2],
        command: &Command,
        (reply, events): (&Reply, &[Event]),
    ) {
        let Some(ideas) = &mut self.ideas else { return };
        if let (Operation::Revoke { holder, .. }, Answers::Revoke(was), Some(before)) =
            (&command.operation, &reply.answers, states[0])
        {
            let request = before.entries.get(holder).map(|entry| entry.request.clone());
            match was {
                ReleaseOutcome::Held => ideas.revoked.extend(request),
                ReleaseOutcome::Waiting => ideas.revoked_waiters.extend(request),
                ReleaseOutcome::Unknown => {}
            }
        }
        let now_ms = self.epoch_us / 1000 + self.now.since(self.began).as_millis() as u64;
        let any = |is_so: &dyn Fn(&State) -> bool| states.iter().flatten().any(|state| is_so(state));
        let found = [
            (
                "sets",
                self.clients.iter().any(|client| !client.sets.is_empty() || !client.acquiring.is_empty()),
            ),
            (
                "longest hold",
                any(&|state| state.entries.values().any(|entry| ideas.limited.contains(&entry.request))),
            ),
            ("leases of two lengths", any(&has_two_leases)),
            ("closed line", any(&|state| state.closed.is_some())),
            ("pinned limit", any(&|state| state.pinned)),
            ("revocation", matches!(&reply.answers, Answers::Revoke(was) if *was != ReleaseOutcome::Unknown)),
            ("loss of state", any(&|state| state.recovering_until_ms > now_ms)),
            ("outage", self.now < self.silent_until || self.clients.iter().any(Client::has_outage)),
        ];
        let mut here = pairs::of_command(now_ms, states, command, (reply, events));
        here.extend(found.into_iter().filter(|(_, is_here)| *is_here).map(|(idea, _)| idea));
        ideas.pairs.note(&here);
    }

    /// The units of a semaphore that programs believe they hold in sets.
    pub(super) fn believed_in_sets(&self, semaphore: &str) -> u32 {
        let Some(ideas) = &self.ideas else { return 0 };
        let of_client = |number: usize| {
            let now = self.clock(number);
            let held = self.clients[number].in_sets().filter(move |permit| permit.deadline(now).is_some());
            held.filter(|permit| permit.semaphore.as_str() == semaphore && !ideas.is_revoked(permit))
        };
        (0..self.clients.len()).flat_map(of_client).map(|permit| permit.weight()).sum()
    }

    /// Returns true if this error may be due to something that programs or operators do in this world.
    pub(super) fn is_due_to_an_idea(&self, error: &AcquireError) -> bool {
        self.ideas.is_some()
            && matches!(
                error,
                AcquireError::ExceedsLimit { .. }
                    | AcquireError::LimitMismatch { .. }
                    | AcquireError::LineClosed { .. }
                    | AcquireError::Paused { .. }
                    | AcquireError::AlreadyHeld { .. }
                    | AcquireError::Superseded { .. }
                    | AcquireError::Revoked { .. }
            )
    }

    /// Lets the program of a client take what it has adopted, and its sets.
    pub(super) fn take_more(&mut self, number: usize, context: &mut Context<'_>) {
        let now = self.clock(number);
        let client = &mut self.clients[number];
        for (mut receiver, last_token) in std::mem::take(&mut client.adopting) {
            match receiver.try_recv() {
                Ok(Ok(permit)) => {
                    assert!(permit.state.deadline(now).is_some(), "P3: adopted after its deadline");
                    permit.state.pass_tokens(last_token.unwrap_or(0));
                    client.held.push(permit);
                }
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => {}
                Err(oneshot::error::TryRecvError::Empty) => client.adopting.push((receiver, last_token)),
            }
        }
        for mut set in std::mem::take(&mut client.acquiring) {
            match Pin::new(&mut set).poll(context) {
                Poll::Ready(Ok(set)) => client.sets.push(set),
                Poll::Ready(Err(_)) => {}
                Poll::Pending => client.acquiring.push(set),
            }
        }
        client.sets.retain(|set| set.permits().iter().all(|permit| permit.state().deadline(now).is_some()));
    }

    /// Lets a program or an operator do any one of all things.
    fn act_in_any_way(&mut self, number: usize) {
        if self.clients[number].frozen {
            return;
        }
        let held = self.clients[number].held.len();
        match self.random.u32(0..20) {
            0..=5 if self.clients[number].pending.len() < 3 => {
                let ask = self.any_request();
                let is_limited = ask.max_hold.is_some();
                self.ask(number, ask);
                let asked = self.clients[number].pending.last().map(|pending| pending.request().clone());
                let ideas = self.ideas.as_mut().expect("there are some");
                ideas.limited.extend(asked.filter(|_| is_limited));
            }
            6 => drop(self.clients[number].pending.pop()),
            7..=10 if held > 0 => self.release_one(number),
            11..=13 if held > 0 => self.change(number),
            14 if held > 0 => self.hand_over(number),
            15 | 16 => self.adopt(number),
            17 => self.use_sets(number),
            18 => self.operate(number),
            _ => {}
        }
        self.run_tasks(number);
    }

    fn any_request(&mut self) -> Ask {
        let lane = if self.chance(40) { ["a", "b"][self.random.usize(0..2)] } else { "" };
        let wait = match self.random.u32(0..4) {
            0 => Wait::No,
            1 => Wait::AtMost(Duration::from_millis(self.random.u64(1..8_000))),
            _ => Wait::Forever,
        };
        let key = if wait != Wait::No && self.chance(25) { "job" } else { "" };
        let lease = if self.chance(30) { SHORT_LEASE } else { LEASE };
        let terms = PermitTerms {
            at_least_ms: if self.chance(30) { self.random.u64(1..6_000) } else { 0 },
            lane: LaneName::new(lane).expect("valid"),
            share: self.random.u32(1..4),
            supersede: SupersedeKey::new(key).expect("valid"),
            ..PermitTerms::new(if self.chance(30) { 2 } else { 1 }, millis(lease))
        };
        let exactly = self.chance(15);
        let max_hold = self.chance(15).then(|| Duration::from_millis(self.random.u64(500..4_000)));
        Ask {
            terms,
            wait,
            declaration: if exactly { Declaration::Require(LIMIT) } else { Declaration::Declare(LIMIT) },
            max_hold,
        }
    }

    /// The holder of a permit changes its terms, or corrects the units that it counts for.
    fn change(&mut self, number: usize) {
        let (units, lease) = (self.random.u32(0..=LIMIT), [LEASE, SHORT_LEASE][self.random.usize(0..2)]);
        let client = &self.clients[number];
        let permit = &client.held[self.random.usize(0..client.held.len())].state;
        if permit.granted_terms().at_least_ms > 0 {
            return permit.count(units);
        }
        let rest = if units > 1 { permit.give_back(1) } else { None };
        client.session.change_terms(permit, rest.map_or(TermsChange::Lease(lease), TermsChange::Weight));
    }

    fn hand_over(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let permit = client.held.swap_remove(self.random.usize(0..client.held.len()));
        let (state, session) = (&permit.state, &client.session);
        let handle = AdoptRequest {
            holder: state.holder.clone(),
            request: state.request.clone(),
            terms: state.terms(),
            grant: state.stored_grant(),
            new_request: session.new_request(),
            last_token: state.last_token(),
        };
        permit.hand_over();
        self.ideas.as_mut().expect("there are some").handles.push(handle);
    }

    fn adopt(&mut self, number: usize) {
        let Some(handle) = self.ideas.as_mut().and_then(|ideas| ideas.handles.pop()) else { return };
        let client = &mut self.clients[number];
        let (answer, receiver) = channel();
        client.adopting.push((receiver, handle.last_token));
        let adopt = Box::new(AdoptRequest { new_request: client.session.new_request(), ..handle });
        client.session.send(Message::Adopt {
            semaphore: Name::new(SIMULATED).expect("valid"),
            adopt,
            answer,
        });
    }

    /// Acquires a set, or drops what there is of one.
    fn use_sets(&mut self, number: usize) {
        let weights = [self.random.u32(1..3), self.random.u32(1..=LIMIT)];
        let client = &mut self.clients[number];
        if client.acquiring.is_empty() && client.sets.is_empty() {
            let requests = [SIMULATED, OTHER].into_iter().zip(weights).map(|(name, weight)| {
                let semaphore = Semaphore::new(client.session.clone(), name, Limit::Declared(LIMIT));
                (semaphore.expect("valid"), AcquireOptions::new().weight(weight))
            });
            client.acquiring.push(AcquireAll::new(requests));
        } else {
            client.acquiring.clear();
            client.sets.clear();
        }
    }

    /// An operator changes something, and does not wait for the reply.
    fn operate(&mut self, number: usize) {
        let holder = self.state().and_then(|state| {
            let holders =
                state.entries.iter().filter(|(_, entry)| !matches!(entry.place, EntryState::Cooling(_)));
            holders.map(|(holder, _)| holder.clone()).next()
        });
        let kind = self.random.u32(0..8);
        let (limit, for_ms) = (self.random.u32(1..=LIMIT), Some(self.random.u64(100..2_000)));
        let session = &self.clients[number].session;
        let (origin, reason) = (session.new_change(), "for a reason".into());
        let limit_to = |change| Setting::Limit { change, expected_version: None };
        let set = |setting| Operation::Set { origin: origin.clone(), setting };
        let operation = match (kind, holder) {
            (0, _) => set(limit_to(LimitChange::Set(limit))),
            (1, _) => set(limit_to(LimitChange::Unpin)),
            (2, _) => set(Setting::Pause(Some(Pause { for_ms, reason }))),
            (3, _) => set(Setting::Line(Some(reason))),
            (4 | 5, _) => set(Setting::Line(None)),
            (_, Some(holder)) => Operation::Revoke { origin, holder, cooling: None, reason },
            _ => return,
        };
        let (answer, _) = channel();
        let (semaphore, declaration) = (Name::new(SIMULATED).expect("valid"), Declaration::Stored);
        session.send(Message::Admin { semaphore, declaration, operation, answer });
    }
}

fn has_two_leases(state: &State) -> bool {
    let mut leases = state.entries.values().map(|entry| entry.terms.lease_ms);
    let first = leases.next();
    leases.any(|lease| Some(lease) != first)
}

#[test]
fn all_ideas_at_once_break_nothing() {
    const STEPS: usize = 3_000;
    const SEEDS: u64 = 20;
    let mut ideas = Some(Ideas::new());
    for seed in 0.. {
        let mut world = World::new(seed, 2, Recovery::Strict);
        world.let_some_keep();
        world.ideas = ideas.take();
        for _ in 0..STEPS {
            let number = world.random.usize(0..CLIENTS);
            if world.chance(40) {
                world.act_in_any_way(number);
            }
            match world.random.u32(0..2_000) {
                0..=3 => world.cut_off(number),
                4..=7 => world.silence(),
                8..=200 => world.fault(),
                _ => {}
            }
            world.advance();
            world.check();
        }
        world.settle();
        ideas = world.ideas.map(|ideas| Ideas { pairs: ideas.pairs, ..Ideas::new() });
        let are_missing = ideas.as_ref().is_some_and(|ideas| !ideas.pairs.missing().is_empty());
        if seed + 1 >= SEEDS * cases() && (!are_missing || seed > 10 * SEEDS) {
            break;
        }
    }
    ideas.expect("they are put back").pairs.assert_met();
}

/// Counts waiters that are revoked, and how many of them join again, because they learn by a renewal that
/// they have no place before the message says why.
fn revoked_and_back(in_order: bool, is_enough: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let (mut revoked, mut back) = (0, BTreeSet::new());
    for seed in 0..200 * cases() {
        if is_enough(revoked, back.len()) {
            break;
        }
        let mut world = World::new(seed, 0, Recovery::Off);
        (world.in_order, world.ideas) = (in_order, Some(Ideas::new()));
        for _ in 0..2_000 {
            let number = world.random.usize(0..CLIENTS);
            if world.chance(40) {
                world.act_in_any_way(number);
            }
            world.advance();
            world.check();
            let ended = &world.ideas.as_ref().expect("there are some").revoked_waiters;
            let stored = world.state().into_iter().flat_map(|state| state.entries.values());
            let undone = stored.filter(|entry| ended.contains(&entry.request));
            back.extend(undone.map(|entry| (seed, entry.request.clone())));
        }
        revoked += world.ideas.as_ref().expect("there are some").revoked_waiters.len();
        world.settle();
    }
    println!("{revoked} waiters revoked, {} of them back", back.len());
    (revoked, back.len())
}

/// A `local:` store tells its sessions what happened in its order, for this.
#[test]
fn who_is_revoked_while_waiting_stays_out_where_messages_come_in_order() {
    let (revoked, back) = revoked_and_back(true, |revoked, _| revoked > 50);
    assert!(revoked > 50, "P16: {revoked}");
    assert_eq!(back, 0);
    let (_, back) = revoked_and_back(false, |_, back| back > 0);
    assert!(back > 0, "P16: the order was never needed");
}
