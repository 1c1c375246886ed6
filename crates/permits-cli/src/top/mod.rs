//! `permits top`: a live screen of a store's semaphores, with the commands that change them.
//!
//! [`model`] is the state of the screen and [`keys`] changes it: plain data. [`render`] makes lines of it,
//! [`commands`] the command lines for a row. [`fetch`] gets the data from the store, [`screen`] has the
//! terminal. The loop in this file waits for the first of a signal, a key, an answer and the next second. So
//! the keys work while the store is unreachable.

mod commands;
mod cursor;
mod fetch;
mod keys;
mod model;
mod render;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use permits::{AdminError, Ended};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Common, Top};
use crate::connect::Target;
use crate::exit::{self, Failure};
use crate::report;
use crate::run::signals::Signals;
use commands::Commands;
use fetch::{Answer, Fetcher, Snapshot};
use keys::Effect;
use model::Model;
use screen::Screen;

/// Interval of fetches.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// The store timeout. A failed fetch is retried within a second.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Signals that would leave the terminal in raw mode if they were not handled.
const SIGNALS: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::CONT];

/// The way in which the screen was left.
enum End {
    Quit,
    /// Ctrl-C, which is a key and no signal in raw mode.
    Interrupt,
    Signal(Signal),
}

/// Shows the screen until the operator leaves it.
pub(crate) async fn top(common: &Common, options: Top) -> Result<u8, Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        let instead = "use permits list, or permits status NAME";
        return Err(Failure::new(
            exit::USAGE,
            format!("top needs a terminal that it can draw on: {instead}"),
        ));
    }
    let target = Target::of(common)?;
    let mut model = Model::new(target.store.clone(), options.name, Instant::now());
    (model.order, model.busy) = (options.sort, options.busy);
    model.make = Commands::of(common);
    let client = target.connect(common.store_timeout.unwrap_or(STORE_TIMEOUT)).await?;
    let mut signals = Signals::of(&SIGNALS).map_err(Failure::system)?;
    // Any other output would damage the screen.
    report::start_buffering();
    let end = show(model, Fetcher::new(client), &mut signals).await;
    report::stop_buffering();
    match end? {
        End::Quit => Ok(exit::SUCCESS),
        End::Interrupt => {
            screen::raise_with_default(Signal::INT, &mut signals).await.map_err(Failure::system)?;
            Ok(exit::from_signal(Signal::INT.as_raw()))
        }
        End::Signal(signal) => Ok(exit::from_signal(signal.as_raw())),
    }
}

async fn show(mut model: Model, mut fetcher: Fetcher, signals: &mut Signals) -> Result<End, Failure> {
    let mut screen = Screen::open().map_err(Failure::system)?;
    let end = event_loop(&mut model, &mut fetcher, &mut screen, signals).await;
    // The signal comes after the errors, or is ignored.
    let end = if end.is_err() && screen::is_gone() { Ok(End::Signal(Signal::HUP)) } else { end };
    drop(screen);
    end
}

async fn event_loop(
    model: &mut Model,
    fetcher: &mut Fetcher,
    screen: &mut Screen,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut events = read_keys().map_err(Failure::system)?;
    let mut ticks = interval(FETCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warnings = 0;
    loop {
        let (count, newest) = report::buffered();
        if count > warnings {
            warnings = count;
            model.warning = newest;
        }
        let drawn = screen.draw(|frame| render::render(frame, model, colour, Instant::now()));
        drawn.map_err(Failure::system)?;
        fetcher.fetch_if_changed(model.query());
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => screen.suspend(signals).await.map_err(Failure::system)?,
                // SIGSTOP may have stopped this process, and other programs may have used the terminal.
                Signal::CONT => screen.reenter().map_err(Failure::system)?,
                signal => return Ok(End::Signal(signal)),
            },
            event = events.recv() => match event {
                Some(Event::Key(key)) => match model.on_key(key, Instant::now()) {
                    Some(Effect::Quit) => return Ok(End::Quit),
                    Some(Effect::Interrupt) => return Ok(End::Interrupt),
                    Some(Effect::Suspend) => screen.suspend(signals).await.map_err(Failure::system)?,
                    None => {}
                },
                // A new size: rendering adapts to it.
                Some(_) => {}
                None => return Err(Failure::new(exit::SYSTEM, "the keyboard cannot be read")),
            },
            answer = fetcher.next() => on_answer(answer, model)?,
            _ = ticks.tick() => fetcher.refresh(),
        }
    }
}

fn on_answer(answer: Answer, model: &mut Model) -> Result<(), Failure> {
    match answer {
        // A session that has ended stays so.
        Answer::Listed(Err(AdminError::Ended(Ended::Closed)))
        | Answer::Fetched(Snapshot::Failed(AdminError::Ended(Ended::Closed))) => {
            return Err(AdminError::Ended(Ended::Closed).into());
        }
        Answer::Listed(listed) => model.on_listed(listed.map(|reading| reading.found), Instant::now()),
        Answer::Fetched(snapshot) => model.on_snapshot(snapshot, Instant::now()),
    }
    Ok(())
}

/// The keys, read by a thread, because crossterm has no other way to wait for them here. The thread ends with
/// the process.
fn read_keys() -> io::Result<mpsc::UnboundedReceiver<Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let read = move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".into()).spawn(read)?;
    Ok(receiver)
}
