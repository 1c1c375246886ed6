//! Defects of a local store's file: users that may use it, what it lies on, what is in it, and a trial.
//!
//! A file that is not there is not made: that is left to the first program that needs it. The file is examined by name
//! or through SQLite, and never opened otherwise, because closing it would give up the locks of any connection that this
//! process has to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::clock::{Boot, wall_us};
use super::failure::failure;
use super::place::{self, Place};
use super::tables::{APPLICATION_ID, VERSION};
use crate::examine::{Finding, Severity};
use crate::protocol::Name;
use crate::store::{Address, StoreError, trial};

/// How long to wait for another process's transaction.
const BUSY: Duration = Duration::from_secs(5);

/// With less space than this, in bytes, something is about to go wrong.
#[cfg(unix)]
const LITTLE_SPACE: u64 = 16 << 20;

/// By how much the store's clock may differ from the wall clock before it is worth knowing, in microseconds.
const APART_US: i64 = 1_000_000;

/// Examines the file at `path`, which is also what `whole` says.
pub(in crate::store) async fn examine(
    whole: &Address,
    path: &Path,
    prefix: &str,
    lease: Duration,
) -> Vec<Finding> {
    let directory = place::directory(path);
    let Some(metadata) = fs::metadata(path).ok() else {
        return of_absent(path, directory);
    };
    if !metadata.is_file() {
        let observed = format!("{} is no file", path.display());
        return vec![Finding::problem("file", observed, "Name a file: local:/path/semaphores.db.")];
    }
    let place = match Place::of(path) {
        Ok(place) => place,
        Err(error) => return vec![Finding::problem("file", format!("{}: {error}", path.display()), REFUSED)],
    };
    let mut findings = Vec::new();
    #[cfg(unix)]
    {
        let directory = place.directory();
        findings.extend([system::file(&place, &metadata), system::directory(directory)]);
        findings.extend(system::disk(directory));
    }
    if findings.iter().any(|finding| finding.severity == Severity::Problem) {
        return findings;
    }
    match contents(path, prefix) {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(unreadable(&error)),
    }
    if findings.iter().any(|finding| finding.severity == Severity::Problem) {
        return findings;
    }
    let scratch = trial::scratch();
    findings.extend(trial::run(whole, prefix, &scratch, lease).await);
    // If this fails, it expires and is swept away by whoever uses the file next.
    let _ = forget(path, prefix, &scratch);
    findings
}

/// There is no file, which is fine if it can be made.
fn of_absent(path: &Path, directory: &Path) -> Vec<Finding> {
    let mut existing = PathBuf::from(directory);
    while !existing.exists() && existing.pop() {}
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { &existing };
    if !existing.is_dir() {
        let observed = format!("{} cannot be made: {} is no directory", path.display(), existing.display());
        return vec![Finding::problem(
            "file",
            observed,
            "Name a file in a directory: local:/path/semaphores.db.",
        )];
    }
    let absent = format!("{} is not there yet; whoever needs it first makes it", path.display());
    #[cfg(unix)]
    {
        let mut findings = vec![Finding::fine("file", absent), system::directory(existing)];
        findings.extend(system::disk(existing));
        findings
    }
    #[cfg(not(unix))]
    vec![Finding::fine("file", absent)]
}

fn unreadable(error: &StoreError) -> Finding {
    let meaning = match error {
        StoreError::Unreachable { .. } => {
            "Another process has had the file locked for long. Which one, says: fuser semaphores.db."
        }
        StoreError::Unsupported { .. } | StoreError::Malformed { .. } => DAMAGED,
        _ => "Programs get the same error. Look at the file, its directory and the disk.",
    };
    Finding::problem("contents", error.to_string(), meaning)
}

const REFUSED: &str = "Programs refuse it too. Name another file: local:/path/semaphores.db.";

const DAMAGED: &str = "It is damaged, or never was a file of this library. Nothing of value is in it but limits that \
    operators pinned: stop the programs that use it, move it away, and the next one makes another.";

/// What is in the file, looked at without changing it.
fn contents(path: &Path, prefix: &str) -> Result<Vec<Finding>, StoreError> {
    let failed = |error: rusqlite::Error| failure(path, &error);
    let connection = open(path).map_err(failed)?;
    let wrong: Vec<String> = connection
        .prepare("PRAGMA integrity_check(1)")
        .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect())
        .map_err(failed)?;
    if wrong != ["ok"] {
        return Ok(vec![Finding::problem("contents", wrong.join("; "), DAMAGED)]);
    }
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    if count("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(vec![Finding::fine("contents", "nothing yet")]);
    }
    if application != APPLICATION_ID {
        let meaning = "Name another file: local:/path/semaphores.db.";
        return Ok(vec![Finding::problem("contents", "it is a database of another program", meaning)]);
    }
    if version != VERSION {
        let observed = format!("it has form {version}, this program knows form {VERSION}");
        let meaning = "A newer version of this library made it: use that one, or another file.";
        return Ok(vec![Finding::problem("contents", observed, meaning)]);
    }
    let stored = connection
        .query_row("SELECT count(*) FROM semaphores WHERE prefix = ?1", [prefix], |row| row.get::<_, i64>(0))
        .map_err(failed)?;
    let (boot, base_us) = connection
        .query_row("SELECT boot, base_us FROM meta", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(failed)?;
    let intact = format!("intact, form {version}, {stored} semaphores");
    Ok(vec![Finding::fine("contents", intact), clock(boot, base_us)])
}

/// What the clock of a file tells that was last used in this boot, and so many microseconds after it began.
fn clock(boot: String, base_us: i64) -> Finding {
    let now = match Boot::current() {
        Ok(now) => now,
        Err(error) => {
            let meaning = "Nothing works without: it tells leases of before a restart of the machine from those \
                           of now. Is /proc mounted?";
            return Finding::problem(
                "clock",
                format!("the machine does not say when it started: {error}"),
                meaning,
            );
        }
    };
    if boot != now.id {
        return Finding::fine("clock", "last used before the machine restarted: leases of then have ended");
    }
    let ahead_us = base_us.saturating_add(now.elapsed_us()).saturating_sub(wall_us());
    if ahead_us.abs() <= APART_US {
        return Finding::fine("clock", "goes with the machine, and agrees with the wall clock");
    }
    let (seconds, which) =
        (ahead_us.unsigned_abs() / 1_000_000, if ahead_us > 0 { "ahead of" } else { "behind" });
    let meaning =
        "The wall clock was set since the machine started. Leases do not go by it, so this does no harm.";
    Finding::note("clock", format!("{seconds} s {which} the wall clock"), meaning)
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

fn forget(path: &Path, prefix: &str, semaphore: &Name) -> rusqlite::Result<usize> {
    open(path)?
        .execute("DELETE FROM semaphores WHERE prefix = ?1 AND name = ?2", (prefix, semaphore.as_str()))
}

/// What the system tells of a file and what it lies on.
#[cfg(unix)]
mod system {
    use std::fs::{self, Metadata};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use rustix::fs::{Access, access, statvfs};

    use super::super::access;
    use super::{LITTLE_SPACE, Place};
    use crate::examine::Finding;

    /// The file and its companions, as this user may use them.
    pub(super) fn file(place: &Place, metadata: &Metadata) -> Finding {
        let path = place.file();
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        let observed = format!("{}, mode {mode:04o}, of user {owner} and group {group}", path.display());
        let shared = fs::metadata(place.directory()).map(|directory| access::is_shared(&directory));
        match place.check_files().and(shared) {
            Err(reason) => Finding::problem("file", observed, format!("It is refused: {reason}")),
            Ok(shared) if mode & if shared { 0o004 } else { 0o044 } != 0 => {
                let meaning = format!(
                    "Others may read it, and so see the names of semaphores and holders. If that matters: chmod {} {}",
                    if shared { 660 } else { 600 },
                    path.display()
                );
                Finding::note("file", observed, meaning)
            }
            Ok(true) => Finding::fine("file", format!("{observed}; shared by the group")),
            Ok(false) => Finding::fine("file", observed),
        }
    }

    pub(super) fn directory(path: &Path) -> Finding {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => {
                let meaning = "Make it, or name a file elsewhere: local:/path/semaphores.db.";
                return Finding::problem("directory", format!("{}: {error}", path.display()), meaning);
            }
        };
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        let observed = format!("{}, mode {mode:04o}, of user {owner} and group {group}", path.display());
        if let Err(error) = access(path, Access::WRITE_OK | Access::EXEC_OK) {
            let meaning = "Besides the file there are two more while it is in use, so the directory must be writable. \
                           Make it so, or name a file elsewhere: local:/path/semaphores.db.";
            return Finding::problem("directory", format!("{observed}: {error}"), meaning);
        }
        if let Err(reason) = access::of_directory(&metadata) {
            let meaning =
                format!("Two programs could use two files, and admit more than the limit: {reason}");
            return Finding::problem("directory", observed, meaning);
        }
        if access::is_shared(&metadata) {
            return Finding::fine("directory", format!("{observed}; for its group"));
        }
        Finding::fine("directory", observed)
    }

    /// The file system, and how much space is left on it.
    pub(super) fn disk(path: &Path) -> Vec<Finding> {
        let mut findings = Vec::new();
        #[cfg(target_os = "linux")]
        findings.extend(super::file_system::examine(path));
        if let Ok(disk) = statvfs(path) {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let observed = format!("{} MiB are free", free >> 20);
            findings.push(if free < LITTLE_SPACE {
                let meaning = "When the disk is full acquiring may fail; what is held can be renewed and released, by \
                               a few hundred at most: make room, or name a file elsewhere.";
                Finding::problem("space", observed, meaning)
            } else {
                Finding::fine("space", observed)
            });
        }
        findings
    }
}

/// Which file systems will do.
#[cfg(target_os = "linux")]
mod file_system {
    use std::path::Path;

    use super::super::place::network;
    use crate::examine::Finding;

    /// By the number that statfs(2) gives them.
    const FUSE: u64 = 0x6573_5546;
    const TMPFS: u64 = 0x0102_1994;

    pub(super) fn examine(path: &Path) -> Option<Finding> {
        let kind = rustix::fs::statfs(path).ok()?.f_type;
        // A word of the machine, of either sign: the number is in its lower half.
        Some(of_kind(kind as u64 & 0xFFFF_FFFF))
    }

    pub(super) fn of_kind(kind: u64) -> Finding {
        if let Some(name) = network(kind) {
            let meaning = "Locks and shared memory do not work over a network: programs on two machines, and even \
                           on one, do not see each other, and the file is damaged. Name a file on a disk of this \
                           machine; for several machines, use Redis or Valkey.";
            return Finding::problem("filesystem", name, meaning);
        }
        match kind {
            FUSE => Finding::note(
                "filesystem",
                "FUSE",
                "Whether locks and shared memory work there depends on what is behind it: over a network they do not.",
            ),
            TMPFS => Finding::note(
                "filesystem",
                "tmpfs, which is memory",
                "It is empty after a restart of the machine. No lease outlives that anyway, but limits that \
                 operators pinned are gone.",
            ),
            _ => Finding::fine("filesystem", "of this machine"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_will_not_do() {
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
    fn a_clock_that_left_the_wall_clock_is_told() {
        let now = Boot::current().expect("the system tells");
        let base_us = wall_us() - now.elapsed_us();
        assert_eq!(clock(now.id.clone(), base_us).severity, Severity::Fine);
        assert_eq!(clock("another".into(), base_us + 3_600_000_000).severity, Severity::Fine);
        let ahead = clock(now.id.clone(), base_us + 3_600_000_000);
        assert_eq!(ahead.severity, Severity::Note);
        assert!(ahead.observed.contains("ahead of"), "{}", ahead.observed);
        assert!(clock(now.id, base_us - 3_600_000_000).observed.contains("behind"));
    }
}
