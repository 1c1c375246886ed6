//! Renders the model on a screen of any size.
//!
//! The screen has, from top to bottom, the title, the rows, the notes, and the keys. If there is no room for
//! all, the keys go first, then the columns from the last on, and a text that is cut ends with an ellipsis.
//! The [state](super::state) of a semaphore is shortened and never left out. Colour carries no information of
//! its own.

use std::time::{Duration, Instant};

use permits::AdminError;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::commands;
use super::model::{Model, Opened};
use super::state::state;
use crate::help::TOP_KEYS;
use crate::inspected::{ListRow, Need};
use crate::report::with_causes;
use crate::status::{Described, describe, summary};
use crate::table::{Row, Table, Text};
use crate::text::{self, duration};

/// The least height of a screen with a title of two lines.
const ROOMY: usize = 10;

/// The width below which a heading is shortened, so that the number of waiters stays beside the state.
const NARROW: usize = 50;

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
        Some(Opened { detail: Some(of), .. }) => summary(of),
    };
    text::wrap(&format!("{subject} ({})", model.store), width, lines)
}

fn overview_title(model: &Model) -> String {
    let Some(list) = &model.list else { return "permits top".to_owned() };
    let noun = if list.names.len() == 1 { "semaphore" } else { "semaphores" };
    let mut title = format!("permits top: {} {noun} {}", list.names.len(), model.order.describe());
    let waiting = list.rows.values().filter(|row| row.waiting > 0).count();
    let stopped = list.rows.values().filter(|row| row.is_stopped()).count();
    let counts = [(waiting, "with waiters"), (stopped, "paused or closed"), (model.hidden(), "idle hidden")];
    for (count, words) in counts.iter().filter(|(count, _)| *count > 0) {
        title += &format!(", {count} {words}");
    }
    if !model.filter.is_empty() {
        title += &format!(", {} with {:?}", model.shown().count(), model.filter);
    }
    title
}

/// The notes below the rows. If there are too many lines, the last ones are kept, which may be the filter.
fn notes(
    model: &Model,
    palette: Palette,
    now: Instant,
    (width, height): (usize, usize),
    room: usize,
) -> Vec<Line<'static>> {
    let note = |text: Option<&str>, style| {
        let lines = text.map(|text| text::wrap(text.trim_end(), width, room)).unwrap_or_default();
        lines.into_iter().map(move |line| Line::styled(line, style)).collect::<Vec<_>>()
    };
    let red = palette.of(Color::Red).add_modifier(Modifier::BOLD);
    let mut lines = note(model.staleness(now).as_deref(), red);
    lines.extend(note(model.warning.as_deref(), palette.of(Color::Yellow)));
    if !model.help && height >= ROOMY {
        // The commands are whole or left out: a part of one would do something else.
        let whole = commands::lines(&model.commands(), width).filter(|lines| lines.len() <= room);
        let narrow = || vec![text::truncate("a larger window shows the commands", width)];
        lines.extend(whole.unwrap_or_else(narrow).into_iter().map(Line::raw));
    }
    let filter = model.filtering.then(|| format!("names with: {}", model.filter));
    lines.extend(note(filter.as_deref(), BOLD));
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
        let text = match &model.list {
            None => "asking the store …",
            Some(list) if list.names.is_empty() => "no semaphores",
            Some(_) if model.filter.is_empty() => "no semaphore is in use (b shows all)",
            Some(_) => "no name matches the filter",
        };
        return vec![Line::raw(text::truncate(text, width))];
    }
    // The heading is dropped before the last row.
    let heading = usize::from(height > 1);
    model.overview.fit(height - heading, count, count, |row| row);
    let visible = model.overview.visible();
    let (rows, styles): (Vec<_>, Vec<_>) = model
        .shown()
        .skip(visible.start)
        .take(visible.len())
        .map(|name| {
            let (numbers, text, style) = match model.rows.get(name) {
                None => (["…", "", "", ""].map(str::to_owned), Text::default(), Style::new()),
                Some(Err(error)) => (Default::default(), failure(error), palette.of(Color::Red)),
                Some(Ok(row)) => {
                    let limit = row.limit.map_or("-".to_owned(), |limit| limit.to_string());
                    let waited = row.oldest_waiter_age_ms.map(Duration::from_millis);
                    let waited = waited.map(duration).unwrap_or_default();
                    let numbers = [row.in_use().to_string(), limit, row.waiting.to_string(), waited];
                    (numbers, state(row), style(row, palette))
                }
            };
            let [held, limit, waiting, waited] = numbers;
            (Row { cells: [name.to_owned(), held, limit, waiting, waited], text }, style)
        })
        .unzip();
    let waiting = if width < NARROW { "WAIT" } else { "WAITING" };
    let head = ["SEMAPHORE", "HELD", "LIMIT", waiting, "WAITED"];
    let table = Table { head, essential: head.len(), text: "STATE", rows };
    let selected = model.overview.selected() - visible.start;
    let lines = table.lines(width.saturating_sub(2)).into_iter().enumerate();
    let lines = lines.map(|(index, line)| match index.checked_sub(1) {
        None => marked(line, BOLD, false, width),
        Some(row) => marked(line, styles[row], row == selected, width),
    });
    lines.skip(1 - heading).collect()
}

/// The text of a semaphore that cannot be read.
fn failure(error: &AdminError) -> Text {
    Text { forms: vec!["UNREADABLE".to_owned()], rest: format!(": {}", with_causes(error)) }
}

/// A line behind the place of the marker.
fn marked(line: String, style: Style, is_selected: bool, width: usize) -> Line<'static> {
    let marker = if is_selected { "> " } else { "  " };
    let style = if is_selected { style.add_modifier(Modifier::REVERSED) } else { style };
    Line::styled(text::truncate(&format!("{marker}{line}"), width), style)
}

/// The lines that `permits status` prints below the summary, with a marker before the selected holder or
/// waiter.
fn of_opened(opened: &mut Opened, width: usize, height: usize) -> Vec<Line<'static>> {
    let Some(of) = &opened.detail else {
        return vec![Line::raw(text::truncate("asking the store …", width))];
    };
    let Described { lines, rows } = describe(of, width.saturating_sub(2));
    // The summary is the title.
    let above = 1 + usize::from(lines.get(1).is_some_and(String::is_empty));
    let line = |row: usize| rows[row] - above;
    opened.cursor.fit(height, rows.len(), lines.len() - above, line);
    let selected = rows.get(opened.cursor.selected()).copied();
    let visible = opened.cursor.visible();
    let lines = lines.into_iter().enumerate().skip(above + visible.start).take(visible.len());
    lines.map(|(index, line)| marked(line, Style::new(), Some(index) == selected, width)).collect()
}
