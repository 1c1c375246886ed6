//! [`Directory`]: the files of a store, their names, and how they are opened and locked.
//!
//! Every file is opened again for each command, and once it is locked, the store checks that it still has its
//! name. So a file that was deleted or replaced is noticed at once, and a process that forks has no open file
//! to hand down.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::access;
use super::clock::{Boot, wall_us};
use super::record::{Fault, Record, Stamp};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::protocol::{Name, layout};
use crate::sys::percent;

/// The file that marks a directory as made by this library. New files take their clock from it.
pub(super) const MARKER: &str = ".permits";

/// Versions that were never released had their store in this file.
const UNRELEASED: &str = "semaphores.db";

/// The names of a semaphore's files end with these.
const STATE: &str = ".state";
const LASTING: &str = ".lasting";

/// The name of a new file begins with this while the group of its directory may not use it yet.
pub(super) const DRAFT: &str = ".new-";

/// The longest name of a file, without its end. Most file systems allow 255 bytes.
const NAME_BYTES: usize = 240;

/// The mode of a file that no other user needs.
pub(super) const PRIVATE: u32 = 0o600;

/// How a wait for a lock proceeds. The first steps only let other threads run, because a command has the lock
/// for some tens of microseconds. Then the steps sleep: the first and the longest sleep, in microseconds.
const YIELDS: u32 = 50;
const STEP_US: (u64, u64) = (50, 1_000);

/// A directory, as a session with some prefix uses it.
pub(crate) struct Directory {
    path: PathBuf,
    prefix: String,
    metadata: Metadata,
    pub(super) boot: Boot,
    /// The store's time when the machine started. New files take it over.
    pub(super) base_us: i64,
}

/// The paths of a semaphore's two files: one for its state, and one for what outlasts a restart of the
/// machine.
pub(super) struct Paths {
    pub(super) state: PathBuf,
    pub(super) lasting: PathBuf,
}

/// An open file, locked until it is dropped.
pub(super) struct Locked(File);

impl std::ops::Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Unlock explicitly: closing unlocks only when a child that was forked meanwhile has closed the file,
        // too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Directory {
    /// Opens the directory as it is, and makes nothing.
    pub(crate) fn existing(path: &Path, prefix: &str) -> io::Result<Self> {
        let link = fs::symlink_metadata(path)?;
        let metadata = fs::metadata(path)?;
        if metadata.is_file() {
            let reason = match starts_as_sqlite(path) {
                true => {
                    "it is of an earlier, unreleased version of this library: delete it, or name a directory"
                }
                false => "it is a file: name a directory",
            };
            return Err(io::Error::new(ErrorKind::NotADirectory, reason));
        }
        if link.is_symlink() {
            let parent = path.parent().map_or_else(|| Ok(metadata.clone()), fs::metadata)?;
            access::of_link(&link, &parent).map_err(refused)?;
        }
        access::of_directory(&metadata).map_err(refused)?;
        #[cfg(target_os = "linux")]
        if let Some(name) = network_file_system(rustix::fs::statfs(path)?.f_type as u64) {
            return Err(refused(format!(
                "it is on a network file system ({name}), and a local store is for one machine"
            )));
        }
        if !path.join(MARKER).exists() && path.join(UNRELEASED).exists() {
            let reason = format!(
                "its {UNRELEASED} is of an earlier, unreleased version of this library: stop the programs that use it, and \
                 delete it"
            );
            return Err(io::Error::new(ErrorKind::Unsupported, reason));
        }
        let boot = Boot::current()?;
        let base_us = wall_us() - boot.elapsed_us();
        Ok(Self { path: path.to_owned(), prefix: prefix.to_owned(), metadata, boot, base_us })
    }

    /// Opens the directory, and makes it if it does not exist.
    pub(super) fn prepare(path: &Path, prefix: &str) -> io::Result<Self> {
        match Self::existing(path, prefix) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
                    match error.kind() {
                        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => error,
                        _ => refused(format!(
                            "it cannot be made ({error}): name a directory elsewhere, local:/path"
                        )),
                    }
                })?;
                Self::existing(path, prefix)
            }
            made => made,
        }
    }

    /// Reads the stamp of the marker; `None` if there is no marker, or it is damaged.
    pub(crate) fn marker(&self) -> Result<Option<Stamp>, StoreError> {
        let path = self.path.join(MARKER);
        let Some(file) = self.open_to_read(&path)? else { return Ok(None) };
        match Record::look(&file).map_err(|error| failure(&path, &error))? {
            Ok(record) => Ok(record.map(|record| record.stamp)),
            Err(Fault::OtherLayout(found)) => {
                let what = self.path.display().to_string();
                Err(StoreError::OtherLayout { what, found, supported: layout().into() })
            }
            Err(Fault::Unreadable(_) | Fault::Text(_)) => Ok(None),
        }
    }

    /// The microseconds by which a marker's clock is ahead of the wall clock; `None` if the machine has
    /// restarted since. Works only if [`Directory::existing`] has returned this directory.
    pub(crate) fn ahead_us(&self, marker: &Stamp) -> Option<i64> {
        (marker.boot == self.boot.id).then(|| marker.base_us.saturating_sub(self.base_us))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the state of a semaphore. Only this process may be using it.
    pub(crate) fn forget(&self, semaphore: &Name) -> io::Result<()> {
        fs::remove_file(self.paths(semaphore).state)
    }

    /// The first line of a semaphore's texts: neither the prefix nor the name has a control character.
    pub(super) fn key(&self, semaphore: &Name) -> String {
        format!("{}\t{semaphore}", self.prefix)
    }

    pub(super) fn paths(&self, semaphore: &Name) -> Paths {
        let name = file_name(&self.key(semaphore));
        let path = |end| self.path.join(format!("{name}{end}"));
        Paths { state: path(STATE), lasting: path(LASTING) }
    }

    /// Opens a file for reading, if there is one.
    pub(super) fn open_to_read(&self, path: &Path) -> Result<Option<File>, StoreError> {
        let failed = |error| failure(path, &error);
        let file = match open(path, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && self.path.exists() => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        access::of_file(&metadata, &self.metadata).map_err(|reason| failed(refused(reason)))?;
        Ok(Some(file))
    }

    /// Opens a file, or makes it if it does not exist, and locks it. Waits for other processes until
    /// `deadline`.
    pub(super) fn lock(&self, path: &Path, deadline: Moment) -> Result<Locked, StoreError> {
        let locked = self.lock_with(path, deadline, || self.create(path).map(Some))?;
        locked.ok_or_else(|| failure(path, &ErrorKind::NotFound.into()))
    }

    /// Opens a file and locks it, if it exists.
    pub(super) fn lock_existing(&self, path: &Path, deadline: Moment) -> Result<Option<Locked>, StoreError> {
        self.lock_with(path, deadline, || Ok(None))
    }

    fn lock_with(
        &self,
        path: &Path,
        deadline: Moment,
        make: impl Fn() -> io::Result<Option<File>>,
    ) -> Result<Option<Locked>, StoreError> {
        let failed = |error: io::Error| failure(path, &error);
        let mut waited = 0;
        loop {
            let file = match open(path, OFlags::RDWR) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => match make() {
                    Ok(Some(file)) => file,
                    Ok(None) => return Ok(None),
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                    Err(error) => return Err(failed(error)),
                },
                Err(error) => return Err(failed(error)),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) if wait(waited, deadline) => {
                    waited += 1;
                    continue;
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    let file = path.display();
                    let reason = format!(
                        "{file} is locked by another process: is one of its users stopped? (lslocks names the process)"
                    );
                    return Err(StoreError::Unreachable { reason });
                }
                Err(error) => return Err(failed(error.into())),
            }
            let locked = Locked(file);
            let metadata = locked.metadata().map_err(failed)?;
            // If the file has no link left, another process has deleted it meanwhile.
            if metadata.nlink() > 0 {
                access::of_file(&metadata, &self.metadata).map_err(|reason| failed(refused(reason)))?;
                return Ok(Some(locked));
            }
            if !wait(waited, deadline) {
                let reason = format!("{} is deleted again and again", path.display());
                return Err(StoreError::Unreachable { reason });
            }
            waited += 1;
        }
    }

    /// Makes a file. In a shared directory the file gets its name only when the group may use it. So a
    /// process that is killed in between leaves no file that the group cannot use.
    fn create(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(PRIVATE);
        let mode = access::mode_in(&self.metadata);
        if mode == PRIVATE {
            return options.open(path);
        }
        let draft = self.path.join(format!("{DRAFT}{:016x}", fastrand::u64(..)));
        let file = options.open(&draft)?;
        // Set the mode here, because `open` applies the umask.
        let allowed = file.set_permissions(fs::Permissions::from_mode(mode));
        let named = allowed.and_then(|()| fs::hard_link(&draft, path));
        let _ = fs::remove_file(draft);
        named.map(|()| file)
    }

    /// Waits until the names in the directory are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// The metadata of the directory: new files get its mode and its group.
    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The paths of the files of all semaphores, of every prefix.
    pub(super) fn texts(&self) -> io::Result<Vec<PathBuf>> {
        self.files(is_text)
    }

    /// The paths of the files whose names fit.
    pub(super) fn files(&self, is_one: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(&is_one) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// The semaphores of this prefix that have a state, or a part that outlasts a restart.
    pub(super) fn semaphores(&self) -> io::Result<Vec<Name>> {
        let prefix = file_name(&format!("{}\t", self.prefix));
        let mut names = Vec::new();
        for path in self.files(|name| name.starts_with(&prefix))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(STATE).or(name.strip_suffix(LASTING)) else { continue };
            let name = match name.contains('~') {
                false => name.strip_prefix(&prefix).and_then(percent::decode),
                true => open(&path, OFlags::empty()).and_then(|file| Record::look(&file)).ok().and_then(
                    |record| {
                        let text = String::from_utf8(record.ok()??.text).ok()?;
                        Some(text.lines().next()?.split_once('\t')?.1.to_owned())
                    },
                ),
            };
            names.extend(name.and_then(|name| Name::new(&name).ok()));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    pub(super) fn failed(&self, error: &io::Error) -> StoreError {
        failure(&self.path, error)
    }
}

/// Returns true if a file of this name has the text of a semaphore.
pub(super) fn is_text(name: &str) -> bool {
    name.ends_with(STATE) || name.ends_with(LASTING)
}

/// Returns true if the path names a part that outlasts a restart.
pub(super) fn is_lasting(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(LASTING.as_bytes())
}

/// The path of the part that outlasts a restart, for the semaphore with this file of a state.
pub(super) fn lasting_beside(state: &Path) -> PathBuf {
    state.with_extension(&LASTING[1..])
}

/// Waits one step, after `waited` earlier steps. Returns false, without waiting, after the deadline.
fn wait(waited: u32, deadline: Moment) -> bool {
    let left = deadline.since(Moment::now());
    if left.is_zero() {
        return false;
    }
    if waited < YIELDS {
        std::thread::yield_now();
        return true;
    }
    let most_us = (STEP_US.0 << (waited - YIELDS).min(16)).min(STEP_US.1);
    std::thread::sleep(Duration::from_micros(fastrand::u64(most_us / 2..=most_us)).min(left));
    true
}

/// Opens an existing file, and refuses a symbolic link.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?))
}

/// Makes the name of the files with this key: `PREFIX:NAME`, percent-encoded except for letters, digits, `.`,
/// `_` and `-`. If that is too long, it is cut, and ends with a hash of the whole.
fn file_name(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        match byte {
            b'\t' => name.push(':'),
            b'.' | b'_' | b'-' => name.push(char::from(byte)),
            // Some file systems ignore case. Encode capitals there, so that names that differ only in case
            // have different files.
            _ if byte.is_ascii_uppercase() && cfg!(target_vendor = "apple") => {
                name.push_str(&format!("%{byte:02X}"));
            }
            _ if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.len() > NAME_BYTES {
        name.truncate(NAME_BYTES - 9);
        name.push_str(&format!("~{:08x}", crc32fast::hash(key.as_bytes())));
    }
    name
}

fn starts_as_sqlite(path: &Path) -> bool {
    let mut start = [0; 15];
    let read = File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == *b"SQLite format 3"
}

/// The store's error for a failure at this file or directory.
pub(super) fn failure(path: &Path, error: &io::Error) -> StoreError {
    let file = path.display();
    let reason = format!("{file}: {error}");
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => StoreError::Denied {
            reason: format!(
                "{file}: its directory and the files in it must be writable for this user: {error}"
            ),
        },
        Some(Errno::LOOP) => StoreError::Denied { reason: format!("{file} is a symbolic link: delete it") },
        Some(Errno::NOSPC) => StoreError::OutOfMemory { reason: format!("the disk of {file} is full") },
        Some(Errno::DQUOT | Errno::FBIG) => StoreError::OutOfMemory {
            reason: format!("{file} cannot be written; is a quota or a file size limit used up? ({error})"),
        },
        Some(Errno::NOENT) => {
            StoreError::Unreachable { reason: format!("{file}: its directory was deleted") }
        }
        Some(Errno::MFILE | Errno::NFILE) => StoreError::Unreachable { reason },
        _ if error.kind() == ErrorKind::PermissionDenied => StoreError::Denied { reason },
        _ if [ErrorKind::NotADirectory, ErrorKind::Unsupported].contains(&error.kind()) => {
            StoreError::Unsupported { reason }
        }
        _ => StoreError::Rejected { reason },
    }
}

pub(super) fn refused(reason: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason)
}

/// Returns the name of a network file system, which several machines use without seeing each other's locks.
///
/// FUSE and 9P are not listed, because they often serve local files, such as those of a container. If they
/// serve remote files, the store notices the other machine by its boot.
#[cfg(target_os = "linux")]
pub(crate) fn network_file_system(magic: u64) -> Option<&'static str> {
    // The numbers are 32 bits wide, and sign-extended on some machines.
    Some(match magic & 0xFFFF_FFFF {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x00C3_6400 => "Ceph",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0BD0_0BD0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_file_of_its_own() {
        let names =
            ["a", "A", ".", "..", "a:b", "a%3Ab", "a/b", "ä", "~", "a~", &"ä".repeat(100), &"ö".repeat(100)];
        let keys = names.iter().flat_map(|name| ["p", "p:a"].map(|prefix| format!("{prefix}\t{name}")));
        let mut files: Vec<String> = keys.map(|key| file_name(&key)).collect();
        assert!(files.iter().all(|file| file.len() <= NAME_BYTES && !file.contains('/')), "{files:?}");
        assert_eq!(files[0], "p:a");
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), 2 * names.len());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_known() {
        for (magic, name) in [(0x6969, "NFS"), (0xFF53_4D42, "SMB"), (0xFFFF_FFFF_FF53_4D42, "SMB")] {
            assert_eq!(network_file_system(magic), Some(name));
        }
        let (ext4, tmpfs, fuse) = (0xEF53, 0x0102_1994, 0x6573_5546);
        assert_eq!([ext4, tmpfs, fuse].map(network_file_system), [None; 3]);
    }
}
