//! The Lua beyond random histories: its text, keys of other programs, full memory, and vanished keys.

#[path = "../support/dump.rs"]
mod dump;
mod fixture;
mod foreign_keys;
mod memory;
#[path = "../support/packed.rs"]
mod packed;
mod recovering;
mod remembered;
mod superseding;
mod text;
mod unreadable;
mod vanished;
