//! The diagnosis of a local store: its directory, its file system, its contents, and a self-test.
//!
//! The inspection writes nothing. If the directory is missing, the first program that needs it will make it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use crate::backend::{DiagnoseOptions, Location};
use crate::error::StoreError;
use crate::finding::Finding;
use crate::local::access::is_shared;
use crate::local::directory::Directory;
#[cfg(target_os = "linux")]
use crate::local::directory::network_file_system;
use crate::local::{idle, machine, mailbox, semaphores};
use crate::protocol::layout;
use crate::self_test::{self, scratch_name};
use crate::shell::{argument, word};

/// A disk with less free space than this, in bytes, is about to be full.
const LITTLE_SPACE: u64 = 16 << 20;

/// How far the store's clock and the wall clock may be apart, in microseconds.
const APART_US: i64 = 1_000_000;

/// The findings about `location`, which is the directory at `path`.
pub(super) async fn diagnose(
    location: &dyn Location,
    path: &Path,
    DiagnoseOptions { prefix, lease, self_test }: DiagnoseOptions<'_>,
) -> Vec<Finding> {
    let directory = Directory::existing(path, prefix);
    // If the directory does not exist, inspect the nearest parent that does: the directory will be made in
    // it.
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let mut findings = vec![of_directory(path, existing, directory.as_ref().err())];
    #[cfg(target_os = "linux")]
    findings.extend(of_file_system(existing));
    findings.extend(of_space(existing));
    let Ok(directory) = directory else { return findings };
    findings.extend(of_contents(&directory).unwrap_or_else(|error| vec![of_error(&error)]));
    if !self_test || findings.iter().any(Finding::is_problem) {
        return findings;
    }
    let scratch = scratch_name();
    findings.extend(self_test::run_each_operation(location, prefix, &scratch, lease).await);
    // If this fails, the semaphore expires, and a later command deletes it.
    let _ = directory.forget(&scratch);
    findings
}

/// The finding about the rights of `existing`, which is the directory at `path` or will contain it. `refused`
/// says why programs cannot use the directory as it is.
fn of_directory(path: &Path, existing: &Path, refused: Option<&io::Error>) -> Finding {
    let elsewhere = "Name another directory: local:/path/permits.";
    let metadata = match fs::metadata(existing) {
        Ok(metadata) => metadata,
        Err(error) => {
            return Finding::problem("directory", format!("{}: {error}", existing.display()), elsewhere);
        }
    };
    let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
    let observed = format!("{}, mode {mode:04o}, of user {owner} and group {group}", existing.display());
    let problem = |reason: &str, advice: &str| {
        Finding::problem(
            "directory",
            format!("{observed}: {reason}"),
            format!("Programs refuse it. {advice}"),
        )
    };
    match refused {
        Some(error) if existing == path => return problem(&error.to_string(), elsewhere),
        _ if !metadata.is_dir() => return problem("it is no directory", elsewhere),
        _ => {}
    }
    if let Err(error) = access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        return problem(
            &error.to_string(),
            "They make files in it: make it writable for this user, or name another.",
        );
    }
    if existing != path {
        let missing =
            format!("{} is not there yet; the first program that needs it makes it", path.display());
        return Finding::fine("directory", missing);
    }
    let (right, shared) = if is_shared(&metadata) { (0o2770, "; shared by its group") } else { (0o700, "") };
    let observed = observed + shared;
    if mode & 0o055 & !right == 0 {
        return Finding::fine("directory", observed);
    }
    if mode & 0o002 != 0 {
        let advice =
            "Others may make files in it, and the system may remove old ones: name a directory of this user.";
        return Finding::note("directory", observed, advice);
    }
    let advice = format!(
        "Others may list it, and so see the names of semaphores. If that matters: chmod {right:o} {}",
        word(&path.to_string_lossy())
    );
    Finding::note("directory", observed, advice)
}

/// The finding about the kind of the file system.
#[cfg(target_os = "linux")]
fn of_file_system(path: &Path) -> Option<Finding> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    // The type is as wide as a pointer and may be signed. The number is in its lower 32 bits.
    Some(of_kind(kind as u64 & 0xFFFF_FFFF))
}

/// The finding about a file system, by the number that statfs(2) gives its kind.
#[cfg(target_os = "linux")]
fn of_kind(kind: u64) -> Finding {
    const FUSE: u64 = 0x6573_5546;
    const TMPFS: u64 = 0x0102_1994;
    if let Some(name) = network_file_system(kind) {
        let advice = "Programs on two machines do not see each other's locks. Name a directory on a disk of this machine; \
                      for several machines, use Redis or Valkey.";
        return Finding::problem("filesystem", name, advice);
    }
    match kind {
        FUSE => Finding::note(
            "filesystem",
            "FUSE",
            "Locks and pipes may work there or not, depending on the file system behind FUSE: over a network they do not.",
        ),
        TMPFS => Finding::note(
            "filesystem",
            "tmpfs, which is memory",
            "It is empty after a restart of the machine. No lease outlives a restart anyway, but what \
             operators have set, such as pinned limits, is lost.",
        ),
        _ => Finding::fine("filesystem", "of this machine"),
    }
}

/// The finding about the free space of the disk.
fn of_space(path: &Path) -> Option<Finding> {
    let disk = statvfs(path).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let observed = format!("{} MiB are free", free >> 20);
    if free >= LITTLE_SPACE {
        return Some(Finding::fine("space", observed));
    }
    let advice = "On a full disk acquiring may fail, and so may changes by operators. Permits that are held can be \
                  renewed and released. Make room, or name a directory elsewhere.";
    Some(Finding::problem("space", observed, advice))
}

/// The findings about the contents of the files. The files are not changed.
fn of_contents(directory: &Directory) -> Result<Vec<Finding>, StoreError> {
    let marker = directory.marker()?;
    let names = idle::list(directory)?;
    let errors: Vec<StoreError> =
        names.iter().filter_map(|name| semaphores::check(directory, name).err()).collect();
    let is_of_another_boot = marker.is_some_and(|marker| directory.ahead_us(&marker).is_none());
    let elsewhere = is_of_another_boot.then(|| machine::check(directory).err()).flatten();
    let mut findings: Vec<Finding> = errors.iter().chain(&elsewhere).map(of_error).collect();
    if findings.is_empty() {
        let mut observed = match marker {
            None if names.is_empty() => "nothing yet".to_owned(),
            _ => format!("intact, layout {}, {} semaphores", layout(), names.len()),
        };
        let gone = mailbox::leftovers(directory, false).unwrap_or_default();
        if gone > 0 {
            observed += &format!("; {gone} pipes of sessions that were killed, which later commands remove");
        }
        findings.push(Finding::fine("contents", observed));
    }
    findings
        .extend(marker.filter(|_| elsewhere.is_none()).map(|marker| of_clock(directory.ahead_us(&marker))));
    Ok(findings)
}

/// The finding about a file that cannot be used.
fn of_error(error: &StoreError) -> Finding {
    let advice = match error {
        StoreError::Unreadable { semaphore, .. } => &format!(
            "Other semaphores are not affected. To remove it: permits delete --force {}. If a holder of it is alive, more than \
             the limit may be held until its lease ends.",
            argument(semaphore)
        ),
        StoreError::OtherLayout { .. } => {
            "Another version of this library made it: use that version, or another directory (docs/operate/upgrade.md)."
        }
        StoreError::Unsupported { .. } => {
            "Programs get the same error. Use Redis or Valkey, or a directory for each machine."
        }
        _ => "Programs get the same error. Check the rights of the files, and the disk.",
    };
    Finding::problem("contents", error.to_string(), advice)
}

/// The finding about a clock that is `ahead_us` microseconds ahead of the wall clock; `None` if the machine
/// has restarted.
fn of_clock(ahead_us: Option<i64>) -> Finding {
    let Some(ahead_us) = ahead_us else {
        let observed = "last used before the machine restarted: the leases of that time have ended";
        return Finding::fine("clock", observed);
    };
    if ahead_us.abs() <= APART_US {
        return Finding::fine("clock", "counts the machine's time, and agrees with the wall clock");
    }
    let seconds = ahead_us.unsigned_abs() / 1_000_000;
    let which = if ahead_us > 0 { "ahead of" } else { "behind" };
    let advice = "The wall clock was set since the machine started, or was behind at that time. This is harmless, because leases do not depend on it.";
    Finding::note("clock", format!("{seconds} s {which} the wall clock"), advice)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn network_file_systems_are_problems() {
        for (kind, severity) in
            [(0x6969, Severity::Problem), (0xFF53_4D42, Severity::Problem), (0x6573_5546, Severity::Note)]
        {
            assert_eq!(of_kind(kind).severity, severity);
        }
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630] {
            assert_eq!(of_kind(local).severity, Severity::Fine, "{local:x}");
        }
    }

    #[test]
    fn a_difference_from_the_wall_clock_is_a_note() {
        assert_eq!([None, Some(900_000)].map(of_clock).map(|found| found.severity), [Severity::Fine; 2]);
        for (ahead_us, says) in [(3_600_000_000, "3600 s ahead of"), (-3_600_000_000, "3600 s behind")] {
            let found = of_clock(Some(ahead_us));
            assert!(found.severity == Severity::Note && found.observed.contains(says), "{found:?}");
        }
    }
}
