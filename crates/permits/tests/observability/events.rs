//! The events: a run in which each occurs, and an ordinary run without any.

use std::collections::BTreeSet;
use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, ConnectError, Credentials, Limit, Lost, PermitStatus};
use permits_testkit::cluster::slot;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Cluster, Proxy, Sentinels, Server, skip, wait};

use crate::collector::{self, about, wait_for};
use crate::page::{self, EventRow};
use crate::{builder, connect, in_time, queued, timeout};

const PASSWORD: &str = "s3cr3t-Xyz";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_lists_the_events_that_occur_and_no_others() {
    // A cluster of an older server is refused.
    if skip::before(7, 0) {
        return;
    }
    let _alone = collector::begin();
    acquisitions().await;
    losses().await;
    limits().await;
    tokio::join!(
        outages(),
        refused_logins(),
        replicas(),
        refused_releases(),
        young_servers(),
        sentinels(),
        clusters()
    );
    logins_again().await;
    dropped_events().await;

    let row = |event: collector::Emitted| {
        assert!(!event.message.is_empty(), "{event:?}");
        let fields: Vec<String> = event.fields.into_keys().collect();
        (event.target, event.level, fields)
    };
    let emitted: BTreeSet<EventRow> = collector::events().into_iter().map(row).collect();
    let listed: BTreeSet<EventRow> = page::events().into_iter().collect();
    let missing: Vec<_> = listed.difference(&emitted).collect();
    let unlisted: Vec<_> = emitted.difference(&listed).collect();
    assert!(
        missing.is_empty() && unlisted.is_empty(),
        "listed only: {missing:#?}\nemitted only: {unlisted:#?}"
    );
    let all = format!("{:?} {:?}", collector::events(), collector::spans());
    assert!(!all.contains(PASSWORD), "a password is shown");
}

/// Waiting, granted, granted again, refused, timed out, cancelled, adopted.
async fn acquisitions() {
    let client = connect("memory:events").await;
    let semaphore = client.named("acquisitions", 1);
    let held = semaphore.acquire().succeeds().await;
    let refused = semaphore.try_acquire().await.expect_err("it is held");
    let event = about("acquisitions", "permits::refused");
    assert_eq!((&*event.fields["reason"], &*event.fields["error"]), ("no_permits", &*refused.to_string()));
    semaphore.acquire_with(timeout(1)).await.expect_err("it is held");
    assert_eq!(about("acquisitions", "permits::timed_out").fields["waited_ms"], "1");
    {
        let mut dropped = pin!(semaphore.acquire_with(AcquireOptions::new().holder("dropped")));
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(about("acquisitions", "permits::cancelled").fields["holder"], "dropped");
    assert_eq!(about("acquisitions", "permits::waiting").fields["position"], "0");
    let granted = about("acquisitions", "permits::granted");
    assert_eq!(granted.fields["token"], held.token().to_string());
    let keeping = client.named("granted again", 1).keep(Duration::from_secs(5));
    drop(keeping.acquire().succeeds().await);
    let kept = keeping.acquire().succeeds().await;
    assert_eq!(about("granted again", "permits::granted_again").fields["token"], kept.token().to_string());

    let handle = held.hand_over().succeeds().await.to_string();
    let adopted =
        client.adopt(&handle.parse().expect("it is a handle")).await.expect("it is not adopted yet");
    assert_eq!(about("acquisitions", "permits::adopted").fields["token"], adopted.token().to_string());
    let all = format!("{:?} {:?}", collector::events(), collector::spans());
    assert!(!all.contains(&handle), "a handle is shown");
}

/// Lost, revoked, paused, resumed.
async fn losses() {
    let (client, operator) = (connect("memory:events").await, connect("memory:events").await);
    let semaphore = client.named("losses", 2);
    let revoked = semaphore.acquire_with(AcquireOptions::new().holder("web-3")).succeeds().await;
    let administered = operator.named("losses", Limit::Stored);
    administered.revoke("web-3", "it is stuck").succeeds().await;
    assert!(matches!(in_time(revoked.lost()).await, Lost::Revoked { .. }));
    assert_eq!(about("losses", "permits::revoked").fields["reason"], "it is stuck");
    // Each of these finds the permit lost. The loss is known by then.
    assert_eq!((revoked.status(), revoked.is_held()), (PermitStatus::Lost, false));
    administered.pause("").succeeds().await;
    administered.resume().succeeds().await;
    about("losses", "permits::paused");
    about("losses", "permits::resumed");
    let losses = collector::events();
    let losses = losses.iter().filter(|event| event.target == "permits::revoked");
    let losses = losses.filter(|event| event.fields["semaphore"] == "losses");
    assert_eq!(losses.count(), 1, "a loss is reported once");

    let _closed = semaphore.acquire().succeeds().await;
    client.close().succeeds().await;
    assert_eq!(about("losses", "permits::lost").fields["reason"], "closed");
}

/// Changed, replaced, pinned, no longer pinned, another than the declared one.
async fn limits() {
    let (client, other) = (connect("memory:events").await, connect("memory:events").await);
    let semaphore = client.named("limits", 1);
    let _held = semaphore.acquire().succeeds().await;
    let replacing = other.named("limits", 3);
    drop(replacing.acquire().succeeds().await);
    let event = about("limits", "permits::limit_replaced");
    assert_eq!((&*event.fields["from"], &*event.fields["to"]), ("1", "3"));
    semaphore.inspect().succeeds().await;
    let event = about("limits", "permits::limit_changed");
    assert_eq!((&*event.fields["from"], &*event.fields["to"]), ("1", "3"));

    let tenant = |units| AcquireOptions::new().lane("tenant").lane_limit(units).lane_floor(1);
    let _of_tenant = replacing.acquire_with(tenant(2)).succeeds().await;
    drop(replacing.acquire_with(tenant(3)).succeeds().await);
    let event = about("limits", "permits::lane_bounds_replaced");
    let fields = ["lane", "limit", "floor"].map(|field| &*event.fields[field]);
    assert_eq!(fields, ["tenant", "2", "1"]);

    replacing.set_limit(5).succeeds().await;
    semaphore.inspect().succeeds().await;
    assert_eq!(about("limits", "permits::limit_pinned").fields["limit"], "5");
    for _ in 0..3 {
        drop(other.named("limits", 4).acquire().succeeds().await);
    }
    let event = about("limits", "permits::limit_differs");
    assert_eq!((&*event.fields["declared"], &*event.fields["limit"]), ("4", "5"));
    let differs = |event: &&collector::Emitted| {
        event.target == "permits::limit_differs" && event.fields["semaphore"] == "limits"
    };
    other.close().succeeds().await;
    assert_eq!(
        collector::events().iter().filter(differs).count(),
        1,
        "once, although it was idle in between"
    );
    semaphore.unpin().succeeds().await;
    about("limits", "permits::limit_unpinned");
}

/// Unreachable, lost, not connected, connected again; unsure, late; a malformed message.
async fn outages() {
    let server = Server::builder().password(PASSWORD).start();
    let proxy = Proxy::start(server.address());
    let url = format!("redis://:{PASSWORD}@{}/", proxy.address());
    proxy.refuse(true);
    let refused = builder(&url).store_timeout(Duration::from_millis(300)).connect();
    assert!(matches!(in_time(refused).await, Err(ConnectError::Store(_))));
    proxy.refuse(false);
    let event = wait_for("an unreachable store", |event| event.target == "permits::store_unreachable");
    assert_eq!(event.fields["within"], "300ms");

    let lease = Duration::from_millis(1500);
    let client = in_time(builder(&url).lease(lease).connect()).succeeds().await;
    let semaphore = client.named("outages", 1);
    let held = semaphore.acquire().succeeds().await;
    // Held for longer than the interval of the waiter's renewals.
    let long = AcquireOptions::new().lease(2 * lease);
    let lasting = client.named("lasting", 1).acquire_with(long).succeeds().await;
    let waiting = {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.acquire().await })
    };
    queued(&semaphore, 1).await;
    let channels = server.command(&["PUBSUB", "CHANNELS", "permits:wake:*"]).array().to_vec();
    server.command(&["PUBLISH", channels.first().expect("it is subscribed").text(), "garbage"]);
    wait_for("a malformed message", |event| event.target == "permits::malformed_message");

    proxy.refuse(true);
    proxy.cut();
    let address = proxy.address().to_string();
    let of_server = |target: &'static str| {
        let address = address.clone();
        wait_for(target, move |event| {
            event.target == target
                && event.fields.get("server").is_some_and(|server| server.contains(&address))
        })
    };
    of_server("permits::connection_lost");
    of_server("permits::not_connected");
    let unsure = about("outages", "permits::unsure");
    assert!(unsure.fields["reason"].starts_with("the store cannot be reached: "), "{unsure:?}");
    assert_eq!(in_time(held.lost()).await, Lost::Expired);
    assert_eq!(about("outages", "permits::lost").fields["reason"], "expired");
    assert_eq!(in_time(lasting.lost()).await, Lost::Expired);
    proxy.refuse(false);
    of_server("permits::reconnected");
    drop(held);
    drop(in_time(waiting).await.expect("it does not panic").expect("it is handed on"));
    about("outages", "permits::renewal_late");
}

/// A user whose password has changed meanwhile: the reason is logged once, however often the client retries.
async fn refused_logins() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let user = |password: &str| {
        let rules = ["on", "resetpass", password, "~*", "&*", "+@all"];
        assert_eq!(server.command(&[&["ACL", "SETUSER", "rotated"][..], &rules[..]].concat()).text(), "OK");
    };
    user(&format!(">{PASSWORD}"));
    let client = connect(&format!("redis://rotated:{PASSWORD}@{}/", proxy.address())).await;
    let held = client.named("rotated", 1).acquire().succeeds().await;
    user(">another");
    proxy.cut();
    let address = proxy.address().to_string();
    let is_denied = |event: &collector::Emitted| {
        let has = |name: &str, text: &str| event.fields.get(name).is_some_and(|field| field.contains(text));
        event.target == "permits::not_connected"
            && has("server", &address)
            && has("reason", "password is wrong")
    };
    wait_for("a refused login", is_denied);
    let tried = proxy.accepted();
    assert!(wait::until(|| proxy.accepted() > tried + 3), "it retries");
    user(&format!(">{PASSWORD}"));
    wait_for("a connection", |event| {
        event.target == "permits::reconnected" && event.fields["server"].contains(&address)
    });
    assert_eq!(collector::events().iter().filter(|event| is_denied(event)).count(), 1);
    held.release().succeeds().await;
}

/// A server that has become a replica and refuses every call: the reason is logged once, however often the
/// client connects again.
async fn replicas() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let client = connect(&format!("redis://{}/", proxy.address())).await;
    let semaphore = client.named("replicas", 1);
    let held = semaphore.acquire().succeeds().await;
    assert_eq!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).text(), "OK");
    let tried = proxy.accepted();
    let renewed = tokio::spawn(async move { (held.renew().await, held) });
    assert!(wait::until(|| proxy.accepted() > tried + 3), "it retries");
    assert_eq!(server.command(&["REPLICAOF", "NO", "ONE"]).text(), "OK");
    let (_, held) = in_time(renewed).await.expect("it does not panic");
    held.release().succeeds().await;
    let address = proxy.address().to_string();
    let is_lost = |event: &collector::Emitted| {
        event.target == "permits::connection_lost" && event.fields["server"].contains(&address)
    };
    assert_eq!(collector::events().iter().filter(|event| is_lost(event)).count(), 1);
}

/// A token that the server refuses, and one that it takes: neither is in an event.
async fn logins_again() {
    let server = Server::start();
    let rules = ["on", ">first-t0ken", ">third-t0ken", "~*", "&*", "+@all"];
    assert_eq!(server.command(&[&["ACL", "SETUSER", "token"][..], &rules[..]].concat()).text(), "OK");
    let calls = AtomicU32::new(0);
    let provide = move || {
        let token = match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Credentials::new("first-t0ken").expires_in(Duration::from_millis(300))),
            1 => Ok(Credentials::new("refused-t0ken").expires_in(Duration::from_millis(300))),
            2 => Err("the issuer is down"),
            _ => Ok(Credentials::new("third-t0ken").expires_in(Duration::from_secs(600))),
        };
        async move { token }
    };
    let builder = builder(&format!("redis://token@{}/", server.address())).credentials(provide);
    let client = in_time(builder.connect()).succeeds().await;
    let address = server.address().to_string();
    let with = |target: &'static str, reason: &'static str| {
        let address = address.clone();
        let has = move |event: &collector::Emitted, name: &str, text: &str| {
            text.is_empty() || event.fields.get(name).is_some_and(|field| field.contains(text))
        };
        wait_for(target, move |event| {
            event.target == target && has(event, "server", &address) && has(event, "reason", reason)
        })
    };
    with("permits::not_logged_in_again", "the password is wrong");
    with("permits::not_logged_in_again", "the provider of credentials: the issuer is down");
    with("permits::logged_in_again", "");
    let told = collector::events().iter().any(|event| format!("{event:?}").contains("t0ken"));
    assert!(!told, "an event has a token");
    client.close().succeeds().await;
}

/// A server that may evict, and one that denies a release.
async fn refused_releases() {
    let server = Server::builder().arg("maxmemory", "100mb").arg("maxmemory-policy", "allkeys-lru").start();
    let user = |rules: &[&str]| {
        let command: Vec<&str> = ["ACL", "SETUSER", "exporter"].iter().chain(rules).copied().collect();
        assert_eq!(server.command(&command).text(), "OK");
    };
    user(&["on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"]);
    let client = connect(&format!("redis://exporter:{PASSWORD}@{}/", server.address())).await;
    let address = server.address().to_string();
    wait_for("an evicting server", |event| {
        event.target == "permits::may_evict" && event.fields["server"].contains(&address)
    });
    let held = client.named("denied", 1).acquire().succeeds().await;
    user(&["-@scripting"]);
    drop(held);
    about("denied", "permits::not_released");
}

/// A server that has just started grants nothing until its holders have had the time to reconnect.
async fn young_servers() {
    let server = Server::start();
    let client = in_time(Client::connect(&server.url())).succeeds().await;
    let semaphore = client.named("young", 1);
    let refused = semaphore.try_acquire().await.expect_err("it recovers");
    assert!(matches!(refused, AcquireError::Recovering { .. }), "{refused:?}");
    about("young", "permits::recovery_begun");
    let held = in_time(semaphore.acquire()).await.expect("the window ends");
    semaphore.inspect().succeeds().await;
    about("young", "permits::recovery_ended");
    assert_eq!(held.status(), PermitStatus::Held);
    let begun = |event: &&collector::Emitted| {
        event.target == "permits::recovery_begun" && event.fields["semaphore"] == "young"
    };
    assert_eq!(collector::events().iter().filter(begun).count(), 1);
}

/// The sentinels choose another server.
async fn sentinels() {
    let set = tokio::task::spawn_blocking(|| Sentinels::builder().replicas(1).sentinels(1).quorum(1).start());
    let set = set.await.expect("it starts");
    let client = connect(&set.url()).await;
    drop(client.named("followed", 1).acquire().succeeds().await);
    let set = tokio::task::spawn_blocking(move || {
        set.failover();
        set
    });
    let _set = set.await.expect("it fails over");
    let event = wait_for("another primary", |event| event.target == "permits::primary_moved");
    assert_eq!(event.fields["service"], "service");
}

/// A hash slot moves before the client first uses it, and then all nodes die.
async fn clusters() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::builder().replicas(0).start());
    let cluster = cluster.await.expect("it starts");
    let client = connect(&cluster.url()).await;
    let semaphore = client.named("moving", 1);
    let number = slot("permits:{moving}:state");
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.migrate_slot(number, (cluster.primary_of(number) + 1) % 3);
        cluster
    });
    let cluster = cluster.await.expect("it moves");
    drop(in_time(semaphore.acquire()).succeeds().await);
    let event = wait_for("a moved hash slot", |event| event.target == "permits::hash_slot_moved");
    assert_eq!(event.fields["hash_slot"], number.to_string());
    wait_for("a connection to a node", |event| event.target == "permits::connected");
    cluster.nodes().iter().for_each(Server::kill);
    wait_for("no map", |event| event.target == "permits::no_slot_map");
}

/// The subscriber blocks. Ordinary events are dropped, and a loss is not.
async fn dropped_events() {
    let client = connect("memory:events").await;
    let semaphore = client.named("dropped", 2);
    let lost = semaphore.acquire_with(AcquireOptions::new().holder("lost")).succeeds().await;
    collector::block(true);
    for _ in 0..1200 {
        semaphore.acquire().succeeds().await.release().succeeds().await;
    }
    semaphore.revoke("lost", "").succeeds().await;
    in_time(lost.lost()).await;
    collector::block(false);
    about("dropped", "permits::revoked");
    let event = wait_for("dropped events", |event| event.target == "permits::dropped");
    let dropped: u64 = event.fields["dropped"].parse().expect("it is a number");
    assert!(dropped > 600, "half of the queue is for events of other levels: {dropped}");
}

/// Acquiring, waiting, giving up, releasing and closing: no event of the level info or above.
#[tokio::test]
async fn a_program_at_work_is_quiet() {
    let _alone = collector::begin();
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.named("ordinary", 1);
    for _ in 0..3 {
        let held = semaphore.acquire().succeeds().await;
        semaphore.try_acquire().await.expect_err("it is held");
        semaphore.acquire_with(timeout(20)).await.expect_err("it is held");
        let waiting = {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await })
        };
        queued(&semaphore, 1).await;
        held.renew().succeeds().await;
        held.release().succeeds().await;
        drop(in_time(waiting).await.expect("it does not panic").expect("it is handed on"));
    }
    client.close().succeeds().await;
    about("ordinary", "permits::granted");
    let address = server.address().to_string();
    let is_loud = |event: &collector::Emitted| {
        let names =
            |field: &str, value: &str| event.fields.get(field).is_some_and(|text| text.contains(value));
        event.level != "debug" && (names("semaphore", "ordinary") || names("server", &address))
    };
    let loud: Vec<_> = collector::events().into_iter().filter(is_loud).collect();
    assert!(loud.is_empty(), "{loud:#?}");
}
