//! `permits watch`: the changes of one semaphore, or of all under a prefix, a line each.
//!
//! It inspects the semaphores at an interval. [`difference`] makes events of two inspections, [`event`] is
//! their JSON and [`text`] their text. While the reader of standard output is behind, no inspection is taken:
//! the next one shows the changes of a longer time.

mod difference;
mod event;
mod group;
#[cfg(test)]
mod tests;
mod text;
mod watcher;

use crate::args::{Common, Watch};
use crate::connect::{self, Target};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::run::signals::Signals;
use group::Group;

/// Prints the changes until a signal arrives or the reader closes standard output.
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
        () = output.failed() => Ok(output.code()),
        code = group.run() => code,
    };
    drop(group);
    output.flush();
    ended
}
