//! The users of a directory, missing and lost rights, and special characters in paths and names.
//!
//! The system checks no rights of root, so under root these tests run in processes of other users.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use permits::{AcquireError, Client, ConnectError, RenewError, StoreError};
use permits_testkit::HOUR;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::SEMAPHORE;

use crate::local::child_task;
use crate::local::fixture::{Fixture, state, url};

/// The unprivileged user of most systems.
const OTHER: u32 = 65_534;

/// Two members of a group, and the group, which is not their primary group.
const MEMBERS: [u32; 2] = [65_501, 65_502];
const GROUP: u32 = 65_500;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Connects, and uses the semaphore of the workers.
fn try_use(path: &Path) -> Result<(), StoreError> {
    let client = match Client::connect(&url(path)).wait() {
        Ok(client) => client,
        Err(ConnectError::Store(error)) => return Err(error),
        Err(other) => panic!("{}: {other}", path.display()),
    };
    match client.named(SEMAPHORE, 1).acquire().wait() {
        Ok(permit) => permit.release().wait().expect("it is held"),
        Err(AcquireError::Store(error)) => return Err(error),
        Err(other) => panic!("{}: {other}", path.display()),
    }
    client.close().wait().expect("the directory can be used");
    Ok(())
}

#[track_caller]
fn works(path: &Path) {
    try_use(path).expect("the directory can be used");
}

#[track_caller]
fn denied(path: &Path, reason: &str) {
    match try_use(path) {
        Err(StoreError::Denied { reason: given }) => assert!(given.contains(reason), "{given}"),
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// A directory for a store, with this mode.
fn directory(mode: u32) -> (Fixture, PathBuf) {
    let fixture = Fixture::new(1, HOUR);
    let path = fixture.path();
    fs::create_dir(&path).expect("there is room");
    set_mode(&path, mode);
    (fixture, path)
}

/// The files that every user of a semaphore reads.
fn files(path: &Path) -> [PathBuf; 2] {
    [path.join(".permits"), state(path, SEMAPHORE)]
}

#[test]
fn files_and_directories_that_others_may_write_to_are_refused() {
    let (fixture, path) = directory(0o777);
    denied(&path, "chmod o-w");
    assert_eq!(fs::read_dir(&path).expect("it is ours").count(), 0);
    // The modes of /tmp, and of a user's directory with and without a group for each user.
    for mode in [0o1777, 0o775, 0o700] {
        set_mode(&path, mode);
        works(&path);
    }
    for file in files(&path) {
        for mode in [0o620, 0o602, 0o666] {
            set_mode(&file, mode);
            denied(&path, "chmod 600");
        }
        set_mode(&file, 0o644);
        works(&path);
    }
    let client = fixture.client();
    assert_modes(&path, 0o600, 0o644);
    client.close().wait().expect("the directory can be used");
}

/// All files have one of two modes.
#[track_caller]
fn assert_modes(path: &Path, mode: u32, other: u32) {
    let entries = fs::read_dir(path).expect("it can be read").map(|entry| entry.expect("it can be read"));
    // A client that was closed may remove its FIFO just now.
    let modes: Vec<_> = entries
        .filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?.mode() & 0o777)))
        .collect();
    assert!(modes.len() > 2 && modes.iter().all(|(_, of)| [mode, other].contains(of)), "{modes:?}");
}

#[test]
fn missing_rights_are_named() {
    let (fixture, path) = directory(0o700);
    let mut command = Command::new("/proc/self/exe");
    child_task::send(command.args(child_task::ARGUMENTS), "without_rights", &path);
    if rustix::process::geteuid().is_root() {
        // If built with umask 077, only its owner can run this program.
        set_mode(&std::env::current_exe().expect("a test knows its executable"), 0o755);
        set_mode(fixture.directory(), 0o711);
        chown(&path, Some(OTHER), Some(OTHER)).expect("root may");
        command.uid(OTHER).gid(OTHER);
    }
    child_task::done(&mut command);
}

/// A child task.
pub(crate) fn without_rights() {
    assert!(!rustix::process::geteuid().is_root(), "for root no rights count");
    let path = child_task::place();
    let [marker, state] = files(&path);

    set_mode(&path, 0o500);
    denied(&path, "must be writable");
    denied(&path.join("below"), "it cannot be made");
    set_mode(&path, 0o700);
    works(&path);
    set_mode(&path, 0o500);
    denied(&path, "must be writable");
    set_mode(&path, 0o700);
    for file in [marker, state.clone()] {
        set_mode(&file, 0);
        denied(&path, "must be writable");
        set_mode(&file, 0o600);
    }
    set_mode(&state, 0o400);
    denied(&path, "must be writable");

    let client = Client::builder(url(&path)).lease(HOUR).connect().wait().expect("it can be used");
    let semaphore = client.named(SEMAPHORE, 1);
    assert_eq!(semaphore.inspect().wait().expect("it may be read").held, 0);
    set_mode(&state, 0o600);
    let permit = semaphore.acquire().wait().expect("it is free");
    for (of_directory, of_file) in [(0o700, 0o400), (0, 0o600)] {
        set_mode(&state, of_file);
        set_mode(&path, of_directory);
        match permit.renew().wait() {
            Err(RenewError::Store(StoreError::Denied { .. })) => assert!(permit.is_held()),
            other => panic!("the rights are lost: {other:?}"),
        }
        set_mode(&path, 0o700);
        set_mode(&state, 0o600);
        permit.renew().wait().expect("the rights are back");
    }
    permit.release().wait().expect("it is held");
    client.close().wait().expect("it can be used");
}

/// Runs a child task with the rights of another user and a group, under a umask that grants nothing to the
/// group.
fn send(user: u32, child_task: &str, place: &Path) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &user.to_string()]);
    match MEMBERS.contains(&user) {
        true => command.args(["--groups", &GROUP.to_string()]),
        false => command.arg("--clear-groups"),
    };
    // The command gets the executable as a descriptor, because that user may have no right to its directory.
    command.args(["sh", "-c", "umask 077; exec /proc/self/fd/0 \"$@\"", "sh"]).args(child_task::ARGUMENTS);
    let executable = File::open("/proc/self/exe").expect("a test knows its executable");
    child_task::done(child_task::send(&mut command, child_task, place).stdin(executable));
}

/// A directory of a group, as made by an administrator.
fn directory_of_group(mode: u32) -> Option<(Fixture, PathBuf)> {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("true").status().is_err() {
        println!("skipped: only root can become other users, by setpriv");
        return None;
    }
    let (fixture, path) = directory(mode);
    set_mode(fixture.directory(), 0o711);
    chown(&path, None, Some(GROUP)).expect("root may");
    // `chown` has taken the bit of the group.
    set_mode(&path, mode);
    Some((fixture, path))
}

/// The lease is an hour, so only a message ends a wait: of root to a member, of one member to the other, and
/// of that to root.
#[test]
fn the_members_of_a_group_wake_each_other_in_a_directory_made_for_them() {
    let Some((fixture, path)) = directory_of_group(0o2770) else { return };
    let client = fixture.client();
    let semaphore = fixture.semaphore(&client);
    let first = semaphore.acquire().wait().expect("it is free");
    std::thread::scope(|scope| {
        for (place, user) in MEMBERS.into_iter().enumerate() {
            let path = &path;
            scope.spawn(move || send(user, "as_a_member", path));
            fixture.await_waiting(place as u64 + 1);
        }
        let last = scope.spawn(|| semaphore.acquire().wait());
        fixture.await_waiting(3);
        first.release().wait().expect("it is held");
        let last = last.join().expect("no panic").expect("it is granted");
        last.release().wait().expect("it is held");
    });
    assert_modes(&path, 0o660, 0o660);
    send(OTHER, "as_an_outsider", &path);
    client.close().wait().expect("the directory can be used");
    fixture.assert_at_rest();
}

/// A child task.
pub(crate) fn as_a_member() {
    let path = child_task::place();
    let client = Client::builder(url(&path)).lease(HOUR).connect().wait().expect("it is of the group");
    let permit = client.named(SEMAPHORE, 1).acquire().wait().expect("it is granted");
    client.named("own", 1).set_limit(2).wait().expect("it is of the group");
    assert_modes(&path, 0o660, 0o660);
    permit.release().wait().expect("it is held");
    client.close().wait().expect("it is of the group");
}

/// A child task.
pub(crate) fn as_an_outsider() {
    denied(&child_task::place(), "Permission denied");
}

#[test]
fn users_cannot_share_files_where_every_user_may_write() {
    let Some((_fixture, path)) = directory_of_group(0o1777) else { return };
    let give = |path: &Path| lchown(path, Some(MEMBERS[0]), Some(GROUP)).expect("root may");
    works(&path);
    for file in files(&path) {
        give(&file);
        denied(&path, "where every user may write, users cannot share");
        fs::remove_file(&file).expect("root may");
        works(&path);
        fs::remove_file(&file).expect("it is there");
        symlink("/etc/passwd", &file).expect("there is room");
        denied(&path, "is a symbolic link: delete it");
        fs::remove_file(&file).expect("it is there");
    }
    let (real, link) = (path.join("real"), path.join("link"));
    works(&real);
    symlink(&real, &link).expect("there is room");
    works(&link);
    give(&link);
    for link in [&link, &link.join("")] {
        denied(link, "it is a symbolic link of user");
    }
}

#[test]
fn a_file_that_is_not_of_the_group_of_its_directory_is_not_shared() {
    let Some((_fixture, path)) = directory_of_group(0o2770) else { return };
    works(&path);
    for file in files(&path) {
        chown(&file, Some(MEMBERS[0]), None).expect("root may");
        works(&path);
        set_mode(&file, 0o600);
        denied(&path, "chgrp 65500 and chmod 660");
        set_mode(&file, 0o660);
        chown(&file, None, Some(MEMBERS[0])).expect("root may");
        denied(&path, "chgrp 65500 and chmod 660");
        chown(&file, None, Some(GROUP)).expect("root may");
    }
    set_mode(&path, 0o770);
    // The group's right to write alone is no sign of sharing.
    denied(&path, "chmod 600");
}

#[test]
fn paths_and_names_with_special_characters_work() {
    let fixture = Fixture::small();
    for name in ["with space", "100%", "%41", "a#b&c;d'e\"f", "file:x", "ä", "~", "below/and below"] {
        let path = fixture.directory().join(name);
        works(&path);
        assert!(path.exists(), "{name}");
    }
    assert!(!fixture.directory().join("A").exists(), "nothing is decoded");

    let long = ["ä".repeat(100), format!("{}ö", "ä".repeat(99)), "/".repeat(200)];
    let mut names: BTreeSet<String> = long.into();
    names.extend([".", "..", "/", "../x", "~", "a", "A", "a:b", "%41", "with space"].map(str::to_owned));
    let connect = |prefix| Client::builder(fixture.url()).prefix(prefix).connect().wait();
    let clients = ["a", "A", "a:b", "~", "../x"].map(|prefix| connect(prefix).expect("it is valid"));
    let held: Vec<_> = clients
        .iter()
        .flat_map(|client| {
            names.iter().map(|name| client.named(name, 1).try_acquire().wait().expect("none shares its unit"))
        })
        .collect();
    for client in &clients {
        let listed = client.list().wait().expect("the directory can be used");
        assert!(listed.iter().eq(&names), "{listed:?}");
    }
    held.into_iter().for_each(|permit| permit.release().wait().expect("it is held"));
    let beside = fs::read_dir(fixture.directory()).expect("it is ours").count();
    assert_eq!(beside, 9, "no name leads out of the directory");
    for client in clients {
        client.close().wait().expect("the directory can be used");
    }
}
