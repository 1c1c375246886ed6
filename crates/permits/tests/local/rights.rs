//! Whose the file is, who may write to it, and where it may be made.
//!
//! For root no rights count. So root has these tested by a process of another user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use permits::StoreError;
use permits::blocking::Client;
use tempfile::TempDir;

use crate::errand;
use crate::stage::{await_closed, refusal, url};

/// `nobody`, where there is one.
const OTHER: u32 = 65_534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Connects, which is denied.
#[track_caller]
fn denied(path: &Path) -> String {
    match refusal(Client::connect(&url(path))) {
        StoreError::Denied { reason } => reason,
        other => panic!("{}: {other}", path.display()),
    }
}

#[track_caller]
fn works(path: &Path) {
    let client = Client::connect(&url(path)).expect("the file can be used");
    client.semaphore("rights", 1).acquire().expect("it is free").release().expect("it is held");
    client.close().expect("the file can be used");
    await_closed(path.parent().expect("it has one"));
}

#[test]
fn a_file_that_others_may_write_to_is_refused() {
    let directory = TempDir::new().expect("there is room");
    let path = directory.path().join("semaphores.db");
    works(&path);
    for mode in [0o620, 0o602, 0o666] {
        set_mode(&path, mode);
        assert!(denied(&path).contains("chmod 600"), "{mode:o}");
    }
    set_mode(&path, 0o644);
    works(&path);
}

#[test]
fn a_directory_where_anybody_may_replace_the_file_is_refused() {
    let directory = TempDir::new().expect("there is room");
    let path = directory.path().join("semaphores.db");
    set_mode(directory.path(), 0o777);
    assert!(denied(&path).contains("chmod o-w its directory"));
    assert!(!path.exists());
    // As /tmp is; and as a directory of a user is where each has a group of his own.
    for mode in [0o1777, 0o775] {
        set_mode(directory.path(), mode);
        works(&path);
    }
}

#[test]
fn who_lacks_the_rights_is_told() {
    let directory = TempDir::new().expect("there is room");
    let mut command = Command::new("/proc/self/exe");
    errand::send(command.args(errand::ARGUMENTS), "without_rights", directory.path());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory.path(), Some(OTHER), Some(OTHER)).expect("root may");
        command.uid(OTHER).gid(OTHER);
    }
    errand::done(&mut command);
}

/// An errand.
pub(crate) fn without_rights() {
    assert!(!rustix::process::geteuid().is_root(), "for root no rights count");
    let directory = errand::place();
    let path = directory.join("semaphores.db");

    assert!(denied(Path::new("/etc/passwd")).contains("it belongs to user 0"));

    set_mode(&directory, 0o500);
    assert!(denied(&path).contains("Permission denied"), "a new file");
    assert!(denied(&directory.join("below/semaphores.db")).contains("Permission denied"), "a new directory");

    set_mode(&directory, 0o700);
    works(&path);
    set_mode(&path, 0o400);
    assert!(denied(&path).contains("must be writable"), "a file that may only be read");
    set_mode(&path, 0o600);
    set_mode(&directory, 0o500);
    works(&path);
    for suffix in ["-wal", "-shm"] {
        set_mode(&directory, 0o700);
        fs::remove_file(format!("{}{suffix}", path.display())).expect("nobody uses it");
    }
    set_mode(&directory, 0o500);
    assert!(denied(&path).contains("its directory must be writable"), "a log cannot be made");
    set_mode(&directory, 0o700);
    works(&path);
}

#[test]
fn paths_with_anything_in_them_work() {
    let directory = TempDir::new().expect("there is room");
    for name in
        ["with space.db", "100%.db", "%41.db", "a#b&c;d'e\"f.db", "file:x.db", "ä.db", "below/and below/x.db"]
    {
        let path = directory.path().join(name);
        works(&path);
        assert!(path.exists(), "{name}");
    }
    assert!(!directory.path().join("A.db").exists(), "nothing is decoded");
}
