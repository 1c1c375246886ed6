//! The names of a file and its companions: the files that they refer to, and how those are made and deleted.
//!
//! SQLite keeps two companions beside a file in use: `-wal` is its log, and `-shm` the memory that its users
//! share. Without one of them the users do not see each other. So the three belong together: when one is
//! deleted, the rest is deleted, and the users follow to a new file.
//!
//! A file gets its name when it is complete, so a process that is killed while it makes a file leaves no
//! incomplete one. This module never opens an existing file, because closing it would give up the locks of
//! every connection that this process has to it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[cfg(unix)]
use rustix::fs::{FlockOperation, flock};
#[cfg(unix)]
use rustix::io::Errno;

#[cfg(unix)]
use super::{access, busy};

/// The suffixes of the companions.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// The first part of a temporary name. A process id and a random number follow.
const TEMPORARY: &str = ".permits-";

/// The age from which on a file with a temporary name was left by a killed process: filling a file takes some
/// milliseconds.
const LEFTOVER_AGE: Duration = Duration::from_secs(600);

/// The file that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(metadata.dev(), metadata.ino())
    }

    /// On these systems an open file cannot be deleted, so a name refers to the same file.
    #[cfg(not(unix))]
    fn of(_metadata: &fs::Metadata) -> Self {
        Self(0, 0)
    }
}

/// The file and its companions that the names referred to at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Files {
    file: Identity,
    companions: [Option<Identity>; 2],
}

impl Files {
    /// Returns true if both companions exist. SQLite makes them at the first read, and deletes neither while
    /// a connection is open.
    pub(super) fn are_complete(&self) -> bool {
        self.companions.iter().all(Option::is_some)
    }

    /// Returns true if the file is the same, with the same companions or others.
    pub(super) fn is_file_of(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

/// The paths of a file and of its companions.
#[derive(Debug, Clone)]
pub(crate) struct FilePaths {
    /// The path in the URL, which may be a symbolic link.
    named: PathBuf,
    /// The path without links: SQLite puts the companions beside it.
    file: PathBuf,
    companions: [PathBuf; 2],
}

impl FilePaths {
    /// The paths that the path in the URL leads to now.
    pub(crate) fn of(named: &Path) -> io::Result<Self> {
        let is_link = fs::symlink_metadata(named).is_ok_and(|metadata| metadata.is_symlink());
        #[cfg(unix)]
        if is_link {
            let link = fs::symlink_metadata(named)?;
            access::of_link(&link, &fs::metadata(directory(named))?).map_err(refused)?;
        }
        let file = if is_link { fs::canonicalize(named)? } else { named.to_owned() };
        let companions = COMPANIONS.map(|suffix| with_suffix(&file, suffix));
        Ok(Self { named: named.to_owned(), file, companions })
    }

    /// The path in the URL.
    pub(super) fn named(&self) -> &Path {
        &self.named
    }

    /// The path without links.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The directory of the file and its companions.
    pub(crate) fn directory(&self) -> &Path {
        directory(&self.file)
    }

    /// The files that the paths refer to now. Fails if the file does not exist.
    pub(super) fn files(&self) -> io::Result<Files> {
        let file = Identity::of(&fs::metadata(&self.named)?);
        let mut companions = [None; 2];
        for (path, companion) in self.companions.iter().zip(&mut companions) {
            *companion = match fs::metadata(path) {
                Ok(metadata) => Some(Identity::of(&metadata)),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        Ok(Files { file, companions })
    }

    /// The time of the first opening under this name, when SQLite made the log. The file is older by the time
    /// that filling it took.
    pub(super) fn opened_at(&self) -> io::Result<SystemTime> {
        fs::metadata(&self.companions[0])?.created()
    }

    /// Makes the file if there is none, by `fill`, and refuses a file to which users may write that it is not
    /// for.
    pub(super) fn prepare<E: From<io::Error>>(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let directory = self.directory();
        if !directory.exists() {
            let mut builder = DirBuilder::new();
            builder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(directory).map_err(|error| {
                let reason = format!(
                    "its directory cannot be made ({error}): name a file elsewhere, local:/path/file.db"
                );
                io::Error::new(error.kind(), reason)
            })?;
        }
        check_directory(directory)?;
        if !self.file.try_exists()? {
            self.make(fill)?;
        }
        if !fs::metadata(&self.file)?.is_file() {
            let reason = "it is no file: name one, local:/path/file.db";
            return Err(io::Error::new(ErrorKind::InvalidInput, reason).into());
        }
        #[cfg(unix)]
        self.check_files()?;
        Ok(())
    }

    /// Refuses the file if this user may not use it or one of its companions.
    #[cfg(unix)]
    pub(crate) fn check_files(&self) -> io::Result<()> {
        let directory = fs::metadata(self.directory())?;
        access::of_file(&fs::metadata(&self.file)?, &directory).map_err(refused)?;
        for companion in &self.companions {
            // Not `metadata`, since SQLite would follow a link and write to its target.
            let judged = match fs::symlink_metadata(companion) {
                Ok(metadata) if !metadata.is_file() => Err("it is no file: delete it".to_owned()),
                Ok(metadata) => access::of_file(&metadata, &directory),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => return Err(error),
            };
            judged.map_err(|reason| refused(format!("{} beside it: {reason}", companion.display())))?;
        }
        Ok(())
    }

    /// Makes the file under a temporary name, and gives it its name when it is complete.
    fn make<E: From<io::Error>>(&self, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
        let name = format!("{TEMPORARY}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let temporary = self.directory().join(name);
        let made = self.create(&temporary).map_err(E::from).and_then(|()| fill(&temporary));
        let named = made.and_then(|()| self.name(&temporary).map_err(E::from));
        // If `fill` has failed, there are companions too.
        let companions = COMPANIONS.map(|suffix| with_suffix(&temporary, suffix));
        for path in std::iter::once(temporary).chain(companions) {
            let _ = fs::remove_file(path);
        }
        named
    }

    fn create(&self, temporary: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(temporary)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // Not by `open`, which applies the umask.
            let mode = access::mode_in(&fs::metadata(self.directory())?);
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        drop(file);
        Ok(())
    }

    /// Gives a file its name, unless another process has given it to another file.
    fn name(&self, temporary: &Path) -> io::Result<()> {
        let _lock = self.lock_directory()?;
        self.delete_leftovers();
        if self.file.try_exists()? {
            return Ok(());
        }
        // Otherwise the users of a deleted file and those of the new one would share these companions and
        // corrupt them.
        self.delete_companions()?;
        fs::hard_link(temporary, &self.file)
    }

    /// Deletes the file and its companions. Its users follow to a new file.
    pub(super) fn delete(&self, _lock: &DirectoryLock) -> io::Result<()> {
        // The file first, so that no process opens it without its companions.
        remove(&self.file)?;
        self.delete_companions()
    }

    /// Deletes the companions.
    pub(super) fn delete_companions(&self) -> io::Result<()> {
        self.companions.iter().try_for_each(|companion| remove(companion))
    }

    /// Deletes files of processes that were killed while they made a file.
    fn delete_leftovers(&self) {
        let Ok(entries) = fs::read_dir(self.directory()) else { return };
        for entry in entries.flatten() {
            let temporary = entry.file_name().to_str().is_some_and(is_temporary);
            let age = || entry.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().ok();
            if temporary && age().is_some_and(|age| age > LEFTOVER_AGE) {
                // This fails for files of other users.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Locks the directory, so that one process at a time makes or deletes the file. Waits for other
    /// processes until the deadline of [`busy::set_deadline`].
    pub(super) fn lock_directory(&self) -> io::Result<DirectoryLock> {
        #[cfg(unix)]
        {
            let directory = fs::File::open(self.directory())?;
            for waited in 0.. {
                match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break,
                    Err(Errno::WOULDBLOCK | Errno::INTR) if busy::wait(waited) => {}
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        let reason = format!(
                            "another program has locked the directory {} (flock; lslocks names the program)",
                            self.directory().display()
                        );
                        return Err(io::Error::new(ErrorKind::WouldBlock, reason));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(DirectoryLock(directory))
        }
        #[cfg(not(unix))]
        Ok(DirectoryLock)
    }
}

/// A lock on the directory, until dropped.
#[cfg(unix)]
pub(super) struct DirectoryLock(fs::File);

#[cfg(not(unix))]
pub(super) struct DirectoryLock;

#[cfg(unix)]
impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Explicitly, because closing unlocks only when a child that was forked meanwhile has closed it too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The directory of a file.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns true if `name` is a temporary name, or that of its companion.
fn is_temporary(name: &str) -> bool {
    let Some((process, random)) = name.strip_prefix(TEMPORARY).and_then(|rest| rest.split_once('-')) else {
        return false;
    };
    // A companion's name has a suffix.
    let random = random.split('-').next().unwrap_or_default();
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    process.bytes().all(|byte| byte.is_ascii_digit()) && random.len() == 16 && is_hexadecimal(random)
}

/// Deletes a file if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => {
            let reason =
                format!("{} is left from a deleted file, and cannot be deleted: {error}", path.display());
            Err(io::Error::new(error.kind(), reason))
        }
    }
}

#[cfg(unix)]
fn refused(reason: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, reason)
}

#[cfg(unix)]
fn check_directory(directory: &Path) -> io::Result<()> {
    access::of_directory(&fs::metadata(directory)?).map_err(refused)?;
    #[cfg(target_os = "linux")]
    if let Some(name) = network_file_system(rustix::fs::statfs(directory)?.f_type as u64) {
        return Err(refused(format!(
            "it is on a network file system ({name}), and a local store is for one machine"
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_directory(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// The name of a file system that several machines use at once, where SQLite's locks and shared memory fail.
///
/// FUSE and 9P are not listed, because many of their files are local, such as those of a container. On a
/// remote one SQLite fails to share memory, or the store notices another machine by its boot.
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
    fn only_temporary_names_of_this_library_are_recognized() {
        for name in [".permits-41-0123456789abcdef", ".permits-41-0123456789abcdef-wal"] {
            assert!(is_temporary(name), "{name}");
        }
        for name in [
            "semaphores.db-wal",
            ".permits-41",
            ".permits-x-0123456789abcdef",
            ".permits-41-0123456789abcdef.db",
        ] {
            assert!(!is_temporary(name), "{name}");
        }
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
