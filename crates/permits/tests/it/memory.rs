//! A `memory:` store after its last client has closed.

use permits::{Client, Limit};
use permits_testkit::wait;

fn client(name: &str) -> Client {
    Client::connect(&format!("memory:{name}")).wait().expect("there is memory")
}

#[test]
fn pinned_limits_and_pauses_stay_when_the_last_client_has_closed() {
    let first = client("that-stays");
    let semaphore = |name: &str, limit: u32| first.semaphore(name, limit).expect("valid");
    semaphore("pinned", 1).set_limit(7).wait().expect("it is there");
    semaphore("paused", 2).pause("").wait().expect("it is there");
    let used = semaphore("used", 3).acquire().wait().expect("it is free");
    used.release().wait().expect("it is held");
    let permit = semaphore("pinned", 1).acquire().wait().expect("it is free");
    permit.hand_over().wait().expect("it is held");
    first.close().wait().expect("it is there");

    let second = client("that-stays");
    let seen = |name: &str| {
        second.semaphore(name, Limit::Stored).expect("valid").inspect().wait().expect("it is there")
    };
    // The session of the first client ends a moment after `close`.
    assert!(wait::until(|| seen("pinned").held == 0), "{:?}", seen("pinned"));
    let pinned = seen("pinned");
    assert_eq!((pinned.limit, pinned.pinned), (Some(7), true));
    assert!(seen("paused").paused);
    assert_eq!(seen("used").limit, None);
    assert_eq!(second.list().wait().expect("it is there"), ["paused", "pinned"]);
    assert_eq!(client("of-another-name").list().wait().expect("it is there"), [""; 0]);
}
