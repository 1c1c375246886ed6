//! Two versions of the library with different layouts on one store: neither damages what the other one has,
//! and both say so.

use std::process::{Command, Stdio};

use permits::{AcquireError, AdminError, Alert, Limit, PermitHandle, Recovery, StoreError};
use permits::{Client, Semaphore};
use permits_core::protocol::pretend_layout;
use permits_testkit::Server;
use permits_testkit::sound::Named as _;
use tempfile::TempDir;

/// The variables by which a process of the other version gets the URL, and a handle of this version.
const URL: &str = "PERMITS_TEST_LAYOUT_URL";
const HANDLE: &str = "PERMITS_TEST_LAYOUT_HANDLE";
const THIS: u32 = 11;
const OTHER: u32 = 12;

fn connect(url: &str) -> Client {
    Client::builder(url).recovery(Recovery::Off).connect().wait().expect("the store is up")
}

/// Asserts that each operation on `semaphore` is refused because it has layout `found`.
fn everything_is_refused(semaphore: &Semaphore, found: u32, supported: u32) {
    let of = |error: &StoreError| {
        let StoreError::OtherLayout { what, found, supported } = error else { panic!("{error}") };
        assert!(what.contains(semaphore.name()) && error.to_string().contains("upgrade.md"), "{error}");
        (*found, *supported)
    };
    let acquired = [semaphore.acquire().wait(), semaphore.try_acquire().wait()];
    for result in acquired {
        let Err(AcquireError::Store(error)) = result else { panic!("{result:?}") };
        assert_eq!(of(&error), (found, supported));
    }
    let administered = [
        semaphore.declare().wait().map(drop),
        semaphore.set_limit(7).wait().map(drop),
        semaphore.adjust_limit(1).wait().map(drop),
        semaphore.unpin().wait().map(drop),
        semaphore.pause("").wait(),
        semaphore.resume().wait(),
        semaphore.close_line("closed").wait(),
        semaphore.open_line().wait(),
        semaphore.set_alert(Alert::default()).wait(),
        semaphore.set_lane("lane", Some(1), None).wait(),
        semaphore.revoke("this", "").wait().map(drop),
        semaphore.delete().wait().map(drop),
        semaphore.inspect().wait().map(drop),
    ];
    for (number, result) in administered.into_iter().enumerate() {
        let Err(AdminError::Store(error)) = result else { panic!("operation {number}: {result:?}") };
        assert_eq!(of(&error), (found, supported), "operation {number}");
    }
}

/// The other version: finds a semaphore of this one, and leaves one of its own.
#[test]
#[ignore = "the other test starts it, as a process of its own"]
fn as_another_version() {
    let (Ok(url), Ok(handle)) = (std::env::var(URL), std::env::var(HANDLE)) else { return };
    pretend_layout(u8::try_from(OTHER).expect("it is small"));
    let client = connect(&url);
    everything_is_refused(&client.named("this", Limit::Stored), THIS, OTHER);
    let refused = handle.parse::<PermitHandle>().expect_err("it is of the other layout").to_string();
    assert!(refused.contains("layout 11") && refused.contains("layout 12"), "{refused}");
    assert_eq!(client.list().wait().expect("the store is up"), ["this"], "a list reads no state");
    let own = client.named("other", 4);
    std::mem::forget(own.acquire().wait().expect("it is free"));
    own.set_limit(5).wait().expect("the store is up");
    println!("left: {}", own.inspect().wait().expect("it is its own").held);
}

fn start_another_version(url: &str, handle: &str) -> std::process::Output {
    Command::new(std::env::current_exe().expect("it runs"))
        .args(["--ignored", "--exact", "layouts::as_another_version", "--nocapture"])
        .env(URL, url)
        .env(HANDLE, handle)
        .stdin(Stdio::null())
        .output()
        .expect("it is executable")
}

#[test]
fn two_layouts_on_one_server_leave_each_other_alone() {
    let server = Server::start();
    let client = connect(&server.url());
    let semaphore = client.named("this", 2);
    let handed_over = semaphore.acquire().wait().expect("it is free").hand_over().wait().expect("it is held");
    let held = semaphore.acquire().wait().expect("it is free");
    let before = semaphore.inspect().wait().expect("the server is up");

    let output = start_another_version(&server.url(), &handed_over.to_string());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("left: 1"), "{text}{errors}");

    let after = semaphore.inspect().wait().expect("it is as it was");
    assert_eq!((after.held, after.limit, after.pinned), (2, before.limit, false));
    held.renew().wait().expect("it is held");
    held.release().wait().expect("it is held");
    assert_eq!(client.release(&handed_over).wait(), Ok(true));
    let others = client.named("other", 4);
    everything_is_refused(&others, OTHER, THIS);
    assert_eq!(others.delete_unreadable().wait(), Ok(true));
    others.acquire().wait().expect("it begins anew").release().wait().expect("it is held");
}

#[test]
fn a_directory_of_one_layout_is_refused_by_the_other() {
    let directory = TempDir::new().expect("there is room");
    let url = format!("local:{}", directory.path().join("permits").display());
    let client = connect(&url);
    let semaphore = client.named("this", 1);
    let held = semaphore.acquire().wait().expect("it is free");
    let handle = "permits11:this:h:s.1:1:15000:7:0";
    let output = start_another_version(&url, handle);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("OtherLayout"), "{text}");
    held.renew().wait().expect("its files are as they were");
    held.release().wait().expect("it is held");
}
