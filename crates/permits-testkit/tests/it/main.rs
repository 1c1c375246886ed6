//! The test kit itself: the parts that a verdict rests on and that no other suite would miss.

mod blocks;
mod client_checks;
mod inspections;
mod limits;
mod links;
mod near;
mod proxy;
mod second_try;
mod tidy;
