//! Files of other programs, damaged files, and files of another version: each is refused with a reason that
//! names the remedy, and left as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use permits::{AcquireError, AdminError, StoreError};
use permits_testkit::HANGS;
use permits_testkit::sound::Named as _;
use rusqlite::Connection;

use crate::local::fixture::{Fixture, await_closed, refusal};

/// The content of a file, and of its log if there is one.
fn content(path: &Path) -> (Vec<u8>, Vec<u8>) {
    let log = fs::read(format!("{}-wal", path.display()));
    (fs::read(path).expect("it is there"), log.unwrap_or_default())
}

/// Asserts that a connect is refused and leaves the file as it was.
#[track_caller]
fn refused(fixture: &Fixture) -> StoreError {
    let before = content(&fixture.path());
    let error = refusal(fixture.connect());
    assert!(content(&fixture.path()) == before, "untouched");
    assert!(error.to_string().contains("semaphores.db"), "it names the file: {error}");
    error
}

/// Makes a file of the library, with all its content and no log.
fn made() -> Fixture {
    let fixture = Fixture::small();
    let client = fixture.client();
    for number in 0..50 {
        client.named(format!("semaphore {number}"), 5).set_limit(5).wait().expect("the file can be used");
    }
    client.close().wait().expect("the file can be used");
    await_closed(fixture.directory());
    let log: (i64, i64) = fixture
        .sqlite()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("no other process has it open");
    assert_eq!(log, (0, 0));
    fixture
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    for text in ["a text", &"a longer text. ".repeat(5000)] {
        let fixture = Fixture::small();
        fs::write(fixture.path(), text).expect("there is room");
        own(&fixture.path());
        let error = refused(&fixture);
        assert!(
            matches!(&error, StoreError::Unsupported { reason } if reason.contains("name another file")),
            "{error}"
        );
    }
}

#[test]
fn a_database_of_another_program_is_refused() {
    for mode in ["DELETE", "WAL"] {
        let fixture = Fixture::small();
        let theirs = Connection::open(fixture.path()).expect("there is room");
        theirs.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).expect("it is new");
        theirs
            .execute_batch("CREATE TABLE passwords (text); INSERT INTO passwords VALUES ('1234')")
            .expect("it is new");
        own(&fixture.path());
        let error = refused(&fixture);
        assert!(
            matches!(&error, StoreError::Unsupported { reason } if reason.contains("another program")),
            "{error}"
        );
        drop(theirs);
        // No process has the file open now.
        refused(&fixture);
        let theirs = Connection::open(fixture.path()).expect("it is as it was");
        let text: String =
            theirs.query_row("SELECT * FROM passwords", [], |row| row.get(0)).expect("so it is");
        assert_eq!(text, "1234");
    }
}

/// A companion is missing and the database is locked, like a file of the library that is in use and lost its
/// companions.
#[test]
fn a_database_that_another_program_has_locked_is_never_deleted() {
    let fixture = Fixture::small();
    let theirs = Connection::open(fixture.path()).expect("there is room");
    theirs.execute_batch("CREATE TABLE passwords (text); BEGIN EXCLUSIVE").expect("it is new");
    own(&fixture.path());
    let error = refused(&fixture);
    assert!(matches!(&error, StoreError::Unsupported { .. } | StoreError::Unreachable { .. }), "{error}");
    theirs.execute_batch("INSERT INTO passwords VALUES ('1234'); COMMIT").expect("it is there");
    let rows: i64 = fixture
        .sqlite()
        .query_row("SELECT count(*) FROM passwords", [], |row| row.get(0))
        .expect("it is there");
    assert_eq!(rows, 1);
}

#[test]
fn a_locked_directory_delays_a_new_file_and_no_other() {
    use rustix::fs::{FlockOperation, flock};
    let fixture = Fixture::small();
    let existing = fixture.client();
    let lock = fs::File::open(fixture.directory()).expect("it is there");
    flock(&lock, FlockOperation::LockExclusive).expect("it is free");
    fixture.client().close().wait().expect("a file in use needs no lock");
    let another = fixture.directory().join("another.db");
    let began = Instant::now();
    let error = refusal(
        permits::Client::builder(crate::local::fixture::url(&another))
            .store_timeout(Duration::from_millis(500))
            .connect()
            .wait(),
    );
    assert!(began.elapsed() < HANGS, "without a bound");
    assert!(matches!(&error, StoreError::Unreachable { reason } if reason.contains("lslocks")), "{error}");
    let left =
        || fs::read_dir(fixture.directory()).expect("it is there").flatten().map(|entry| entry.file_name());
    assert!(
        left().all(|name| name.to_string_lossy().starts_with("semaphores.db")),
        "{:?}",
        left().collect::<Vec<_>>()
    );
    drop(lock);
    let client =
        permits::Client::connect(&crate::local::fixture::url(&another)).wait().expect("nothing is locked");
    client.close().wait().expect("the file can be used");
    existing.close().wait().expect("the file can be used");
}

#[test]
fn old_temporary_files_of_killed_processes_are_deleted() {
    let fixture = Fixture::small();
    let [old, new, other] =
        [".permits-7-0123456789abcdef", ".permits-7-fedcba9876543210-wal", ".permits-notes"]
            .map(|name| fixture.directory().join(name));
    for (path, age_s) in [(&old, 3600), (&new, 0), (&other, 3600)] {
        let file = fs::File::create(path).expect("there is room");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("it is ours");
    }
    fixture.client().close().wait().expect("the file can be used");
    assert_eq!([old, new, other].map(|path| path.exists()), [false, true, true]);
}

#[test]
fn a_file_of_another_layout_is_refused() {
    let fixture = made();
    fixture.sqlite().pragma_update(None, "user_version", 9).expect("it is ours");
    let what = fixture.path().display().to_string();
    assert_eq!(refused(&fixture), StoreError::OtherLayout { what, found: 9, supported: 8 });
}

#[test]
fn a_file_with_damaged_pages_is_refused_and_can_be_replaced() {
    let fixture = made();
    let mut bytes = fs::read(fixture.path()).expect("it is there");
    bytes[4096..].fill(0x5A);
    fs::write(fixture.path(), &bytes).expect("there is room");
    let error = refused(&fixture);
    assert!(matches!(&error, StoreError::Malformed { reason } if reason.contains("move it away")), "{error}");
    // The remedy of the message works.
    for suffix in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{suffix}", fixture.path().display()));
        if path.exists() {
            fs::rename(&path, path.with_extension("bad")).expect("it is ours");
        }
    }
    fixture.assert_at_rest();
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    let fixture = made();
    let bytes = fs::read(fixture.path()).expect("it is there");
    fs::write(fixture.path(), &bytes[..bytes.len() / 2]).expect("there is room");
    let before = content(&fixture.path());
    let error = match fixture.connect() {
        // The pages that opening reads may be present.
        Ok(client) => match client.named("semaphore 49", 5).acquire().wait() {
            Err(AcquireError::Store(error)) => error,
            other => panic!("half of it is missing: {other:?}"),
        },
        Err(permits::ConnectError::Store(error)) => error,
        Err(other) => panic!("the URL is fine: {other}"),
    };
    assert!(matches!(&error, StoreError::Malformed { reason } if reason.contains("move it away")), "{error}");
    assert!(content(&fixture.path()).0 == before.0, "untouched");
}

#[test]
fn a_damaged_semaphore_is_named_and_the_others_work() {
    let fixture = made();
    let sql = "UPDATE semaphores SET state = '{\"limit\": 5' WHERE name = 'semaphore 7'";
    assert_eq!(fixture.sqlite().execute(sql, []).expect("it is ours"), 1);
    let client = fixture.client();
    match client.named("semaphore 7", 5).acquire().wait() {
        Err(AcquireError::Store(StoreError::Unreadable { semaphore, .. })) => {
            assert_eq!(semaphore, "semaphore 7");
        }
        other => panic!("the damaged semaphore was accepted: {other:?}"),
    }
    client
        .named("semaphore 8", 5)
        .acquire()
        .wait()
        .expect("this one does")
        .release()
        .wait()
        .expect("it is held");
    let left: String = fixture
        .sqlite()
        .query_row("SELECT state FROM semaphores WHERE name = 'semaphore 7'", [], |row| row.get(0))
        .expect("it is there");
    assert_eq!(left, "{\"limit\": 5", "untouched");
    let damaged = client.named("semaphore 7", 5);
    assert!(matches!(damaged.delete().wait(), Err(AdminError::Store(StoreError::Unreadable { .. }))));
    assert_eq!(damaged.delete_unreadable().wait(), Ok(true));
    damaged.acquire().wait().expect("it begins anew").release().wait().expect("it is held");
    client.close().wait().expect("the file can be used");
}

#[test]
fn an_empty_file_is_used() {
    let fixture = Fixture::small();
    fs::write(fixture.path(), "").expect("there is room");
    own(&fixture.path());
    fixture.assert_at_rest();
}

#[test]
fn what_cannot_be_a_file_is_refused() {
    let fixture = Fixture::small();
    fs::create_dir(fixture.path()).expect("there is room");
    let error = refusal(fixture.connect());
    assert!(matches!(&error, StoreError::Denied { reason } if reason.contains("it is no file")), "{error}");

    let fixture = Fixture::small();
    fs::write(fixture.directory().join("parent"), "a file").expect("there is room");
    let below = crate::local::fixture::url(&fixture.directory().join("parent/semaphores.db"));
    let error = refusal(permits::Client::connect(&below).wait());
    assert!(
        matches!(&error, StoreError::Denied { reason } if reason.contains("parent/semaphores.db")),
        "{error}"
    );

    let fixture = Fixture::small();
    std::os::unix::fs::symlink("nowhere/semaphores.db", fixture.path()).expect("there is room");
    let error = refusal(fixture.connect());
    assert!(matches!(&error, StoreError::Denied { reason } if reason.contains("semaphores.db")), "{error}");
}

/// Sets a mode that allows only the owner to write, independent of the umask.
fn own(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}
