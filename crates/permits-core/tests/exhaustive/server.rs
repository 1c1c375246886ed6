//! The store: it executes the calls of clients and the changes of operators, and sends messages.
//!
//! The store is `permits_core::model::apply`, or a mutant of it, on the model's own state. Each command is
//! checked.

use std::sync::Arc;

use permits_core::model::{ServerClock, State, keepable_limit, recalls};
use permits_core::protocol::{
    AcquireRequest, AdoptRequest, Answers, ChangeOrigin, Command, Declaration, Event, EventKind, Grant,
    Holder, LaneName, LanePin, Name, Operation, Pause, PermitTerms, ReleaseOutcome, RenewOutcome,
    RenewRequest, Reply as StoreReply, RequestId, RequestKey, SessionId, Setting, SupersedeKey,
};
use permits_testkit::history::step::Step;

use super::client::{Call, Kind, Outcome, OwnTerms};
use super::holders::Handle;
use super::properties;
use super::scope::{Change, Scope};
use super::world::{Message, Recall, Revoked, TICK_MS, World};

/// The number by which an operator's changes are named.
const OPERATOR: usize = 99;

impl World {
    /// The store executes a call.
    pub(crate) fn execute(
        &mut self,
        scope: &Scope,
        client: usize,
        kind: Kind,
        call: &Call,
    ) -> (Outcome, StoreReply, u64) {
        let ((of, first), request) = (call.origin, request(client, call.request));
        let holder = holder(of, first);
        let OwnTerms { weight, lease_ms, version } = call.terms;
        let at_least_ms = u64::from(scope.at_least) * TICK_MS;
        let (lane, share) = scope.lane(client);
        let (lane_limit, lane_floor) = scope.lane_bounds.get(client).copied().unwrap_or_default();
        let terms = PermitTerms {
            at_least_ms,
            keep: scope.keep,
            lane: LaneName::new(lane).expect("it is valid"),
            share,
            lane_limit,
            lane_floor,
            supersede: SupersedeKey::new(if scope.keyed { "k" } else { "" }).expect("it is valid"),
            ..PermitTerms::new(weight, lease_ms)
        };
        let fallback = Declaration::Fallback(scope.limit);
        let (declaration, operation) = match kind {
            Kind::Acquire => {
                let entry = self.clients[client].entry.as_ref();
                let supersedes = entry.is_none_or(|entry| entry.acquisition.last_answer_us == 0);
                let wait = !scope.tries.contains(&client);
                let asked = AcquireRequest::new(holder, request, terms);
                let requests = vec![AcquireRequest { wait, supersedes, ..asked }];
                (fallback, Operation::Acquire { queue_max: 100, requests })
            }
            Kind::Renew | Kind::Confirm => {
                let (lease_version, grant, by_handle) = (version, call.grant, false);
                let renewal = RenewRequest { holder, request, terms, lease_version, grant, by_handle };
                (fallback, Operation::Renew(vec![renewal]))
            }
            Kind::Adopt => {
                let grant = call.grant.expect("a handle names a grant");
                let (of, earlier) = call.adopts.expect("a handle names a request");
                let (new_request, request) = (request, super::server::request(of, earlier));
                let adopt = AdoptRequest { holder, request, new_request, terms, grant, last_token: None };
                (Declaration::Stored, Operation::Adopt(adopt))
            }
            Kind::Release => {
                (Declaration::Stored, Operation::Release(vec![RequestKey { holder, request }.into()]))
            }
        };
        let (reply, now_us) = self.send(scope, client, declaration, operation);
        let outcome = match reply.answers.clone() {
            Answers::Acquire(mut answers) => Outcome::Acquired(answers.remove(0)),
            Answers::Renew(mut answers) => Outcome::Renewed(answers.remove(0)),
            Answers::Adopt(adopted) => Outcome::Adopted(adopted),
            Answers::Release(was) => Outcome::Released(was != [ReleaseOutcome::Unknown]),
            other => panic!("{other:?}"),
        };
        (outcome, reply, now_us)
    }

    /// Sends a command to the store, and checks its effect.
    pub(crate) fn send(
        &mut self,
        scope: &Scope,
        client: usize,
        declaration: Declaration,
        operation: Operation,
    ) -> (StoreReply, u64) {
        self.commands += 1;
        let now_us = self.now_us();
        let run_id = format!("run{}", self.run);
        let uptime_ms = u64::from(self.now - self.up_since) * TICK_MS;
        let server = ServerClock { now_us, run_id: &run_id, uptime_ms };
        let command = Command {
            semaphore: Name::new("exports").expect("it is valid"),
            session: SessionId::new(&format!("s{client}")).expect("it is plain"),
            lease_ms: u64::from(scope.lease_of(client)) * TICK_MS,
            recovery: scope.recovery,
            declaration,
            operation,
        };
        let before = self.state.as_ref().clone();
        let mut after = before.clone();
        let (reply, events) = (scope.store)(&mut after, &server, &command);
        let keepable = keepable_limit(before.as_ref(), now_us);
        if scope.keep && recalls(keepable, after.as_ref(), &reply, now_us) {
            self.recall(after.as_ref(), now_us);
        }
        let before = before.filter(|state| !state.is_expired(now_us / 1000));
        let step = Step { now_us, before, command, reply, events, after };
        properties::judge_step(self, scope, &step);
        self.post(&step.events, now_us);
        self.state = Arc::new(step.after);
        (step.reply, now_us)
    }

    /// Sends recalls to the sessions that may keep grants.
    fn recall(&mut self, state: Option<&State>, at_us: u64) {
        for keeper in state.iter().flat_map(|state| state.keepers()) {
            let client = keeper.as_str()[1..].parse().expect("a number");
            self.recalls.push(Recall { client, at_us });
        }
    }

    /// Sends events to the sessions that still exist. A later grant of a request replaces the message of an
    /// earlier one, which bounds their number.
    fn post(&mut self, events: &[Event], at_us: u64) {
        for event in events {
            let (client, request) = owner(&event.request);
            if matches!(event.kind, EventKind::Turn(_)) || request <= self.clients[client].crashed {
                continue;
            }
            if matches!(event.kind, EventKind::Granted(_)) {
                self.messages.retain(|message| {
                    (message.client, message.request) != (client, request) || message.grant().is_none()
                });
                self.unannounced.retain(|unannounced| *unannounced != (client, request));
            }
            let (kind, run) = (event.kind.clone(), self.run);
            self.messages.push(Message { client, request, kind, at_us, run });
        }
    }

    /// An operator makes a change.
    pub(crate) fn operate(&mut self, scope: &Scope, change: Change) {
        // The check of liveness opens a closed line at the end, even if no change is left.
        self.left.operators = self.left.operators.saturating_sub(1);
        self.changes += 1;
        let origin = ChangeOrigin::from(request(OPERATOR, self.changes));
        let pause = |for_ms| Some(Pause { for_ms, reason: "".into() });
        let setting = match change {
            Change::Close => Setting::Line(Some("closed".into())),
            Change::Open => Setting::Line(None),
            Change::Pause => Setting::Pause(pause(None)),
            Change::PauseForTick => Setting::Pause(pause(Some(TICK_MS))),
            Change::Resume => Setting::Pause(None),
            Change::PinLane | Change::UnpinLane => {
                let lane = LaneName::new(scope.lane(0).0).expect("it is valid");
                let pin = LanePin { limit: 1, floor: 0 };
                Setting::Lane { lane, pin: (change == Change::PinLane).then_some(pin) }
            }
            Change::Revoke(client) => {
                let Some((holder, request, grant)) = self.revocable(client) else { return };
                let revoke = Operation::Revoke { origin, holder, cooling: None, reason: "revoked".into() };
                let (reply, _) = self.send(scope, 0, Declaration::Stored, revoke);
                if let (Some(grant), Answers::Revoke(ReleaseOutcome::Held)) = (grant, reply.answers) {
                    self.revoked.push(Revoked { client, request, grant });
                }
                return;
            }
        };
        self.send(scope, 0, Declaration::Stored, Operation::Set { origin, setting });
    }

    /// The entry of a client that an operator may revoke: the last one, while its session exists.
    pub(crate) fn revocable(&self, client: usize) -> Option<(Holder, u8, Option<Grant>)> {
        let entries = self.state.iter().flat_map(|state| &state.entries);
        let of_client = entries.filter(|(holder, entry)| {
            let (owner, request) = owner(&entry.request);
            owner == client && request > self.clients[client].crashed && !holder.is_cooling()
        });
        let last = of_client.max_by_key(|(_, entry)| owner(&entry.request).1)?;
        Some((last.0.clone(), owner(&last.1.request).1, last.1.place.taken()))
    }

    /// The program that has a handle renews it.
    pub(crate) fn renew_handle(&mut self, scope: &Scope) {
        let Some(Handle { owner: (of, earlier), origin, terms, grant, .. }) = self.handle else { return };
        let terms = PermitTerms::new(terms.weight, terms.lease_ms);
        let (holder, request) = (holder(origin.0, origin.1), request(of, earlier));
        let renewal =
            RenewRequest { by_handle: true, ..RenewRequest::new(holder, request, terms, Some(grant)) };
        let (reply, _) = self.send(scope, 0, Declaration::Stored, Operation::Renew(vec![renewal]));
        let is_held = reply.answers == Answers::Renew(vec![RenewOutcome::Held]);
        if let Some(handle) = &mut self.handle {
            handle.is_held = is_held;
            handle.until = self.now + scope.lease;
        }
    }
}

pub(crate) fn holder(client: usize, request: u8) -> Holder {
    Holder::new(&format!("{client}.{request}")).expect("it is valid")
}

pub(crate) fn request(client: usize, request: u8) -> RequestId {
    RequestId::new(&format!("{client}.{request}")).expect("it is plain")
}

/// The client and the number of a request.
pub(crate) fn owner(request: &RequestId) -> (usize, u8) {
    let (client, request) = request.as_str().split_once('.').expect("it has two parts");
    (client.parse().expect("a number"), request.parse().expect("a number"))
}
