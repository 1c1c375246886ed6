//! The state of the screen: plain data without a terminal, a clock or a store, so that all of it can be
//! tested as such.
//!
//! The screen has two views. The *overview* has all names, and the newest rows of the visible ones only,
//! since a store may have thousands. The *detail* has one semaphore with its holders and waiters. Rows come,
//! go and move while they are shown, so the selection follows the name: the command that you read still
//! belongs to the row that you chose.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use permits::{AdminError, Inspection};

use super::commands::{Command, Commands};
use super::cursor::{Cursor, Motion};
use super::fetch::{Listing, Query, Snapshot};
use crate::inspected::ListRow;
use crate::order::Order;
use crate::report::with_causes;
use crate::status::listed;
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

impl Opened {
    /// The selected holder or waiter.
    fn selected(&self) -> Option<&str> {
        listed(self.detail.as_ref()?).nth(self.cursor.selected())
    }
}

#[derive(Debug)]
pub(super) struct Model {
    /// The URL of the store, without passwords.
    pub(super) store: String,
    /// The last list, in the present order; `None` until the first one.
    pub(super) list: Option<Listing>,
    pub(super) order: Order,
    /// Semaphores without holders and waiters are hidden.
    pub(super) busy: bool,
    /// The visible semaphores.
    pub(super) rows: HashMap<String, Result<ListRow, AdminError>>,
    pub(super) overview: Cursor,
    pub(super) filter: String,
    pub(super) opened: Option<Opened>,
    /// The filter is being typed.
    pub(super) filtering: bool,
    pub(super) help: bool,
    pub(super) make: Commands,
    /// The last warning of the library, until a key is pressed.
    pub(super) warning: Option<String>,
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
            list: None,
            order: Order::Need,
            busy: false,
            rows: HashMap::new(),
            overview: Cursor::default(),
            filter: String::new(),
            opened: None,
            filtering: false,
            help: false,
            make: Commands::default(),
            warning: None,
            opened_at: now,
            fetched_at: None,
            list_error: None,
            fetch_error: None,
        };
        name.into_iter().for_each(|name| model.open(name, now));
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

    pub(super) fn go(&mut self, motion: Motion) {
        let rows = match &self.opened {
            Some(opened) => opened.detail.as_deref().map_or(0, |of| listed(of).count()),
            None => self.shown().count(),
        };
        self.opened.as_mut().map_or(&mut self.overview, |opened| &mut opened.cursor).go(motion, rows);
    }

    /// The names that match the filter, without those that are hidden.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.matching().filter(|(_, is_hidden)| !is_hidden).map(|(name, _)| name)
    }

    /// The number of names that match the filter and are hidden.
    pub(super) fn hidden(&self) -> usize {
        self.matching().filter(|(_, is_hidden)| *is_hidden).count()
    }

    /// The names that match the filter, and whether each is hidden. A semaphore whose row is missing may be
    /// in use.
    fn matching(&self) -> impl Iterator<Item = (&str, bool)> {
        self.list.iter().flat_map(|Listing { names, rows }| {
            let names = names.iter().filter(|name| name.contains(&self.filter));
            names.map(|name| (&**name, self.busy && rows.get(name).is_some_and(ListRow::is_idle)))
        })
    }

    /// The semaphore to which the commands apply.
    pub(super) fn selected(&self) -> Option<&str> {
        match &self.opened {
            Some(opened) => Some(&opened.name),
            None => self.shown().nth(self.overview.selected()),
        }
    }

    /// The commands for the selected row, once it has been read.
    pub(super) fn commands(&self) -> Vec<Command> {
        match self.selected().and_then(|name| Some((name, self.rows.get(name)?))) {
            None => Vec::new(),
            Some((name, Err(_))) => vec![self.make.status(name)],
            Some((name, Ok(row))) => {
                self.make.of_row(name, row, self.opened.as_ref().and_then(Opened::selected))
            }
        }
    }

    /// Changes the names, their order or their choice. The selection stays on the same name; without it, it
    /// is the first one.
    pub(super) fn rearrange(&mut self, change: impl FnOnce(&mut Self)) {
        let selected = self.selected().map(str::to_owned);
        change(self);
        self.sort();
        let row = self.shown().position(|name| Some(name) == selected.as_deref());
        self.overview.follow(row.or(Some(0)));
    }

    fn sort(&mut self) {
        if let Some(Listing { names, rows }) = &mut self.list {
            names.sort_by(|name, other| self.order.compare((name, rows.get(name)), (other, rows.get(other))));
        }
    }

    /// The query for what is visible.
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
        let list = match listed {
            Ok(list) => list,
            Err(error) => return self.list_error = Some(error),
        };
        self.list_error = None;
        let selected = self.shown().nth(self.overview.selected()).map(str::to_owned);
        self.list = Some(list);
        self.sort();
        let row = self.shown().position(|name| Some(name) == selected.as_deref());
        self.overview.follow(row);
        if self.opened.is_none() && self.shown().next().is_none() {
            // The list is all that the screen shows without rows, so the screen is as fresh as the list.
            (self.fetched_at, self.fetch_error) = (Some(now), None);
        }
    }

    /// Stores a snapshot, unless it belongs to another view.
    pub(super) fn on_snapshot(&mut self, snapshot: Snapshot, now: Instant) {
        match (snapshot, &mut self.opened) {
            (Snapshot::Failed(error), _) => return self.fetch_error = Some(error),
            (Snapshot::Rows(rows), None) if !rows.is_empty() => self.rows = rows.into_iter().collect(),
            (Snapshot::Detail(name, of), Some(opened)) if opened.name == name => {
                let row = opened.selected().and_then(|old| listed(&of).position(|holder| holder == old));
                opened.cursor.follow(row);
                self.rows.insert(name, Ok(ListRow::from(&*of)));
                opened.detail = Some(of);
            }
            _ => return,
        }
        (self.fetched_at, self.fetch_error) = (Some(now), None);
    }

    /// The reason why the rows may differ from the store's present state.
    pub(super) fn staleness(&self, now: Instant) -> Option<String> {
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
