//! Grants that count only when replicas have confirmed them.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions};
use permits_testkit::real_time::awaited_in_real_time;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Proxy, Server, wait};

use crate::{builder, granted, in_line, in_time, is_at_rest, packed};

/// A primary, a replica of it, and the proxy between the two.
fn pair() -> (Server, Proxy, Server) {
    let primary = Server::start();
    let proxy = Proxy::start(primary.address());
    let replica = Server::start();
    let (host, port) = ("127.0.0.1", proxy.address().port().to_string());
    assert_eq!(replica.command(&["REPLICAOF", host, &port]).text(), "OK");
    assert!(wait::until(|| replica.info("master_link_status").as_deref() == Some("up")));
    (primary, proxy, replica)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replicas_confirm_is_granted() {
    let (primary, _proxy, replica) = pair();
    let client = builder(&primary.url()).replicas(1).connect().succeeds().await;
    let semaphore = client.named("exports", 1);
    let permit = semaphore.acquire().await.expect("it is confirmed");
    assert_eq!(replica.command(&["ZCARD", "permits:{exports}:leases"]).int(), 1, "it is there");
    // The next waiter is granted it by a message, and also requires the replica's confirmation.
    let next = in_line(&semaphore, "next").await;
    permit.release().succeeds().await;
    let permit = granted(next).await;
    let replicated = replica.command(&packed::reading_state("permits:{exports}:state"));
    assert_eq!(packed::field(&replicated, "last_token"), Some(permit.token()));
    permit.release().succeeds().await;

    is_at_rest(&semaphore).await;
}

/// Many semaphores need one at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn all_confirmations_are_on_one_connection() {
    let (primary, _proxy, _replica) = pair();
    let client = builder(&primary.url()).replicas(1).connect().succeeds().await;
    let connections = || {
        let count = primary.info("total_connections_received").expect("servers count");
        count.parse::<u32>().expect("it is a number")
    };
    let before = connections();
    let semaphores = (0..20).map(|number| client.named(format!("exports/{number}"), 1));
    let acquiring = semaphores.map(|semaphore| async move { semaphore.acquire().await });
    for permit in futures_util::future::join_all(acquiring).await {
        permit.expect("it is confirmed").release().succeeds().await;
    }
    // The second count may have a connection of its own.
    let made = connections() - before;
    assert!(made <= 2, "{made}");
}

/// The first connection is open while the address already leads to another server.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_one_server_is_not_confirmed_by_the_replicas_of_another() {
    let (primary, _proxy, _replica) = pair();
    let (other, _other_proxy, _other_replica) = pair();
    let front = Proxy::start(primary.address());
    let client = builder(&front.url()).replicas(1).connect().succeeds().await;
    front.lead_to(other.address());
    let semaphore = client.named("exports", 1);
    let permit = in_time(semaphore.acquire()).await.expect("the client goes there, too");
    let held = || other.command(&["ZCARD", "permits:{exports}:leases"]).int();
    assert_eq!(held(), 1, "it is there");
    permit.release().succeeds().await;
    assert_eq!(held(), 0, "all calls go to one server");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replicas_do_not_confirm_is_given_back() {
    let (primary, proxy, _replica) = pair();
    let client = builder(&primary.url()).replicas(1).connect().succeeds().await;
    let semaphore = client.named("exports", 1);
    proxy.stall(true);
    // Nobody gets the permit, so its unit does not cool.
    let counted = AcquireOptions::new().at_least(Duration::from_secs(3_600));
    let refused = in_time(semaphore.acquire_with(counted)).await.expect_err("no replica confirms it");
    assert_eq!(refused, AcquireError::NotReplicated { confirmed: 0, wanted: 1 });
    assert!(refused.is_not_now());
    is_at_rest(&semaphore).await;

    proxy.stall(false);
    let permit = in_time(async {
        loop {
            match semaphore.acquire().await {
                Ok(permit) => return permit,
                Err(error) => assert!(matches!(error, AcquireError::NotReplicated { .. }), "{error:?}"),
            }
        }
    });
    permit.await.release().succeeds().await;
    is_at_rest(&semaphore).await;
}

/// The lease of the request decides how long the replica has, and that of the client how often it is pinged.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_replicas_outlasts_the_pings_of_a_short_lease() {
    let (primary, proxy, _replica) = pair();
    let lease = Duration::from_millis(300);
    let client = builder(&primary.url()).replicas(1).lease(lease).connect().succeeds().await;
    let semaphore = client.named("exports", 1);
    proxy.stall(true);
    let long = AcquireOptions::new().lease(Duration::from_secs(60));
    let refused = in_time(semaphore.acquire_with(long)).await.expect_err("no replica confirms it");
    assert_eq!(refused, AcquireError::NotReplicated { confirmed: 0, wanted: 1 });
    is_at_rest(&semaphore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_replicas_than_there_are_never_confirm() {
    let (primary, _proxy, _replica) = pair();
    // The replica has a fifth of the lease to confirm, which is a matter of real time.
    awaited_in_real_time(async || {
        let client = builder(&primary.url()).replicas(2).lease(Duration::from_secs(2)).connect().await;
        let semaphore = client.expect("it is up").named("exports", 1);
        let refused = in_time(semaphore.acquire()).await.expect_err("there is one");
        assert_eq!(refused, AcquireError::NotReplicated { confirmed: 1, wanted: 2 });
        is_at_rest(&semaphore).await;
    })
    .await;
}

/// As where `maxclients` of the server is reached: replicas are asked on a second connection, and the first
/// one works. Renewals that succeed once made the request wait for ever, with its unit.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_cannot_be_asked_end_an_acquisition_with_the_error_of_the_store() {
    let (primary, _proxy, _replica) = pair();
    let (gone, front) = (Server::start(), Proxy::start(primary.address()));
    gone.kill();
    let (lease, second) = (Duration::from_secs(3), Duration::from_secs(1));
    let client = builder(&front.url()).replicas(1).lease(lease).store_timeout(2 * second).connect();
    let semaphore = client.succeeds().await.named("exports", 1);
    let observed = builder(&primary.url()).connect().succeeds().await.named("exports", 1);
    front.lead_to(gone.address());
    for options in [AcquireOptions::new(), AcquireOptions::new().timeout(second)] {
        let refused = in_time(semaphore.acquire_with(options)).await.expect_err("it is not confirmed");
        assert!(matches!(&refused, AcquireError::Store(store) if store.is_temporary()), "{refused:?}");
        is_at_rest(&observed).await;
    }
    front.lead_to(primary.address());
    in_time(semaphore.acquire()).await.expect("it is confirmed").release().succeeds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_dropped_before_the_confirmation_leaves_nothing() {
    let (primary, proxy, _replica) = pair();
    let client = builder(&primary.url()).replicas(1).connect().succeeds().await;
    let semaphore = client.named("exports", 1);
    proxy.stall(true);
    let asking = semaphore.clone();
    let asked = tokio::spawn(async move { asking.acquire().await });
    in_time(async {
        while semaphore.inspect().succeeds().await.held == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    asked.abort();
    is_at_rest(&semaphore).await;
    let waited = semaphore.acquire_with(AcquireOptions::new().timeout(Duration::from_millis(50)));
    let refused = in_time(waited).await.expect_err("no replica confirms it");
    assert!(refused.is_not_now(), "{refused:?}");
    is_at_rest(&semaphore).await;
}

#[tokio::test]
async fn a_store_without_replicas_has_nothing_to_wait_for() {
    let client = builder("memory:").replicas(3).connect().succeeds().await;
    client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
}
