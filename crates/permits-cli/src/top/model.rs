//! The state of the screen: plain data without a terminal, a clock or a store, so that all of it can be
//! tested as such.
//!
//! There are two views. The *overview* has all names, and the counts of the visible ones only, since a store
//! may have thousands. The *detail* has one semaphore with its holders and waiters. Rows come, go and move
//! while they are shown, so the selection follows the name: the command that you read is still that of the
//! row that you chose.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use permits::{AdminError, ChangeInfo, Diagnosis, Inspection, Severity};

use super::commands::{Command, Commands};
use super::cursor::Cursor;
use super::detail;
use super::rate::Rate;
use super::snapshot::{Listing, Query, Snapshot};
use crate::inspected::ListRow;
use crate::order::Order;
use crate::report::with_causes;
use crate::text;

/// Data older than three fetch intervals is marked with its age.
const OLD: Duration = Duration::from_secs(3);

/// The most semaphores in one query, on however high a screen.
const MAX_ASKED: usize = 300;

/// An opened semaphore.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) detail: Option<Box<Inspection>>,
    pub(super) cursor: Cursor,
}

/// A note below the rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The last changes by operators, of the opened semaphore.
    Changes(String),
    /// The problems of the store.
    Problems(String),
    /// The rows may differ from the store's present state.
    Stale(String),
    /// A warning of the library.
    Warning(String),
    /// The commands for the selected row.
    Commands(Vec<Command>),
    /// The reply to the last key.
    Message(String),
    /// The filter, as it is typed.
    Filter(String),
}

/// The whole state.
#[derive(Debug)]
pub(super) struct Model {
    /// The URL of the store, without passwords.
    pub(super) store: String,
    /// `None` until the first list. In the present order.
    pub(super) names: Option<Vec<String>>,
    /// The counts of the last list, by which names are sorted and hidden.
    counts: Option<HashMap<String, ListRow>>,
    pub(super) order: Order,
    /// Semaphores without holders and waiters are hidden.
    pub(super) busy: bool,
    pub(super) rows: HashMap<String, Result<ListRow, AdminError>>,
    /// Of the visible semaphores.
    pub(super) rates: HashMap<String, Rate>,
    pub(super) overview: Cursor,
    pub(super) filter: String,
    /// The problems of the store, in a line.
    pub(super) problems: Option<String>,
    pub(super) opened: Option<Opened>,
    /// The filter is being typed.
    pub(super) filtering: bool,
    pub(super) help: bool,
    pub(super) message: Option<String>,
    /// The key whose command is shown in place of those for the state of the row.
    pub(super) asked: Option<char>,
    pub(super) make: Commands,
    warning: Option<String>,
    /// The time since when this view is shown, and the time of its last data.
    opened_at: Instant,
    fetched_at: Option<Instant>,
    /// The errors of the last list and of the last fetch.
    list_error: Option<AdminError>,
    fetch_error: Option<AdminError>,
}

impl Model {
    /// The overview of a store, or the detail of `name` in it.
    pub(super) fn new(store: String, name: Option<String>, now: Instant) -> Self {
        let mut model = Self {
            store,
            names: None,
            counts: None,
            order: Order::Need,
            busy: false,
            rows: HashMap::new(),
            rates: HashMap::new(),
            overview: Cursor::default(),
            filter: String::new(),
            problems: None,
            opened: None,
            filtering: false,
            help: false,
            message: None,
            asked: None,
            make: Commands::default(),
            warning: None,
            opened_at: now,
            fetched_at: None,
            list_error: None,
            fetch_error: None,
        };
        if let Some(name) = name {
            model.open(name, now);
        }
        model
    }

    pub(super) fn open(&mut self, name: String, now: Instant) {
        self.opened = Some(Opened { name, detail: None, cursor: Cursor::default() });
        (self.opened_at, self.fetched_at) = (now, None);
    }

    /// Returns to the overview, and to the opened semaphore in it.
    pub(super) fn go_back(&mut self, now: Instant) {
        let Some(opened) = self.opened.take() else { return };
        self.rows.clear();
        (self.opened_at, self.fetched_at) = (now, None);
        let row = self.shown().position(|name| name == opened.name);
        self.overview.follow(row);
    }

    /// The names that match the filter, without those that are hidden.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.matching().filter(|name| !self.is_hidden(name))
    }

    /// The number of names that match the filter and are hidden, if it is known.
    pub(super) fn hidden(&self) -> Option<usize> {
        let counts = self.counts.as_ref().filter(|_| self.busy);
        counts.map(|_| self.matching().filter(|name| self.is_hidden(name)).count())
    }

    /// The numbers of semaphores with waiters and of stopped ones, and the longest wait, once they are known.
    pub(super) fn summary(&self) -> Option<(usize, usize, Option<Duration>)> {
        let rows = || self.counts.iter().flat_map(HashMap::values);
        // The visible rows are newer.
        let visible = self.rows.values().filter_map(|row| row.as_ref().ok());
        let longest =
            rows().chain(visible).filter_map(|row| row.oldest_waiter_age_ms).max().map(Duration::from_millis);
        let waiting = rows().filter(|row| row.waiting > 0).count();
        self.counts.as_ref().map(|_| (waiting, rows().filter(|row| row.is_stopped()).count(), longest))
    }

    fn matching(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().flatten().map(String::as_str);
        names.filter(|name| name.contains(&self.filter))
    }

    /// A semaphore whose counts are missing may be in use. Before the first counts, all are hidden.
    fn is_hidden(&self, name: &str) -> bool {
        let is_idle = |counts: &HashMap<String, ListRow>| counts.get(name).is_some_and(ListRow::is_idle);
        self.busy && self.counts.as_ref().is_none_or(is_idle)
    }

    /// True if the order or the choice of the rows needs the counts of all semaphores.
    pub(super) fn needs_counts(&self) -> bool {
        self.opened.is_none() && (self.busy || self.order != Order::Name)
    }

    fn sort(&mut self) {
        let row = |name: &str| self.counts.as_ref().and_then(|counts| counts.get(name));
        if let Some(names) = &mut self.names {
            names.sort_by(|name, other| self.order.compare((name, row(name)), (other, row(other))));
        }
    }

    /// The semaphore to which the commands apply.
    pub(super) fn selected(&self) -> Option<&str> {
        match &self.opened {
            Some(opened) => Some(&opened.name),
            None => self.shown().nth(self.overview.selected()),
        }
    }

    /// The holder or waiter to which the commands apply, in an opened semaphore.
    pub(super) fn holder(&self) -> Option<&str> {
        let opened = self.opened.as_ref()?;
        detail::at(opened.detail.as_ref()?, opened.cursor.selected())
    }

    /// The commands for the selected row: that of the last key, or those for its state.
    fn commands(&self) -> Vec<Command> {
        let selected = self.selected().and_then(|name| Some((name, self.rows.get(name)?)));
        match selected {
            None => Vec::new(),
            Some((name, Err(_))) => vec![self.make.status(name)],
            Some((name, Ok(row))) => {
                let keys = ['r', 'p', if row.pinned { 'u' } else { 'l' }, 'c'];
                let keys = keys.iter().filter(|_| self.asked.is_none()).chain(&self.asked);
                keys.filter_map(|key| self.make.of_key(*key, name, row, self.holder())).collect()
            }
        }
    }

    /// Changes the filter. The selection stays on the same name if it still matches.
    pub(super) fn refilter(&mut self, change: impl FnOnce(&mut String)) {
        self.rearrange(|model| change(&mut model.filter));
    }

    /// Changes the order or the choice of the rows. The selection stays on the same name if it is still
    /// shown.
    pub(super) fn rearrange(&mut self, change: impl FnOnce(&mut Self)) {
        let selected = self.selected().map(str::to_owned);
        change(self);
        self.sort();
        let row = self.shown().position(|name| Some(name) == selected.as_deref());
        self.overview.follow(row.or(Some(0)));
    }

    /// The query for the visible rows.
    pub(super) fn query(&self) -> Query {
        match &self.opened {
            Some(opened) => Query::Detail(opened.name.clone()),
            None => {
                let visible = self.overview.visible();
                let names = self.shown().skip(visible.start).take(visible.len().min(MAX_ASKED));
                Query::Rows(names.map(str::to_owned).collect())
            }
        }
    }

    pub(super) fn on_listed(&mut self, listed: Result<Listing, AdminError>, now: Instant) {
        let Listing { names, counts } = match listed {
            Ok(listing) => listing,
            Err(error) => return self.list_error = Some(error),
        };
        self.list_error = None;
        let selected = self.shown().nth(self.overview.selected()).map(str::to_owned);
        self.names = Some(names);
        // A list that was begun before they were needed has none.
        if counts.is_some() || !self.needs_counts() {
            self.counts = counts;
        }
        self.sort();
        let row = self.shown().position(|name| Some(name) == selected.as_deref());
        self.overview.follow(row);
        if self.opened.is_none() && self.shown().next().is_none() {
            // Without rows, the list is all there is to show.
            (self.fetched_at, self.fetch_error) = (Some(now), None);
        }
    }

    /// Stores a snapshot, unless it belongs to another view.
    pub(super) fn on_snapshot(&mut self, snapshot: Snapshot, now: Instant) {
        match (snapshot, &mut self.opened) {
            (Snapshot::Failed(error), _) => self.fetch_error = Some(error),
            (Snapshot::Rows(rows), None) if !rows.is_empty() => {
                self.rows = rows.into_iter().collect();
                self.rates.retain(|name, _| self.rows.contains_key(name));
                for (name, row) in &self.rows {
                    if let Ok(row) = row {
                        self.rates.entry(name.clone()).or_default().add(now, row.counts.grants);
                    }
                }
                (self.fetched_at, self.fetch_error) = (Some(now), None);
            }
            (Snapshot::Detail(name, of), Some(opened)) if opened.name == name => {
                let selected =
                    opened.detail.as_ref().and_then(|old| detail::at(old, opened.cursor.selected()));
                let row = selected.and_then(|selected| {
                    (0..detail::len(&of)).find(|row| detail::at(&of, *row) == Some(selected))
                });
                opened.cursor.follow(row);
                self.rows.insert(name, Ok(ListRow::from(&*of)));
                opened.detail = Some(of);
                (self.fetched_at, self.fetch_error) = (Some(now), None);
            }
            _ => {}
        }
    }

    /// Stores the problems of the store; an earlier diagnosis counts no longer.
    pub(super) fn on_diagnosed(&mut self, diagnosis: Option<&Diagnosis>) {
        let findings = diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
        let problems: Vec<_> = findings.filter(|finding| finding.severity == Severity::Problem).collect();
        self.problems = problems.first().map(|first| {
            let of = if problems.len() > 1 { format!(" (1 of {})", problems.len()) } else { String::new() };
            format!("permits doctor{of}: {}: {}", first.subject, first.observed)
        });
    }

    pub(super) fn on_warning(&mut self, line: String) {
        self.warning = Some(line);
    }

    /// Clears the messages, because a key press shows that they have been read.
    pub(super) fn clear_messages(&mut self) {
        (self.message, self.warning, self.asked) = (None, None, None);
    }

    /// The notes below the rows.
    pub(super) fn notes(&self, now: Instant) -> Vec<Note> {
        let warning = self.warning.clone().map(Note::Warning);
        let last = match self.filtering {
            true => Some(Note::Filter(format!("names with: {}", self.filter))),
            false => self.message.clone().map(Note::Message),
        };
        let commands = Some(self.commands()).filter(|commands| !commands.is_empty()).map(Note::Commands);
        let stale = self.staleness(now).map(Note::Stale);
        // A store that does not answer has no other problem that matters.
        let problems = self.problems.clone().filter(|_| stale.is_none()).map(Note::Problems);
        [self.last_changes().map(Note::Changes), problems, stale, warning, commands, last]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The last changes of the opened semaphore by operators.
    fn last_changes(&self) -> Option<String> {
        let opened = self.opened.as_ref()?.detail.as_ref()?;
        let change =
            |info: &ChangeInfo| format!("{} {} {} ago", info.by, info.change, text::duration(info.age));
        let changes: Vec<String> = opened.last_changes().map(change).collect();
        (!changes.is_empty()).then(|| changes.join("; "))
    }

    /// The reason why the rows may differ from the store's present state.
    fn staleness(&self, now: Instant) -> Option<String> {
        let of_list = self.list_error.as_ref().filter(|_| self.opened.is_none());
        let error = of_list.or(self.fetch_error.as_ref()).map(|error| with_causes(error));
        let age = now.saturating_duration_since(self.fetched_at.unwrap_or(self.opened_at));
        let as_of = match self.fetched_at {
            Some(_) => format!("as of {} ago: ", text::duration(age)),
            None => String::new(),
        };
        let error = error.or_else(|| (age >= OLD).then(|| "the store does not answer".to_owned()));
        error.map(|error| as_of + &error)
    }
}
