//! All histories of a few clients and one semaphore: requests, replies and pushes that are lost or late,
//! leases that end, clients that crash, and a server that restarts and has lost its state. In each state
//! reached, each property holds; and from each state every waiter is served and the semaphore becomes idle.
//! Explored by `stateright`.
//!
//! The store is `permits_core::model` and each client decides by `permits_core::acquisition`: the library's
//! own code, not a copy.
//!
//! - `scope`: the bounds of what is explored. `world`: the states and the effect of each step; `steps`: the
//!   possible steps; `client`: a client around the library's acquisition.
//! - `canonical`: the states that count as one, so that exploration ends.
//! - `properties`, `liveness`: the properties. `sizes`: the scopes in which they hold. `mutants`: each
//!   property breaks in a mutant of the store (`permits_testkit::mutants`) or of the client.
//!
//! The short scopes run with all tests, the long ones by `scripts/lab check-model`.

mod canonical;
mod client;
mod liveness;
mod mutants;
mod properties;
mod scope;
mod sizes;
mod steps;
mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use scope::Scope;
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
        let only = self.0.only;
        all.retain(|property| only.is_none_or(|only| only == property.name));
        all
    }
}

fn holds<const NUMBER: usize>(_: &Protocol, world: &World) -> bool {
    !world.broken.is(NUMBER)
}

/// The properties that are checked while steps are taken.
fn named() -> Vec<Property<Protocol>> {
    let conditions: [fn(&Protocol, &World) -> bool; properties::COUNT] = [
        holds::<0>,
        holds::<1>,
        holds::<2>,
        holds::<3>,
        holds::<4>,
        holds::<5>,
        holds::<6>,
        holds::<7>,
        holds::<8>,
        holds::<9>,
        holds::<10>,
        holds::<11>,
        holds::<12>,
        holds::<13>,
        holds::<14>,
        holds::<15>,
        holds::<16>,
        holds::<17>,
        holds::<18>,
        holds::<19>,
        holds::<20>,
        holds::<21>,
        holds::<22>,
        holds::<23>,
        holds::<24>,
        holds::<25>,
        holds::<26>,
        holds::<27>,
    ];
    let named = conditions.into_iter().enumerate();
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
    let found = explore(Scope { only: Some(property), ..scope }, 1);
    assert_eq!(found.first().map(|(name, _)| *name), Some(property), "nothing was seen");
    println!("{property} breaks after {}", found[0].1.lines().next().unwrap_or_default());
}

fn properties_of(scope: &Scope) -> BTreeSet<&'static str> {
    Protocol(scope.clone()).properties().iter().map(|property| property.name).collect()
}
