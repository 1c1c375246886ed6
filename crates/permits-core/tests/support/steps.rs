//! Random histories: the actions of programs, operators, clocks and servers on one semaphore, as plain data.
//!
//! A [`Step`] is abstract, such as *renew the third known permit with another token*, and `simulation` finds
//! that permit. So a history keeps its meaning when proptest removes steps to find the shortest one that
//! fails.

use permits_core::model::Part;
use permits_core::protocol::{Declaration, LimitChange, MAX_COUNTS_MS, Recovery};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// The number of sessions: enough for one to receive events that another one caused.
pub(crate) const SESSIONS: usize = 3;

/// Names of semaphores, each with characters that an encoding may get wrong.
pub(crate) const NAMES: [&str; 4] = ["exports", "a b\u{e9}", "{x}:%7B", "}{"];

/// The parts of a semaphore that may vanish alone, in the order of its keys.
pub(crate) const PARTS: [Part; 5] = [Part::State, Part::Queue, Part::Leases, Part::Free, Part::Lanes];

/// The members of [`PARTS`] at these bits.
pub(crate) fn parts(bits: u8) -> Vec<Part> {
    let chosen = PARTS.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
    chosen.map(|(_, part)| *part).collect()
}

/// Few holders, so that they meet.
pub(crate) const HOLDERS: [&str; 6] = ["web-1", "web-2", "a b", " c ", "\u{fc}%s-1", "{7}"];

/// The lanes of requests.
pub(crate) const LANES: [&str; 3] = ["b", "c d %s", "\u{e4}"];

/// A whole history.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// The index in [`NAMES`].
    pub(crate) name: usize,
    pub(crate) steps: Vec<Step>,
}

/// Time passes, a fault may happen, and a session sends one command.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) elapse: Elapse,
    pub(crate) fault: Option<Fault>,
    pub(crate) session: usize,
    pub(crate) lease_ms: u64,
    pub(crate) recovery: Recovery,
    pub(crate) declaration: Declaration,
    pub(crate) action: Action,
    pub(crate) hears: Hears,
}

impl Step {
    /// A step of a history written by hand: no time passes, the server is old, and no reply or message is
    /// lost.
    pub(crate) fn plain(action: Action) -> Self {
        Self {
            elapse: Elapse::Not,
            fault: None,
            session: 0,
            lease_ms: 15_000,
            recovery: Recovery::Off,
            declaration: Declaration::Stored,
            action,
            hears: Hears::All,
        }
    }
}

/// The change of the server's clock.
#[derive(Debug, Clone)]
pub(crate) enum Elapse {
    Not,
    Micros(u64),
    /// The clock moves to about the end of a lease or of a recovery window.
    To {
        pick: usize,
        off_ms: i64,
        micros: u64,
    },
    /// Past all leases.
    PastLeases,
    /// The clock moves to about the moment at which an idle state is forgotten.
    Expiry {
        off_ms: i64,
    },
    /// The clock is set back.
    Back(u64),
}

/// A fault of the server.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The server restarts, and has kept everything.
    Restart,
    /// The server restarts, and has kept nothing.
    RestartEmpty { uptime_ms: u64 },
    /// The server loses its data without a restart.
    Flush,
    /// Some of the keys vanish: a bit for each of [`PARTS`].
    LoseKeys(u8),
    /// The server forgets its scripts.
    ForgetScripts,
    /// The server has this uptime.
    Uptime { uptime_ms: u64 },
}

/// The messages and replies of a step that reach clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hears {
    All,
    /// The reply, and no message.
    Reply,
    /// Neither.
    Nothing,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Acquire {
        queue_max: u32,
        requests: Vec<Ask>,
    },
    /// Requests of new holders.
    Crowd {
        count: usize,
        weight: u32,
        wait: bool,
    },
    Release(Vec<Naming>),
    /// Release many known requests at once: each `every`th, at most `max`.
    ReleaseMany {
        every: usize,
        max: usize,
    },
    Renew(Vec<(Naming, Claiming)>),
    /// Renew all requests that the session knows of, as after a reconnect.
    RenewAll,
    /// Another session adopts a permit, with its real grant or another one.
    Adopt(Naming, Claiming),
    /// A change of a setting. If `again`, an earlier change of the same setting is sent again.
    Set {
        asked: Asked,
        again: bool,
    },
    /// A revocation, of what cools if `cooling`; the last one repeated, if `again`.
    Revoke {
        naming: Naming,
        cooling: bool,
        again: bool,
    },
    Delete,
    Inspect {
        max: u32,
    },
}

/// The setting that a change sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Limit(LimitChange, Version),
    Pause(Option<Pausing>),
    /// Close the line for this reason, or open it with `None`.
    Line(Option<&'static str>),
    /// The thresholds of the alert; 0 for no threshold.
    Alert(u64, u32),
    /// Pin the limit and the floor of the lane with this index in [`LANES`], or lift its pin with `None`.
    /// Both are limited to what a program may ask for; 0 means no bound.
    Lane(usize, Option<(u32, u32)>),
}

impl Asked {
    /// The change of this setting, made for the first time.
    pub(crate) fn once(self) -> Action {
        Action::Set { asked: self, again: false }
    }
}

/// The time and the reason of a pause.
pub(crate) type Pausing = (Option<u64>, &'static str);

/// A request of an acquire.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    New {
        /// The index in [`HOLDERS`], or its length for the name that a holder has by default.
        holder: usize,
        weight: usize,
        lease_ms: u64,
        at_least_ms: u64,
        wait: bool,
        /// True if the request has a supersede key, provided that it waits.
        supersedes: bool,
    },
    /// A request already made, by any session.
    Again { pick: usize, wait: bool },
}

/// A choice of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Naming {
    /// An entry that a client knows of.
    Known(usize),
    /// An entry that has ended, as far as its client knows.
    Ended(usize),
    /// A known holder, by an unknown request.
    OtherRequest(usize),
    /// An unknown entry, though the holder's name may be in use.
    Unknown(usize),
}

/// The grant in a renewal.
#[derive(Debug, Clone)]
pub(crate) enum Claiming {
    AsKnown,
    Nothing,
    OtherToken,
    OtherSlot,
    OtherWeight,
    /// A renewal that gives one unit back.
    Lighter,
    /// A renewal with another lease: a change, or a call from before the last change.
    Lease {
        lease_ms: u64,
        later: bool,
    },
    /// The renewal comes by a handle, not from the session that has held the permit all along.
    ByHandle,
    /// The grant counts for this time, if it counts at all and not already for longer.
    Counts {
        at_least_ms: u64,
    },
    /// An invented grant of some time ago.
    Invented {
        age_us: u64,
        slot: u32,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Version {
    Any,
    Right,
    Wrong,
}

/// Histories of a few holders that meet often.
pub(crate) fn histories(steps: usize) -> impl Strategy<Value = History> {
    let steps = vec(step(actions(), small_limit().boxed(), elapses().boxed()), 1..steps);
    (0..NAMES.len(), steps, prop::bool::weighted(0.3)).prop_map(|(name, mut steps, is_calm)| {
        if is_calm {
            steps.iter_mut().for_each(calm);
        }
        History { name, steps }
    })
}

/// Takes out of a step what most semaphores never see: faults, leases of several lengths, grants that count
/// for some time, keys, and other declarations. Each of them keeps a history out of the ordinary courses of
/// the scripts for long.
fn calm(step: &mut Step) {
    const LEASE_MS: u64 = 15_000;
    (step.fault, step.lease_ms, step.declaration) = (None, LEASE_MS, Declaration::Stored);
    if let Action::Acquire { requests, .. } = &mut step.action {
        for request in requests {
            if let Ask::New { lease_ms, at_least_ms, supersedes, .. } = request {
                (*lease_ms, *at_least_ms, *supersedes) = (LEASE_MS, 0, false);
            }
        }
    }
}

/// Histories of a few holders in which nothing is lost or deleted, and leases, limits, pauses and servers
/// change all the time.
#[allow(dead_code, reason = "the properties alone use it")]
pub(crate) fn eventful_histories(steps: usize) -> impl Strategy<Value = History> {
    let changed = (any::<u16>(), leases()).prop_map(|(pick, lease_ms)| {
        Action::Renew(vec![(Naming::Known(pick.into()), Claiming::Lease { lease_ms, later: true })])
    });
    let paused = (100_u64..5_000).prop_map(|for_ms| Asked::Pause(Some((Some(for_ms), "429"))).once());
    let asked = vec(ask(), 1..=1).prop_map(|requests| Action::Acquire { queue_max: 100_000, requests });
    let set_limit =
        small_limit().prop_map(|limit| Asked::Limit(LimitChange::Set(limit), Version::Any).once());
    let resumed = select(vec![Asked::Pause(None).once(), Asked::Line(None).once()]);
    let keyed = (leases(), 0_usize..3).prop_map(|(lease_ms, weight)| {
        let (holder, at_least_ms) = (HOLDERS.len(), 0);
        let keyed = Ask::New { holder, weight, lease_ms, at_least_ms, wait: true, supersedes: true };
        Action::Acquire { queue_max: 100_000, requests: vec![keyed] }
    });
    let adopted = any::<u16>().prop_map(|pick| Action::Adopt(Naming::Known(pick.into()), Claiming::AsKnown));
    let released = any::<u16>().prop_map(|pick| Action::Release(vec![Naming::Known(pick.into())]));
    let actions = prop_oneof![
        16 => actions(),
        6 => changed,
        2 => paused,
        2 => resumed,
        2 => set_limit,
        6 => asked,
        2 => keyed,
        3 => released,
        2 => adopted,
    ];
    let steps = vec(step(actions.boxed(), small_limit().boxed(), elapses().boxed()), 1..steps);
    (0..NAMES.len(), steps).prop_map(|(name, mut steps)| {
        steps.iter_mut().for_each(|step| {
            step.hears = Hears::All;
            step.lease_ms = step.lease_ms.min(15_000);
            let restarts = matches!(step.fault, Some(Fault::Restart | Fault::RestartEmpty { .. }));
            step.fault = restarts.then_some(Fault::Restart);
            if matches!(step.elapse, Elapse::PastLeases | Elapse::Expiry { .. } | Elapse::Back(_)) {
                step.elapse = Elapse::Not;
            }
            if matches!(
                step.action,
                Action::Delete | Action::Inspect { .. } | Action::Set { asked: Asked::Alert(..), .. }
            ) {
                step.action = Action::RenewAll;
            }
        });
        History { name, steps }
    })
}

/// Histories of hundreds of entries, to reach the bounds of one command.
pub(crate) fn crowded_histories(steps: usize) -> impl Strategy<Value = History> {
    // Time rarely passes, because a crowd must form before its leases end.
    let elapses =
        prop_oneof![8 => Just(Elapse::Not), 2 => (1_u64..300_000).prop_map(Elapse::Micros), 1 => elapses()];
    (0..NAMES.len(), vec(step(crowded_actions(), large_limit().boxed(), elapses.boxed()), 1..steps))
        .prop_map(|(name, steps)| History { name, steps })
}

fn step(
    actions: BoxedStrategy<Action>,
    limits: BoxedStrategy<u32>,
    elapses: BoxedStrategy<Elapse>,
) -> impl Strategy<Value = Step> {
    let who = (0..SESSIONS, leases(), recoveries(), declarations(limits));
    let hears = prop_oneof![8 => Just(Hears::All), 2 => Just(Hears::Reply), 1 => Just(Hears::Nothing)];
    (elapses, option::weighted(0.06, faults()), who, actions, hears).prop_map(
        |(elapse, fault, (session, lease_ms, recovery, declaration), action, hears)| Step {
            elapse,
            fault,
            session,
            lease_ms,
            recovery,
            declaration,
            action,
            hears,
        },
    )
}

fn leases() -> impl Strategy<Value = u64> + Clone {
    // Rarely, since after one lease of a day windows and expiry are too long for much to happen.
    prop_oneof![40 => Just(15_000), 60 => Just(3_000), 40 => 100_u64..2_000, 1 => Just(86_400_000)]
}

fn recoveries() -> impl Strategy<Value = Recovery> {
    prop_oneof![3 => Just(Recovery::Interval), 1 => Just(Recovery::Strict), 2 => Just(Recovery::Off)]
}

fn small_limit() -> impl Strategy<Value = u32> {
    1_u32..=6
}

fn large_limit() -> impl Strategy<Value = u32> {
    prop_oneof![2 => 1_u32..4, 2 => 100_u32..700, 2 => 1_000_u32..2_500]
}

fn declarations(limits: BoxedStrategy<u32>) -> impl Strategy<Value = Declaration> {
    prop_oneof![
        4 => Just(Declaration::Stored),
        6 => limits.clone().prop_map(Declaration::Fallback),
        2 => limits.clone().prop_map(Declaration::Declare),
        4 => limits.prop_map(Declaration::Require),
    ]
}

fn elapses() -> impl Strategy<Value = Elapse> {
    prop_oneof![
        8 => Just(Elapse::Not),
        6 => (1_u64..3_000).prop_map(Elapse::Micros),
        4 => (1_000_u64..50_000).prop_map(Elapse::Micros),
        3 => (50_000_u64..4_000_000).prop_map(Elapse::Micros),
        5 => (any::<u16>(), -1_i64..=1, select(vec![0, 1, 999]))
            .prop_map(|(pick, off_ms, micros)| Elapse::To { pick: pick.into(), off_ms, micros }),
        1 => Just(Elapse::PastLeases),
        1 => (-1_i64..=1).prop_map(|off_ms| Elapse::Expiry { off_ms }),
        1 => prop_oneof![3 => 1_u64..3_000_000, 1 => Just(3_600_000_000)].prop_map(Elapse::Back),
    ]
}

fn uptimes() -> impl Strategy<Value = u64> {
    select(vec![0, 20, 500, 4_000, 20_000, 1_000_000_000])
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::Restart),
        4 => uptimes().prop_map(|uptime_ms| Fault::RestartEmpty { uptime_ms }),
        3 => Just(Fault::Flush),
        3 => (1_u8..32).prop_map(Fault::LoseKeys),
        1 => Just(Fault::ForgetScripts),
        1 => uptimes().prop_map(|uptime_ms| Fault::Uptime { uptime_ms }),
    ]
}

fn actions() -> BoxedStrategy<Action> {
    let queue_max = prop_oneof![6 => Just(100_000_u32), 1 => 0_u32..4];
    // Mostly one, as in a program: a batch leaves the ordinary course of the scripts more often.
    let batch = prop_oneof![2 => vec(ask(), 1..=1), 1 => vec(ask(), 1..=8)];
    prop_oneof![
        8 => (queue_max, batch)
            .prop_map(|(queue_max, requests)| Action::Acquire { queue_max, requests }),
        5 => vec(naming(), 1..=4).prop_map(Action::Release),
        1 => (1_usize..3, 1_usize..10).prop_map(|(every, max)| Action::ReleaseMany { every, max }),
        4 => vec((naming(), claiming()), 0..=6).prop_map(Action::Renew),
        4 => Just(Action::RenewAll),
        2 => vec(forgotten(), 1..5).prop_map(Action::Renew),
        2 => by_handle().prop_map(|renewal| Action::Renew(vec![renewal])),
        4 => set_limit(small_limit().boxed()),
        2 => (prop_oneof![1 => pausing().prop_map(Some), 2 => Just(None)], prop::bool::weighted(0.2))
            .prop_map(|(pause, again)| Action::Set { asked: Asked::Pause(pause), again }),
        2 => (reasons(), prop::bool::weighted(0.2))
            .prop_map(|(reason, again)| Action::Set { asked: Asked::Line(reason), again }),
        1 => (select(vec![(0, 0), (30_000, 0), (0, 100), (1, u32::MAX)]), prop::bool::weighted(0.2))
            .prop_map(|((wait, waiting), again)| Action::Set { asked: Asked::Alert(wait, waiting), again }),
        2 => (0..LANES.len(), option::weighted(0.6, pins()), prop::bool::weighted(0.2))
            .prop_map(|(lane, pin, again)| Action::Set { asked: Asked::Lane(lane, pin), again }),
        3 => (naming(), claiming()).prop_map(|(naming, claiming)| Action::Adopt(naming, claiming)),
        2 => (naming(), prop::bool::weighted(0.4), prop::bool::weighted(0.3))
            .prop_map(|(naming, cooling, again)| Action::Revoke { naming, cooling, again }),
        1 => Just(Action::Delete),
        1 => (0_u32..5).prop_map(|max| Action::Inspect { max }),
    ]
    .boxed()
}

fn pausing() -> impl Strategy<Value = Pausing> {
    let for_ms = prop_oneof![1 => Just(None), 2 => (1_u64..5_000).prop_map(Some), 1 => (5_000_u64..90_000).prop_map(Some)];
    (for_ms, select(vec!["", "429, 100 %s", "\u{fc}"]))
}

/// The bounds of a pin: some have a floor above the limit of the semaphore.
fn pins() -> impl Strategy<Value = (u32, u32)> {
    select(vec![(1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (2, 2), (3, 1), (0, 6), (u32::MAX, 1)])
}

fn reasons() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![1 => Just(Some("")), 1 => Just(Some("moved to \u{fc}, 100 %s")), 4 => Just(None)]
}

fn crowded_actions() -> BoxedStrategy<Action> {
    let weight = prop_oneof![6 => Just(1_u32), 1 => 2_u32..40];
    prop_oneof![
        6 => (50_usize..=500, weight, prop::bool::weighted(0.9))
            .prop_map(|(count, weight, wait)| Action::Crowd { count, weight, wait }),
        2 => (1_usize..4, 1_usize..=500).prop_map(|(every, max)| Action::ReleaseMany { every, max }),
        3 => Just(Action::RenewAll),
        3 => set_limit(large_limit().boxed()),
        2 => Just(Asked::Pause(None).once()),
        1 => pausing().prop_map(|pausing| Asked::Pause(Some(pausing)).once()),
        1 => Just(Asked::Line(Some("moved")).once()),
        3 => Just(Asked::Line(None).once()),
        1 => prop_oneof![0_u32..2_000, Just(u32::MAX)].prop_map(|max| Action::Inspect { max }),
        2 => actions(),
    ]
    .boxed()
}

fn set_limit(limits: BoxedStrategy<u32>) -> impl Strategy<Value = Action> {
    let version = prop_oneof![3 => Just(Version::Any), 1 => Just(Version::Right), 1 => Just(Version::Wrong)];
    let change = prop_oneof![
        6 => limits.prop_map(LimitChange::Set),
        3 => Just(LimitChange::Unpin),
        2 => (-4_i64..5).prop_map(LimitChange::Adjust),
        1 => Just(LimitChange::Adjust(u32::MAX.into())),
    ];
    (change, version, prop::bool::weighted(0.2))
        .prop_map(|(change, version, again)| Action::Set { asked: Asked::Limit(change, version), again })
}

fn ask() -> impl Strategy<Value = Ask> {
    // Mostly 1 unit; the rest up to one more than the limit.
    let weight = prop_oneof![1 => Just(0_usize), 1 => 0_usize..8];
    let wait = prop::bool::weighted(0.75);
    let at_least = prop_oneof![3 => Just(0_u64), 1 => 1_u64..300, 1 => leases()];
    prop_oneof![
        4 => (0..=HOLDERS.len(), weight, leases(), at_least, (wait, prop::bool::weighted(0.3))).prop_map(
            |(holder, weight, lease_ms, at_least_ms, (wait, supersedes))| {
                Ask::New { holder, weight, lease_ms, at_least_ms, wait, supersedes }
            }
        ),
        1 => (any::<u16>(), wait).prop_map(|(pick, wait)| Ask::Again { pick: pick.into(), wait }),
    ]
}

fn naming() -> impl Strategy<Value = Naming> {
    let pick = any::<u16>().prop_map(usize::from);
    prop_oneof![
        8 => pick.clone().prop_map(Naming::Known),
        1 => pick.clone().prop_map(Naming::Ended),
        1 => pick.clone().prop_map(Naming::OtherRequest),
        1 => pick.prop_map(Naming::Unknown),
    ]
}

/// The renewal of a permit that the store never knew, or forgot.
fn forgotten() -> impl Strategy<Value = (Naming, Claiming)> {
    let pick = any::<u16>().prop_map(usize::from);
    let naming = prop_oneof![2 => pick.clone().prop_map(Naming::Unknown), 1 => pick.prop_map(Naming::Known)];
    (naming, 1_000_u64..100_000, 0_u32..12)
        .prop_map(|(naming, age_us, slot)| (naming, Claiming::Invented { age_us, slot }))
}

/// A renewal by the handle of a permit, that may have ended long ago.
fn by_handle() -> impl Strategy<Value = (Naming, Claiming)> {
    let pick = any::<u16>().prop_map(usize::from);
    let naming = prop_oneof![pick.clone().prop_map(Naming::Known), pick.prop_map(Naming::Ended)];
    naming.prop_map(|naming| (naming, Claiming::ByHandle))
}

fn claiming() -> impl Strategy<Value = Claiming> {
    prop_oneof![
        8 => Just(Claiming::AsKnown),
        2 => Just(Claiming::ByHandle),
        2 => Just(Claiming::Nothing),
        1 => Just(Claiming::OtherToken),
        1 => Just(Claiming::OtherSlot),
        1 => Just(Claiming::OtherWeight),
        2 => Just(Claiming::Lighter),
        2 => (leases(), any::<bool>()).prop_map(|(lease_ms, later)| Claiming::Lease { lease_ms, later }),
        2 => prop_oneof![20 => 1_u64..6_000, 1 => Just(MAX_COUNTS_MS)].prop_map(|at_least_ms| Claiming::Counts { at_least_ms }),
        2 => (1_u64..5_000_000, prop_oneof![4 => 0_u32..12, 1 => 0_u32..3_000])
            .prop_map(|(age_us, slot)| Claiming::Invented { age_us, slot }),
    ]
}
