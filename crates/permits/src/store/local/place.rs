//! Where the file is, which files its names stand for, and how it is made and deleted.
//!
//! SQLite keeps two companions beside a file in use: `-wal` is its log, and `-shm` the memory that its users share.
//! Without one of them the users do not see each other, so the three are one: when one is deleted, all are, and the
//! users follow to a new file.
//!
//! A file gets its name when it is complete, so a process that is killed while it makes one leaves none half
//! made. And a file that is there is never opened here: closing it again would give up the locks of any connection
//! that this process has to it.

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

/// The suffixes of what SQLite keeps beside a file.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// The first part of the name of a file that is not complete. A process id and a random number follow.
const UNFINISHED: &str = ".permits-";

/// The age at which a file that is not complete is litter: to fill one takes some milliseconds.
const LITTER_AGE: Duration = Duration::from_secs(600);

/// The file that the rest of a `local:` URL names.
pub(crate) fn parse(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        // What would be a host in other URLs: a guess could make a second store that excludes nobody.
        Some(_) => return Err("write local:/path/file.db, or local:file.db for the working directory".into()),
        None => rest,
    };
    if path.contains('?') {
        return Err("a local: URL has no options, and a path in it no question mark".into());
    }
    let path = match (path.strip_prefix("~/"), directory_of("HOME")) {
        _ if path.is_empty() => return default_path(),
        // A shell leaves a tilde alone in the middle of a word.
        (Some(below), Some(home)) => home.join(below),
        _ => path.into(),
    };
    // So that it stays the same file when the program changes its working directory.
    std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where the file is unless said otherwise: in the user's state directory, else in the runtime directory.
fn default_path() -> Result<PathBuf, String> {
    let state = directory_of("XDG_STATE_HOME").or_else(|| Some(directory_of("HOME")?.join(".local/state")));
    match state.or_else(|| directory_of("XDG_RUNTIME_DIR")) {
        Some(directory) => Ok(directory.join("permits/semaphores.db")),
        None => Err(
            "neither HOME nor XDG_STATE_HOME nor XDG_RUNTIME_DIR is set: name a file, local:/path/file.db"
                .into(),
        ),
    }
}

fn directory_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Which file a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(metadata.dev(), metadata.ino())
    }

    /// Here a file that is open cannot be deleted.
    #[cfg(not(unix))]
    fn of(_metadata: &fs::Metadata) -> Self {
        Self(0, 0)
    }
}

/// The file and its companions, as their names stand for them at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Files {
    file: Identity,
    companions: [Option<Identity>; 2],
}

impl Files {
    /// Whether both companions are there: SQLite makes them at the first read, and while a connection is open it
    /// removes neither.
    pub(super) fn are_complete(&self) -> bool {
        self.companions.iter().all(Option::is_some)
    }

    /// Whether the file itself is the same.
    pub(super) fn is_file_of(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

/// The names of a file and of its companions.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// As the URL says. It may be a symbolic link.
    named: PathBuf,
    /// Without links: SQLite looks for the companions here.
    file: PathBuf,
    companions: [PathBuf; 2],
}

impl Place {
    /// The place that this name leads to now.
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

    /// As the URL says.
    pub(super) fn named(&self) -> &Path {
        &self.named
    }

    /// The file, without links.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The directory of the file and its companions.
    pub(crate) fn directory(&self) -> &Path {
        directory(&self.file)
    }

    /// The files that are there now. It is an error if the file is not.
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

    /// When the file was first opened under its name: SQLite makes the log then. The file itself is older, by the time
    /// that filling it took.
    pub(super) fn opened(&self) -> io::Result<SystemTime> {
        fs::metadata(&self.companions[0])?.created()
    }

    /// Sees to it that there is a file, and that no user may write to it but those it is for. A new one is filled by
    /// `fill`.
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

    /// Refuses the file if this user may not use it or a companion.
    #[cfg(unix)]
    pub(crate) fn check_files(&self) -> io::Result<()> {
        let directory = fs::metadata(self.directory())?;
        access::of_file(&fs::metadata(&self.file)?, &directory).map_err(refused)?;
        for companion in &self.companions {
            // SQLite would follow a link, and write wherever that leads.
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

    /// Makes the file under another name, and gives it its own when it is complete.
    fn make<E: From<io::Error>>(&self, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
        let name = format!("{UNFINISHED}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let own = self.directory().join(name);
        let made = self.create(&own).map_err(E::from).and_then(|()| fill(&own));
        let named = made.and_then(|()| self.name(&own).map_err(E::from));
        // If filling it has failed, it has companions.
        for path in std::iter::once(own.clone()).chain(COMPANIONS.map(|suffix| with_suffix(&own, suffix))) {
            let _ = fs::remove_file(path);
        }
        named
    }

    fn create(&self, own: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(own)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // Not by `open`, which heeds the umask.
            let mode = access::mode_in(&fs::metadata(self.directory())?);
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        drop(file);
        Ok(())
    }

    /// Gives a file its name, unless another process was faster.
    fn name(&self, own: &Path) -> io::Result<()> {
        let _alone = self.alone()?;
        self.clear_litter();
        if self.file.try_exists()? {
            return Ok(());
        }
        // The users of a deleted file share its companions by their names with the users of the new one, and both
        // would find nonsense in them.
        self.remove_companions()?;
        fs::hard_link(own, &self.file)
    }

    /// Deletes the file and its companions. Its users follow to the next one.
    pub(super) fn discard(&self, _alone: &Alone) -> io::Result<()> {
        // First, so that no process opens it without them.
        remove(&self.file)?;
        self.remove_companions()
    }

    /// Deletes the companions.
    pub(super) fn remove_companions(&self) -> io::Result<()> {
        self.companions.iter().try_for_each(|companion| remove(companion))
    }

    /// Deletes what processes have left that were killed while they made a file.
    fn clear_litter(&self) {
        let Ok(entries) = fs::read_dir(self.directory()) else { return };
        for entry in entries.flatten() {
            let unfinished = entry.file_name().to_str().is_some_and(is_unfinished);
            let age = || entry.metadata().and_then(|metadata| metadata.modified()).ok()?.elapsed().ok();
            if unfinished && age().is_some_and(|age| age > LITTER_AGE) {
                // Another user's stays.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Locks the directory, waiting for other processes as long as [`busy::until`] says: of many that make or delete
    /// the file one is first. Held for milliseconds.
    pub(super) fn alone(&self) -> io::Result<Alone> {
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
            Ok(Alone(directory))
        }
        #[cfg(not(unix))]
        Ok(Alone)
    }
}

/// A lock on the directory, until dropped.
#[cfg(unix)]
pub(super) struct Alone(fs::File);

#[cfg(not(unix))]
pub(super) struct Alone;

#[cfg(unix)]
impl Drop for Alone {
    fn drop(&mut self) {
        // Not left to closing it: a child that this process forked meanwhile has it open too.
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

/// Whether a file of this name is one that a process makes, or what SQLite keeps beside it.
fn is_unfinished(name: &str) -> bool {
    let Some((process, random)) = name.strip_prefix(UNFINISHED).and_then(|rest| rest.split_once('-')) else {
        return false;
    };
    // With or without a suffix.
    let random = random.split('-').next().unwrap_or_default();
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    process.bytes().all(|byte| byte.is_ascii_digit()) && random.len() == 16 && is_hexadecimal(random)
}

/// Deletes a file, if it is there.
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
    if let Some(name) = network(rustix::fs::statfs(directory)?.f_type as u64) {
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
/// FUSE and 9P are not among them: much of what they carry is local, such as the files of a container. There
/// SQLite says itself that it cannot share memory, or another machine is noticed by its boot.
#[cfg(target_os = "linux")]
pub(crate) fn network(magic: u64) -> Option<&'static str> {
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
    fn only_what_a_process_left_unfinished_is_litter() {
        for name in [".permits-41-0123456789abcdef", ".permits-41-0123456789abcdef-wal"] {
            assert!(is_unfinished(name), "{name}");
        }
        for name in [
            "semaphores.db-wal",
            ".permits-41",
            ".permits-x-0123456789abcdef",
            ".permits-41-0123456789abcdef.db",
        ] {
            assert!(!is_unfinished(name), "{name}");
        }
    }

    #[test]
    fn a_path_is_taken_as_it_stands() {
        let directory = std::env::current_dir().expect("tests run somewhere");
        for (rest, path) in [
            ("/var/lib/s.db", PathBuf::from("/var/lib/s.db")),
            ("///var/lib/s.db", "/var/lib/s.db".into()),
            ("/with space/100%25 & more#1.db", "/with space/100%25 & more#1.db".into()),
            ("s.db", directory.join("s.db")),
            ("below/s.db", directory.join("below/s.db")),
            ("~user/s.db", directory.join("~user/s.db")),
        ] {
            assert_eq!(parse(rest), Ok(path), "{rest}");
        }
    }

    #[test]
    fn what_could_be_meant_otherwise_is_refused() {
        for rest in ["//host/s.db", "//s.db", "/s.db?mode=ro", "?", "///s.db?"] {
            assert!(parse(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn without_a_path_and_with_a_tilde_it_is_under_home() {
        // Read, not set: the environment is shared with the tests beside this one.
        let Some(home) = directory_of("HOME") else { return println!("skipped: HOME is not set") };
        assert_eq!(parse("~/s.db"), Ok(home.join("s.db")));
        let state = directory_of("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
        for rest in ["", "//"] {
            assert_eq!(parse(rest), Ok(state.join("permits/semaphores.db")), "{rest:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_known() {
        for (magic, name) in [(0x6969, "NFS"), (0xFF53_4D42, "SMB"), (0xFFFF_FFFF_FF53_4D42, "SMB")] {
            assert_eq!(network(magic), Some(name));
        }
        let (ext4, tmpfs, fuse) = (0xEF53, 0x0102_1994, 0x6573_5546);
        assert_eq!([ext4, tmpfs, fuse].map(network), [None; 3]);
    }
}
