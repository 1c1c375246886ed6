//! The Lua beyond random histories: its text, keys of other programs, full memory, vanished keys, a clock
//! that is set back, and lanes in states that are rare.

mod adopting;
mod clock;
mod counting;
#[path = "../support/dump.rs"]
mod dump;
mod fixture;
mod foreign_keys;
mod handles;
mod lane_bounds;
mod lane_pins;
mod lane_walk;
mod lanes;
mod memory;
#[path = "../support/operations.rs"]
mod operations;
#[path = "../support/packed.rs"]
mod packed;
mod recovering;
mod remembered;
mod superseding;
mod text;
mod unreadable;
mod vanished;
mod vectors;
mod viewing;
