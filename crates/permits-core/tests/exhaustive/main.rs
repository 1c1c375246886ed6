//! All histories of a few clients and one semaphore: requests, replies and pushes that are lost or late,
//! leases that end, clients that crash, and a server that restarts and has lost its state. In each state
//! reached, each property holds; and from each state every waiter is served and the semaphore becomes idle.
//! Explored by `stateright`.
//!
//! The store is `permits_core::model` and each client decides by `permits_core::acquisition`: the library's
//! own code, not a copy.
//!
//! - `scope`: the bounds of what is explored. `world`: the states and the effect of each step; `server`: the
//!   store and its messages; `steps`: the possible steps; `client`, `holders`: a client around the library's
//!   acquisition.
//! - `canonical`: the states that count as one, so that exploration ends.
//! - `properties`, `liveness`: the properties. `sizes`, `changes`: the scopes in which they hold. `mutants`:
//!   each property breaks in a mutant of the store (`permits_testkit::mutants`) or of the client.
//!
//! The short scopes run with all tests, the long ones by `scripts/lab check-model`.

mod canonical;
mod changes;
mod client;
mod holders;
mod liveness;
mod mutants;
mod properties;
mod scope;
mod server;
mod sizes;
mod steps;
mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use scope::{Judged, Scope};
use steps::Action;
use world::World;

/// A scope, as the checker takes it.
struct Protocol(Scope);

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.0, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(world.step(&self.0, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = named();
        all.push(Property::always("P10, at rest", |model, world| properties::rests(world, &model.0)));
        all.push(Property::always("P7, served", |model, world| liveness::ends_well(world, &model.0)));
        all.retain(|property| self.0.judged.has(property.name));
        all
    }
}

fn holds<const NUMBER: usize>(_: &Protocol, world: &World) -> bool {
    !world.broken.is(NUMBER)
}

/// The conditions of the properties with these numbers.
macro_rules! conditions {
    ($($number:literal)*) => { [$(holds::<$number>),*] };
}

/// The properties that are checked while steps are taken.
fn named() -> Vec<Property<Protocol>> {
    const CONDITIONS: [fn(&Protocol, &World) -> bool; 40] = conditions![
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36
        37 38 39
    ];
    const { assert!(properties::COUNT <= CONDITIONS.len(), "each property has a condition") };
    let named = CONDITIONS.into_iter().take(properties::COUNT).enumerate();
    named.map(|(number, condition)| Property::always(properties::name(number), condition)).collect()
}

/// Explores a scope, to its end or until a property breaks. Returns the broken properties, with the steps to
/// them.
fn explore(scope: Scope, threads: usize) -> Vec<(&'static str, String)> {
    let began = Instant::now();
    let name = scope.name;
    let checker = Protocol(scope).checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    println!(
        "{name}: {} states, {} steps, depth {}, {:.1?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        began.elapsed()
    );
    let way = |path: stateright::Path<World, Action>| {
        let last = format!("{:?}", path.last_state());
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        format!("{}\n{last}", steps.join(", "))
    };
    checker.discoveries().into_iter().map(|(name, path)| (name, way(path))).collect()
}

/// Explores a scope in which everything holds.
fn holds_in(scope: Scope, threads: usize) {
    let name = scope.name;
    if let Some((property, way)) = explore(scope, threads).first() {
        panic!("{name}: {property} does not hold after {way}");
    }
}

/// Explores a scope until `property`, which alone is judged, is seen to break.
fn breaks(property: &'static str, scope: Scope) {
    let names: BTreeSet<&str> = properties_of(&scope);
    assert!(names.contains(property), "{property} is none of {names:?}");
    let found = explore(Scope { judged: Judged::Only(property), ..scope }, 1);
    assert_eq!(found.first().map(|(name, _)| *name), Some(property), "nothing was seen");
    println!("{property} breaks after {}", found[0].1.lines().next().unwrap_or_default());
}

/// As [`breaks`]; and without `property` nothing is seen, in the whole scope.
fn breaks_alone(property: &'static str, scope: Scope) {
    breaks(property, scope.clone());
    holds_in(Scope { judged: Judged::AllBut(property), ..scope }, 1);
}

fn properties_of(scope: &Scope) -> BTreeSet<&'static str> {
    Protocol(scope.clone()).properties().iter().map(|property| property.name).collect()
}
