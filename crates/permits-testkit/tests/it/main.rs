//! The test kit itself: the parts that a verdict rests on and that no other suite would miss.

mod client_checks;
mod doubles;
mod environment;
mod inspections;
mod limits;
mod links;
mod processes;
mod proxy;
mod throttle;
mod tidy;
