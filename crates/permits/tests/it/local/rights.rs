//! The users of a file, missing and lost rights, and shared directories.
//!
//! The system checks no rights of root, so under root these tests run in processes of other users.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use permits::Client;
use permits::{AcquireError, Severity, StoreError};
use permits_testkit::sound::Named as _;
use tempfile::TempDir;

use crate::local::child_task;
use crate::local::fixture::{await_closed, refusal, url};

/// The unprivileged user of most systems.
const OTHER: u32 = 65_534;

/// Two members of a group, and the group, which is not their primary group.
const MEMBERS: [u32; 2] = [65_501, 65_502];
const GROUP: u32 = 65_500;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Asserts that a connect is denied.
#[track_caller]
fn denied(path: &Path) -> String {
    match refusal(Client::connect(&url(path)).wait()) {
        StoreError::Denied { reason } => reason,
        other => panic!("{}: {other}", path.display()),
    }
}

#[track_caller]
fn works(path: &Path) {
    let client = Client::connect(&url(path)).wait().expect("the file can be used");
    client.named("rights", 1).acquire().wait().expect("it is free").release().wait().expect("it is held");
    client.close().wait().expect("the file can be used");
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
fn a_directory_where_every_user_may_replace_the_file_is_refused() {
    let directory = TempDir::new().expect("there is room");
    let path = directory.path().join("semaphores.db");
    set_mode(directory.path(), 0o777);
    assert!(denied(&path).contains("chmod o-w its directory"));
    assert!(!path.exists());
    // The mode of /tmp; and that of a user's directory on systems where each user has a group.
    for mode in [0o1777, 0o775] {
        set_mode(directory.path(), mode);
        works(&path);
    }
}

#[test]
fn missing_rights_are_named() {
    let directory = TempDir::new().expect("there is room");
    let mut command = Command::new("/proc/self/exe");
    child_task::send(command.args(child_task::ARGUMENTS), "without_rights", directory.path());
    if rustix::process::geteuid().is_root() {
        // If built with umask 077, only its owner can run this program.
        set_mode(&std::env::current_exe().expect("a test knows its executable"), 0o755);
        chown(directory.path(), Some(OTHER), Some(OTHER)).expect("root may");
        command.uid(OTHER).gid(OTHER);
    }
    child_task::done(&mut command);
}

/// a child task.
pub(crate) fn without_rights() {
    assert!(!rustix::process::geteuid().is_root(), "for root no rights count");
    let directory = child_task::place();
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
        fs::remove_file(format!("{}{suffix}", path.display())).expect("no process uses it");
    }
    set_mode(&directory, 0o500);
    assert!(denied(&path).contains("its directory must be writable"), "a log cannot be made");
    set_mode(&directory, 0o700);
    works(&path);

    let client = Client::connect(&url(&path)).wait().expect("the file can be used");
    let permit = client.named("rights", 1).acquire().wait().expect("it is free");
    for (mode, of_file) in [(0o700, 0o400), (0o500, 0o600), (0, 0o600)] {
        set_mode(&directory, 0o700);
        set_mode(&path, of_file);
        set_mode(&directory, mode);
        permit.renew().wait().expect("the file is open, whatever rights its users have lost");
    }
    denied(&path);
    permit.release().wait().expect("it is held");
    client.close().wait().expect("the file is open");
    set_mode(&directory, 0o700);
}

/// The command with the rights of another user and a group.
fn send(user: u32, child_task: &str, place: &Path) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &user.to_string()]);
    match MEMBERS.contains(&user) {
        true => command.args(["--groups", &GROUP.to_string()]),
        false => command.arg("--clear-groups"),
    };
    // By a descriptor, because that user may have no right to the directory of this executable.
    command.arg("/proc/self/fd/0").args(child_task::ARGUMENTS);
    let executable = File::open("/proc/self/exe").expect("a test knows its executable");
    child_task::done(child_task::send(&mut command, child_task, place).stdin(executable));
}

/// A directory that is made for a group, as by an administrator.
fn directory_of(mode: u32) -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("true").status().is_err() {
        println!("skipped: only root can become other users, by setpriv");
        return None;
    }
    let directory = TempDir::new().expect("there is room");
    chown(directory.path(), None, Some(GROUP)).expect("root may");
    set_mode(directory.path(), mode);
    Some(directory)
}

#[track_caller]
fn assert_shared(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let metadata = fs::metadata(format!("{}{suffix}", path.display())).expect("it is in use");
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, GROUP), "{suffix}");
    }
}

#[test]
fn the_members_of_a_group_share_the_file_in_a_directory_made_for_them() {
    let Some(directory) = directory_of(0o2770) else { return };
    let path = directory.path().join("semaphores.db");
    let client = Client::connect(&url(&path)).wait().expect("root may do anything");
    let permit = client.named("held", 1).acquire().wait().expect("it is free");
    for user in MEMBERS {
        assert_shared(&path);
        // Each deletes a companion and so makes a new file, to which the others follow.
        send(user, "as_a_member", &path);
        permit.renew().wait().expect("it is held all the while");
        assert_eq!(fs::metadata(&path).expect("it is there").uid(), user);
    }
    assert_shared(&path);
    send(OTHER, "as_an_outsider", &path);
    let diagnosis = Client::builder(url(&path)).diagnose().wait().expect("it is valid");
    assert!(diagnosis.is_healthy(), "{diagnosis:?}");
    let shared = diagnosis.findings.iter().filter(|finding| finding.observed.contains("group"));
    assert_eq!(shared.filter(|finding| finding.severity == Severity::Fine).count(), 2, "{diagnosis:?}");
    permit.release().wait().expect("it is held");
    client.close().wait().expect("the file can be used");
}

/// a child task.
pub(crate) fn as_a_member() {
    let path = child_task::place();
    let client = Client::connect(&url(&path)).wait().expect("it is of the group");
    match client.named("held", 1).try_acquire().wait() {
        Err(AcquireError::NoPermits) => {}
        other => panic!("root holds it: {other:?}"),
    }
    client.close().wait().expect("the file can be used");
    let user = fs::metadata("/proc/self").expect("the system shows it").uid();
    // Root's client may notice the deletion first, and make the new file.
    let is_own = || fs::metadata(&path).expect("it is there").uid() == user;
    while !is_own() {
        await_closed(path.parent().expect("it has one"));
        fs::remove_file(format!("{}-shm", path.display())).expect("the group may write to its directory");
        works(&path);
    }
    assert_shared(&path);
}

/// a child task.
pub(crate) fn as_an_outsider() {
    assert!(denied(&child_task::place()).contains("Permission denied"));
}

#[test]
fn users_cannot_share_a_file_where_every_user_may_write() {
    let Some(directory) = directory_of(0o1777) else { return };
    let path = |name: &str| directory.path().join(name);
    let give = |path: &PathBuf| lchown(path, Some(MEMBERS[0]), Some(GROUP)).expect("root may");

    works(&path("theirs.db"));
    give(&path("theirs.db"));
    assert!(denied(&path("theirs.db")).contains("where every user may write, users cannot share a file"));

    works(&path("ours.db"));
    for suffix in ["-wal", "-shm"] {
        let companion = path(&format!("ours.db{suffix}"));
        fs::remove_file(&companion).expect("it is there");
        fs::write(&companion, "").expect("there is room");
        give(&companion);
        assert!(denied(&path("ours.db")).contains("beside it: it belongs to user"), "{suffix}");
        fs::remove_file(&companion).expect("root may");
        symlink("/etc/passwd", &companion).expect("there is room");
        assert!(denied(&path("ours.db")).contains("it is no file"), "{suffix}");
        fs::remove_file(&companion).expect("it is there");
    }
    works(&path("ours.db"));

    symlink(path("ours.db"), path("link.db")).expect("there is room");
    works(&path("link.db"));
    give(&path("link.db"));
    assert!(denied(&path("link.db")).contains("it is a symbolic link of user"));
}

#[test]
fn a_file_that_is_not_of_the_group_of_its_directory_is_not_shared() {
    let Some(directory) = directory_of(0o2770) else { return };
    let path = directory.path().join("semaphores.db");
    works(&path);
    chown(&path, Some(MEMBERS[0]), None).expect("root may");
    works(&path);
    set_mode(&path, 0o600);
    assert!(denied(&path).contains("chgrp 65500 and chmod 660"));
    set_mode(&path, 0o660);
    chown(&path, None, Some(MEMBERS[0])).expect("root may");
    assert!(denied(&path).contains("chgrp 65500 and chmod 660"));
    chown(&path, None, Some(GROUP)).expect("root may");
    set_mode(directory.path(), 0o770);
    assert!(denied(&path).contains("chmod 600"), "group write alone is no sign of sharing");
}

#[test]
fn paths_with_special_characters_work() {
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
