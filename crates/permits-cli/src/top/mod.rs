//! `permits top`: a live screen of the semaphores of a store, from which an operator can intervene.
//!
//! [`model`] is what the screen shows and [`keys`] what a key does to it: plain data. [`render`] makes lines
//! of it, [`fetch`] gets it from the store, [`screen`] has the terminal. Here they meet, in a loop that waits
//! for the first of a signal, a key, an answer and the next second, and never for one of them alone: with the
//! store out of reach the keys still work.

mod action;
mod cursor;
mod fetch;
mod keys;
mod model;
mod render;
mod screen;
mod snapshot;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use permits::{AdminError, Client};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Common, Top};
use crate::connect::Target;
use crate::exit::{self, Failure};
use crate::report;
use crate::run::signals::Signals;
use fetch::{Answer, Fetcher};
use keys::Effect;
use model::Model;
use screen::Screen;
use snapshot::Snapshot;

/// How often the store is asked.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long the store may be out of reach before that is the answer. It is asked again at once.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an action may take that is under way when the screen is left.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// What would leave the terminal in disorder if it were not listened to.
const SIGNALS: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::CONT];

/// How the screen was left.
enum End {
    Quit,
    /// Ctrl-C, which in raw mode is a key and no signal.
    Interrupt,
    Signal(Signal),
}

/// Shows the screen until it is left.
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
    let store = target.store.clone();
    let client = target.connect(common.store_timeout.unwrap_or(STORE_TIMEOUT)).await?;
    let mut signals = Signals::of(&SIGNALS).map_err(Failure::system)?;
    // Everything else that is written now would tear the screen.
    report::start_buffering();
    let end = show(client, store, options.name, &mut signals).await;
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

async fn show(
    client: Client,
    store: String,
    name: Option<String>,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let mut model = Model::new(store, name, Instant::now());
    let mut fetcher = Fetcher::new(client, Instant::now());
    let mut screen = Screen::open().map_err(Failure::system)?;
    let end = event_loop(&mut model, &mut fetcher, &mut screen, signals).await;
    drop(screen);
    if let Some(action) = fetcher.finish(model.pending.take(), LEAVE_TIMEOUT).await {
        report::say(format_args!("the store did not confirm: {}", action.describe()));
    }
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
            newest.into_iter().for_each(|line| model.on_warning(line));
        }
        let drawn = screen.draw(|frame| render::render(frame, model, colour, Instant::now()));
        drawn.map_err(Failure::system)?;
        fetcher.fetch_if_changed(model.query(), Instant::now());
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => screen.suspend(signals).await.map_err(Failure::system)?,
                // It may have been stopped without being asked, and the terminal used by others.
                Signal::CONT => screen.reenter().map_err(Failure::system)?,
                signal => return Ok(End::Signal(signal)),
            },
            event = events.recv() => match event {
                Some(Event::Key(key)) => match model.on_key(key, Instant::now()) {
                    Some(Effect::Quit) => return Ok(End::Quit),
                    Some(Effect::Interrupt) => return Ok(End::Interrupt),
                    Some(Effect::Suspend) => screen.suspend(signals).await.map_err(Failure::system)?,
                    Some(Effect::Do(action)) => fetcher.act(action),
                    None => {}
                },
                // Another size: drawing takes care of it.
                Some(_) => {}
                None => return Err(Failure::new(exit::SYSTEM, "the keyboard cannot be read")),
            },
            answer = fetcher.next() => on_answer(answer, model, fetcher)?,
            _ = ticks.tick() => fetcher.refresh(Instant::now()),
        }
    }
}

fn on_answer(answer: Answer, model: &mut Model, fetcher: &mut Fetcher) -> Result<(), Failure> {
    match answer {
        // The session has ended; it does not come back.
        Answer::Listed(Err(AdminError::Closed))
        | Answer::Fetched(Snapshot::Failed(AdminError::Closed))
        | Answer::Acted(_, Err(AdminError::Closed)) => return Err(AdminError::Closed.into()),
        Answer::Listed(listed) => model.on_listed(listed, Instant::now()),
        Answer::Fetched(snapshot) => model.on_snapshot(snapshot, Instant::now()),
        Answer::Acted(action, result) => {
            model.on_acted(&action, result);
            fetcher.refetch();
        }
    }
    Ok(())
}

/// The keys, read by a thread of their own: there is no other way to wait for them. It ends with the process.
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
