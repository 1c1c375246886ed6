//! Another machine that uses the same directory, for which it is not made: neither sees the locks of the other.
//!
//! Each file has the boot in which it was last written. Another boot is an earlier one of this machine, or it
//! is of another machine: of a virtual machine that shares the directory, or of a container with a boot of its
//! own (systemd-nspawn, gVisor). In an earlier boot nobody is alive, and all leases have ended. A file of
//! another machine must not be read in this way, because its holders are alive. Two signs tell:
//!
//! - A pipe of a session has a reader, and nobody of this boot has used the directory. The reader runs on
//!   this kernel, as in a container.
//! - A file has holders or waiters, was written after this machine started, and their leases may not be over.
//!   An earlier boot wrote nothing after that.
//!
//! The second sign needs the wall clock, which is the only clock that machines share. Assume that it was
//! behind when this machine started, as without a battery. Then files of the boot before may seem to be
//! younger than this boot. They are refused for a lease at most, as are those of a container that has
//! restarted: whoever is alive writes the file once within each lease.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::clock::wall_us;
use super::directory::{Directory, MARKER, failure};
use super::mailbox;
use super::record::{Record, Stamp, Writing};
use crate::clock::Moment;
use crate::model::State;
use crate::store::error::StoreError;

impl Directory {
    /// Makes the directory if there is none, and its marker. Waits for other processes until `deadline`.
    pub(super) fn open(path: &Path, prefix: &str, deadline: Moment) -> Result<Self, StoreError> {
        let mut directory = Self::prepare(path, prefix).map_err(|error| failure(path, &error))?;
        directory.base_us = directory.begin_boot(deadline)?;
        Ok(directory)
    }

    /// Notes in the marker that the machine has restarted, unless another process has, or another machine uses
    /// the directory. Returns the store's time at the start of this boot.
    fn begin_boot(&self, deadline: Moment) -> Result<i64, StoreError> {
        let current = |marker: &Stamp| marker.boot == self.boot.id;
        if let Some(marker) = self.marker()?.filter(current) {
            return Ok(marker.base_us);
        }
        let failed = |error: io::Error| self.failed(&error);
        let file = self.lock(&self.path().join(MARKER), deadline)?;
        let before = Record::read(&file).map_err(failed)?.unwrap_or_default();
        let earlier = before.as_ref().map(|before| before.stamp);
        if let Some(made) = earlier.filter(current) {
            return Ok(made.base_us);
        }
        if earlier.is_some() {
            check(self)?;
        }
        let base_us = self.base_us.max(earlier.map_or(i64::MIN, |earlier| earlier.base_us));
        let stamp = Stamp { boot: self.boot.id, base_us, ..Stamp::default() };
        Record::write(&file, before.as_ref(), stamp, b"", Writing::Plain).map_err(failed)?;
        Ok(base_us)
    }
}

/// Refuses the directory, which nobody of this boot has used yet, if another machine uses it.
pub(crate) fn check(directory: &Directory) -> Result<(), StoreError> {
    let failed = |error: io::Error| directory.failed(&error);
    if mailbox::has_reader(directory).map_err(failed)? {
        return Err(another(directory, "a program there has a session open"));
    }
    for path in directory.texts().map_err(failed)? {
        let Some(file) = directory.open_to_read(&path)? else { continue };
        // What cannot be read is refused when its semaphore is used.
        if let Ok(Some(record)) = Record::look(&file).map_err(|error| failure(&path, &error))? {
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

/// The refusal of a directory.
pub(super) fn another(directory: &Directory, sign: &str) -> StoreError {
    let place = directory.path().display();
    let reason = format!(
        "another machine, or a container with a boot of its own, uses {place} too ({sign}): share a server instead"
    );
    StoreError::Unsupported { reason }
}

/// The microseconds for which a file may have holders or waiters of another machine.
fn in_use_us(directory: &Directory, file: &File, record: &Record) -> io::Result<Option<i64>> {
    let Stamp { boot, last_us, .. } = record.stamp;
    let text = record.text.splitn(3, |byte| *byte == b'\n').nth(1);
    let state = || serde_json::from_slice::<State>(text?).ok().filter(|state| !state.entries.is_empty());
    if boot == directory.boot.id {
        return Ok(None);
    }
    let metadata = file.metadata()?;
    let changed_us = metadata.mtime().saturating_mul(1_000_000) + metadata.mtime_nsec() / 1000;
    // The system's time of the file is also that of a write that was cut off. The store's time may be ahead.
    let written_us = changed_us.min(last_us);
    if written_us <= directory.boot.started_us() {
        return Ok(None);
    }
    let Some(state) = state() else { return Ok(None) };
    let lease_us = i64::try_from(state.lease_max_ms).unwrap_or(i64::MAX).saturating_mul(1000);
    let left_us = written_us.saturating_add(lease_us).saturating_sub(wall_us());
    // A clock that was set back says nothing.
    Ok((0 < left_us && left_us <= lease_us.saturating_mul(2)).then_some(left_us))
}
