//! The files of all semaphores: which semaphores are in use, and the removal of files that are no longer
//! needed.

use std::fs;
use std::path::Path;

use super::directory::{Directory, Paths, is_lasting, lasting_beside};
use super::machine;
use super::mailbox;
use super::record::{Fault, Record, Stamp};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::protocol::Name;

/// How many files a sweep reads, at most.
const SWEEP_FILES: usize = 256;

/// Lists the semaphores of this prefix that are in use or do not expire, and those that cannot be read.
pub(crate) fn list(directory: &Directory) -> Result<Vec<Name>, StoreError> {
    let mut names = directory.semaphores().map_err(|error| directory.failed(&error))?;
    names.retain(|name| is_listed(directory, name));
    Ok(names)
}

fn is_listed(directory: &Directory, name: &Name) -> bool {
    let Paths { state, lasting } = directory.paths(name);
    [state, lasting].iter().any(|path| {
        match directory.open_to_read(path).map(|file| file.map(|file| Record::look(&file))) {
            Ok(None | Some(Ok(Ok(None)))) => false,
            Ok(Some(Ok(Ok(Some(record))))) => !is_over(directory, &record.stamp, path),
            Ok(Some(Ok(Err(Fault::Text(record))))) if is_forgotten(directory, &record, path) => false,
            Ok(Some(Ok(Err(_)) | Err(_))) | Err(_) => true,
        }
    })
}

/// Returns true if the text of a file does not count, because it is the state of an earlier boot.
fn is_forgotten(directory: &Directory, record: &Record, path: &Path) -> bool {
    record.stamp.boot != directory.boot.id && !is_lasting(path)
}

/// Returns true if nothing in a file with this stamp counts any more.
fn is_over(directory: &Directory, stamp: &Stamp, path: &Path) -> bool {
    let is_current = stamp.boot == directory.boot.id;
    let base_us = if is_current { stamp.base_us } else { directory.base_us };
    let now_ms = (base_us + directory.boot.elapsed_us()).max(stamp.last_us) / 1000;
    !is_current && !is_lasting(path) || stamp.expires_ms <= u64::try_from(now_ms).unwrap_or_default()
}

/// Deletes the files of idle semaphores, and the pipes of sessions that were killed.
pub(super) fn sweep(directory: &Directory) {
    let _ = mailbox::leftovers(directory, true);
    let Ok(mut files) = directory.texts() else { return };
    if files.len() > SWEEP_FILES {
        let first = fastrand::usize(..files.len());
        files.rotate_left(first);
        files.truncate(SWEEP_FILES);
    }
    for path in files {
        let record = |file: &fs::File| match Record::read(file).ok()? {
            Ok(record) => Some(record),
            Err(Fault::Text(record)) if is_forgotten(directory, &record, &path) => Some(Some(record)),
            Err(_) => None,
        };
        // A file without a record comes from a command that was killed, or had no room.
        let is_idle = |record: &Option<Record>| {
            record.as_ref().is_none_or(|record| is_over(directory, &record.stamp, &path))
        };
        let Ok(Some(file)) = directory.open_to_read(&path) else { continue };
        if !record(&file).is_some_and(|record| is_idle(&record)) {
            continue;
        }
        // Do not wait for the lock: if another process has it, the file is in use. Keep the lock until the
        // file is deleted, so that no command is lost.
        let Ok(Some(locked)) = directory.lock_existing(&path, Moment::now()) else { continue };
        let Some(record) = record(&locked).filter(is_idle) else { continue };
        let is_free = |record: &Record| machine::check_file(directory, &path, &locked, record).is_ok();
        if !record.as_ref().is_none_or(is_free) {
            continue;
        }
        if let Some(record) = &record
            && directory.note_time(record.stamp.last_us, Moment::now()).is_err()
        {
            continue;
        }
        if let Some(record) = record.filter(|_| !is_lasting(&path)) {
            let lasting = lasting_beside(&path);
            if record.stamp.boot == directory.boot.id {
                // If there is such a file, an operation wrote it, and was killed before its state counted.
                // Nothing has to stay: otherwise the state would not be over.
                let _ = fs::remove_file(lasting);
            } else if lasting.exists() {
                // The state has the time of the last grant, which may be later than the time in the part that
                // stays.
                continue;
            }
        }
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Writing;
    use super::*;

    #[test]
    fn a_sweep_deletes_what_is_over_and_nothing_else() {
        let place = tempfile::TempDir::new().expect("there is room");
        let directory = Directory::open(place.path(), "p", Moment::now()).expect("there is room");
        let now_us = directory.base_us + directory.boot.elapsed_us();
        let (current, earlier) = (directory.boot.id, directory.boot.id ^ 1);
        let (over, ahead) = (now_us as u64 / 1000 - 1, now_us as u64 / 1000 + 3_600_000);
        let write_at = |name: &str, lasts: bool, boot, expires_ms, base_us| {
            let Paths { state, lasting: stays } = directory.paths(&Name::new(name).expect("valid"));
            let file = directory.lock(if lasts { &stays } else { &state }, Moment::now()).expect("it is new");
            let stamp = Stamp { boot, base_us, last_us: 0, expires_ms };
            Record::write(&file, None, stamp, b"", Writing::Plain).expect("there is room");
        };
        let write = |name: &str, lasts, boot, expires_ms| {
            write_at(name, lasts, boot, expires_ms, directory.base_us);
        };
        write("used", false, current, ahead);
        write("idle", false, current, over);
        write("idle", true, current, u64::MAX);
        write("of an earlier boot", false, earlier, ahead);
        write("lasting", true, earlier, u64::MAX);
        write("paused until now", true, earlier, over);
        // The clock of a file continues from its first process, however the wall clock was set since.
        write_at("used, and an hour behind", false, current, over, directory.base_us - 3_600_000_000);
        write("set before a restart", false, earlier, ahead);
        write("set before a restart", true, earlier, u64::MAX);
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
        left.retain(|name| directory.paths(name).state.exists() || directory.paths(name).lasting.exists());
        let left: Vec<&str> = left.iter().map(Name::as_str).collect();
        assert_eq!(
            left,
            ["damaged", "lasting", "locked", "set before a restart", "used", "used, and an hour behind"]
        );
        drop(locked);
        assert_eq!(
            [".new-1", ".new-2", "notes"].map(|name| place.path().join(name).exists()),
            [false, true, true]
        );
    }
}
