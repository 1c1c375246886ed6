//! The `permits` command from its users' side: the built program, on real servers and real terminals.

mod administer;
mod cookbook;
mod doctor;
mod ends;
mod generate;
mod handle;
mod hold;
mod languages;
mod line;
mod list;
mod log;
mod loss;
mod monitoring;
mod names;
mod output;
mod packaging;
mod serve;
mod several;
mod signals;
mod status;
mod store;
mod support;
mod terminal;
mod top;
mod usage;
mod watch;
