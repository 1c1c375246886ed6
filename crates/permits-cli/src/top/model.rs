//! What the screen shows, and what it has heard from the store: plain data, without a terminal, a clock or a
//! store, so that all of it can be tested as such.
//!
//! Two pictures are kept apart. The *overview* is all names, and the counts of those on the screen alone: a
//! store may have thousands. The *detail* is one semaphore with everybody in it. Rows come and go and move
//! while somebody looks at them, so what is selected is followed by its name: nobody shall revoke one holder
//! because another has moved under the marker.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use permits::AdminError;

use super::action::Action;
use super::cursor::Cursor;
use super::snapshot::{Counts, Detail, Query, Snapshot};
use crate::text;

/// A picture older than this is said to be old: three fetch intervals.
const OLD: Duration = Duration::from_secs(3);

/// The most semaphores that are asked for at once, on however high a screen.
const MAX_ASKED: usize = 300;

/// One semaphore, opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) detail: Option<Detail>,
    pub(super) cursor: Cursor,
}

/// What the last line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Yes or no.
    Confirm(Action),
    /// A limit for this semaphore: the digits so far.
    Limit(String, String),
    /// Which names to show; typed into [`Model::filter`].
    Filter,
}

/// Something said under the rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The rows are not what the store has now, or may not be.
    Stale(String),
    /// From the library.
    Warning(String),
    /// About the last action.
    Message(String),
    /// An answer is expected, which is typed behind it.
    Question(String),
}

/// Everything.
#[derive(Debug)]
pub(super) struct Model {
    /// Where the store is.
    pub(super) store: String,
    /// `None` until the store has said.
    pub(super) names: Option<Vec<String>>,
    pub(super) rows: HashMap<String, Result<Counts, AdminError>>,
    pub(super) overview: Cursor,
    pub(super) filter: String,
    pub(super) opened: Option<Opened>,
    pub(super) prompt: Option<Prompt>,
    pub(super) help: bool,
    pub(super) message: Option<String>,
    /// Under way.
    pub(super) pending: Option<Action>,
    warning: Option<String>,
    /// Since when this picture is wanted, and when it was last got.
    opened_at: Instant,
    fetched_at: Option<Instant>,
    /// Why there was nothing newer, of the names and of the rest.
    list_error: Option<AdminError>,
    fetch_error: Option<AdminError>,
}

impl Model {
    /// The overview of a store, or this semaphore in it.
    pub(super) fn new(store: String, name: Option<String>, now: Instant) -> Self {
        let mut model = Self {
            store,
            names: None,
            rows: HashMap::new(),
            overview: Cursor::default(),
            filter: String::new(),
            opened: None,
            prompt: None,
            help: false,
            message: None,
            pending: None,
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

    /// Back to the overview, and to the semaphore one comes from.
    pub(super) fn go_back(&mut self, now: Instant) {
        let Some(opened) = self.opened.take() else { return };
        self.rows.clear();
        (self.opened_at, self.fetched_at) = (now, None);
        let row = self.shown().position(|name| name == opened.name);
        self.overview.follow(row);
    }

    /// The names that the filter lets through.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().flatten().map(String::as_str);
        names.filter(|name| name.contains(&self.filter))
    }

    /// The semaphore that actions are about.
    pub(super) fn selected(&self) -> Option<&str> {
        match &self.opened {
            Some(opened) => Some(&opened.name),
            None => self.shown().nth(self.overview.selected()),
        }
    }

    /// Its counts, as far as they are known.
    pub(super) fn selected_counts(&self) -> Option<&Counts> {
        match &self.opened {
            Some(opened) => opened.detail.as_ref().map(|detail| &detail.counts),
            None => self.rows.get(self.selected()?)?.as_ref().ok(),
        }
    }

    /// Changes which names are shown, with the marker on the same one if it is still there.
    pub(super) fn refilter(&mut self, change: impl FnOnce(&mut String)) {
        let selected = self.selected().map(str::to_owned);
        change(&mut self.filter);
        let row = self.shown().position(|name| Some(name) == selected.as_deref());
        self.overview.follow(row.or(Some(0)));
    }

    /// What to ask the store for.
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

    pub(super) fn on_listed(&mut self, listed: Result<Vec<String>, AdminError>, now: Instant) {
        let names = match listed {
            Ok(names) => names,
            Err(error) => return self.list_error = Some(error),
        };
        self.list_error = None;
        if names.is_empty() && self.opened.is_none() {
            // There is nothing else to be seen.
            (self.fetched_at, self.fetch_error) = (Some(now), None);
        }
        let selected = self.shown().nth(self.overview.selected()).map(str::to_owned);
        self.names = Some(names);
        let row = self.shown().position(|name| Some(name) == selected.as_deref());
        self.overview.follow(row);
    }

    /// Takes in an answer, unless something else is on the screen by now.
    pub(super) fn on_snapshot(&mut self, snapshot: Snapshot, now: Instant) {
        match (snapshot, &mut self.opened) {
            (Snapshot::Failed(error), _) => self.fetch_error = Some(error),
            (Snapshot::Rows(rows), None) if !rows.is_empty() => {
                self.rows = rows.into_iter().collect();
                (self.fetched_at, self.fetch_error) = (Some(now), None);
            }
            (Snapshot::Detail(name, detail), Some(opened)) if opened.name == name => {
                let selected = opened.detail.as_ref().and_then(|old| old.at(opened.cursor.selected()));
                let row = selected.and_then(|(selected, _)| {
                    (0..detail.len()).find(|&row| detail.at(row).is_some_and(|(who, _)| who == selected))
                });
                opened.cursor.follow(row);
                opened.detail = Some(detail);
                (self.fetched_at, self.fetch_error) = (Some(now), None);
            }
            _ => {}
        }
    }

    /// Takes in what has come of an action.
    pub(super) fn on_acted(&mut self, action: &Action, result: Result<bool, AdminError>) {
        self.pending = None;
        self.message = Some(match result {
            Ok(done) => action.outcome(done),
            Err(error) => format!("could not {}: {error}", action.describe()),
        });
    }

    pub(super) fn on_warning(&mut self, line: String) {
        self.warning = Some(line);
    }

    /// What has been read need not stay.
    pub(super) fn clear_messages(&mut self) {
        (self.message, self.warning) = (None, None);
    }

    /// What stands under the rows.
    pub(super) fn notes(&self, now: Instant) -> Vec<Note> {
        let warning = self.warning.clone().map(Note::Warning);
        let pending =
            || self.pending.as_ref().map(|action| format!("{}: asked the store …", action.describe()));
        let last = match &self.prompt {
            Some(Prompt::Confirm(action)) => Some(Note::Question(format!("{} (y/n)", action.question()))),
            Some(Prompt::Limit(name, digits)) => {
                let limit = self.selected_counts().and_then(|counts| counts.limit);
                let limit = limit.map_or(String::new(), |limit| format!(" (now {limit})"));
                Some(Note::Question(format!("new limit of {name:?}{limit}: {digits}")))
            }
            Some(Prompt::Filter) => Some(Note::Question(format!("names with: {}", self.filter))),
            None => pending().or_else(|| self.message.clone()).map(Note::Message),
        };
        [self.staleness(now).map(Note::Stale), warning, last].into_iter().flatten().collect()
    }

    /// Why what is shown is not, or may not be, what the store has now.
    fn staleness(&self, now: Instant) -> Option<String> {
        let of_list = self.list_error.as_ref().filter(|_| self.opened.is_none());
        let error = of_list.or(self.fetch_error.as_ref()).map(ToString::to_string);
        let age = now.saturating_duration_since(self.fetched_at.unwrap_or(self.opened_at));
        let as_of = match self.fetched_at {
            Some(_) => format!("as of {} ago: ", text::duration(age)),
            None => String::new(),
        };
        let error = error.or_else(|| (age >= OLD).then(|| "the store does not answer".to_owned()));
        error.map(|error| as_of + &error)
    }
}
