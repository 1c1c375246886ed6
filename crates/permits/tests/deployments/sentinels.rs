//! Sentinels: the client follows the primary that they name, after any failure of the previous primary.

use std::net::TcpListener;
use std::time::Duration;

use permits::{ConnectError, StoreError};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Sentinels, Server, wait};

use crate::{builder, connect, granted, in_line, in_time, is_at_rest, packed, renewed, still_waits};

/// Lets a client hold and another wait while `change` makes another server the primary.
async fn continues_through(set: &Sentinels, change: impl AsyncFnOnce(usize) -> usize) {
    let client = connect(&set.url()).await;
    let semaphore = client.named("exports", 1);
    let permit = semaphore.acquire().succeeds().await;
    let next = in_line(&semaphore, "next").await;
    let old = set.primary();
    // A replica receives no new writes in the first second after a full copy, so all of them would be lost.
    let entries = |server: &Server| server.command(&["ZCARD", "permits:{exports}:leases"]).int();
    assert!(wait::until(|| set.servers().iter().all(|server| entries(server) == 2)));
    let new = change(old).await;
    assert_ne!(new, old);
    renewed(&permit).await;
    assert!(permit.is_held(), "{:?}", permit.status());
    let next = still_waits(next).await;
    permit.release().succeeds().await;
    granted(next).await.release().succeeds().await;
    is_at_rest(&semaphore).await;
    // The new server grants, also while the old one still replies.
    in_time(async {
        loop {
            let permit = semaphore.acquire().succeeds().await;
            let state = set.servers()[new].command(&packed::reading_state("permits:{exports}:state"));
            if packed::field(&state, "last_token") == Some(permit.token()) {
                return;
            }
        }
    })
    .await;
    is_at_rest(&semaphore).await;
    client.close().succeeds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_is_replaced() {
    let set = Sentinels::start();
    let killed = async |old: usize| {
        set.servers()[old].kill();
        set.wait_for_switch(old)
    };
    continues_through(&set, killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_paused_is_left() {
    let set = Sentinels::builder().min_replicas_to_write(1).start();
    let paused = async |old: usize| {
        set.servers()[old].pause();
        set.wait_for_switch(old)
    };
    continues_through(&set, paused).await;
}

/// For example the sentinel of a host that is gone. A grant has to be confirmed within a shorter time than
/// the timeout of a sentinel.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_is_silent_delays_no_confirmation() {
    let set = Sentinels::start();
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = silent.local_addr().expect("it is bound");
    let url = set.url().replacen("://", &format!("://{address},"), 1);
    let client = builder(&url).replicas(1).lease(Duration::from_secs(3)).connect().succeeds().await;
    let permit = in_time(client.named("exports", 1).acquire()).await.expect("it is confirmed");
    permit.release().succeeds().await;
}

/// The old server continues to reply, as a replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_agreement_is_followed() {
    let set = Sentinels::start();
    let agreed = async |old: usize| {
        assert_eq!(set.primary(), old);
        set.failover()
    };
    continues_through(&set, agreed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let set = Sentinels::builder().password("data").sentinel_password("watch").start();
    let client = connect(&set.url()).await;
    client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
    let wrong = set.url().replace("sentinel_password=watch", "sentinel_password=s3cr3t");
    assert_ne!(wrong, set.url());
    let error = in_time(builder(&wrong).connect()).await.expect_err("the password is wrong");
    assert!(!error.to_string().contains("s3cr3t"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sentinel_that_answers_is_enough() {
    let set = Sentinels::start();
    set.sentinels()[0].kill();
    set.sentinels()[1].pause();
    let client = in_time(connect(&set.url())).await;
    client.named("exports", 1).acquire().succeeds().await.release().succeeds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_service_is_named() {
    let set = Sentinels::builder().replicas(0).sentinels(1).quorum(1).start();
    let url = set.url().replace("/service", "/unknown");
    let connecting = builder(&url).store_timeout(Duration::from_secs(1)).connect();
    let Err(ConnectError::Store(StoreError::Unreachable { reason })) = in_time(connecting).await else {
        panic!("there is no such service")
    };
    assert!(reason.contains("unknown"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_says_which_sentinel_names_another_server() {
    let set = Sentinels::builder().replicas(0).sentinels(2).quorum(1).start();
    let sentinel = &set.sentinels()[1];
    sentinel.command(&["SENTINEL", "REMOVE", "service"]);
    sentinel.command(&["SENTINEL", "MONITOR", "service", "127.0.0.1", "1", "1"]);
    let names = |number: usize| format!("{} names 127.0.0.1:", set.sentinels()[number].address());
    // On a busy machine a sentinel may not answer in time.
    for attempt in 1.. {
        let examination = builder(&set.url()).diagnose().succeeds().await;
        let says = |text: String| examination.findings.iter().any(|finding| finding.observed.contains(&text));
        if says(names(0)) || says(names(1)) {
            break;
        }
        assert!(attempt < 10, "{examination:?}");
    }
}

/// An operator looks for the address in the sentinels, since the URL does not have it.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_announced_and_not_reached_is_named() {
    let set = Sentinels::builder().replicas(0).sentinels(1).quorum(1).start();
    let sentinel = &set.sentinels()[0];
    sentinel.command(&["SENTINEL", "MONITOR", "elsewhere", "127.0.0.1", "1", "1"]);
    let url = set.url().replace("/service", "/elsewhere");
    let connecting = builder(&url).store_timeout(Duration::ZERO).connect();
    let Err(ConnectError::Store(StoreError::Unreachable { reason })) = in_time(connecting).await else {
        panic!("no server runs there")
    };
    let announced = format!(
        "127.0.0.1:1, the address that the sentinel {} announced for \"elsewhere\": connection refused",
        sentinel.address()
    );
    assert!(reason.starts_with(&announced), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_asks_the_sentinels_and_the_server_that_they_name() {
    let set = Sentinels::builder().min_replicas_to_write(1).start();
    let named = set.servers()[set.primary()].address().to_string();
    let examination = builder(&set.url()).diagnose().succeeds().await;
    assert!(examination.is_healthy(), "{examination:?}");
    let seen = |subject: &str| {
        let found = examination.findings.iter().find(|finding| finding.subject == subject);
        found.unwrap_or_else(|| panic!("{subject}: {examination:?}")).observed.clone()
    };
    assert!(seen("sentinels").contains(&named) && seen("connection").contains(&named), "{examination:?}");
    seen("semaphore");

    set.sentinels()[0].kill();
    let examination = builder(&set.url()).diagnose().succeeds().await;
    let noted = |finding: &&permits::Finding| finding.severity == permits::Severity::Note;
    let noted: Vec<_> = examination.findings.iter().filter(noted).map(|finding| finding.subject).collect();
    assert!(noted.contains(&"sentinels"), "{examination:?}");
    assert!(examination.is_healthy(), "{examination:?}");
}
