//! The `permits` command as its users meet it: the built program, against real servers, on real
//! terminals.

mod administer;
mod doctor;
mod ends;
mod generate;
mod line;
mod list;
mod loss;
mod names;
mod output;
mod signals;
mod status;
mod store;
mod support;
mod terminal;
mod top;
mod usage;
