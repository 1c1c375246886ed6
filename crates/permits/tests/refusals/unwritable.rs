//! Servers that cannot be written for some time: what they store can be read.

use std::time::Duration;

use permits::{
    AcquireError, AcquireOptions, AdminError, Client, Inspection, Limit, Permit, RenewError, StoreError,
};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HOUR, Server, wait};

use crate::{builder, in_time};

/// A reason for which a server refuses writes.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    FewReplicas,
    FullMemory,
    FailedSave,
    Replica,
}

impl Refusal {
    const ALL: [Self; 4] = [Self::FewReplicas, Self::FullMemory, Self::FailedSave, Self::Replica];

    fn begin(self, server: &Server) {
        let set = |name, value| assert_eq!(server.command(&["CONFIG", "SET", name, value]).text(), "OK");
        match self {
            Self::FewReplicas => set("min-replicas-to-write", "1"),
            Self::FullMemory => set("maxmemory", "1"),
            Self::FailedSave => {
                // Nothing can be renamed to a directory that is not empty, not even by root.
                std::fs::create_dir_all(server.dir().join("dump.rdb/full")).expect("there is room");
                set("save", "3600 1000000");
                server.command(&["BGSAVE"]);
                assert!(wait::until(|| server.info("rdb_last_bgsave_status").as_deref() == Some("err")));
            }
            Self::Replica => assert_eq!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).text(), "OK"),
        }
    }

    /// The code of the server's error.
    fn code(self) -> &'static str {
        match self {
            Self::FewReplicas => "NOREPLICAS",
            Self::FullMemory => "OOM",
            Self::FailedSave => "MISCONF",
            Self::Replica => "READONLY",
        }
    }
}

/// The names of holders and of waiters.
fn names(seen: &Inspection) -> (Vec<&str>, Vec<&str>) {
    let holders = seen.holders.iter().map(|info| info.holder.as_str());
    (holders.collect(), seen.waiters.iter().map(|info| info.holder.as_str()).collect())
}

/// The client, which has one permit and one request that waits.
async fn busy(server: &Server) -> (Client, Permit, tokio::task::JoinHandle<()>) {
    let client = in_time(builder(&server.url()).lease(HOUR).connect()).succeeds().await;
    let semaphore = client.named("exports", 1);
    let held = semaphore.acquire_with(AcquireOptions::new().holder("held")).succeeds().await;
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { drop(semaphore.acquire_with(AcquireOptions::new().holder("waits")).await) }
    });
    in_time(async {
        while semaphore.inspect_up_to(0).succeeds().await.waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    (client, held, waiting)
}

#[tokio::test]
async fn a_server_that_cannot_be_written_can_be_read() {
    for refusal in Refusal::ALL {
        let server = Server::start();
        let (_client, held, waiting) = busy(&server).await;
        refusal.begin(&server);
        let reader = in_time(builder(&server.url()).store_timeout(Duration::ZERO).connect()).succeeds().await;
        assert_eq!(in_time(reader.list()).succeeds().await, ["exports"], "{refusal:?}");
        let semaphore = reader.named("exports", Limit::Stored);
        for _ in 0..2 {
            let seen = in_time(semaphore.inspect()).succeeds().await;
            assert_eq!(names(&seen), (vec!["held"], vec!["waits"]), "{refusal:?}");
            assert_eq!((seen.limit, seen.held, seen.waiting), (Some(1), 1, 1), "{refusal:?}");
            assert!(seen.recovering.is_zero(), "{refusal:?}");
        }
        // Operators change limits although the memory is full.
        if let Refusal::FullMemory = refusal {
            let full = in_time(reader.named("other", 1).try_acquire()).await.map(drop);
            let is_full = matches!(full, Err(AcquireError::Store(StoreError::OutOfMemory { .. })));
            assert!(is_full, "{full:?}");
        } else {
            let refused = in_time(semaphore.set_limit(2)).await.map(drop);
            let Err(AdminError::Store(error)) = refused else { panic!("{refusal:?}: {refused:?}") };
            assert!(error.to_string().contains(refusal.code()), "{refusal:?}: {error}");
        }
        waiting.abort();
        std::mem::forget(held);
    }
}

/// A replica has the state of its primary, whose era is not over.
#[tokio::test]
async fn a_replica_shows_the_state_of_its_primary() {
    let (primary, replica) = (Server::start(), Server::start());
    let (_client, _held, waiting) = busy(&primary).await;
    let port = primary.port().to_string();
    assert_eq!(replica.command(&["REPLICAOF", "127.0.0.1", &port]).text(), "OK");
    assert!(wait::until(|| replica.info("master_link_status").as_deref() == Some("up")));
    let reader = in_time(Client::builder(replica.url()).connect()).succeeds().await;
    let seen = in_time(reader.named("exports", Limit::Stored).inspect()).succeeds().await;
    assert_eq!(names(&seen), (vec!["held"], vec!["waits"]));
    assert!(seen.recovering.is_zero(), "{:?}", seen.recovering);
    waiting.abort();
}

/// Nobody repeats that renewal: the waiter once failed with its error, while the store was well.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_a_server_refused_for_a_moment_fails_no_waiter() {
    let server = Server::start();
    let (moment, within) = (Duration::from_millis(500), Duration::from_secs(2));
    let client = in_time(builder(&server.url()).lease(HOUR).store_timeout(moment).connect()).succeeds().await;
    let semaphore = client.named("exports", 1);
    let held = semaphore.acquire().succeeds().await;
    let waiter = tokio::spawn(semaphore.acquire_with(AcquireOptions::new().timeout(within)));
    in_time(async {
        while semaphore.inspect_up_to(0).succeeds().await.waiting == 0 {
            assert!(!waiter.is_finished(), "it waits in the queue");
        }
    })
    .await;
    Refusal::FewReplicas.begin(&server);
    let error = in_time(held.renew()).await.expect_err("the server refuses writes");
    assert!(matches!(&error, RenewError::Store(store) if store.is_temporary()), "{error:?}");
    assert_eq!(server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).text(), "OK");
    let refused = in_time(waiter).await.expect("it does not panic").expect_err("the unit is held");
    // The request's time was up, and the store was well.
    assert!(matches!(refused, AcquireError::TimedOut { waited, .. } if waited == within), "{refused:?}");
    assert!(held.is_held());
}
