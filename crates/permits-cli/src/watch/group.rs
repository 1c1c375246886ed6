//! The semaphores that are watched: one, or those under a prefix, which begin and end meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Client, Limit};
use tokio::time::{MissedTickBehavior, interval};

use super::watcher::{Lines, Watcher};
use crate::args::{Chosen, Watch};
use crate::each::CONCURRENCY;
use crate::exit::{self, Failure};
use crate::names;
use crate::output::{self, Output};
use crate::reader::{Reading, StoreReader};
use crate::report;

/// The shortest time without a list of names after a list.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Group<'a> {
    reader: StoreReader,
    chosen: Chosen<'a>,
    options: &'a Watch,
    store: String,
    output: &'a Output,
    watchers: BTreeMap<String, Watcher>,
    /// The time of the next list of names.
    list_due: Instant,
    is_unreachable: bool,
}

impl<'a> Group<'a> {
    pub(super) fn new(
        client: Client,
        chosen: Chosen<'a>,
        options: &'a Watch,
        store: String,
        output: &'a Output,
    ) -> Self {
        let reader = StoreReader { client, interval: LIST_INTERVAL, under: Vec::new() };
        let (watchers, list_due) = (BTreeMap::new(), Instant::now());
        Self { reader, chosen, options, store, output, watchers, list_due, is_unreachable: false }
    }

    /// Runs until the reader has closed standard output, or the store cannot be watched.
    pub(super) async fn run(&mut self) -> Result<u8, Failure> {
        match self.chosen {
            Chosen::One(name) => self.add(name.to_owned())?,
            Chosen::Under(prefix) => self.list(prefix).await?,
        }
        let mut ticks = interval(self.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if output::is_closed() {
                return Ok(exit::SUCCESS);
            }
            if self.output.is_behind() {
                continue;
            }
            match self.chosen {
                Chosen::Under(prefix) if self.list_due <= Instant::now() => match self.list(prefix).await {
                    // The inspections report that.
                    Err(AdminError::Store(error)) if error.is_temporary() => {}
                    listed => listed?,
                },
                _ => {}
            }
            self.look().await?;
        }
    }

    /// Watches the semaphores under `prefix`, and those that have ended no longer.
    async fn list(&mut self, prefix: &str) -> Result<(), AdminError> {
        let Reading { found: names, next, .. } =
            self.reader.read(names::under(&self.reader.client, prefix)).await?;
        self.list_due = next;
        self.watchers.retain(|name, watcher| watcher.is_known || names.binary_search(name).is_ok());
        for name in names {
            if !self.watchers.contains_key(&name) {
                self.add(name)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: String) -> Result<(), AdminError> {
        let semaphore = self.reader.client.semaphore(&name, Limit::Stored)?;
        self.watchers.insert(name, Watcher::new(semaphore));
        Ok(())
    }

    /// Inspects all, and prints what has changed since the last inspections.
    async fn look(&mut self) -> Result<(), Failure> {
        let lines = Lines {
            output: self.output,
            store: &self.store,
            json: self.options.json,
            several: matches!(self.chosen, Chosen::Under(_)),
        };
        let looks = self.watchers.values_mut().map(|watcher| watcher.look(lines));
        stream::iter(looks).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        let reason = self.watchers.values().find_map(|watcher| watcher.unreachable.as_ref());
        if reason.is_some() != self.is_unreachable {
            self.is_unreachable = reason.is_some();
            report::say(reason.map_or("the store can be reached again", String::as_str));
        }
        Ok(())
    }
}
