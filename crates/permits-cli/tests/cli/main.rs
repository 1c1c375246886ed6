//! The `permits` command as its users meet it: the built program, against real servers, on real
//! terminals.

mod ends;
mod line;
mod loss;
mod signals;
mod status;
mod support;
mod terminal;
mod usage;
