//! Renders the model on a screen of any size.
//!
//! From top to bottom: the title, the rows, the notes, and the keys. Without room for all, the keys go first,
//! then the columns from the last, and every text that is cut ends in an ellipsis. The [state](super::state)
//! of a semaphore is shortened and never left out. Colour carries no information of its own.

use std::time::{Duration, Instant};

use permits::{AdminError, HolderInfo, Inspection, WaiterInfo};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::commands;
use super::detail;
use super::model::{Model, Note, Opened};
use super::rate::Rate;
use super::state::state;
use crate::help::TOP_KEYS;
use crate::inspected::{ListRow, Need, counted, unlisted_waiters};
use crate::report::with_causes;
use crate::status::alerts;
use crate::table::{Row, Table, Text};
use crate::text::{self, duration};
use crate::units;

/// The least height of a screen with a title of two lines.
const ROOMY: usize = 10;

/// The width below which a heading is shortened, so that the number of waiters stays beside the state.
const NARROW: usize = 50;

/// The width from which on the oldest holder is beside the state.
const WIDE: usize = 140;

const KEYS_OF_OVERVIEW: &str = "q quit  ? help  Enter open  s sort  b busy  / filter";
const KEYS_OF_DETAIL: &str = "q quit  ? help  ↑↓ select  Esc back";

/// Styles, without colours if `NO_COLOR` is set.
#[derive(Clone, Copy)]
struct Palette {
    colour: bool,
}

impl Palette {
    fn of(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}

/// The style of a row: red if it is stopped or beyond a threshold, yellow if one is long, dim if it is idle.
/// Full is healthy. The colours are among the 16 that each theme has.
fn style(row: &ListRow, palette: Palette) -> Style {
    if row.is_stopped() || row.need >= Need::Beyond {
        palette.of(Color::Red)
    } else if row.need == Need::WaitsLong {
        palette.of(Color::Yellow)
    } else if row.is_idle() {
        Style::new().add_modifier(Modifier::DIM)
    } else {
        Style::new()
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Renders everything, and scrolls to the selection.
pub(super) fn render(frame: &mut Frame<'_>, model: &mut Model, colour: bool, now: Instant) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let palette = Palette { colour };
    let title = title(model, width, if height < ROOMY { 1 } else { 2 });
    let mut lines: Vec<Line<'_>> = title.into_iter().map(|line| Line::styled(line, BOLD)).collect();
    let notes = notes(model, palette, now, (width, height), height.saturating_sub(lines.len() + 1));
    let rest = height.saturating_sub(lines.len() + notes.len());
    // A heading and two rows matter more than the keys.
    let with_keys = rest > 3;
    let body_height = rest - usize::from(with_keys);
    let mut body = body(model, palette, width, body_height);
    body.resize(body_height, Line::default());
    lines.append(&mut body);
    lines.extend(notes);
    // The filter is the last note, and the cursor stands at its end.
    let cursor = model.filtering.then(|| (lines.len(), lines.last().map_or(0, Line::width)));
    if with_keys {
        let keys = if model.opened.is_some() { KEYS_OF_DETAIL } else { KEYS_OF_OVERVIEW };
        lines.push(Line::raw(text::truncate(keys, width)));
    }
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    if let Some((lines, columns)) = cursor
        && let (Ok(x), Ok(y)) = (u16::try_from(columns), u16::try_from(lines.saturating_sub(1)))
        && y < area.height
    {
        frame.set_cursor_position(Position { x: x.min(area.width.saturating_sub(1)), y });
    }
}

/// The title in at most `lines` lines. The store comes last, because the end is cut off first.
fn title(model: &Model, width: usize, lines: usize) -> Vec<String> {
    let subject = match &model.opened {
        None => overview_title(model),
        Some(Opened { name, detail: None, .. }) => format!("{name}: …"),
        Some(Opened { name, detail: Some(of), .. }) => {
            let row = ListRow::from(&**of);
            let state = state(&row);
            let subject = format!("{name}: {}", usage(&row));
            let whole =
                [subject.clone(), state.fitted(usize::MAX)].join(if state.is_empty() { "" } else { ", " });
            if !state.is_empty() && text::wrap(&whole, width, lines + 1).len() > lines {
                // The state comes first, so that it is not cut off.
                let short = state.fitted(width / 2);
                return text::wrap(&format!("{short} {subject}"), width, lines);
            }
            let alert = row.alert.is_set().then(|| alerts(row.alert));
            [vec![whole], Vec::from_iter(alert), counted(row.counts)].concat().join(", ")
        }
    };
    text::wrap(&format!("{subject} ({})", model.store), width, lines)
}

fn overview_title(model: &Model) -> String {
    let mut title = match model.names.as_ref().map(Vec::len) {
        None => return "permits top".to_owned(),
        Some(1) => "permits top: 1 semaphore".to_owned(),
        Some(count) => format!("permits top: {count} semaphores"),
    };
    title += &format!(" {}", model.order.describe());
    if let Some((waiting, stopped, longest)) = model.summary() {
        let counts = [(waiting, "with waiters"), (stopped, "paused or closed")];
        for (count, words) in counts.iter().filter(|(count, _)| *count > 0) {
            title += &format!(", {count} {words}");
        }
        longest.into_iter().for_each(|wait| title += &format!(", longest wait {}", duration(wait)));
    }
    if let Some(hidden) = model.hidden() {
        title += &format!(", {hidden} idle hidden");
    }
    if !model.filter.is_empty() {
        title += &format!(", {} with {:?}", model.shown().count(), model.filter);
    }
    title
}

fn usage(row: &ListRow) -> String {
    let ListRow { limit, waiting, .. } = row;
    let in_use = row.in_use();
    match limit {
        Some(limit) => format!("{in_use} of {limit} held, {waiting} waiting"),
        None => format!("{in_use} held, {waiting} waiting"),
    }
}

/// The notes below the rows. If there are too many lines, the last ones are kept, which may be the filter.
fn notes(
    model: &Model,
    palette: Palette,
    now: Instant,
    (width, height): (usize, usize),
    room: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for note in model.notes(now) {
        let (text, style) = match note {
            // The commands are whole or left out: a part of one would do something else.
            Note::Commands(_) if model.help || height < ROOMY && model.asked.is_none() => continue,
            Note::Commands(commands) => {
                let whole = commands::lines(&commands, width).filter(|lines| lines.len() <= room);
                let narrow = || vec![text::truncate("a larger window shows the commands", width)];
                lines.extend(whole.unwrap_or_else(narrow).into_iter().map(Line::raw));
                continue;
            }
            // A line each, and on a small screen none.
            Note::Changes(_) | Note::Problems(_) if height < ROOMY => continue,
            Note::Changes(text) => (text::truncate(&text, width), Style::new()),
            Note::Problems(text) => (text::truncate(&text, width), palette.of(Color::Red)),
            Note::Stale(text) => (text, palette.of(Color::Red).add_modifier(Modifier::BOLD)),
            Note::Warning(text) => (text, palette.of(Color::Yellow)),
            Note::Message(text) => (text, Style::new()),
            Note::Filter(text) => (text, BOLD),
        };
        lines.extend(
            text::wrap(text.trim_end(), width, room).into_iter().map(|line| Line::styled(line, style)),
        );
    }
    lines.split_off(lines.len().saturating_sub(room))
}

fn body(model: &mut Model, palette: Palette, width: usize, height: usize) -> Vec<Line<'static>> {
    if model.help {
        return TOP_KEYS.lines().take(height).map(|line| Line::raw(text::truncate(line, width))).collect();
    }
    match &mut model.opened {
        Some(opened) => of_opened(opened, width, height),
        None => overview(model, palette, width, height),
    }
}

fn overview(model: &mut Model, palette: Palette, width: usize, height: usize) -> Vec<Line<'static>> {
    let count = model.shown().count();
    if count == 0 {
        let text = match &model.names {
            None => "asking the store …",
            Some(names) if names.is_empty() => "no semaphores",
            Some(_) if model.busy && model.hidden().is_none() => "asking the store …",
            Some(_) if model.filter.is_empty() => "no semaphore is in use (b shows all)",
            Some(_) => "no name matches the filter",
        };
        return vec![Line::raw(text::truncate(text, width))];
    }
    // The heading is dropped before the last row.
    let heading = usize::from(height > 1);
    model.overview.fit(height - heading, count, count, |row| row);
    let visible = model.overview.visible();
    let first = visible.start;
    let (rows, styles): (Vec<_>, Vec<_>) = model
        .shown()
        .skip(first)
        .take(visible.len())
        .map(|name| {
            let (numbers, text, style) = match model.rows.get(name) {
                None => (["…", "", "", "", ""].map(str::to_owned), Text::default(), Style::new()),
                Some(Err(error)) => (Default::default(), failure(error), palette.of(Color::Red)),
                Some(Ok(row)) => {
                    let limit = row.limit.map_or("-".to_owned(), |limit| limit.to_string());
                    let waited = row.oldest_waiter_age_ms.map(Duration::from_millis);
                    let waited = waited.map(duration).unwrap_or_default();
                    let grants = model.rates.get(name).map(Rate::text).unwrap_or_default();
                    let numbers = [row.in_use().to_string(), limit, row.waiting.to_string(), waited, grants];
                    let mut text = state(row);
                    if let (true, Some(holder)) = (width >= WIDE, &row.oldest_holder) {
                        let begun = if text.is_empty() { "" } else { "; " };
                        let age = Duration::from_millis(row.oldest_holder_age_ms.unwrap_or_default());
                        text.rest += &format!("{begun}held by {holder:?} for {}", duration(age));
                    }
                    (numbers, text, style(row, palette))
                }
            };
            let [held, limit, waiting, waited, grants] = numbers;
            (Row { cells: [name.to_owned(), held, limit, waiting, waited, grants], text }, style)
        })
        .unzip();
    let waiting = if width < NARROW { "WAIT" } else { "WAITING" };
    let head = ["SEMAPHORE", "HELD", "LIMIT", waiting, "WAITED", "GRANTS"];
    let table = Table { head, essential: head.len() - 1, text: "STATE", rows };
    let selected = model.overview.selected().checked_sub(first);
    styled_lines(&table, width, selected, |row| styles[row]).split_off(1 - heading)
}

/// The text of a semaphore that cannot be read.
fn failure(error: &AdminError) -> Text {
    Text { forms: vec!["UNREADABLE".to_owned()], rest: format!(": {}", with_causes(error)) }
}

/// A heading and rows, with a marker before the row at `selected`.
fn styled_lines<const N: usize>(
    table: &Table<N>,
    width: usize,
    selected: Option<usize>,
    style: impl Fn(usize) -> Style,
) -> Vec<Line<'static>> {
    let mut lines = table.lines(width.saturating_sub(2)).into_iter();
    let line = |marker: &str, line: String, style| {
        Line::styled(text::truncate(&format!("{marker}{line}"), width), style)
    };
    let heading = lines.next().map(|heading| line("  ", heading, BOLD));
    let rows = lines.enumerate().map(|(row, cells)| match selected == Some(row) {
        true => line("> ", cells, style(row).add_modifier(Modifier::REVERSED)),
        false => line("  ", cells, style(row)),
    });
    heading.into_iter().chain(rows).collect()
}

fn of_opened(opened: &mut Opened, width: usize, height: usize) -> Vec<Line<'static>> {
    let Some(of) = &opened.detail else {
        return vec![Line::raw(text::truncate("asking the store …", width))];
    };
    let rows = detail::len(of);
    if rows == 0 {
        return vec![Line::raw(text::truncate("no holders and no waiters", width))];
    }
    let more = |count: u64, noun: &str| {
        (count > 0).then(|| Line::raw(text::truncate(&format!("  … and {count} more {noun}"), width)))
    };
    let (held, waiting) = (of.holders.len(), of.waiters.len());
    let selected = opened.cursor.selected().min(rows - 1);
    let plain = |_| Style::new();
    let mut lines = styled_lines(&holders(of), width, Some(selected), plain);
    if held == 0 {
        lines.clear();
    }
    lines.extend(more(units::unlisted_units(of), "units held by others"));
    let before_waiters = lines.len();
    if waiting > 0 {
        lines.extend(styled_lines(&waiters(of), width, selected.checked_sub(held), plain));
    }
    lines.extend(more(unlisted_waiters(of), "waiting"));
    // The line of a row, below its heading.
    let line = |row: usize| row + 1 + if row < held { 0 } else { before_waiters - held };
    opened.cursor.fit(height, rows, lines.len(), line);
    lines.drain(..opened.cursor.visible().start);
    lines.truncate(height);
    lines
}

fn holders(inspection: &Inspection) -> Table<6> {
    let row = |holder: &HolderInfo| {
        let numbers = [u64::from(holder.slot), u64::from(holder.weight), holder.token];
        let [slot, weight, token] = numbers.map(|number| number.to_string());
        let lease = units::lease(holder, duration);
        let cells = [holder.holder.clone(), duration(holder.age), lease, slot, weight, token];
        Row { cells, text: Text::of(holder.lane.as_deref(), holder.label.as_deref()) }
    };
    let rows: Vec<_> = inspection.holders.iter().map(row).collect();
    let head = ["HOLDER", "AGE", "LEASE", "SLOT", "WEIGHT", "TOKEN"];
    Table { head, essential: 3, text: Table::label_title(&rows, !inspection.lanes.is_empty()), rows }
}

fn waiters(inspection: &Inspection) -> Table<4> {
    let row = |waiter: &WaiterInfo| {
        let numbers = [waiter.position, u64::from(waiter.weight)].map(|number| number.to_string());
        let [position, weight] = numbers;
        let cells = [waiter.holder.clone(), position, duration(waiter.age), weight];
        Row { cells, text: Text::of(waiter.lane.as_deref(), waiter.label.as_deref()) }
    };
    let rows: Vec<_> = inspection.waiters.iter().map(row).collect();
    let head = ["WAITER", "BEFORE", "AGE", "WEIGHT"];
    Table { head, essential: 3, text: Table::label_title(&rows, !inspection.lanes.is_empty()), rows }
}
