//! A network that loses, delays and cuts.

use std::thread::sleep;
use std::time::Duration;

use permits::Recovery;
use permits_testkit::history::{ClientEvent, client_checks::most_at_once, now};
use permits_testkit::real_time::always_counts;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{Worker, micros};
use permits_testkit::{HANGS, HOUR, Monitor, Proxy, Server, in_real_time, wait};

use crate::fixture::{Fixture, MAX_WAITERS};

/// A word that is in a worker's releases alone: they do not contain the limit.
const RELEASE: &[u8] = b"stored";

/// A word that is in renewals alone while nothing is acquired: they contain the limit, in case the store
/// forgot it.
const RENEW: &[u8] = b"fallback";

/// A worker behind a proxy that has acquired and released once, so that the server knows the scripts. A lost
/// reply is then the reply of a command, and not NOSCRIPT.
fn warm_worker(fixture: &Fixture, proxy: &Proxy) -> Worker {
    let mut worker = fixture.start_connected("proxied", &proxy.url(), fixture.settings.lease);
    worker.acquire("warm");
    worker.renewed("warm");
    worker.release("warm");
    worker
}

/// The ids of the connections that are subscribed to grants.
fn listeners(fixture: &Fixture) -> Vec<String> {
    let list = fixture.server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let field = |line: &str| Some(line.split_whitespace().next()?.strip_prefix("id=")?.to_owned());
    list.text().lines().map(|line| field(line).expect("a line begins with the id")).collect()
}

#[test]
fn a_lost_reply_to_an_acquisition_makes_one_grant() {
    in_real_time(|| {
        let fixture = Fixture::new(2, Duration::from_secs(3));
        let proxy = Proxy::start(fixture.server.address());
        let mut worker = warm_worker(&fixture, &proxy);
        let mut other = fixture.worker("other");
        let kept = other.acquire("kept");

        proxy.swallow_reply_to(MAX_WAITERS.to_string().as_bytes());
        worker.ask("once");
        assert!(wait::until(|| proxy.swallowed() == 1), "no reply was lost");
        let first = fixture.state("last_token");
        assert!(first > kept.token);
        assert_eq!(worker.acquired("once").token, first, "the token of the first request");
        assert_eq!((fixture.state("last_token"), fixture.state("held"), fixture.entries()), (first, 2, 2));

        worker.release("once");
        other.release("kept");
        worker.close();
        other.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn a_lost_reply_to_an_acquisition_makes_one_place_in_line() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(3));
        let proxy = Proxy::start(fixture.server.address());
        let mut worker = warm_worker(&fixture, &proxy);
        let mut other = fixture.worker("other");
        other.acquire("kept");

        proxy.swallow_reply_to(MAX_WAITERS.to_string().as_bytes());
        worker.ask("once");
        assert!(wait::until(|| proxy.swallowed() == 1), "no reply was lost");
        fixture.await_waiting(1);
        // The session learns that the request waits by a second request, which renews it.
        let sequence = fixture.state("sequence");
        assert!(wait::until(|| fixture.state("sequence") > sequence + 1));
        assert_eq!((fixture.state("held"), fixture.waiting(), fixture.entries()), (1, 1, 2));
        other.release("kept");
        worker.acquired("once");
        assert_eq!((fixture.state("held"), fixture.waiting(), fixture.entries()), (1, 0, 1));

        worker.release("once");
        worker.close();
        other.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn a_lost_reply_to_a_release_gives_the_units_back_once() {
    in_real_time(|| {
        let fixture = Fixture::new(2, Duration::from_secs(3));
        let proxy = Proxy::start(fixture.server.address());
        let mut worker = warm_worker(&fixture, &proxy);
        let mut other = fixture.worker("other");
        other.acquire("kept");
        worker.acquire("given-back");
        assert_eq!(fixture.state("held"), 2);

        proxy.swallow_reply_to(RELEASE);
        worker.start_release("given-back");
        // The first request released the permit. The second one must not report it as lost.
        worker.released("given-back");
        assert_eq!(proxy.swallowed(), 1, "the first reply was lost");
        assert_eq!((fixture.state("held"), fixture.entries()), (1, 1));
        other.renewed("kept");

        other.release("kept");
        worker.close();
        other.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

#[test]
fn a_lost_reply_to_a_change_by_an_operator_counts_it_once_and_returns_its_result() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let connect = |url: &str| {
        let builder = permits::Client::builder(url).recovery(Recovery::Off).lease(Duration::from_secs(3));
        builder.connect().wait().expect("the server runs")
    };
    let (direct, proxied) = (connect(&server.url()), connect(&proxy.url()));
    let (semaphore, administered) =
        (direct.named("exports", 3), proxied.named("exports", permits::Limit::Stored));
    // So that the server knows the scripts, and a lost reply is the reply of a command.
    administered.set_limit(3).wait().expect("the server runs");
    administered.revoke("none", "").wait().expect("the server runs");

    let options = permits::AcquireOptions::new().holder("web-3");
    let permit = semaphore.acquire_with(options).wait().expect("it is free");
    proxy.swallow_reply_to(b"web-3");
    assert_eq!(administered.revoke("web-3", "late").wait(), Ok(true), "the first call took it");
    assert_eq!(permit.lost_within(HANGS), Some(permits::Lost::Revoked { reason: "late".into() }));

    let version = administered.inspect().wait().expect("the server runs").limit_version;
    proxy.swallow_reply_to(b"adjust");
    assert_eq!(administered.adjust_limit(2).wait(), Ok(5), "once");
    proxy.swallow_reply_to(b"set\r\n");
    assert_eq!(
        administered.set_limit_if_version(7, version + 1).wait(),
        Ok(version + 2),
        "the first call set it"
    );
    assert_eq!(proxy.swallowed(), 3, "each first reply was lost");
    let seen = semaphore.inspect().wait().expect("the server runs");
    assert_eq!((seen.limit, seen.limit_version, seen.held), (Some(7), version + 2, 0));
}

#[test]
fn a_lost_reply_to_the_release_of_a_handle_or_to_a_deletion_is_no_failure() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let connect = |url: &str| permits::Client::builder(url).recovery(Recovery::Off).connect().wait();
    let direct = connect(&server.url()).expect("the server runs");
    let proxied = connect(&proxy.url()).expect("the server runs");
    let semaphore = direct.named("exports", 1);
    let hand_over =
        || semaphore.acquire().wait().expect("it is free").hand_over().wait().expect("it is held");
    let deleted = || proxied.named("exports", permits::Limit::Stored).delete().wait();
    // So that the server knows the scripts, and a lost reply is the reply of a command.
    let handle = hand_over();
    assert_eq!(proxied.release(&handle).wait(), Ok(true));
    assert_eq!(
        proxied.release(&handle).wait(),
        Ok(false),
        "every call had a reply, and the second found none"
    );
    assert_eq!((deleted(), deleted()), (Ok(true), Ok(false)));

    let handle = hand_over();
    proxy.swallow_reply_to(b"exports");
    assert_eq!(proxied.release(&handle).wait(), Ok(true), "the first call released it");
    assert_eq!(semaphore.available().wait(), Ok(1));
    proxy.swallow_reply_to(b"exports");
    assert_eq!(deleted(), Ok(true), "the first call deleted it");
    assert_eq!(direct.list().wait(), Ok(Vec::new()));
    assert_eq!(proxy.swallowed(), 2, "each first reply was lost");
    // Nothing of that stays with the client.
    assert_eq!((proxied.release(&handle).wait(), deleted()), (Ok(false), Ok(false)));
}

#[test]
fn a_lost_reply_to_a_renewal_is_no_loss() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(3));
        let proxy = Proxy::start(fixture.server.address());
        let mut worker = warm_worker(&fixture, &proxy);
        let granted = worker.acquire("kept");

        proxy.swallow_reply_to(RENEW);
        assert!(wait::until(|| proxy.swallowed() == 1), "no reply was lost");
        worker.renewed("kept");
        assert_eq!(fixture.state("last_token"), granted.token);
        assert_eq!((fixture.state("held"), fixture.entries()), (1, 1));

        worker.release("kept");
        worker.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// With a lease of an hour nothing is renewed. A call is the session's own, after it has subscribed again.
#[test]
fn a_grant_whose_message_met_a_killed_connection_is_learned_on_reconnecting() {
    let fixture = Fixture::new(1, HOUR).recovery(Recovery::Off);
    let (mut holder, mut waiter) = (fixture.worker("holder"), fixture.worker("waiter"));
    let mut message_lost = false;
    for round in 0..20 {
        let (first, next) = (format!("first{round}"), format!("next{round}"));
        holder.acquire(&first);
        waiter.ask(&next);
        fixture.await_waiting(1);
        let monitor = Monitor::start(&fixture.server);
        // While the server is paused both arrive: it kills the connection, and then releases.
        let mut admin = fixture.server.connect().expect("the server is up");
        // Accepted before the pause: otherwise the server would accept it after the holder's command.
        admin.call(&["PING"]).expect("the server is up");
        // The waiter's connection is the last one. The holder's brings its release.
        let listeners = listeners(&fixture);
        let [_, listener] = &listeners[..] else { panic!("{listeners:?}") };
        fixture.server.pause();
        admin.send(&["CLIENT", "KILL", "ID", listener]).expect("the system takes it");
        admin.send(&["ECHO", "killed"]).expect("the system takes it");
        holder.start_release(&first);
        holder.await_event(&first, |what| *what == ClientEvent::Releasing);
        sleep(Duration::from_millis(100));
        fixture.server.resume();

        let released = holder.granted(&first).releasing.expect("the worker reported it");
        let took = waiter.acquired(&next).acquired - released;
        waiter.release(&next);
        let heard = monitor.stop(&fixture.server);
        let killed = heard.iter().position(|line| line.contains("\"killed\"")).expect("it was sent");
        let at = heard
            .iter()
            .position(|line| line.contains("\"PUBLISH\" \"permits:wake:"))
            .expect("a grant was published");
        let channel = heard[at].split('"').nth(3).expect("PUBLISH has a channel");
        let listened =
            |line: &String| line.to_uppercase().contains("\"SUBSCRIBE\"") && line.contains(channel);
        message_lost = killed < at && heard[at..].iter().any(listened);
        eprintln!("round {round}: learned after {took} us, message lost: {message_lost}");
        if message_lost {
            break;
        }
    }
    assert!(message_lost, "in no round the message came without a subscriber");
    holder.close();
    waiter.close();
    fixture.assert_safe();
    fixture.assert_at_rest();
}

#[test]
fn a_grant_whose_message_was_swallowed_is_learned_by_the_next_renewal() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(6));
        let proxy = Proxy::start(fixture.server.address());
        let mut holder = fixture.worker("holder");
        let mut waiter = fixture.start_connected("waiter", &proxy.url(), fixture.settings.lease);
        let mut healed_by_renewal = false;
        for round in 0..5 {
            let (first, next) = (format!("first{round}"), format!("next{round}"));
            holder.acquire(&first);
            waiter.ask(&next);
            fixture.await_waiting(1);
            let (connections, swallowed) = (proxy.accepted(), proxy.swallowed());
            // Before the waiter renews again, unless the machine is very slow.
            proxy.swallow_replies(true);
            holder.release(&first);
            assert!(wait::until(|| fixture.waiting() == 0 && proxy.swallowed() > swallowed));
            proxy.swallow_replies(false);
            let token = fixture.state("last_token");

            let granted = waiter.acquired(&next);
            assert_eq!(granted.token, token, "the grant of the lost message");
            let took = granted.acquired - holder.granted(&first).releasing.expect("the worker reported it");
            assert!(took < 2 * micros(fixture.settings.lease), "learned after {took} us");
            waiter.release(&next);
            // If a reply was swallowed as well, another connection healed it.
            healed_by_renewal = (proxy.accepted(), proxy.swallowed()) == (connections, swallowed + 1);
            eprintln!("round {round}: learned after {took} us, by renewal: {healed_by_renewal}");
            if healed_by_renewal {
                break;
            }
        }
        assert!(healed_by_renewal, "in no round the message alone was swallowed");
        holder.close();
        waiter.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// A network held back a message while the store moved on: the waiter's lease ended, it was queued again by
/// the same request, and then it receives the push of the grant that it lost. If it believed the message, two
/// would hold.
#[test]
fn a_late_message_of_an_earlier_grant_is_not_believed() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(2));
        let proxy = Proxy::start(fixture.server.address());
        let (mut holder, mut other) = (fixture.worker("holder"), fixture.worker("other"));
        let mut victim = fixture.start_connected("victim", &proxy.url(), fixture.settings.lease);
        holder.acquire("first");
        victim.ask("granted-twice");
        fixture.await_waiting(1);
        let mut listener = fixture.server.connect().expect("the server is up");
        listener.call(&["PSUBSCRIBE", "permits:wake:*"]).expect("the server is up");
        proxy.stall(true);
        holder.release("first");
        let message = listener.receive().expect("a grant is published");
        let [_, _, channel, payload] = message.array() else { panic!("no message: {message:?}") };
        assert!(payload.text().contains("victim"), "the victim is the head of the line: {payload:?}");
        let token = fixture.state("last_token");
        other.ask("meanwhile");
        let meanwhile = other.acquired("meanwhile");
        assert!(meanwhile.token > token, "the victim was granted the permit before, and did not hear of it");
        assert!(!victim.has_reported("granted-twice", |what| matches!(what, ClientEvent::Acquired { .. })));
        proxy.stall(false);
        fixture.await_waiting(1);

        // The victim subscribes again some time later, besides the listener of this test.
        let replay = || fixture.server.command(&["PUBLISH", channel.text(), payload.text()]).int();
        assert!(wait::until(|| replay() == 2), "the victim does not listen");
        other.renewed("meanwhile");
        let believed =
            victim.has_reported("granted-twice", |what| matches!(what, ClientEvent::Acquired { .. }));
        always_counts(|| assert!(!believed, "it was believed"));
        other.release("meanwhile");
        assert!(victim.acquired("granted-twice").token > meanwhile.token);

        victim.release("granted-twice");
        for worker in [holder, other, victim] {
            worker.close();
        }
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// Replies arrive when they are no longer true. The store grants, renews and ends leases meanwhile.
#[test]
fn grants_that_come_later_than_the_lease_are_not_held() {
    // With the short lease the reply comes within the timeout of the call, and is used; with the other the
    // call is given up.
    for (lease_ms, delay_ms) in [(150, 200), (1000, 1500)] {
        in_real_time(|| late_grants(Duration::from_millis(lease_ms), Duration::from_millis(delay_ms)));
    }
}

fn late_grants(lease: Duration, delay: Duration) {
    let fixture = Fixture::new(2, lease);
    let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::start(fixture.server.address())).collect();
    let mut late: Vec<Worker> =
        proxies.iter().map(|proxy| fixture.start_connected("late", &proxy.url(), lease)).collect();
    let mut direct = fixture.start_connected("direct", &fixture.server.url(), Duration::from_secs(3));
    direct.acquire("first");
    late[0].acquire("held");
    late[1].ask("waited-for");
    fixture.await_waiting(1);
    for proxy in &proxies {
        proxy.delay_replies(delay);
    }
    let delayed = now();
    // The holder cannot know that its renewals arrive.
    late[0].lost("held");
    let lost_after = late[0].granted("held").end().saturating_sub(delayed);
    always_counts(|| assert!(lost_after <= micros(lease), "held for {lost_after} us more"));
    // The store grants requests that wait, and later ones, and the clients cannot use those grants in
    // time.
    let before = fixture.state("last_token");
    direct.release("first");
    late[2].ask("asked-late");
    assert!(wait::until(|| fixture.state("last_token") > before), "nothing was granted late");
    sleep(3 * lease.max(delay));
    for (worker, tag) in [(&late[1], "waited-for"), (&late[2], "asked-late")] {
        let records = worker.records_since(tag, delayed + micros(lease));
        let held = records
            .iter()
            .any(|event| matches!(event.event, ClientEvent::Acquired { .. } | ClientEvent::Held { .. }));
        always_counts(|| assert!(!held, "held by a late reply: {records:?}"));
    }
    for proxy in &proxies {
        proxy.delay_replies(Duration::ZERO);
    }
    // So short a lease may end on a busy machine before it is used; then the worker reports the loss.
    for (worker, tag) in [(1, "waited-for"), (2, "asked-late")] {
        late[worker].acquired(tag);
        late[worker].start_release(tag);
        late[worker].await_event(tag, |what| matches!(what, ClientEvent::Released(_) | ClientEvent::Lost(_)));
    }
    for worker in late {
        worker.close();
    }
    direct.close();
    assert!(most_at_once(&fixture.grants()).len() == 2, "the semaphore was full at some time");
    fixture.assert_safe();
    fixture.assert_at_rest();
}
