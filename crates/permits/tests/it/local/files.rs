//! Files of other programs, damaged files, and files of another version: each is refused with a reason that
//! names the remedy, left as it is, and hides no other.

use std::fs;
use std::path::Path;

use permits::{AcquireError, AdminError, StoreError};
use permits_testkit::sound::Named as _;
use permits_testkit::worker::SEMAPHORE;

use crate::local::fixture::{Fixture, refusal, state};

type Damage = fn(&mut Vec<u8>);

fn damage(path: &Path, damaged: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("it is there");
    damaged(&mut bytes);
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_damaged_semaphore_is_named_and_the_others_work() {
    let damages: [(&str, Damage); 6] = [
        ("both headers", |bytes| bytes[..600].fill(0x5A)),
        ("both texts", |bytes| bytes[1024..].fill(0x5A)),
        ("cut within the texts", |bytes| bytes.truncate(1030)),
        ("cut within a header", |bytes| bytes.truncate(60)),
        ("another program's", |bytes| *bytes = b"#!/bin/sh\n".to_vec()),
        ("SQLite", |bytes| *bytes = b"SQLite format 3\0".to_vec()),
    ];
    for (what, damaged) in damages {
        let fixture = Fixture::small();
        let client = fixture.client();
        let (bad, good) = (client.named("bad", 5), client.named("good", 5));
        for semaphore in [&bad, &good, &bad] {
            let permit = semaphore.acquire().wait().expect("it is free");
            permit.release().wait().expect("it is held");
        }
        let path = state(&fixture.path(), "bad");
        damage(&path, damaged);
        let before = fs::read(&path).expect("it is there");
        match bad.acquire().wait() {
            Err(AcquireError::Store(StoreError::Unreadable { semaphore, reason })) => {
                assert_eq!(semaphore, "bad");
                assert!(reason.contains("bad.state"), "{what}: it names the file: {reason}");
            }
            other => panic!("{what}: the damaged semaphore was accepted: {other:?}"),
        }
        assert!(
            matches!(bad.inspect().wait(), Err(AdminError::Store(StoreError::Unreadable { .. }))),
            "{what}"
        );
        good.acquire().wait().expect("this one works").release().wait().expect("it is held");
        assert_eq!(client.list().wait().expect("the directory can be used"), ["bad", "good"], "{what}");
        assert!(
            matches!(bad.delete().wait(), Err(AdminError::Store(StoreError::Unreadable { .. }))),
            "{what}"
        );
        assert!(fs::read(&path).expect("it is there") == before, "{what}: untouched");
        assert_eq!(bad.delete_unreadable().wait(), Ok(true), "{what}");
        bad.acquire().wait().expect("it begins anew").release().wait().expect("it is held");
        client.close().wait().expect("the directory can be used");
    }
}

/// The half that counts is damaged by one bit. No process leaves that, also if it is killed; and to take the
/// older half would undo a command: the permit of a holder would be free again.
#[test]
fn one_damaged_bit_is_refused_and_grants_nothing() {
    // The bytes of the half: a header at `at`, and the place of its text.
    type Bit = fn(usize, usize) -> usize;
    let bits: [(&str, Bit); 3] =
        [("header", |at, _| at + 30), ("text", |_, text| text + 7), ("boot", |at, _| at + 8)];
    for (what, bit) in bits {
        let fixture = Fixture::small();
        let (client, other) = (fixture.client(), fixture.client());
        let semaphore = fixture.semaphore(&client);
        semaphore.acquire().wait().expect("it is free").release().wait().expect("it is held");
        let held = semaphore.acquire().wait().expect("it is free");
        damage(&fixture.state(), |bytes| {
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let newer = if number(24) > number(512 + 24) { 0 } else { 512 };
            let text = usize::try_from(number(newer + 56)).expect("it is in the file");
            bytes[bit(newer, text)] ^= 1;
        });
        let refused = fixture.semaphore(&other).try_acquire().wait();
        assert!(
            matches!(refused, Err(AcquireError::Store(StoreError::Unreadable { .. }))),
            "{what}: {refused:?}"
        );
        let seen = fixture.semaphore(&other).inspect().wait();
        assert!(matches!(seen, Err(AdminError::Store(StoreError::Unreadable { .. }))), "{what}: {seen:?}");
        drop(held);
    }
}

#[test]
fn a_file_that_has_grown_is_as_good_as_before() {
    let fixture = Fixture::small();
    let client = fixture.client();
    let semaphore = fixture.semaphore(&client);
    semaphore.acquire().wait().expect("it is free").release().wait().expect("it is held");
    damage(&fixture.state(), |bytes| bytes.extend([0x5A; 5000]));
    assert_eq!(semaphore.inspect().wait().expect("it is sound").held, 0);
    client.close().wait().expect("the directory can be used");
}

#[test]
fn the_file_of_another_semaphore_is_refused() {
    let fixture = Fixture::small();
    let client = fixture.client();
    client.named("one", 5).set_limit(5).wait().expect("the directory can be used");
    fs::copy(state(&fixture.path(), "one"), fixture.state()).expect("there is room");
    match fixture.semaphore(&client).try_acquire().wait() {
        Err(AcquireError::Store(StoreError::Unreadable { semaphore, reason })) => {
            assert_eq!(
                (semaphore.as_str(), reason.contains("another semaphore")),
                (SEMAPHORE, true),
                "{reason}"
            );
        }
        other => panic!("it is of another semaphore: {other:?}"),
    }
    client.close().wait().expect("the directory can be used");
}

/// Another version numbers its layout in each file, and in the marker of the directory.
#[test]
fn files_of_another_layout_are_refused() {
    let number = |path: &Path| {
        damage(path, |bytes| {
            for at in [0, 512] {
                if bytes.get(at..at + 4) == Some(b"prmt") {
                    bytes[at + 4] = 77;
                    let checksum = crc32fast::hash(&bytes[at..at + 76]).to_le_bytes();
                    bytes[at + 76..at + 80].copy_from_slice(&checksum);
                }
            }
        });
    };
    let fixture = Fixture::small();
    let client = fixture.client();
    fixture.semaphore(&client).set_limit(5).wait().expect("the directory can be used");
    number(&fixture.state());
    let other =
        |what: &Path| StoreError::OtherLayout { what: what.display().to_string(), found: 77, supported: 11 };
    let refused = fixture.semaphore(&client).try_acquire().wait();
    assert_eq!(refused.map(drop), Err(AcquireError::Store(other(&fixture.state()))));
    client.close().wait().expect("the directory can be used");
    number(&fixture.path().join(".permits"));
    assert_eq!(refusal(fixture.connect()), other(&fixture.path()));
}

#[test]
fn what_cannot_be_a_directory_of_the_store_is_refused() {
    let refused = |prepare: &dyn Fn(&Path), words: &str| {
        let fixture = Fixture::small();
        prepare(&fixture.path());
        let error = refusal(fixture.connect());
        assert!(error.to_string().contains(words) && error.to_string().contains("permits"), "{error}");
        assert!(!error.is_temporary(), "{error}");
    };
    refused(&|path| fs::write(path, "a text").expect("there is room"), "it is a file: name a directory");
    refused(&|path| fs::write(path, b"SQLite format 3\0...").expect("there is room"), "unreleased version");
    refused(
        &|path| {
            fs::create_dir(path).expect("there is room");
            fs::write(path.join("semaphores.db"), b"SQLite format 3\0...").expect("there is room");
        },
        "stop the programs that use it, and delete it",
    );
    refused(
        &|path| std::os::unix::fs::symlink("nowhere/permits", path).expect("there is room"),
        "cannot be made",
    );

    let fixture = Fixture::small();
    fs::write(fixture.path(), "a file").expect("there is room");
    let below = crate::local::fixture::url(&fixture.path().join("below"));
    let error = refusal(permits::Client::connect(&below).wait());
    assert!(error.to_string().contains("permits/below"), "{error}");
}

/// As `mkdir` makes it; and empty files, as a process leaves them that was killed before it wrote.
#[test]
fn an_empty_directory_and_empty_files_are_used() {
    let fixture = Fixture::small();
    fs::create_dir(fixture.path()).expect("there is room");
    for path in [fixture.state(), fixture.path().join(".permits")] {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(&path, "").expect("there is room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    }
    fixture.assert_at_rest();
}
