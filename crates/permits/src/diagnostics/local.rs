//! Faults of a local store's file: its users, its file system, its content, and a self-test.
//!
//! A missing file is left to the first program that needs it. The file is inspected by name or by SQLite, and
//! never opened in another way: closing it would give up the locks of every connection that this process has
//! to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::finding::Finding;
use super::self_test::{self, scratch_name};
use crate::clock::Moment;
use crate::protocol::{Name, layout};
use crate::store::local::clock::{Boot, wall_us};
use crate::store::local::connection::connect;
use crate::store::local::error::sqlite_error;
use crate::store::local::path::{self, FilePaths};
use crate::store::local::schema::{self, Format, StoredClock};
use crate::store::local::{LocalFile, busy};
use crate::store::{Address, StoreError};

/// The longest wait for another process's transaction.
const BUSY: Duration = Duration::from_secs(5);

/// The free space, in bytes, below which the disk is about to be full.
#[cfg(unix)]
const LITTLE_SPACE: u64 = 16 << 20;

/// The largest difference, in microseconds, of the store's clock and the wall clock that is fine.
const APART_US: i64 = 1_000_000;

const REFUSED: &str = "Programs refuse it too. Name another file: local:/path/semaphores.db.";

const DAMAGED: &str = "It is damaged, or was made by another program. Pinned limits and pauses are all of its content \
    that lasts: stop the programs that use it, move it away, and the next program makes a new file.";

/// The findings about `file`, which is the location at `address`.
pub(super) async fn diagnose(
    address: &Address,
    file: &LocalFile,
    prefix: &str,
    lease: Duration,
    self_test: bool,
) -> Vec<Finding> {
    let path = file.path();
    let mut findings = match fs::metadata(path) {
        Err(_) => return of_missing_file(path),
        Ok(metadata) if metadata.is_file() => of_file(path, &metadata),
        Ok(_) => {
            let observed = format!("{} is no file", path.display());
            return vec![Finding::problem("file", observed, "Name a file: local:/path/semaphores.db.")];
        }
    };
    if findings.iter().any(Finding::is_problem) {
        return findings;
    }
    findings.extend(of_content(path, prefix).unwrap_or_else(|error| vec![unreadable(&error)]));
    if !self_test || findings.iter().any(Finding::is_problem) {
        return findings;
    }
    let scratch = scratch_name();
    findings.extend(self_test::run_each_operation(address, prefix, &scratch, lease).await);
    // If this fails, the semaphore expires, and another program's sweep deletes it.
    let _ = delete(path, prefix, &scratch);
    findings
}

/// The findings about the directory in which a file can be made.
fn of_missing_file(path: &Path) -> Vec<Finding> {
    let mut existing = PathBuf::from(path::directory(path));
    while !existing.exists() && existing.pop() {}
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { &existing };
    if !existing.is_dir() {
        let observed = format!("{} cannot be made: {} is no directory", path.display(), existing.display());
        let advice = "Name a file in a directory: local:/path/semaphores.db.";
        return vec![Finding::problem("file", observed, advice)];
    }
    let missing = format!("{} is not there yet; the first program that needs it makes it", path.display());
    #[cfg(unix)]
    {
        let mut findings = vec![Finding::fine("file", missing), system::directory(existing)];
        findings.extend(system::disk(existing));
        findings
    }
    #[cfg(not(unix))]
    vec![Finding::fine("file", missing)]
}

/// The findings about the file as the system shows it, without opening it.
#[cfg_attr(not(unix), expect(unused_variables))]
fn of_file(path: &Path, metadata: &fs::Metadata) -> Vec<Finding> {
    let paths = match FilePaths::of(path) {
        Ok(paths) => paths,
        Err(error) => return vec![Finding::problem("file", format!("{}: {error}", path.display()), REFUSED)],
    };
    #[cfg(unix)]
    {
        let directory = paths.directory();
        let mut findings = vec![system::file(&paths, metadata), system::directory(directory)];
        findings.extend(system::disk(directory));
        findings
    }
    #[cfg(not(unix))]
    Vec::new()
}

/// The findings about the content of the file, which is not changed.
fn of_content(path: &Path, prefix: &str) -> Result<Vec<Finding>, StoreError> {
    let failed = |error: rusqlite::Error| sqlite_error(path, &error);
    busy::set_deadline(Moment::now() + BUSY);
    let connection = connect(path).map_err(failed)?;
    let errors: Vec<String> = connection
        .prepare("PRAGMA integrity_check(1)")
        .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect())
        .map_err(failed)?;
    if errors != ["ok"] {
        return Ok(vec![Finding::problem("contents", errors.join("; "), DAMAGED)]);
    }
    let format = Format::read(&connection).map_err(failed)?;
    if format.is_empty() {
        return Ok(vec![Finding::fine("contents", "nothing yet")]);
    }
    if !format.is_ours() {
        let advice = "Name another file: local:/path/semaphores.db.";
        return Ok(vec![Finding::problem("contents", "it is a database of another program", advice)]);
    }
    let (found, supported) = (format.layout, layout());
    if found != i64::from(supported) {
        let observed = format!("it has layout {found}, this program reads layout {supported}");
        let advice =
            "Another version of this library made it: use that version, or another file (docs/upgrading.md).";
        return Ok(vec![Finding::problem("contents", observed, advice)]);
    }
    let count: i64 = connection
        .query_row("SELECT count(*) FROM semaphores WHERE prefix = ?1", [prefix], |row| row.get(0))
        .map_err(failed)?;
    let stored = schema::clock(&connection).map_err(failed)?;
    let intact = format!("intact, layout {supported}, {count} semaphores");
    Ok(vec![Finding::fine("contents", intact), of_clock(&stored)])
}

fn unreadable(error: &StoreError) -> Finding {
    let advice = match error {
        StoreError::Unreachable { .. } => {
            "Another process keeps the file locked. fuser semaphores.db names the process."
        }
        StoreError::Unsupported { .. } | StoreError::Malformed { .. } => DAMAGED,
        _ => "Programs get the same error. Look at the file, its directory and the disk.",
    };
    Finding::problem("contents", error.to_string(), advice)
}

fn of_clock(stored: &StoredClock) -> Finding {
    let boot = match Boot::current() {
        Ok(boot) => boot,
        Err(error) => {
            let observed = format!("the system does not report when the machine started: {error}");
            let advice = "Nothing works without: the store ends the leases of before a restart of the machine by it. Is \
                          /proc mounted?";
            return Finding::problem("clock", observed, advice);
        }
    };
    if stored.boot != boot.id {
        let observed = "last used before the machine restarted: the leases of that time have ended";
        return Finding::fine("clock", observed);
    }
    let ahead_us = stored.base_us.saturating_add(boot.elapsed_us()).saturating_sub(wall_us());
    if ahead_us.abs() <= APART_US {
        return Finding::fine("clock", "counts the machine's time, and agrees with the wall clock");
    }
    let seconds = ahead_us.unsigned_abs() / 1_000_000;
    let which = if ahead_us > 0 { "ahead of" } else { "behind" };
    let advice = "The wall clock was set since the machine started. This is harmless, because leases do not depend on it.";
    Finding::note("clock", format!("{seconds} s {which} the wall clock"), advice)
}

fn delete(path: &Path, prefix: &str, semaphore: &Name) -> rusqlite::Result<usize> {
    busy::set_deadline(Moment::now() + BUSY);
    connect(path)?
        .execute("DELETE FROM semaphores WHERE prefix = ?1 AND name = ?2", (prefix, semaphore.as_str()))
}

/// The file, its directory and its disk, as the system shows them.
#[cfg(unix)]
mod system {
    use std::fs::{self, Metadata};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use rustix::fs::{Access, access, statvfs};

    use super::{FilePaths, Finding, LITTLE_SPACE};
    use crate::store::local::access;

    /// The file and its companions, as this user may use them.
    pub(super) fn file(paths: &FilePaths, metadata: &Metadata) -> Finding {
        let path = paths.file();
        let observed = shown(path, metadata);
        let shared = fs::metadata(paths.directory()).map(|directory| access::is_shared(&directory));
        match paths.check_files().and(shared) {
            Err(reason) => Finding::problem("file", observed, format!("It is refused: {reason}")),
            Ok(shared) if metadata.mode() & if shared { 0o004 } else { 0o044 } != 0 => {
                let advice = format!(
                    "Others may read it, and so see the names of semaphores and holders. If that matters: chmod {} {}",
                    if shared { 660 } else { 600 },
                    path.display()
                );
                Finding::note("file", observed, advice)
            }
            Ok(true) => Finding::fine("file", format!("{observed}; shared by the group")),
            Ok(false) => Finding::fine("file", observed),
        }
    }

    pub(super) fn directory(path: &Path) -> Finding {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => {
                let advice = "Make it, or name a file elsewhere: local:/path/semaphores.db.";
                return Finding::problem("directory", format!("{}: {error}", path.display()), advice);
            }
        };
        let observed = shown(path, &metadata);
        if let Err(error) = access(path, Access::WRITE_OK | Access::EXEC_OK) {
            let advice = "SQLite makes two more files beside a file in use, so the directory must be writable. Make it \
                          so, or name a file elsewhere: local:/path/semaphores.db.";
            return Finding::problem("directory", format!("{observed}: {error}"), advice);
        }
        if let Err(reason) = access::of_directory(&metadata) {
            let advice = format!("Two programs could use two files, and admit more than the limit: {reason}");
            return Finding::problem("directory", observed, advice);
        }
        if access::is_shared(&metadata) {
            return Finding::fine("directory", format!("{observed}; shared by its group"));
        }
        Finding::fine("directory", observed)
    }

    fn shown(path: &Path, metadata: &Metadata) -> String {
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        format!("{}, mode {mode:04o}, of user {owner} and group {group}", path.display())
    }

    /// The file system, and the free space on it.
    pub(super) fn disk(path: &Path) -> Vec<Finding> {
        let mut findings = Vec::new();
        #[cfg(target_os = "linux")]
        findings.extend(super::file_system::of_path(path));
        if let Ok(disk) = statvfs(path) {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let observed = format!("{} MiB are free", free >> 20);
            findings.push(if free < LITTLE_SPACE {
                let advice = "On a full disk, acquiring may fail, and only a few hundred permits can be renewed and \
                              released: make room, or name a file elsewhere.";
                Finding::problem("space", observed, advice)
            } else {
                Finding::fine("space", observed)
            });
        }
        findings
    }
}

/// The kinds of file systems.
#[cfg(target_os = "linux")]
mod file_system {
    use std::path::Path;

    use super::Finding;
    use crate::store::local::path::network_file_system;

    /// By the number that statfs(2) gives them.
    const FUSE: u64 = 0x6573_5546;
    const TMPFS: u64 = 0x0102_1994;

    pub(super) fn of_path(path: &Path) -> Option<Finding> {
        let kind = rustix::fs::statfs(path).ok()?.f_type;
        // The type is as wide as a pointer and may be signed. The number is in its lower 32 bits.
        Some(of_kind(kind as u64 & 0xFFFF_FFFF))
    }

    pub(super) fn of_kind(kind: u64) -> Finding {
        if let Some(name) = network_file_system(kind) {
            let advice = "Locks and shared memory do not work over a network: programs on two machines, and even on \
                          one, do not see each other, and the file is damaged. Name a file on a disk of this machine; \
                          for several machines, use Redis or Valkey.";
            return Finding::problem("filesystem", name, advice);
        }
        match kind {
            FUSE => Finding::note(
                "filesystem",
                "FUSE",
                "Locks and shared memory may work there or not, depending on the file system behind FUSE: over a \
                 network they do not.",
            ),
            TMPFS => Finding::note(
                "filesystem",
                "tmpfs, which is memory",
                "It is empty after a restart of the machine. No lease outlives a restart anyway, but limits that \
                 operators pinned are lost.",
            ),
            _ => Finding::fine("filesystem", "of this machine"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::diagnostics::finding::Severity;

    #[test]
    fn network_file_systems_are_problems() {
        for (kind, severity) in
            [(0x6969, Severity::Problem), (0xFF53_4D42, Severity::Problem), (0x6573_5546, Severity::Note)]
        {
            assert_eq!(file_system::of_kind(kind).severity, severity);
        }
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630] {
            assert_eq!(file_system::of_kind(local).severity, Severity::Fine, "{local:x}");
        }
    }

    #[test]
    fn a_difference_from_the_wall_clock_is_a_note() {
        let boot = Boot::current().expect("the system reports it");
        let of = |boot: &str, base_us: i64| of_clock(&StoredClock { boot: boot.into(), base_us, last_us: 0 });
        let base_us = wall_us() - boot.elapsed_us();
        assert_eq!(of(&boot.id, base_us).severity, Severity::Fine);
        assert_eq!(of("another", base_us + 3_600_000_000).severity, Severity::Fine);
        let ahead = of(&boot.id, base_us + 3_600_000_000);
        assert_eq!(ahead.severity, Severity::Note);
        assert!(ahead.observed.contains("ahead of"), "{}", ahead.observed);
        assert!(of(&boot.id, base_us - 3_600_000_000).observed.contains("behind"));
    }
}
