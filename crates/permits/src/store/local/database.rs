//! The content of a file: executes commands, lists semaphores, and reads events of other processes.
//!
//! **Safe at any moment.** A write-ahead log with `synchronous=NORMAL`: a process may be killed, or the
//! machine lose power, at any moment, and the file is in the state after some command. Only after a loss of
//! power can that be an earlier command than the last one; but then the machine has restarted, and every
//! lease has ended. A pinned limit or a pause must outlast that, so the log is synchronized before the reply.
//!
//! **No wait for the disk at the start and the end of a program.** The log stays when the last process closes
//! the file. The next process reads the whole log, so it is kept short.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::busy;
use super::connection::set_log_pages;
use super::error::{damaged, sqlite_error};
use super::open::OpenFile;
use super::schema::{
    News, RESERVE_PAGES, advance_clock, begin_writing, delete, load, read_clock, save, sweep, write_news,
};
use crate::clock::Moment;
use crate::model::{self, ServerClock, State};
use crate::protocol::{Answers, Command, DeleteOutcome, InvalidInput, Name, Operation, Reply, SessionId};
use crate::store::error::StoreError;

/// The number of commands after which a process uses a longer log. With a short log it would wait for the
/// disk often, and only the next process reads the log.
const BUSY_AFTER: u32 = 100;

/// The number of pages of the longer log.
const BUSY_LOG_PAGES: u32 = 1000;

/// The average number of commands between two sweeps.
const SWEEP_EVERY: u32 = 256;

/// An open file, as the semaphores of one prefix.
pub(super) struct Database {
    file: OpenFile,
    prefix: String,
    /// The id of the last event that was read. The next command deletes the events up to it.
    read: i64,
    executed: u32,
}

impl Database {
    /// Opens the file, and makes it if there is none. Waits for other processes until `deadline`.
    pub(super) fn open(path: &Path, prefix: &str, deadline: Moment) -> Result<Self, StoreError> {
        Ok(Self { file: OpenFile::open(path, deadline)?, prefix: prefix.to_owned(), read: 0, executed: 0 })
    }

    /// Opens the file that has the name now, if the open one was replaced: see [`OpenFile::follow`].
    pub(super) fn follow(&mut self, deadline: Moment) -> Result<bool, StoreError> {
        let followed = self.file.follow(deadline)?;
        if followed {
            (self.read, self.executed) = (0, 0);
        }
        Ok(followed)
    }

    /// The time since the file was first opened by any process.
    pub(super) fn age(&self) -> Duration {
        self.file.age()
    }

    /// Executes a command. Waits for other processes until `deadline`. Returns the reply, and the
    /// messages for `session` itself.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        session: &SessionId,
        deadline: Moment,
    ) -> Result<(Reply, Vec<News>), StoreError> {
        busy::set_deadline(deadline);
        if command.only_looks() {
            return Ok((self.look(command)?, Vec::new()));
        }
        self.executed = self.executed.saturating_add(1);
        if self.executed == BUSY_AFTER {
            set_log_pages(&self.file.connection, BUSY_LOG_PAGES).map_err(|error| self.failed(error))?;
        }
        let lasting = matches!(
            command.operation,
            Operation::SetLimit { .. }
                | Operation::Pause { .. }
                | Operation::CloseLine { .. }
                | Operation::Delete { .. }
        );
        if lasting {
            self.set_synchronous("FULL")?;
        }
        let result = match self.write(command, session) {
            // The disk has no room for a longer log.
            Err(StoreError::OutOfMemory { .. }) if self.make_room(&command.operation) => {
                self.write(command, session)
            }
            result => result,
        };
        if lasting {
            self.set_synchronous("NORMAL")?;
        }
        result
    }

    fn set_synchronous(&self, mode: &str) -> Result<(), StoreError> {
        let set = self.file.connection.pragma_update(None, "synchronous", mode);
        set.map_err(|error| self.failed(error))
    }

    fn write(&mut self, command: &Command, session: &SessionId) -> Result<(Reply, Vec<News>), StoreError> {
        let OpenFile { connection, paths, boot, base_us, .. } = &mut self.file;
        let (path, prefix, name) = (paths.named(), self.prefix.as_str(), command.semaphore.as_str());
        let failed = |error| sqlite_error(path, &error);
        let transaction = begin_writing(connection).map_err(failed)?;
        // The time is read under the lock, so that it never decreases from one command to the next.
        let elapsed_us = *base_us + boot.elapsed_us();
        let now_us = advance_clock(&transaction, elapsed_us, boot).map_err(failed)?;
        let now_us = now_us.ok_or_else(|| another_machine(path))?;
        let stored = load(&transaction, prefix, name).map_err(failed)?;
        let read = stored.as_deref().map(|text| read_state(name, text)).transpose();
        let discards = read.is_err() && command.operation == (Operation::Delete { unreadable: true });
        let mut state = if discards { None } else { read? };
        let server = clock(now_us);
        let keepable = model::keepable_limit(state.as_ref(), server.now_us);
        let (mut reply, events) = model::apply(&mut state, &server, command);
        if discards {
            reply.answers = Answers::Delete(DeleteOutcome::Deleted);
        }
        match &state {
            Some(state) => save(&transaction, prefix, name, state).map_err(failed)?,
            None if stored.is_some() => delete(&transaction, prefix, name).map_err(failed)?,
            None => {}
        }
        let mut news: Vec<(SessionId, News)> =
            events.into_iter().map(|event| (event.session.clone(), News::Event(event))).collect();
        if model::recalls(keepable, state.as_ref(), &reply, server.now_us) {
            let keepers = state.iter().flat_map(State::keepers);
            news.extend(keepers.map(|keeper| (keeper.clone(), News::Recall(command.semaphore.clone()))));
        }
        let (own, others): (Vec<_>, Vec<_>) = news.into_iter().partition(|(to, _)| to == session);
        write_news(&transaction, &others, now_us / 1000).map_err(failed)?;
        if self.read > 0 {
            transaction
                .prepare_cached("DELETE FROM news WHERE session = ?1 AND id <= ?2")
                .and_then(|mut delete| delete.execute((session.as_str(), self.read)))
                .map_err(failed)?;
        }
        if fastrand::u32(..SWEEP_EVERY) == 0 {
            sweep(&transaction, now_us / 1000).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        self.read = 0;
        Ok((reply, own.into_iter().map(|(_, news)| news).collect()))
    }

    /// The reply to a command that only reads. It waits for no lock, and needs no room on the disk.
    fn look(&mut self, command: &Command) -> Result<Reply, StoreError> {
        let OpenFile { connection, paths, boot, base_us, .. } = &mut self.file;
        let (path, name) = (paths.named(), command.semaphore.as_str());
        let failed = |error| sqlite_error(path, &error);
        let elapsed_us = *base_us + boot.elapsed_us();
        let transaction = connection.transaction().map_err(failed)?;
        let now_us = read_clock(&transaction, elapsed_us, boot).map_err(failed)?;
        let now_us = now_us.ok_or_else(|| another_machine(path))?;
        let stored = load(&transaction, &self.prefix, name).map_err(failed)?;
        let mut state = stored.as_deref().map(|text| read_state(name, text)).transpose()?;
        Ok(model::apply(&mut state, &clock(now_us), command).0)
    }

    /// Moves the content of the log into the file, so that the next command overwrites the log. Returns
    /// whether that succeeded and `operation` may use the room: an acquire must leave the room that holders
    /// and waiters need to renew and release.
    fn make_room(&self, operation: &Operation) -> bool {
        let number = |sql| self.file.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let blocked = number("PRAGMA wal_checkpoint(RESTART)");
        let takes_room = matches!(operation, Operation::Acquire { .. });
        let room = || number("PRAGMA freelist_count").is_ok_and(|pages| pages >= RESERVE_PAGES * 3 / 4);
        matches!(blocked, Ok(0)) && (!takes_room || room())
    }

    /// The semaphores of this prefix that are in use or kept.
    pub(super) fn list(&self, deadline: Moment) -> Result<Vec<Name>, StoreError> {
        busy::set_deadline(deadline);
        let failed = |error| self.failed(error);
        let now_ms = self.file.elapsed_us() / 1000;
        let mut select = self
            .file
            .connection
            .prepare_cached(
                "SELECT name FROM semaphores WHERE prefix = ?1 AND (expires_ms IS NULL OR expires_ms > ?2) ORDER BY name",
            )
            .map_err(failed)?;
        let names = select.query_map((&self.prefix, now_ms), |row| row.get(0)).map_err(failed)?;
        let names: Vec<String> = names.collect::<Result<_, _>>().map_err(failed)?;
        let damaged = |invalid: InvalidInput| damaged(self.path(), invalid);
        names.iter().map(|name| Name::new(name).map_err(damaged)).collect()
    }

    /// A number that changes when another process has written.
    pub(super) fn data_version(&self) -> Result<i64, StoreError> {
        self.file
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut pragma| pragma.query_row([], |row| row.get(0)))
            .map_err(|error| self.failed(error))
    }

    /// The messages that other processes wrote for `session`. The session's next command deletes them, so
    /// that reading them needs no write lock.
    pub(super) fn news(&mut self, session: &SessionId) -> Result<Vec<News>, StoreError> {
        let failed = |error| self.failed(error);
        let mut select = self
            .file
            .connection
            .prepare_cached("SELECT id, event FROM news WHERE session = ?1 AND id > ?2 ORDER BY id")
            .map_err(failed)?;
        let rows = select
            .query_map((session.as_str(), self.read), |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().map_err(failed)?;
        let read = |(_, text): &(i64, String)| serde_json::from_str(text);
        let news = rows.iter().map(read).collect::<Result<_, _>>();
        self.read = rows.last().map_or(self.read, |(id, _)| *id);
        news.map_err(|error: serde_json::Error| damaged(self.path(), error))
    }

    /// The lowest position of `session`'s waiters in the queue of `semaphore`.
    pub(super) fn position(&self, semaphore: &Name, session: &SessionId) -> Result<Option<u64>, StoreError> {
        let stored = load(&self.file.connection, &self.prefix, semaphore.as_str())
            .map_err(|error| self.failed(error))?;
        let Some(text) = stored else { return Ok(None) };
        let state = read_state(semaphore.as_str(), &text)?;
        let mut lanes = BTreeSet::new();
        let first_of_a_lane = state.queue.iter().filter(|(_, holder)| {
            let ours = state.entries.get(holder).filter(|entry| entry.session == *session);
            ours.is_some_and(|entry| lanes.insert(&entry.terms.lane))
        });
        Ok(first_of_a_lane.map(|(ticket, holder)| state.position(holder, *ticket)).min())
    }

    fn path(&self) -> &Path {
        self.file.paths.named()
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        sqlite_error(self.path(), &error)
    }
}

/// The store loses no state while the machine is up, so it never recovers.
fn clock(now_us: i64) -> ServerClock<'static> {
    ServerClock { now_us: u64::try_from(now_us).unwrap_or_default(), run_id: "local", uptime_ms: u64::MAX }
}

fn another_machine(path: &Path) -> StoreError {
    let reason = format!("another machine uses {} too: share a server instead", path.display());
    StoreError::Unsupported { reason }
}

fn read_state(name: &str, text: &str) -> Result<State, StoreError> {
    let unreadable = |reason| StoreError::Unreadable { semaphore: name.to_owned(), reason };
    let state: State = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    state.check_invariants().map_err(unreadable)?;
    Ok(state)
}
