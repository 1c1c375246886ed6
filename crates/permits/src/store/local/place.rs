//! Where the file is, and who may use it: this user alone, on a file system that can carry it.
//!
//! A file gets its name when it is complete, so a process that is killed while it makes one leaves none half
//! made. And a file that is there is never opened here: closing it again would give up the locks of whoever has
//! it open in this process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What SQLite keeps beside a file.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

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

/// Which file a name stands for, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).map(|metadata| Self(metadata.dev(), metadata.ino()))
    }

    /// Here a file that is open cannot be deleted.
    #[cfg(not(unix))]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|_| Self(0, 0))
    }
}

/// Sees to it that there is a file, and that it is for this user alone. A new one is filled by `fill`.
pub(super) fn prepare<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let directory = directory(path);
    if !directory.exists() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(directory)?;
    }
    #[cfg(unix)]
    check_directory(directory)?;
    if !path.try_exists()? {
        make(path, directory, fill)?;
    }
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        let reason = "it is no file: name one, local:/path/file.db";
        return Err(io::Error::new(ErrorKind::InvalidInput, reason).into());
    }
    #[cfg(unix)]
    check_owner(&metadata)?;
    Ok(())
}

pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make<E: From<io::Error>>(
    path: &Path,
    directory: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let own = directory.join(format!(".permits-{}-{:016x}", std::process::id(), fastrand::u64(..)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(&own)?);
    let named = fill(&own).and_then(|()| name(&own, path, directory).map_err(E::from));
    fs::remove_file(&own)?;
    for companion in COMPANIONS {
        // Left only if filling it has failed.
        let _ = fs::remove_file(with_suffix(&own, companion));
    }
    named
}

/// Gives a file its name, unless another process was faster.
fn name(own: &Path, path: &Path, directory: &Path) -> io::Result<()> {
    #[cfg(unix)]
    let _alone = alone_in(directory)?;
    #[cfg(not(unix))]
    let _ = directory;
    if path.try_exists()? {
        return Ok(());
    }
    // Somebody has deleted the file alone. Whoever still uses it shares these by their names with whoever opens
    // the new one, and both would find nonsense in them.
    for companion in COMPANIONS {
        match fs::remove_file(with_suffix(path, companion)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::hard_link(own, path)
}

/// A lock on the directory, until dropped: of many that make the file one is first. Held for microseconds.
#[cfg(unix)]
fn alone_in(directory: &Path) -> io::Result<fs::File> {
    let directory = fs::File::open(directory)?;
    rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(directory)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(unix)]
fn refused(reason: String) -> io::Result<()> {
    Err(io::Error::new(ErrorKind::PermissionDenied, reason))
}

#[cfg(unix)]
fn check_owner(metadata: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return refused(format!(
            "it belongs to user {owner}, and this is user {user}: users share semaphores by a server, not by a file"
        ));
    }
    if metadata.mode() & 0o022 != 0 {
        return refused("others may write to it: chmod 600".into());
    }
    Ok(())
}

/// A group may write to a directory: many systems give each user a group of its own. Everybody may not, unless
/// it is as `/tmp` is, where nobody can take away another's file and put his own there.
#[cfg(unix)]
fn check_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = fs::metadata(directory)?.mode();
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        return refused("everybody may put another file in its place: chmod o-w its directory".into());
    }
    #[cfg(target_os = "linux")]
    if let Some(name) = network(rustix::fs::statfs(directory)?.f_type as u64) {
        return refused(format!(
            "it is on a network file system ({name}), and a local store is for one machine"
        ));
    }
    Ok(())
}

/// The name of a file system that several machines use at once, where SQLite's locks and shared memory fail.
///
/// FUSE and 9P are not among them: much of what they carry is local, such as the files of a container. There
/// SQLite says itself that it cannot share memory, or another machine is noticed by its boot.
#[cfg(target_os = "linux")]
pub(super) fn network(magic: u64) -> Option<&'static str> {
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
