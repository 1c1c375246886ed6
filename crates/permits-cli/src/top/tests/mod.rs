//! The screen without a terminal and without a store: effects of keys and answers, and its look.

mod keys;
mod model;
mod render;

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};
use permits::{HolderInfo, Inspection, WaiterInfo};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::fetch::{Listing, Snapshot};
use super::keys::Effect;
use super::model::Model;
use crate::inspected::ListRow;

/// A list of semaphores that cannot be read.
fn listing(of: &[&str]) -> Listing {
    Listing { names: of.iter().map(|name| (*name).to_owned()).collect(), ..Listing::default() }
}

fn holder(name: &str, weight: u32, slot: u32) -> HolderInfo {
    let (age, lease_remaining) = (Duration::from_secs(3725), Duration::from_millis(14_250));
    let token = 1_700_000_000_000_000 + u64::from(slot);
    HolderInfo {
        holder: name.into(),
        weight,
        slot,
        token,
        age,
        lease_remaining,
        cooling: false,
        may_be_kept: false,
        label: None,
        lane: None,
    }
}

fn waiter(name: &str, position: u64) -> WaiterInfo {
    let age = Duration::from_secs(7);
    WaiterInfo {
        holder: name.into(),
        weight: 1,
        position,
        age,
        label: Some("nightly export".into()),
        lane: None,
    }
}

/// Three units, all held by two holders, and a waiter.
fn detail() -> Inspection {
    let (holders, waiters) = (vec![holder("web-1", 2, 0), holder("web-2", 1, 2)], vec![waiter("web-3", 0)]);
    let name = "exports".to_owned();
    Inspection { name, limit: Some(3), held: 3, waiting: 1, holders, waiters, ..Inspection::default() }
}

fn snapshot(name: &str, inspection: Inspection) -> Snapshot {
    Snapshot::Detail(name.into(), Box::new(inspection))
}

/// An overview of the semaphores `of`, each with one of four units held.
fn overview(of: &[&str], now: Instant) -> Model {
    let mut model = Model::new("memory:".into(), None, now);
    model.on_listed(Ok(listing(of)), now);
    let row = ListRow { limit: Some(4), held: 1, ..ListRow::default() };
    let rows = of.iter().map(|name| ((*name).to_owned(), Ok(row.clone())));
    model.on_snapshot(Snapshot::Rows(rows.collect()), now);
    drawn(&mut model, 80, 24, now);
    model
}

/// The detail of `exports`.
fn opened(inspection: Inspection, now: Instant) -> Model {
    let mut model = Model::new("memory:".into(), Some("exports".into()), now);
    model.on_snapshot(snapshot("exports", inspection), now);
    drawn(&mut model, 80, 24, now);
    model
}

fn press(model: &mut Model, key: KeyCode) -> Option<Effect> {
    model.on_key(KeyEvent::from(key), Instant::now())
}

/// Presses a key for each character. Returns the effect of the last one.
fn types(model: &mut Model, keys: &str) -> Option<Effect> {
    keys.chars().fold(None, |_, key| press(model, KeyCode::Char(key)))
}

fn buffer(model: &mut Model, width: u16, height: u16, colour: bool, now: Instant) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it cannot fail");
    terminal.draw(|frame| super::render::render(frame, model, colour, now)).expect("it cannot fail");
    terminal.backend().buffer().clone()
}

/// The screen, line by line.
fn drawn(model: &mut Model, width: u16, height: u16, now: Instant) -> Vec<String> {
    let buffer = buffer(model, width, height, true, now);
    let row = |y| {
        let mut row = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            // A wide character hides the next cell.
            x += u16::try_from(crate::text::width(symbol).max(1)).expect("small");
        }
        row.trim_end().to_owned()
    };
    (0..height).map(row).collect()
}
