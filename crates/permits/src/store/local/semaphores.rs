//! Commands on the semaphores of a directory: under the lock of a semaphore's file, the model.
//!
//! The messages to other sessions are sent before the new state counts. A process that dies between the two
//! leaves a message too many and never one too few. So a reader looks, once the sender has unlocked the file,
//! whether what it says has happened.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::directory::{Directory, Paths, failure, is_kept, kept_beside};
use super::mailbox::{self, Message};
use super::record::{Fault, Mark, Prepared, Record, Stamp, Writing};
use crate::clock::Moment;
use crate::model::{self, EntryState, ServerClock, State};
use crate::protocol::{
    Answers, Command, DeleteOutcome, Event, EventKind, Name, Operation, Reply, SessionId, layout,
};
use crate::store::error::StoreError;

/// The average number of commands between two sweeps, and the most files that a sweep reads.
const SWEEP_EVERY: u32 = 256;
const SWEEP_FILES: usize = 256;

/// The attempts of a look to read a file while others write it.
const LOOKS: u32 = 100;

/// The state of a semaphore, as its files have it.
struct Loaded {
    state: Option<State>,
    /// The content of the file of the state, of whichever boot.
    record: Option<Record>,
    /// The clock of the file, or of a new one.
    base_us: i64,
    last_us: i64,
}

/// Executes a command. Waits for other processes until `deadline`. Returns the reply, and the messages for
/// `session` itself.
pub(super) fn execute(
    directory: &Directory,
    command: &Command,
    session: &SessionId,
    deadline: Moment,
) -> Result<(Reply, Vec<Message>), StoreError> {
    if command.only_looks() {
        return Ok((look(directory, command)?, Vec::new()));
    }
    let executed = write(directory, command, session, deadline)?;
    if fastrand::u32(..SWEEP_EVERY) == 0 {
        sweep(directory);
    }
    Ok(executed)
}

fn write(
    directory: &Directory,
    command: &Command,
    session: &SessionId,
    deadline: Moment,
) -> Result<(Reply, Vec<Message>), StoreError> {
    let (semaphore, operation) = (&command.semaphore, &command.operation);
    let paths = directory.paths(semaphore);
    let file = directory.lock(&paths.state, deadline)?;
    let read = load(directory, semaphore, &file, &paths);
    let discards = matches!(read, Err(StoreError::Unreadable { .. } | StoreError::OtherLayout { .. }))
        && *operation == (Operation::Delete { unreadable: true });
    let Loaded { mut state, record, base_us, last_us } =
        if discards { Loaded::new(directory) } else { read? };
    // The time is read under the lock, so that it rises from one command to the next.
    let now_us = (base_us + directory.boot.elapsed_us()).max(last_us + 1);
    let server = clock(now_us);
    let keepable = model::keepable_limit(state.as_ref(), server.now_us);
    let (mut reply, events) = model::apply(&mut state, &server, command);
    if discards {
        reply.answers = Answers::Delete(DeleteOutcome::Deleted);
    }
    let failed = |error| failure(&paths.state, &error);
    let expires_ms =
        state.as_ref().map_or(0, |state| if state.is_kept() { u64::MAX } else { state.expires_ms });
    let stamp = Stamp { boot: directory.boot.id, base_us, last_us: now_us, expires_ms };
    if lasts(operation) || state.is_none() {
        keep(directory, command, state.as_ref(), stamp, deadline)?;
    }
    let takes_room = matches!(operation, Operation::Acquire { .. });
    let writing = if takes_room { Writing::LeavesRoom } else { Writing::Plain };
    let text = state.as_ref().map(|state| text(directory, semaphore, state)).transpose()?;
    let prepare = |text: Vec<u8>| Record::prepare(&file, record.as_ref(), stamp, &text, writing);
    let half = text.map(prepare).transpose().map_err(failed)?;
    let mut messages: BTreeMap<SessionId, Vec<Message>> = BTreeMap::new();
    for event in events {
        let of_session = messages.entry(event.session.clone()).or_default();
        of_session.push(Message::Event(event, half.as_ref().map(Prepared::mark)));
    }
    if model::recalls(keepable, state.as_ref(), &reply, server.now_us) {
        for keeper in state.iter().flat_map(State::keepers) {
            messages.entry(keeper.clone()).or_default().push(Message::Recall(semaphore.clone()));
        }
    }
    let own = messages.remove(session).unwrap_or_default();
    // As late as possible, because the readers wait for the lock.
    for (to, messages) in &messages {
        mailbox::send(directory, to, messages);
    }
    match half {
        Some(half) => half.count().map_err(failed)?,
        None => fs::remove_file(&paths.state).map_err(failed)?,
    }
    Ok((reply, own))
}

/// A semaphore after all commands that messages have announced, to check which of these events have come to
/// pass: a process may have died before the half that has its event counted.
#[derive(Default)]
pub(super) struct Seen {
    mark: Option<Mark>,
    text: Vec<u8>,
    /// The state in the text, once it was needed. With thousands of waiters that takes milliseconds.
    state: Option<Option<State>>,
}

impl Seen {
    /// Reads a semaphore when the commands that have begun are over. Waits for them until `deadline`.
    pub(super) fn of(directory: &Directory, semaphore: &Name, deadline: Moment) -> Result<Self, StoreError> {
        let paths = directory.paths(semaphore);
        let Some(file) = directory.lock_existing(&paths.state, deadline)? else { return Ok(Self::default()) };
        let record = read(semaphore, &file, &paths.state)?;
        let record = record.filter(|record| record.stamp.boot == directory.boot.id);
        Ok(record.map_or_else(Self::default, |Record { mark, text, .. }| Self {
            mark: Some(mark),
            text,
            state: None,
        }))
    }

    /// Returns true if an event that `half` has came to pass, and nothing has undone it.
    pub(super) fn has(
        &mut self,
        directory: &Directory,
        event: &Event,
        half: Option<Mark>,
    ) -> Result<bool, StoreError> {
        if half.is_some() && self.mark == half {
            return Ok(true);
        }
        // Another command has followed.
        if self.state.is_none() {
            let state = || state(directory, &event.semaphore, &self.text);
            self.state = Some(self.mark.is_some().then(state).transpose()?);
        }
        let entry = self.state.iter().flatten().find_map(|state| state.entries.get(&event.holder));
        let place = entry.filter(|entry| entry.request == event.request).map(|entry| &entry.place);
        Ok(match (&event.kind, place) {
            (EventKind::Granted(grant), Some(EntryState::Holding(held))) => held == grant,
            (EventKind::Granted(_), _) => false,
            // A look without a result is harmless.
            (EventKind::Turn(_), _) => true,
            (
                EventKind::Revoked(_) | EventKind::Refused | EventKind::Superseded | EventKind::LineClosed(_),
                place,
            ) => !matches!(place, Some(EntryState::Waiting(_) | EntryState::Holding(_))),
        })
    }
}

/// The reply to a command that only reads. It waits for no lock, and needs no room on the disk.
fn look(directory: &Directory, command: &Command) -> Result<Reply, StoreError> {
    let Loaded { mut state, base_us, last_us, .. } = loaded(directory, &command.semaphore)?;
    let now_us = (base_us + directory.boot.elapsed_us()).max(last_us);
    Ok(model::apply(&mut state, &clock(now_us), command).0)
}

/// Reads the files of a semaphore, as an inspection does and as the first command after a restart of the
/// machine.
pub(crate) fn check(directory: &Directory, semaphore: &Name) -> Result<(), StoreError> {
    loaded(directory, semaphore)?;
    with_kept(directory, semaphore, &directory.paths(semaphore)).map(drop)
}

/// Reads a semaphore's state without a lock.
fn loaded(directory: &Directory, semaphore: &Name) -> Result<Loaded, StoreError> {
    let paths = directory.paths(semaphore);
    let mut tries = 0;
    loop {
        let loaded = match directory.open_to_read(&paths.state) {
            Ok(Some(file)) => load(directory, semaphore, &file, &paths),
            Ok(None) => with_kept(directory, semaphore, &paths),
            Err(error) => Err(error),
        };
        tries += 1;
        // Others may have written twice since the headers were read.
        if tries == LOOKS || !matches!(loaded, Err(StoreError::Unreadable { .. })) {
            return loaded;
        }
    }
}

/// The semaphores of this prefix that are in use or kept, and those that cannot be read.
pub(crate) fn list(directory: &Directory) -> Result<Vec<Name>, StoreError> {
    let mut names = directory.semaphores().map_err(|error| directory.failed(&error))?;
    names.retain(|name| is_listed(directory, name));
    Ok(names)
}

fn is_listed(directory: &Directory, name: &Name) -> bool {
    let Paths { state, kept } = directory.paths(name);
    [state, kept].iter().any(|path| {
        match directory.open_to_read(path).map(|file| file.map(|file| Record::read(&file))) {
            Ok(None | Some(Ok(Ok(None)))) => false,
            Ok(Some(Ok(Ok(Some(record))))) => !is_over(directory, &record.stamp, path),
            Ok(Some(Ok(Err(_)) | Err(_))) | Err(_) => true,
        }
    })
}

/// Returns true if a file with this stamp has nothing left that counts.
fn is_over(directory: &Directory, stamp: &Stamp, path: &Path) -> bool {
    let is_current = stamp.boot == directory.boot.id;
    let base_us = if is_current { stamp.base_us } else { directory.base_us };
    let now_ms = (base_us + directory.boot.elapsed_us()).max(stamp.last_us) / 1000;
    !is_current && !is_kept(path) || stamp.expires_ms <= u64::try_from(now_ms).unwrap_or_default()
}

/// Deletes the files of idle semaphores, and those of sessions that were killed.
fn sweep(directory: &Directory) {
    let _ = mailbox::leftovers(directory, true);
    let Ok(mut files) = directory.texts() else { return };
    if files.len() > SWEEP_FILES {
        let first = fastrand::usize(..files.len());
        files.rotate_left(first);
        files.truncate(SWEEP_FILES);
    }
    let record = |file: &fs::File| Record::read(file).ok().and_then(Result::ok);
    for path in files {
        // One without a record is of a command that was killed, or had no room.
        let is_idle = |record: &Option<Record>| {
            record.as_ref().is_none_or(|record| is_over(directory, &record.stamp, &path))
        };
        let Ok(Some(file)) = directory.open_to_read(&path) else { continue };
        if !record(&file).is_some_and(|record| is_idle(&record)) {
            continue;
        }
        // Without a wait: another process uses it. Locked until it is deleted, so that no command is lost.
        let Ok(Some(locked)) = directory.lock_existing(&path, Moment::now()) else { continue };
        let Some(record) = record(&locked).filter(is_idle) else { continue };
        if !is_kept(&path) && record.is_some_and(|record| record.stamp.boot == directory.boot.id) {
            // Of an operation that was killed before its state counted: nothing stays, or the state would.
            let _ = fs::remove_file(kept_beside(&path));
        }
        let _ = fs::remove_file(path);
    }
}

impl Loaded {
    /// Of a semaphore without a file.
    fn new(directory: &Directory) -> Self {
        Self { state: None, record: None, base_us: directory.base_us, last_us: 0 }
    }

    /// Makes its time later than an earlier one.
    fn begin_after(&mut self, earlier_us: i64, directory: &Directory) {
        self.base_us = self.base_us.max(earlier_us + 1 - directory.boot.elapsed_us());
    }
}

/// Reads a semaphore's state.
fn load(
    directory: &Directory,
    semaphore: &Name,
    file: &fs::File,
    paths: &Paths,
) -> Result<Loaded, StoreError> {
    let Some(record) = read(semaphore, file, &paths.state)? else {
        return with_kept(directory, semaphore, paths);
    };
    let Stamp { boot, base_us, last_us, .. } = record.stamp;
    if boot == directory.boot.id {
        let state = Some(state(directory, semaphore, &record.text)?);
        return Ok(Loaded { state, record: Some(record), base_us, last_us });
    }
    if directory.marker()?.is_some_and(|marker| marker.boot != directory.boot.id) {
        let reason =
            format!("another machine uses {} too: share a server instead", directory.path().display());
        return Err(StoreError::Unsupported { reason });
    }
    // Of before a restart of the machine.
    let mut loaded = with_kept(directory, semaphore, paths)?;
    loaded.begin_after(last_us, directory);
    loaded.record = Some(record);
    Ok(loaded)
}

/// The part of a semaphore that has stayed after a restart of the machine, or the loss of its file.
fn with_kept(directory: &Directory, semaphore: &Name, paths: &Paths) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::new(directory);
    let Some(file) = directory.open_to_read(&paths.kept)? else { return Ok(loaded) };
    if let Some(record) = read(semaphore, &file, &paths.kept)? {
        loaded.begin_after(record.stamp.last_us, directory);
        loaded.state = Some(state(directory, semaphore, &record.text)?);
    }
    Ok(loaded)
}

/// Writes what stays of a state after a restart of the machine, and waits for the disk.
fn keep(
    directory: &Directory,
    command: &Command,
    state: Option<&State>,
    stamp: Stamp,
    deadline: Moment,
) -> Result<(), StoreError> {
    let kept = directory.paths(&command.semaphore).kept;
    let failed = |error| failure(&kept, &error);
    let Some(mut state) = state.filter(|state| state.is_kept() || state.is_paused()).cloned() else {
        return match fs::remove_file(&kept) {
            Ok(()) => directory.sync().map_err(failed),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        };
    };
    state.clear_entries();
    let text = text(directory, &command.semaphore, &state)?;
    // The file of the state is locked, so only a sweep can have it.
    let file = directory.lock(&kept, deadline)?;
    // A damaged one is replaced.
    let before = Record::read(&file).map_err(failed)?.unwrap_or_default();
    Record::write(&file, before.as_ref(), stamp, &text, Writing::Lasting).map_err(failed)?;
    if before.is_none() { directory.sync().map_err(failed) } else { Ok(()) }
}

/// Returns true if an operation changes what outlasts a restart of the machine.
fn lasts(operation: &Operation) -> bool {
    match operation {
        Operation::Delete { .. } => true,
        Operation::Revoke { .. } => false,
        _ => operation.origin().is_some(),
    }
}

fn read(semaphore: &Name, file: &fs::File, path: &Path) -> Result<Option<Record>, StoreError> {
    Record::read(file).map_err(|error| failure(path, &error))?.map_err(|fault| match fault {
        Fault::OtherLayout(found) => {
            let what = path.display().to_string();
            StoreError::OtherLayout { what, found, supported: layout().into() }
        }
        Fault::Unreadable(reason) => unreadable(semaphore, format!("{}: {reason}", path.display())),
    })
}

fn state(directory: &Directory, semaphore: &Name, text: &[u8]) -> Result<State, StoreError> {
    let key = directory.key(semaphore);
    let Some(json) = text.strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n")) else {
        return Err(unreadable(semaphore, "its file is of another semaphore".into()));
    };
    let state: State =
        serde_json::from_slice(json).map_err(|error| unreadable(semaphore, error.to_string()))?;
    state.check_invariants().map_err(|reason| unreadable(semaphore, reason))?;
    Ok(state)
}

fn text(directory: &Directory, semaphore: &Name, state: &State) -> Result<Vec<u8>, StoreError> {
    let mut text = directory.key(semaphore).into_bytes();
    text.push(b'\n');
    serde_json::to_writer(&mut text, state)
        .map_err(|error| StoreError::Rejected { reason: error.to_string() })?;
    Ok(text)
}

fn unreadable(semaphore: &Name, reason: String) -> StoreError {
    StoreError::Unreadable { semaphore: semaphore.to_string(), reason }
}

/// The store loses no state while the machine is up, so it never recovers.
fn clock(now_us: i64) -> ServerClock<'static> {
    ServerClock { now_us: u64::try_from(now_us).unwrap_or_default(), run_id: "local", uptime_ms: u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_deletes_what_is_over_and_nothing_else() {
        let place = tempfile::TempDir::new().expect("there is room");
        let directory = Directory::open(place.path(), "p", Moment::now()).expect("there is room");
        let now_us = directory.base_us + directory.boot.elapsed_us();
        let (current, earlier) = (directory.boot.id, directory.boot.id ^ 1);
        let (over, ahead) = (now_us as u64 / 1000 - 1, now_us as u64 / 1000 + 3_600_000);
        let write = |name: &str, kept: bool, boot, expires_ms| {
            let Paths { state, kept: stays } = directory.paths(&Name::new(name).expect("valid"));
            let file = directory.lock(if kept { &stays } else { &state }, Moment::now()).expect("it is new");
            let stamp = Stamp { boot, base_us: directory.base_us, last_us: 0, expires_ms };
            Record::write(&file, None, stamp, b"", Writing::Plain).expect("there is room");
        };
        write("used", false, current, ahead);
        write("idle", false, current, over);
        write("idle", true, current, u64::MAX);
        write("of an earlier boot", false, earlier, ahead);
        write("kept", true, earlier, u64::MAX);
        write("paused until now", true, earlier, over);
        fs::write(place.path().join("p:damaged.state"), "?").expect("there is room");
        for (name, age_s) in [(".new-1", 3600), (".new-2", 0), ("notes", 3600)] {
            let file = fs::File::create(place.path().join(name)).expect("there is room");
            let changed = std::time::SystemTime::now() - std::time::Duration::from_secs(age_s);
            file.set_modified(changed).expect("it is ours");
        }
        let locked = directory.paths(&Name::new("locked").expect("valid")).state;
        write("locked", false, current, over);
        let locked = directory.lock(&locked, Moment::now()).expect("it is there");
        sweep(&directory);
        let mut left: Vec<_> = directory.semaphores().expect("it can be read");
        left.retain(|name| directory.paths(name).state.exists() || directory.paths(name).kept.exists());
        assert_eq!(left.iter().map(Name::as_str).collect::<Vec<_>>(), ["damaged", "kept", "locked", "used"]);
        drop(locked);
        assert_eq!(
            [".new-1", ".new-2", "notes"].map(|name| place.path().join(name).exists()),
            [false, true, true]
        );
    }
}
