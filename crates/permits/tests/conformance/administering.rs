//! Operators' commands: inspecting, pausing and resuming, revoking.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use permits::{
    AcquireError, AcquireOptions, AdminError, Alert, InvalidInput, Limit, Lost, OperatorChange, PermitStatus,
    ReleaseError, RenewError,
};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, HOUR};

use crate::fixture::{Fixture, Waiter, lost_within};

fn named(holder: &str) -> AcquireOptions {
    AcquireOptions::new().holder(holder)
}

pub(crate) async fn inspection_shows_holders_and_waiters(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 3);
    let lease = 2 * HOUR;
    let long = semaphore.acquire_with(named("long").weight(2).lease(lease)).succeeds().await;
    let short = semaphore.acquire_with(named("short")).succeeds().await;
    let waiting = [
        fixture.queued(&semaphore, named("next").weight(3)).await,
        fixture.queued(&semaphore, named("last")).await,
    ];

    let seen = fixture.inspect(&observer.named(fixture.name(), Limit::Stored)).await;
    assert_eq!((seen.name.as_str(), seen.limit, seen.held, seen.waiting), (fixture.name(), Some(3), 3, 2));
    assert!(!seen.pinned && !seen.paused && seen.recovering.is_zero(), "{seen:?}");
    let holders: Vec<_> = seen
        .holders
        .iter()
        .map(|holder| (&*holder.holder, holder.weight, holder.slot, holder.token))
        .collect();
    let expected = [("short", 1, short.slot(), short.token()), ("long", 2, long.slot(), long.token())];
    assert_eq!(holders, expected, "soonest end of lease first");
    let remaining = seen.holders[1].lease_remaining;
    assert!(remaining > HOUR && remaining <= lease, "{remaining:?}");
    let line: Vec<_> =
        seen.waiters.iter().map(|waiter| (&*waiter.holder, waiter.weight, waiter.position)).collect();
    assert_eq!(line, [("next", 3, 0), ("last", 1, 1)]);

    drop((long, short));
    for waiter in waiting {
        waiter.permit().await.release().succeeds().await;
    }
}

pub(crate) async fn an_inspection_says_how_long_ago_each_was_granted(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 2);
    let before = Instant::now();
    let first = semaphore.acquire_with(named("first")).succeeds().await;
    let second = semaphore.acquire_with(named("second")).succeeds().await;
    let seen = fixture.inspect(&observer.named(fixture.name(), Limit::Stored)).await;
    let age = |name: &str| seen.holders.iter().find(|info| info.holder == name).expect("it holds").age;
    assert!(age("first") <= before.elapsed(), "{seen:?}");
    let between = Duration::from_micros(second.token() - first.token());
    assert_eq!(age("first"), age("second") + between, "by the clock that made the tokens");
    for permit in [first, second] {
        permit.release().succeeds().await;
    }
}

pub(crate) async fn labels_and_the_time_in_the_queue_are_shown(fixture: &Fixture) {
    let client = fixture.connect(fixture.builder().label("exporter-7")).await;
    let observer = fixture.client().await;
    let (semaphore, observed) =
        (fixture.semaphore(&client, 1), observer.named(fixture.name(), Limit::Stored));
    let label = "nightly import, 50 %s \u{e9}";
    let began = Instant::now();
    let permit = semaphore.acquire_with(AcquireOptions::new().label(label)).succeeds().await;
    let waiting = [
        fixture.queued(&semaphore, named("first").label(label)).await,
        fixture.queued(&semaphore, named("second")).await,
        fixture.queued(&semaphore, named("third").label("")).await,
        fixture.queued(&fixture.semaphore(&observer, 1), named("fourth")).await,
    ];
    let seen = fixture.inspect(&observed).await;
    let holders: Vec<_> = seen.holders.iter().map(|holder| holder.label.as_deref()).collect();
    let waiters: Vec<_> = seen.waiters.iter().map(|waiter| waiter.label.as_deref()).collect();
    let program = std::env::current_exe().expect("a test knows its executable");
    let program = program.file_name().and_then(OsStr::to_str);
    assert_eq!(holders, [Some(label)]);
    assert_eq!(waiters, [Some(label), Some("exporter-7"), None, program]);
    let (first, second) = (seen.waiters[0].age, seen.waiters[1].age);
    assert!(second < first && first <= began.elapsed(), "{seen:?}");
    permit.release().succeeds().await;
    let [first, others @ ..] = waiting.map(Waiter::permit);
    let first = first.await;
    let seen = fixture.inspect(&observed).await;
    assert_eq!(seen.holders[0].label.as_deref(), Some(label), "it keeps its label when it is granted");
    first.release().succeeds().await;
    for other in others {
        other.await.release().succeeds().await;
    }
    let long = AcquireOptions::new().label("x".repeat(121));
    assert!(matches!(semaphore.acquire_with(long).await, Err(AcquireError::Invalid(_))));
}

pub(crate) async fn inspecting_leaves_nothing_behind(fixture: &Fixture) {
    let client = fixture.client().await;
    let unused = client.named("unused", Limit::Stored);
    let seen = unused.inspect().succeeds().await;
    assert_eq!((seen.limit, seen.limit_version, seen.held, seen.waiting), (None, 0, 0, 0));
    assert!(seen.holders.is_empty() && seen.waiters.is_empty(), "{seen:?}");
    assert_eq!(unused.revoke("unknown", "").await, Ok(false));
    unused.resume().succeeds().await;
    let again = unused.inspect().succeeds().await;
    assert_eq!(again, seen);
    fixture.has_no_key_of("unused");
}

pub(crate) async fn a_list_names_what_is_in_use(fixture: &Fixture) {
    let (client, observer) = (fixture.client().await, fixture.client().await);
    let permit = fixture.semaphore(&client, 1).acquire().succeeds().await;
    let odd = ["a{b}c", "100%", "%7B", "é*?[x]", "two words"];
    for name in odd {
        client.named(name, Limit::Stored).set_limit(2).succeeds().await;
    }
    client.named("unused", Limit::Stored).inspect().succeeds().await;
    let mut expected: Vec<&str> = odd.into_iter().chain([fixture.name()]).collect();
    expected.sort_unstable();
    assert_eq!(observer.list().succeeds().await, expected);
    for name in odd {
        // A pinned limit does not expire.
        client.named(name, Limit::Stored).unpin().succeeds().await;
    }
    permit.release().succeeds().await;
}

pub(crate) async fn an_inspection_says_which_operator_made_the_last_changes(fixture: &Fixture) {
    let client = fixture.client().await;
    let operator = fixture.connect(fixture.builder().label("deploy@ci, 50 % \u{e9}")).await;
    let (semaphore, administered) =
        (fixture.semaphore(&client, 1), operator.named(fixture.name(), Limit::Stored));
    let permit = semaphore.acquire_with(named("web-1")).succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.changes, []);
    let began = Instant::now();
    let limit = fixture.limit(1);
    administered.set_limit(limit).succeeds().await;
    administered.pause("upgrade").succeeds().await;
    administered.close_line("moved: 1, 2").succeeds().await;
    let alert = Alert::new(Some(Duration::from_secs(90)), Some(7)).expect("it is in range");
    administered.set_alert(alert).succeeds().await;
    assert_eq!(administered.revoke("web-1", "late").await, Ok(true));
    assert!(lost_within(&permit, HANGS).await.is_some());
    let seen = fixture.inspect(&semaphore).await;
    let (holder, waited) = ("web-1".to_owned(), false);
    let changes: Vec<&OperatorChange> = seen.changes.iter().map(|info| &info.change).collect();
    let expected = [
        &OperatorChange::Revoked { holder, waited, reason: "late".to_owned() },
        &OperatorChange::AlertSet(alert),
        &OperatorChange::LineClosed("moved: 1, 2".to_owned()),
        &OperatorChange::Paused { time: None, reason: "upgrade".to_owned() },
        &OperatorChange::LimitSet(limit),
    ];
    assert_eq!(changes, expected);
    for info in &seen.changes {
        assert!(info.by == "deploy@ci, 50 % \u{e9}" && info.age <= began.elapsed(), "{info:?}");
    }
    let in_force = [seen.closed_by(), seen.paused_by(), seen.pinned_by()];
    assert_eq!(in_force, [2, 3, 4].map(|number| Some(&seen.changes[number])));
    // Also if few are listed.
    let few = administered.inspect_up_to(1).succeeds().await;
    let listed: Vec<&OperatorChange> = few.changes.iter().map(|info| &info.change).collect();
    assert_eq!(listed, changes);
    let other = client.named(fixture.name(), Limit::Stored);
    other.open_line().succeeds().await;
    other.resume().succeeds().await;
    other.unpin().succeeds().await;
    other.set_alert(Alert::default()).succeeds().await;
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!([seen.closed_by(), seen.paused_by(), seen.pinned_by()], [None, None, None]);
    let changes: Vec<String> = seen.changes[..4].iter().map(|info| info.change.to_string()).collect();
    assert_eq!(changes, ["removed the alert", "unpinned the limit", "resumed", "opened the line"]);
    let process = format!(":{}", std::process::id());
    assert!(seen.changes[0].by.ends_with(&process), "without a label, the author is the process: {seen:?}");
    assert_eq!(seen.changes[4].change.to_string(), "revoked the holder web-1: late");
    assert_eq!(seen.changes[5].change.to_string(), "set the alert to a wait of 90s or 7 waiting");
}

pub(crate) async fn an_alert_is_kept_and_replaced_as_a_whole(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = client.named("watched", Limit::Stored);
    assert_eq!(Alert::new(Some(Duration::ZERO), None), Err(InvalidInput::AlertWait { time: Duration::ZERO }));
    assert_eq!(Alert::new(None, Some(0)), Err(InvalidInput::AlertWaiting));
    let alert = |wait: Option<u64>, waiting| Alert::new(wait.map(Duration::from_millis), waiting);
    for alert in [alert(Some(30_000), Some(100)), alert(None, Some(u32::MAX)), alert(Some(1), None)] {
        let alert = alert.expect("it is in range");
        semaphore.set_alert(alert).succeeds().await;
        let seen = fixture.inspect(&semaphore).await;
        assert_eq!((seen.alert, seen.limit, seen.changes[0].change.keyword()), (alert, None, "alert_set"));
    }
    // Set again, it has no effect.
    semaphore.set_alert(alert(Some(1), None).expect("it is in range")).succeeds().await;
    assert_eq!(fixture.inspect(&semaphore).await.changes.len(), 3);
    let listed = client.list().succeeds().await;
    assert!(listed.iter().any(|name| name == "watched"), "it is kept without any use: {listed:?}");
    assert_eq!(semaphore.delete().await, Ok(true));
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.alert, seen.changes), (Alert::default(), Vec::new()));
}

pub(crate) async fn a_paused_semaphore_grants_nothing(fixture: &Fixture) {
    let [semaphore, administered] = fixture.administered(1).await;
    let permit = semaphore.acquire().succeeds().await;
    administered.pause("").succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    permit.renew().await.expect("holders keep what they hold");
    permit.release().await.expect("holders keep what they hold");
    let error = semaphore.try_acquire().await.expect_err("granting is stopped");
    assert_eq!((error.retry_after(), error), (None, AcquireError::Paused { remaining: None }));
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.paused, seen.held, seen.waiting), (true, 0, 1));
    assert_eq!((seen.pause_remaining, seen.pause_reason), (None, Some(String::new())));
    assert!(!waiter.is_answered());
    administered.resume().succeeds().await;
    waiter.permit().await.release().succeeds().await;
    assert!(!fixture.inspect(&semaphore).await.paused);
}

pub(crate) async fn a_pause_ends_by_itself(fixture: &Fixture) {
    const TIME: Duration = Duration::from_millis(600);
    let [semaphore, administered] = fixture.administered(1).await;
    semaphore.declare().succeeds().await;
    administered.pause_for(TIME, "429, 100 %").succeeds().await;
    let refused = semaphore.try_acquire().await.expect_err("it is paused");
    let again = refused.retry_after().expect("nothing else keeps it out");
    assert!(again <= TIME, "{refused}");
    // A shorter pause changes nothing.
    administered.pause_for(TIME / 8, "less").succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let seen = fixture.inspect(&semaphore).await;
    let remaining = seen.pause_remaining.expect("it has an end");
    assert!(remaining > TIME / 8 && remaining <= TIME, "{seen:?}");
    assert_eq!((seen.paused, seen.pause_reason.as_deref()), (true, Some("429, 100 %")));
    let pause = seen.paused_by().expect("it is paused").change.clone();
    assert_eq!(pause, OperatorChange::Paused { time: Some(TIME), reason: "429, 100 %".into() });
    // Only the waiter's own session calls the store then.
    waiter.permit().await.release().succeeds().await;
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((seen.paused, seen.pause_remaining, seen.pause_reason), (false, None, None));
}

pub(crate) async fn a_try_after_a_pause_succeeds(fixture: &Fixture) {
    let semaphore = fixture.new_semaphore(1).await;
    semaphore.declare().succeeds().await;
    semaphore.pause_for(Duration::from_millis(200), "").succeeds().await;
    // Another pause, even a later one with an end, does not end a pause without an end.
    semaphore.pause("by hand").succeeds().await;
    semaphore.pause_for(Duration::from_millis(200), "").succeeds().await;
    let refused = semaphore.try_acquire().await.expect_err("it is paused");
    assert_eq!(refused, AcquireError::Paused { remaining: None });
    assert_eq!(fixture.inspect(&semaphore).await.pause_reason.as_deref(), Some("by hand"));
    semaphore.resume().succeeds().await;
    semaphore.pause_for(Duration::from_millis(200), "").succeeds().await;
    let refused = semaphore.try_acquire().await.expect_err("it is paused");
    tokio::time::sleep(refused.retry_after().expect("it has an end")).await;
    semaphore.try_acquire().succeeds().await.release().succeeds().await;
}

pub(crate) async fn a_pause_is_checked(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = client.named("unused", 1);
    for time in [Duration::ZERO, Duration::from_secs(367 * 86_400)] {
        let error = semaphore.pause_for(time, "").await.expect_err("it is out of range");
        assert_eq!(error, AdminError::Invalid(InvalidInput::Pause { time }));
    }
    assert!(matches!(semaphore.pause("a\nb").await, Err(AdminError::Invalid(_))));
    fixture.has_no_key_of("unused");
}

pub(crate) async fn a_revoked_holder_receives_the_reason(fixture: &Fixture) {
    let [semaphore, administered] = fixture.administered(1).await;
    let permit = semaphore.acquire_with(named("web-3")).succeeds().await;
    let waiter = fixture.queued(&semaphore, AcquireOptions::new()).await;
    let reason = "maintenance: \"disk\" 90 % full, siehe ☎ 112";
    assert_eq!(administered.revoke("web-3", reason).await, Ok(true));
    assert_eq!(fixture.inspect(&semaphore).await.waiting, 0, "its units are granted at once");

    let why = Lost::Revoked { reason: reason.into() };
    assert_eq!(lost_within(&permit, HANGS).await, Some(why.clone()));
    assert_eq!((permit.is_held(), permit.status()), (false, PermitStatus::Lost));
    assert!(permit.remaining().is_zero());
    assert_eq!(permit.renew().await, Err(RenewError::Lost(why.clone())));
    assert_eq!(permit.release().await, Err(ReleaseError::Lost(why)));
    assert_eq!(administered.revoke("web-3", reason).await, Ok(false), "there is nothing left to take");
    waiter.permit().await.release().await.expect("the late release of another did not free it");
}

pub(crate) async fn a_revoked_waiter_receives_the_reason(fixture: &Fixture) {
    let (client, operator) = (fixture.client().await, fixture.client().await);
    let semaphore = fixture.semaphore(&client, 1);
    let permit = semaphore.acquire().succeeds().await;
    let first = fixture.queued(&semaphore, named("web-4")).await;
    let second = fixture.queued(&semaphore, named("web-5")).await;
    assert_eq!(operator.named(fixture.name(), Limit::Stored).revoke("web-4", "").await, Ok(true));
    let error = first.outcome().await.expect_err("its place is gone");
    assert_eq!(error, AcquireError::Revoked { reason: "".into() });
    permit.release().succeeds().await;
    second.permit().await.release().succeeds().await;
}
