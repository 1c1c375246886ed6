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
use crate::output::Output;
use crate::reader::{MAX_SEMAPHORES, Reading, StoreReader, rest};
use crate::report;
use crate::stdout;

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
    /// The time of the next inspections, if there are several semaphores.
    look_due: Instant,
    /// There are more semaphores than are watched.
    is_partial: bool,
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
        let (watchers, now) = (BTreeMap::new(), Instant::now());
        Self {
            reader,
            chosen,
            options,
            store,
            output,
            watchers,
            list_due: now,
            look_due: now,
            is_partial: false,
            is_unreachable: false,
        }
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
            tokio::select! {
                _ = ticks.tick() => {}
                () = stdout::closed() => return Ok(exit::SUCCESS),
            }
            if self.output.is_behind() {
                continue;
            }
            match self.chosen {
                Chosen::Under(_) if self.look_due > Instant::now() => continue,
                Chosen::Under(prefix) if self.list_due <= Instant::now() => match self.list(prefix).await {
                    // The inspections report that.
                    Err(AdminError::Store(error)) if error.is_temporary() => {}
                    listed => listed?,
                },
                _ => {}
            }
            let began = Instant::now();
            self.look().await?;
            self.look_due = Instant::now() + rest(began.elapsed());
        }
    }

    /// Watches the semaphores under `prefix`, and those that have ended no longer.
    async fn list(&mut self, prefix: &str) -> Result<(), AdminError> {
        let Reading { found: names, next, .. } =
            self.reader.read(names::under(&self.reader.client, prefix)).await?;
        self.list_due = next;
        if names.len() > MAX_SEMAPHORES && !self.is_partial {
            let number = names.len();
            report::say(format_args!(
                "watching {MAX_SEMAPHORES} semaphores of {number}: use a longer prefix"
            ));
        }
        self.is_partial = names.len() > MAX_SEMAPHORES;
        self.watchers.retain(|name, watcher| watcher.is_known || names.binary_search(name).is_ok());
        for name in names.into_iter().take(MAX_SEMAPHORES) {
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
