//! `permits watch`: the states of one semaphore, or of all under a prefix, and the changes by operators, a
//! line each.
//!
//! The verb inspects the semaphores at an interval, and prints a state that differs from the last one. While
//! the reader of standard output is behind, it inspects nothing.

mod group;
mod line;
mod watcher;

use crate::args::{Common, Watch};
use crate::connect::{self, Target};
use crate::exit::{self, Failure};
use crate::output::{self, Output};
use crate::run::signals::Signals;
use group::Group;

/// Prints them until a signal arrives or the reader closes standard output.
pub(crate) async fn watch(common: &Common, options: &Watch) -> Result<u8, Failure> {
    let chosen = options.names.chosen()?;
    let mut signals = Signals::ending().map_err(Failure::system)?;
    let store = Target::of(common)?.store;
    let client = tokio::select! {
        biased;
        _ = signals.next() => return Ok(exit::SUCCESS),
        client = connect::viewer(common, options.json) => client?,
    };
    let output = Output::start().map_err(Failure::system)?;
    let mut group = Group::new(client, chosen, options, store, &output);
    let ended = tokio::select! {
        biased;
        _ = signals.next() => Ok(exit::SUCCESS),
        () = output.failed() => Ok(output::code()),
        code = group.run() => code,
    };
    drop(group);
    output.flush();
    ended
}
