//! Executes commands on the semaphores of a directory: under the lock of a semaphore's file, it runs the
//! model.
//!
//! Messages to other sessions are sent before the new state counts. So if a process dies between the two,
//! there is a message too many, and never one too few. The reader of a message therefore checks, once the
//! sender has unlocked the file, whether its event has happened.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;

use super::content::{parse, read, state, text};
use super::directory::{Directory, Paths, failure};
use super::idle;
use super::machine;
use super::mailbox::{self, Message};
use super::record::{Fault, Prepared, Record, Stamp, Writing};
use super::seen::Seen;
use super::untold::Untold;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::model::{self, ServerClock, State};
use crate::protocol::{Answers, Command, DeleteOutcome, Name, Operation, Reply, SessionId};

/// The average number of commands between two sweeps.
const SWEEP_EVERY: u32 = 256;

/// How often a reader without a lock tries to read a file while others write it.
const LOOKS: u32 = 100;

/// The state of a semaphore, as its files have it.
struct Loaded {
    state: Option<State>,
    untold: Untold,
    /// The content of the state's file, whichever boot wrote it.
    record: Option<Record>,
    /// The clock of the file. If there is no file, the clock of a new one.
    base_us: i64,
    last_us: i64,
}

/// A command that was executed.
pub(super) struct Done {
    pub(super) reply: Reply,
    /// The messages for the session that has sent the command.
    pub(super) messages: Vec<Message>,
    /// The semaphore as the command found it under the lock; `None` if it took no lock.
    pub(super) before: Option<Seen>,
}

/// Executes a command. Waits for other processes until `deadline`.
pub(super) fn execute(
    directory: &Directory,
    command: &Command,
    session: &SessionId,
    deadline: Moment,
) -> Result<Done, StoreError> {
    if command.only_looks() {
        return Ok(Done { reply: look(directory, command)?, messages: Vec::new(), before: None });
    }
    let executed = write(directory, command, session, deadline)?;
    if fastrand::u32(..SWEEP_EVERY) == 0 {
        idle::sweep(directory);
    }
    Ok(executed)
}

fn write(
    directory: &Directory,
    command: &Command,
    session: &SessionId,
    deadline: Moment,
) -> Result<Done, StoreError> {
    let (semaphore, operation) = (&command.semaphore, &command.operation);
    let paths = directory.paths(semaphore);
    let file = directory.lock(&paths.state, deadline)?;
    let read = load(directory, semaphore, &file, &paths);
    let discards = matches!(read, Err(StoreError::Unreadable { .. } | StoreError::OtherLayout { .. }))
        && *operation == (Operation::Delete { unreadable: true });
    let Loaded { mut state, mut untold, record, base_us, last_us } =
        if discards { Loaded::new(directory) } else { read? };
    // Read the time under the lock, so that it rises from one command to the next.
    let now_us = (base_us + directory.boot.elapsed_us()).max(last_us + 1);
    let server = clock(now_us);
    let keepable = model::keepable_limit(state.as_ref(), server.now_us);
    let (mut reply, events) = model::apply(&mut state, &server, command);
    if discards {
        reply.answers = Answers::Delete(DeleteOutcome::Deleted);
    }
    let mut told = untold.take(session, semaphore, server.now_us / 1000);
    let failed = |error| failure(&paths.state, &error);
    let expires_ms =
        state.as_ref().map_or(0, |state| if state.never_expires() { u64::MAX } else { state.expires_ms });
    let stamp = Stamp { boot: directory.boot.id, base_us, last_us: now_us, expires_ms };
    let takes_room = matches!(operation, Operation::Acquire { .. });
    let writing = if takes_room { Writing::LeavesRoom } else { Writing::Plain };
    let prepare =
        |text: &[u8], writing| Record::prepare(&file, record.as_ref(), stamp, text, writing).map_err(failed);
    let text = state.as_ref().map(|state| text(directory, semaphore, state, &untold)).transpose()?;
    let mut half = text.as_ref().map(|text| prepare(text, writing)).transpose()?;
    if state.is_none() && (record.is_some() || discards) {
        directory.note_time(now_us, deadline)?;
    }
    if lasts(operation) || state.is_none() {
        write_lasting(directory, command, state.as_ref(), stamp, deadline)?;
    }
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
    told.extend(messages.remove(session).unwrap_or_default());
    // A session that runs sends a renewal within a lease, and then hears of it.
    let until_ms = state.as_ref().map_or(0, |state| server.now_us / 1000 + state.lease_max_ms);
    let mut is_remembered = false;
    // Send the messages as late as possible, because their readers wait for the lock.
    for (to, messages) in &messages {
        for message in mailbox::send(directory, to, messages) {
            is_remembered |= untold.remember(message, until_ms);
        }
    }
    if let (true, Some(state), Some(without)) = (is_remembered, &state, &text) {
        let with = self::text(directory, semaphore, state, &untold)?;
        // If there is no room for the news, the session is not told.
        half = Some(prepare(&with, Writing::Plain).or_else(|_| prepare(without, Writing::Plain))?);
    }
    match half {
        Some(half) => half.count().map_err(failed)?,
        None => fs::remove_file(&paths.state).map_err(failed)?,
    }
    Ok(Done { reply, messages: told, before: Some(Seen::of_record(directory, record)) })
}

/// Executes a command that only reads. It waits for no lock, and needs no room on the disk.
fn look(directory: &Directory, command: &Command) -> Result<Reply, StoreError> {
    let Loaded { mut state, base_us, last_us, .. } = loaded(directory, &command.semaphore)?;
    let now_us = (base_us + directory.boot.elapsed_us()).max(last_us);
    Ok(model::apply(&mut state, &clock(now_us), command).0)
}

/// Reads the files of a semaphore, as an inspection does, and as the first command after a restart of the
/// machine does.
pub(crate) fn check(directory: &Directory, semaphore: &Name) -> Result<(), StoreError> {
    loaded(directory, semaphore)?;
    with_lasting(directory, semaphore, &directory.paths(semaphore)).map(drop)
}

/// Reads a semaphore's state without a lock.
fn loaded(directory: &Directory, semaphore: &Name) -> Result<Loaded, StoreError> {
    let paths = directory.paths(semaphore);
    let mut tries = 0;
    loop {
        let loaded = match directory.open_to_read(&paths.state) {
            Ok(Some(file)) => load(directory, semaphore, &file, &paths),
            Ok(None) => with_lasting(directory, semaphore, &paths),
            Err(error) => Err(error),
        };
        tries += 1;
        // Others may have written twice since the headers were read, which looks like damage.
        if tries == LOOKS || !matches!(loaded, Err(StoreError::Unreadable { .. })) {
            return loaded;
        }
    }
}

impl Loaded {
    /// The state of a semaphore that has no file.
    fn new(directory: &Directory) -> Self {
        Self { state: None, untold: Untold::default(), record: None, base_us: directory.base_us, last_us: 0 }
    }

    /// Moves the clock on, so that it is later than `earlier_us`.
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
    let before_restart =
        |record: &Record| record.stamp.boot != directory.boot.id && machine::is_older(directory, file);
    let record = match Record::read(file) {
        // After a restart the text does not count.
        Ok(Err(Fault::Text(record))) if before_restart(&record) => Some(record),
        _ => read(semaphore, file, &paths.state)?,
    };
    let Some(record) = record else { return with_lasting(directory, semaphore, paths) };
    let Stamp { boot, base_us, last_us, .. } = record.stamp;
    if boot == directory.boot.id {
        let (state, untold) = parse(directory, semaphore, &record.text)?;
        return Ok(Loaded { state: Some(state), untold, record: Some(record), base_us, last_us });
    }
    if directory.marker()?.is_some_and(|marker| marker.boot != directory.boot.id) {
        return Err(machine::another(directory, "it was the last that began to use it"));
    }
    machine::check_file(directory, &paths.state, file, &record)?;
    // The file was written before a restart of the machine.
    let mut loaded = with_lasting(directory, semaphore, paths)?;
    loaded.begin_after(last_us, directory);
    loaded.record = Some(record);
    Ok(loaded)
}

/// Reads what is left of a semaphore after a restart of the machine, or the loss of its file.
fn with_lasting(directory: &Directory, semaphore: &Name, paths: &Paths) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::new(directory);
    let Some(file) = directory.open_to_read(&paths.lasting)? else { return Ok(loaded) };
    if let Some(record) = read(semaphore, &file, &paths.lasting)? {
        loaded.begin_after(record.stamp.last_us, directory);
        loaded.state = Some(state(directory, semaphore, &record.text)?);
    }
    Ok(loaded)
}

/// Writes the part of a state that outlasts a restart of the machine, and waits for the disk.
fn write_lasting(
    directory: &Directory,
    command: &Command,
    state: Option<&State>,
    stamp: Stamp,
    deadline: Moment,
) -> Result<(), StoreError> {
    let lasting = directory.paths(&command.semaphore).lasting;
    let failed = |error| failure(&lasting, &error);
    let Some(mut state) = state.filter(|state| state.never_expires() || state.is_paused()).cloned() else {
        return match fs::remove_file(&lasting) {
            Ok(()) => directory.sync().map_err(failed),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        };
    };
    state.clear_entries();
    let text = text(directory, &command.semaphore, &state, &Untold::default())?;
    // The state's file is locked, so only a sweep can hold the lock of this one.
    let file = directory.lock(&lasting, deadline)?;
    let before = Record::read_or_clear(&file).map_err(failed)?;
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

/// The store loses no state while the machine is up, so it never recovers.
fn clock(now_us: i64) -> ServerClock<'static> {
    ServerClock { now_us: u64::try_from(now_us).unwrap_or_default(), run_id: "local", uptime_ms: u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        AcquireOutcome, AcquireRequest, Declaration, Holder, LimitChange, Pause, PermitTerms, Recovery,
        Refusal, RequestId, Setting,
    };

    /// A directory over several starts of the machine. With each start, the time since the start begins anew,
    /// and the wall clock is behind, as without a battery.
    struct Boots {
        place: tempfile::TempDir,
        directory: Directory,
        session: SessionId,
        made: u32,
    }

    impl Boots {
        fn first() -> Self {
            let place = tempfile::TempDir::new().expect("there is room");
            let directory = Directory::open(place.path(), "p", Moment::now()).expect("there is room");
            Self { place, directory, session: SessionId::new("session").expect("valid"), made: 0 }
        }

        fn next(&mut self) {
            let Paths { state, lasting } = self.paths();
            // The new boot has not written any file yet.
            for path in [state, lasting] {
                match fs::File::options().write(true).open(path) {
                    Ok(file) => file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("it is ours"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                }
            }
            self.directory.boot.id += 1;
            self.directory.base_us = -self.directory.boot.elapsed_us();
            self.directory.base_us = self.directory.begin_boot(Moment::now()).expect("there is room");
        }

        fn paths(&self) -> Paths {
            self.directory.paths(&Name::new("s").expect("valid"))
        }

        fn pin(&mut self, limit: u32) {
            let (origin, change) = (self.request().into(), LimitChange::Set(limit));
            self.execute(Operation::Set {
                origin,
                setting: Setting::Limit { change, expected_version: None },
            });
        }

        fn request(&mut self) -> RequestId {
            self.made += 1;
            RequestId::new(&format!("session.{}", self.made)).expect("valid")
        }

        fn execute(&self, operation: Operation) -> Answers {
            let command = Command {
                semaphore: Name::new("s").expect("valid"),
                session: self.session.clone(),
                lease_ms: 1000,
                recovery: Recovery::Off,
                declaration: Declaration::Declare(1),
                operation,
            };
            let done = execute(&self.directory, &command, &self.session, Moment::now());
            done.expect("there is room").reply.answers
        }

        fn try_once(&mut self) -> AcquireOutcome {
            let holder = Holder::new("holder").expect("valid");
            let request = AcquireRequest::new(holder, self.request(), PermitTerms::new(1, 1000));
            let request = AcquireRequest { wait: false, ..request };
            match self.execute(Operation::Acquire { queue_max: 0, requests: vec![request] }) {
                Answers::Acquire(mut outcomes) => outcomes.remove(0),
                other => panic!("it was asked for a permit: {other:?}"),
            }
        }

        /// The token of a grant.
        #[track_caller]
        fn token(&mut self) -> u64 {
            match self.try_once() {
                AcquireOutcome::Granted(grant) => grant.token,
                other => panic!("it is free: {other:?}"),
            }
        }
    }

    #[test]
    fn tokens_rise_over_a_restart_with_a_wall_clock_that_is_behind() {
        let mut boots = Boots::first();
        let tokens = [(); 3].map(|()| {
            let token = boots.token();
            boots.next();
            token
        });
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    }

    /// If an operator pins the limit first, a part of the semaphore outlasts the restart.
    #[test]
    fn tokens_rise_over_a_restart_and_a_sweep() {
        for is_pinned in [true, false] {
            let mut boots = Boots::first();
            let tokens = [40, 20, 0].map(|ms| {
                // Each boot is shorter than the one before.
                std::thread::sleep(std::time::Duration::from_millis(ms));
                if is_pinned {
                    boots.pin(1);
                }
                let token = boots.token();
                boots.next();
                idle::sweep(&boots.directory);
                assert_eq!(boots.paths().state.exists(), is_pinned);
                token
            });
            assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
        }
    }

    #[test]
    fn tokens_rise_after_a_delete_and_a_restart() {
        let mut boots = Boots::first();
        let tokens = [(); 3].map(|()| {
            let token = boots.token();
            let holder = Holder::new("holder").expect("valid");
            let origin = boots.request().into();
            boots.execute(Operation::Revoke { origin, holder, cooling: None, reason: "".into() });
            boots.execute(Operation::Delete { unreadable: false });
            assert!(!boots.paths().state.exists());
            boots.next();
            token
        });
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    }

    /// Changes a byte: the last one, of a text, unless it is named.
    fn damage(path: &std::path::Path, at: Option<usize>) {
        let mut bytes = fs::read(path).expect("it is there");
        let last = bytes.iter().rposition(|byte| *byte != 0).expect("it has a text");
        bytes[at.unwrap_or(last)] ^= 1;
        fs::write(path, bytes).expect("there is room");
    }

    /// A disk may have written the header without the text when the power was lost.
    #[test]
    fn a_damaged_state_of_an_earlier_boot_is_forgotten() {
        let mut boots = Boots::first();
        let before = boots.token();
        damage(&boots.paths().state, None);
        let path = boots.paths().state;
        let name = Name::new("s").expect("valid");
        let loaded = |boots: &Boots| {
            let file = boots.directory.open_to_read(&path).expect("it is ours").expect("it is there");
            load(&boots.directory, &name, &file, &boots.paths()).is_ok()
        };
        assert!(!loaded(&boots), "a permit of this boot may be in it");
        boots.next();
        assert!(loaded(&boots));
        assert!(before < boots.token());
        assert!(loaded(&boots));
    }

    #[test]
    fn what_is_set_replaces_a_damaged_file() {
        // The two headers.
        for at in [20, 532] {
            let mut boots = Boots::first();
            [5, 6].into_iter().for_each(|limit| boots.pin(limit));
            damage(&boots.paths().lasting, Some(at));
            boots.pin(7);
            boots.next();
            fs::remove_file(boots.paths().state).expect("it is there");
            let loaded = loaded(&boots.directory, &Name::new("s").expect("valid")).expect("it can be read");
            assert_eq!(loaded.state.map(|state| state.limit), Some(7));
        }
    }

    /// Files that are not ours are refused when their semaphores are used, and keep nobody else out.
    #[test]
    fn files_that_cannot_be_read_do_not_keep_a_boot_from_beginning() {
        let mut boots = Boots::first();
        let before = boots.token();
        let path = boots.place.path();
        std::os::unix::fs::symlink("nowhere", path.join("latest.state")).expect("there is room");
        fs::create_dir(path.join("directory.state")).expect("there is room");
        fs::write(path.join("other.lasting"), "text").expect("there is room");
        boots.next();
        assert!(before < boots.token());
    }

    /// The end of the pause is a time of the semaphore's clock, which continues after the restart. That holds
    /// even if only the part that outlasts a restart is left.
    #[test]
    fn a_pause_with_an_end_outlasts_a_restart() {
        const HOUR_MS: u64 = 3_600_000;
        for is_gone in [false, true] {
            let mut boots = Boots::first();
            let pause = Some(Pause { for_ms: Some(HOUR_MS), reason: "429".into() });
            let origin = boots.request().into();
            boots.execute(Operation::Set { origin, setting: Setting::Pause(pause) });
            boots.next();
            if is_gone {
                let state = boots.directory.paths(&Name::new("s").expect("valid")).state;
                fs::remove_file(state).expect("it is there");
            }
            let refused = boots.try_once();
            let AcquireOutcome::Refused(Refusal::Paused { remaining_ms: Some(ms) }) = refused else {
                panic!("{refused:?}, gone: {is_gone}")
            };
            assert!(ms <= HOUR_MS, "another {ms} ms, gone: {is_gone}");
        }
    }
}
