//! Messages that do not arrive: the FIFO of a session is full, its reader is stopped or gone, or something
//! else has its name.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use permits::{Client, Permit};
use permits_testkit::history::ClientEvent;
use permits_testkit::worker::{Worker, WorkerSettings};
use permits_testkit::{HOUR, wait};

use crate::local::fixture::Fixture;

/// Has its renewals after a third of it.
const LEASE: Duration = Duration::from_secs(2);

/// The FIFOs in the directory.
fn fifos(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture.path()).expect("it is there").flatten();
    let is_fifo = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_fifo());
    entries.filter(is_fifo).map(|entry| entry.path()).collect()
}

/// A holder in this process, and a waiter in another.
struct Story {
    fixture: Fixture,
    client: Client,
    held: Permit,
    waiter: Worker,
    /// The FIFO of the waiter's session.
    fifo: PathBuf,
}

impl Story {
    fn begin(lease: Duration) -> Self {
        let fixture = Fixture::new(1, lease);
        let mut waiter = fixture.worker("waiter");
        let [fifo] = fifos(&fixture).try_into().expect("one client is open");
        let client = fixture.client();
        let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
        waiter.ask("next");
        fixture.await_waiting(1);
        Self { fixture, client, held, waiter, fifo }
    }

    /// Releases the permit. The waiter continues, if it was stopped, and is granted.
    fn waiter_is_granted(mut self) {
        self.held.release().wait().expect("the FIFO of a waiter does not delay it");
        self.waiter.resume();
        self.waiter.acquired("next");
        self.waiter.release("next");
        self.waiter.close();
        self.client.close().wait().expect("the directory can be used");
        self.fixture.assert_safe();
        self.fixture.assert_at_rest();
    }
}

fn write(fifo: &PathBuf, bytes: &[u8]) -> bool {
    let mut options = OpenOptions::new();
    let file = options.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(fifo);
    file.and_then(|mut file| file.write_all(bytes)).is_ok()
}

/// A line that is no message makes its session renew everything.
#[test]
fn lines_of_others_do_no_harm() {
    let story = Story::begin(HOUR);
    assert!(write(&story.fifo, b"hello\n{\"Event\":{}}\n\n\n{\"Recall\":\"exports\"}\n\xFF\xFE\n"));
    assert!(write(&story.fifo, &[b'x'; 10_000]) && write(&story.fifo, b"\n"));
    story.waiter_is_granted();
}

/// The waiter finds its FIFO full when it continues, and renews everything.
#[test]
fn a_waiter_that_was_stopped_until_its_fifo_was_full_is_granted() {
    let mut story = Story::begin(HOUR);
    story.waiter.pause();
    while write(&story.fifo, b"{\"Recall\":\"exports\"}\n") {}
    story.waiter_is_granted();
}

/// The recall does not fit into its FIFO. Its reader finds it full, and renews what it keeps.
#[test]
fn a_keeper_that_was_stopped_until_its_fifo_was_full_releases_what_it_keeps() {
    let fixture = Fixture::new(1, HOUR);
    let (label, url) = ("keeper".to_owned(), fixture.url());
    let settings = WorkerSettings { label, url, keep: Some(HOUR), ..fixture.settings.clone() };
    let mut keeper = fixture.start(settings);
    keeper.await_event("-", |event| *event == ClientEvent::Connected);
    let [fifo] = fifos(&fixture).try_into().expect("one client is open");
    keeper.acquire("kept");
    keeper.release("kept");
    keeper.pause();
    while write(&fifo, b"{\"Recall\":\"exports\"}\n") {}
    let mut waiter = fixture.worker("waiter");
    waiter.ask("next");
    fixture.await_waiting(1);
    keeper.resume();
    waiter.acquired("next");
    waiter.release("next");
    waiter.close();
    keeper.close();
    fixture.assert_safe();
    fixture.assert_at_rest();
}

/// The renewal gets the answer that no message has brought.
#[test]
fn a_waiter_whose_fifo_was_replaced_is_granted_by_its_renewal() {
    for replace in [|fifo| fs::write(fifo, ""), |fifo| fs::create_dir(fifo)] as [fn(&PathBuf) -> _; 2] {
        let story = Story::begin(LEASE);
        fs::remove_file(&story.fifo).expect("it is there");
        replace(&story.fifo).expect("there is room");
        story.waiter_is_granted();
    }
}

/// A pipe takes some seventy such messages. If the others were lost, the renewals of their waiters would find
/// nothing in the store, and they would join the line again.
#[test]
fn all_waiters_of_a_stopped_session_stay_revoked() {
    const WAITERS: u64 = 150;
    let fixture = Fixture::new(1, HOUR);
    let client = fixture.client();
    let semaphore = fixture.semaphore(&client);
    let held = semaphore.acquire().wait().expect("it is free");
    let mut waiters = fixture.worker("waiters");
    let tags: Vec<String> = (0..WAITERS).map(|number| format!("waiter{number}")).collect();
    tags.iter().for_each(|tag| waiters.ask(tag));
    fixture.await_waiting(WAITERS);
    waiters.pause();
    let reason = "x".repeat(900);
    for waiter in semaphore.inspect().wait().expect("the directory can be used").waiters {
        semaphore.revoke(&waiter.holder, &reason).wait().expect("the directory can be used");
    }
    waiters.resume();
    for tag in &tags {
        let ended = waiters.await_event(tag, |event| {
            matches!(event, ClientEvent::Failed(_) | ClientEvent::GaveUp(_) | ClientEvent::Acquired { .. })
        });
        let is_revoked = matches!(&ended.event, ClientEvent::Failed(why) | ClientEvent::GaveUp(why) if why.contains("xxx"));
        assert!(is_revoked, "{tag}: {:?}", ended.event);
    }
    assert_eq!(fixture.waiting(), 0);
    held.release().wait().expect("it is held");
    waiters.close();
    client.close().wait().expect("the directory can be used");
    fixture.assert_at_rest();
}

#[test]
fn the_fifo_of_a_killed_waiter_is_removed_by_whoever_grants_it() {
    let mut story = Story::begin(HOUR);
    story.waiter.kill();
    story.held.release().wait().expect("it is held");
    assert!(wait::until(|| !story.fifo.exists()));
    story.client.close().wait().expect("the directory can be used");
}
