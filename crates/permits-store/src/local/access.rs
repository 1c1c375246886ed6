//! The users that may use a store: one user, or the group of a directory that an administrator has made for
//! sharing.
//! A process that may write to a file can forge permits, and a process that may write to the directory can
//! replace the file. So both are checked. A directory is for sharing if it has the setgid bit and its group
//! may write to it (`install -d -m 2770 -g GROUP`): new files in it then belong to its group, whichever
//! member makes them. That the group may write is not enough as a sign, because with umask 002 this is so in
//! every directory of a user.
//!
//! If every user may write to a directory, its files are not shared. If it has the sticky bit, as `/tmp`
//! does, a user can still have files of its own there.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// The command that makes a directory for sharing.
pub(super) const SHARE: &str = "install -d -m 2770 -g GROUP DIRECTORY";

/// The mode of a new file in this directory.
pub(super) fn mode_in(directory: &Metadata) -> u32 {
    if is_shared(directory) { 0o660 } else { 0o600 }
}

/// Returns true if the directory is for sharing with its group. A directory with the sticky bit is not,
/// because a member could not replace another member's file.
pub(crate) fn is_shared(directory: &Metadata) -> bool {
    directory.mode() & (SETGID | STICKY | GROUP_WRITES | OTHERS_WRITE) == SETGID | GROUP_WRITES
}

/// Refuses a directory in which no file can be used safely, and says why.
pub(crate) fn of_directory(directory: &Metadata) -> Result<(), String> {
    if directory.mode() & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        return Err(format!(
            "every user may put other files into it: chmod o-w; to share it, make a directory for a group ({SHARE})"
        ));
    }
    Ok(())
}

/// Refuses a file that this process's user cannot use safely, and says why.
pub(super) fn of_file(file: &Metadata, directory: &Metadata) -> Result<(), String> {
    of_file_for(rustix::process::geteuid().as_raw(), file, directory)
}

fn of_file_for(user: u32, file: &Metadata, directory: &Metadata) -> Result<(), String> {
    let shared = is_shared(directory);
    let (owner, group, mode) = (file.uid(), file.gid(), file.mode() & 0o7777);
    let right = mode_in(directory);
    if mode & OTHERS_WRITE != 0 {
        return Err(format!("every user may write to it, and forge permits: chmod {right:o}"));
    }
    let is_the_groups = shared && group == directory.gid();
    if mode & GROUP_WRITES != 0 && !is_the_groups {
        return Err(match shared {
            true => format!(
                "a group may write to it that is not its directory's: chgrp {} and chmod 660",
                directory.gid()
            ),
            false => "others may write to it, and forge permits: chmod 600".to_owned(),
        });
    }
    if owner == user || is_the_groups && mode & 0o060 == 0o060 {
        return Ok(());
    }
    let owned = format!("it belongs to user {owner}, and this is user {user}");
    Err(if shared {
        format!(
            "{owned}; its directory is for group {}, but the file is not: chgrp {0} and chmod 660, or delete it",
            directory.gid()
        )
    } else if directory.mode() & OTHERS_WRITE != 0 {
        format!(
            "{owned}; where every user may write, users cannot share: share a directory of a group \
             ({SHARE}), or use a server"
        )
    } else {
        format!("{owned}: users share a directory that is made for their group ({SHARE}), or use a server")
    })
}

/// Refuses a symbolic link that another user may have put there to lead this process to another file, and
/// says why.
pub(super) fn of_link(link: &Metadata, directory: &Metadata) -> Result<(), String> {
    let trusted = [rustix::process::geteuid().as_raw(), 0, directory.uid()];
    if directory.mode() & OTHERS_WRITE != 0 && !trusted.contains(&link.uid()) {
        return Err(format!(
            "it is a symbolic link of user {}, in a directory where every user may write",
            link.uid()
        ));
    }
    Ok(())
}
