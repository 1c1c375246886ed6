//! Another machine may use the same directory. The store is not made for that, because neither machine sees
//! the locks of the other.
//!
//! Each file names the boot in which it was last written. If that is not this boot, there are two cases. It
//! may be an earlier boot of this machine: then no process of it is alive, and all its leases have ended. Or
//! it belongs to a virtual machine that shares the directory, or to a container with a boot of its own
//! (systemd-nspawn, gVisor): then its holders are alive, and their leases count. Two signs tell:
//!
//! - A session's pipe has a reader, although nobody of this boot has used the directory. That reader runs on
//!   this kernel, as in a container.
//! - A file was written after this machine started, and its leases may not be over. An earlier boot cannot
//!   have written after that.
//!
//! The second sign needs the wall clock, which is the only clock that machines share. Assume that it was
//! behind when this machine started, as without a battery. Then files of the boot before may seem to be
//! younger than this boot. Such files are refused for a lease at most. So are the files of a container that
//! has restarted: whoever is alive writes the file once within each lease.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::clock::wall_us;
use super::directory::{Directory, MARKER, failure};
use super::mailbox;
use super::record::{Fault, Record, Stamp, Writing};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::model::State;

impl Directory {
    /// Opens the directory, and makes it and its marker if it does not exist. Waits for other processes until
    /// `deadline`.
    pub(super) fn open(path: &Path, prefix: &str, deadline: Moment) -> Result<Self, StoreError> {
        let mut directory = Self::prepare(path, prefix).map_err(|error| failure(path, &error))?;
        directory.base_us = directory.begin_boot(deadline)?;
        Ok(directory)
    }

    /// Notes in the marker that the machine has restarted, unless another process has done so, or another
    /// machine uses the directory. Returns the store's time at the start of this boot.
    pub(super) fn begin_boot(&self, deadline: Moment) -> Result<i64, StoreError> {
        let current = |marker: &Stamp| marker.boot == self.boot.id;
        if let Some(marker) = self.marker()?.filter(current) {
            return Ok(marker.base_us);
        }
        let failed = |error: io::Error| self.failed(&error);
        let file = self.lock(&self.path().join(MARKER), deadline)?;
        let before = Record::read_or_clear(&file).map_err(failed)?;
        let earlier = before.as_ref().map(|before| before.stamp);
        if let Some(made) = earlier.filter(current) {
            return Ok(made.base_us);
        }
        if earlier.is_some() {
            check(self)?;
        }
        // The wall clock may be behind the times that earlier boots have used.
        let used = stamps(self).map_err(failed)?.into_iter().chain(earlier);
        let used_us = used.map(|stamp| stamp.last_us.max(stamp.base_us)).max();
        let elapsed_us = self.boot.elapsed_us();
        let base_us = used_us.map_or(self.base_us, |used_us| self.base_us.max(used_us + 1 - elapsed_us));
        let stamp = Stamp { boot: self.boot.id, base_us, last_us: base_us + elapsed_us, expires_ms: 0 };
        Record::write(&file, before.as_ref(), stamp, b"", Writing::Plain).map_err(failed)?;
        Ok(base_us)
    }

    /// Notes the time of a file that is about to be deleted, so that the next boot begins later than that.
    pub(super) fn note_time(&self, last_us: i64, deadline: Moment) -> Result<(), StoreError> {
        if self.marker()?.is_some_and(|marker| last_us <= marker.last_us) {
            return Ok(());
        }
        let path = self.path().join(MARKER);
        let failed = |error: io::Error| failure(&path, &error);
        let note = || {
            let file = self.lock(&path, deadline)?;
            let before = Record::read_or_clear(&file).map_err(failed)?;
            let noted = Stamp { boot: self.boot.id, base_us: self.base_us, ..Stamp::default() };
            let noted = before.as_ref().map_or(noted, |before| before.stamp);
            let stamp = Stamp { last_us: last_us.max(noted.last_us), ..noted };
            Record::write(&file, before.as_ref(), stamp, b"", Writing::Plain).map_err(failed)
        };
        match note() {
            // A full disk keeps no file from being deleted. The next boot then has the wall clock alone.
            Err(StoreError::OutOfMemory { .. }) => Ok(()),
            noted => noted,
        }
    }
}

/// The stamps of all files that can be read. The others are refused when their semaphores are used.
fn stamps(directory: &Directory) -> io::Result<Vec<Stamp>> {
    let records = directory.texts()?.into_iter().filter_map(|path| {
        let file = directory.open_to_read(&path).ok()??;
        match Record::look(&file).ok()? {
            Ok(record) => record,
            Err(Fault::Text(record)) => Some(record),
            Err(_) => None,
        }
    });
    Ok(records.map(|record| record.stamp).collect())
}

/// Nobody of this boot has used the directory yet. Refuses it if another machine uses it.
pub(crate) fn check(directory: &Directory) -> Result<(), StoreError> {
    let failed = |error: io::Error| directory.failed(&error);
    if mailbox::has_reader(directory).map_err(failed)? {
        return Err(another(directory, "a program there has a session open"));
    }
    for path in directory.texts().map_err(failed)? {
        // A file that cannot be read is refused later, when its semaphore is used.
        let Ok(Some(file)) = directory.open_to_read(&path) else { continue };
        if let Ok(Ok(Some(record))) = Record::look(&file) {
            check_file(directory, &path, &file, &record)?;
        }
    }
    Ok(())
}

/// Refuses a file that another machine uses.
pub(super) fn check_file(
    directory: &Directory,
    path: &Path,
    file: &File,
    record: &Record,
) -> Result<(), StoreError> {
    match in_use_us(directory, file, record).map_err(|error| failure(path, &error))? {
        None => Ok(()),
        Some(left_us) => {
            let name = path.file_name().unwrap_or_default().display();
            let seconds = left_us / 1_000_000 + 1;
            Err(another(
                directory,
                &format!(
                    "{name} was written there; if all of its programs have ended, try again in {seconds} s"
                ),
            ))
        }
    }
}

/// The error for a directory that another machine uses.
pub(super) fn another(directory: &Directory, sign: &str) -> StoreError {
    let place = directory.path().display();
    let reason = format!(
        "another machine, or a container with a boot of its own, uses {place} too ({sign}): share a server instead"
    );
    StoreError::Unsupported { reason }
}

/// Returns true if a file was last written before the machine has started.
pub(super) fn is_older(directory: &Directory, file: &File) -> bool {
    changed_us(file).is_ok_and(|changed_us| changed_us <= directory.boot.started_us())
}

/// The time of the last write, by the wall clock.
fn changed_us(file: &File) -> io::Result<i64> {
    let metadata = file.metadata()?;
    Ok(metadata.mtime().saturating_mul(1_000_000) + metadata.mtime_nsec() / 1000)
}

/// The time, in microseconds, for which a file may still have holders or waiters of another machine.
fn in_use_us(directory: &Directory, file: &File, record: &Record) -> io::Result<Option<i64>> {
    let Stamp { boot, last_us, .. } = record.stamp;
    if boot == directory.boot.id {
        return Ok(None);
    }
    let changed_us = changed_us(file)?;
    // A write that was cut off also sets the file's time. The store's time may be ahead of that.
    let written_us = changed_us.min(last_us);
    if written_us <= directory.boot.started_us() {
        return Ok(None);
    }
    // The state is on the line after the name. If it cannot be read, it has no holders.
    let text = record.text.splitn(3, |byte| *byte == b'\n').nth(1).unwrap_or_default();
    let state: Option<State> = serde_json::from_slice(text).ok();
    let deadlines_ms =
        state.iter().flat_map(|state| &state.leases).map(|(deadline, _)| deadline.saturating_abs());
    let Some(last_ms) = deadlines_ms.max() else { return Ok(None) };
    let lease_us = last_ms.saturating_mul(1000).saturating_sub(last_us);
    let left_us = written_us.saturating_add(lease_us).saturating_sub(wall_us());
    // If the clock was set back, the difference says nothing.
    Ok((0 < left_us && left_us <= lease_us.saturating_mul(2)).then_some(left_us))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::local::semaphores;
    use crate::protocol::{
        AcquireRequest, Command, Declaration, Holder, Name, Operation, PermitTerms, Recovery, RequestId,
        SessionId,
    };

    /// The machine restarts in no time, or its holders have long leases.
    #[test]
    fn a_file_that_was_written_before_the_start_is_of_an_earlier_boot() {
        let place = tempfile::TempDir::new().expect("there is room");
        let mut directory = Directory::open(place.path(), "p", Moment::now()).expect("there is room");
        let request = AcquireRequest::new(
            Holder::new("holder").expect("valid"),
            RequestId::new("session.1").expect("valid"),
            PermitTerms::new(1, 3_600_000),
        );
        let command = Command {
            semaphore: Name::new("s").expect("valid"),
            session: SessionId::new("session").expect("valid"),
            lease_ms: 3_600_000,
            recovery: Recovery::Off,
            declaration: Declaration::Declare(1),
            operation: Operation::Acquire { queue_max: 0, requests: vec![request] },
        };
        semaphores::execute(&directory, &command, &command.session, Moment::now()).expect("there is room");
        let file = File::open(directory.paths(&command.semaphore).state).expect("it was made");
        let record =
            Record::read(&file).expect("it can be read").expect("it is sound").expect("it was written");
        let in_use =
            |directory: &Directory| in_use_us(directory, &file, &record).expect("it is open").is_some();
        assert!(!in_use(&directory), "it is of this boot");
        directory.boot.id += 1;
        assert!(in_use(&directory), "it was written since the start");
        directory.boot.restart();
        assert!(!in_use(&directory), "it was written before the start");
    }
}
