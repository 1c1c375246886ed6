//! `permits revoke` where a list has not all holders.

use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use permits::{AcquireOptions, Client, Permit};
use permits_testkit::sound::Named as _;
use permits_testkit::{HOUR, Server, wait};

use crate::support::{Output, fresh, output, permits};

/// More than a list has.
const MANY: u32 = 1_200;

/// Permits of `h0000` and so on, which count for longer than those that ask for them. What cools is listed
/// first.
#[track_caller]
fn hold_many(client: &Client, name: &str) -> Vec<Permit> {
    let semaphore = client.named(name, MANY);
    let options = AcquireOptions::new().lease(HOUR).at_least(Duration::from_secs(1_800));
    let holders = (0..MANY).map(|number| format!("h{number:04}"));
    holders
        .map(|holder| semaphore.acquire_with(options.clone().holder(holder)).wait().expect("it is free"))
        .collect()
}

fn revoke(server: &Server, name: &str, arguments: &[&str]) -> Output {
    output(permits(&server.url(), ["revoke", name]).args(arguments))
}

/// The code of a revocation that is refused, and the reason.
#[track_caller]
fn refusal(output: &Output, name: &str) -> (i32, String) {
    assert_eq!(output.stdout, "");
    let reason = output.stderr.strip_prefix(&format!("permits: {name}: ")).expect("it names the semaphore");
    (output.code, reason.trim_end().to_owned())
}

#[test]
fn what_a_list_has_not_is_not_said_to_be_missing() {
    let (server, name) = fresh();
    let client = Client::connect(&server.url()).wait().expect("the server is up");
    let held = hold_many(&client, &name);
    let (first, last) = ("h0000".to_owned(), format!("h{:04}", MANY - 1));
    let partial =
        "--partial searches the first 1000 holders and waiters, and there are more: give the whole name";
    for beginning in ["h000", &last] {
        let refused = revoke(&server, &name, &[beginning, "--partial"]);
        assert_eq!(refusal(&refused, &name), (64, partial.to_owned()));
    }
    for permit in held {
        permit.release().wait().expect("it is held");
    }
    let refused = refusal(&revoke(&server, &name, &[&last]), &name);
    let token = format!(
        "\"{last}\" neither holds nor waits, and no grant of it cools among the first 1000 holders: a later one \
         is freed by its token, with a library or over HTTP, or with permits revoke --all"
    );
    assert_eq!(refused, (1, token));
    let freed = revoke(&server, &name, &[&first]);
    assert_eq!(freed.code, 0, "{}", freed.stderr);
}

#[test]
fn all_are_revoked_and_counted_where_a_list_has_not_all() {
    let (server, name) = fresh();
    let client = Client::connect(&server.url()).wait().expect("the server is up");
    let held = hold_many(&client, &name);
    let all = revoke(&server, &name, &["--all"]);
    let expected = format!("{name}: {MANY} holders and 0 waiters revoked, 0 of {MANY} held, 0 waiting\n");
    assert_eq!((all.code, all.stdout), (0, expected), "{}", all.stderr);
    assert!(wait::until(|| held.iter().all(|permit| !permit.is_held())), "they are not told");
}

/// A list has the same number of waiters of each lane, so a lane with most of the waiters takes many lists.
#[test]
fn all_waiters_are_revoked_where_one_lane_has_most() {
    const WAITING: usize = 1_999;
    let (server, name) = fresh();
    let client = Client::connect(&server.url()).wait().expect("the server is up");
    let semaphore = client.named(&name, 1);
    let held = semaphore.acquire().wait().expect("it is free");
    let lanes = (0..WAITING).map(|number| if number == 0 { "small" } else { "big" });
    let mut waiting: Vec<_> =
        lanes.map(|lane| semaphore.acquire_with(AcquireOptions::new().lane(lane))).collect();
    assert!(waiting.iter_mut().all(|acquire| acquire.now_or_never().is_none()), "one is held");
    let waits = || semaphore.inspect_up_to(0).wait().expect("the server is up").waiting;
    assert!(wait::until(|| waits() == WAITING as u64), "{} wait", waits());
    let all = revoke(&server, &name, &["--all"]);
    let expected = format!("{name}: 1 holder and {WAITING} waiters revoked, 0 of 1 held, 0 waiting\n");
    assert_eq!((all.code, all.stdout), (0, expected), "{}", all.stderr);
    assert!(wait::until(|| !held.is_held()), "it is not told");
}

/// Leases that end first are listed first, so permits with short ones that are acquired again and again may
/// hide one from before.
#[test]
fn a_holder_that_newer_ones_hide_is_not_said_to_be_revoked() {
    let (server, name) = fresh();
    let client = Client::connect(&server.url()).wait().expect("the server is up");
    let semaphore = client.named(&name, 2 * MANY);
    let old = semaphore.acquire_with(AcquireOptions::new().lease(2 * HOUR)).wait().expect("it is free");
    let newer = semaphore.clone();
    let again = async move || {
        while let Ok(permit) = newer.acquire_with(AcquireOptions::new().lease(HOUR)).await {
            permit.lost().await;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it needs little");
    let holders = thread::spawn(move || runtime.block_on(join_all((0..MANY).map(|_| again()))));
    let held = || semaphore.inspect_up_to(0).wait().expect("the server is up").held;
    assert!(wait::until(|| held() > u64::from(MANY)), "{} are held", held());
    let all = revoke(&server, &name, &["--all"]);
    if all.code == 0 {
        // The newer holders were slow to come again, so the old one was found.
        assert!(wait::until(|| !old.is_held()), "{}", all.stdout);
    } else {
        let reason = "some from before may hold still, since more than 1000 hold, and newer ones come first in the \
                  list: pause it, revoke again, and resume it\n";
        assert_eq!((all.code, all.stderr), (75, format!("permits: {name}: {reason}")));
        assert!(all.stdout.starts_with(&format!("{name}: ")) && old.is_held(), "{}", all.stdout);
    }
    client.close().wait().expect("the server is up");
    holders.join().expect("they end");
}
