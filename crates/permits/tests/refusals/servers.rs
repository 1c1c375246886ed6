//! Servers that refuse, fail, or lack a feature.

use std::time::Duration;

use permits::{
    AcquireError, AcquireOptions, AdminError, Client, ConnectError, Limit, Lost, Permit, PermitHandle,
    PermitStatus, ReleaseError, StoreError,
};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{FakeServer, HANGS, HOUR, Proxy, Server, awaited_in_real_time, wait};

use crate::{
    PASSWORD, assert_secret, builder, connect, connect_error, in_time, keeps_the_secret, nothing_is_left,
};

/// The file is a mounted secret, which is replaced before or after the server's password.
#[tokio::test]
async fn a_new_password_is_read_for_the_next_connection() {
    let server = Server::start();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let set = |password: &str| {
        let rules = ["reset", "on", password, "~*", "&*", "+@all"];
        assert_eq!(server.command(&[&["ACL", "SETUSER", "rotated"][..], &rules[..]].concat()).text(), "OK");
    };
    let write = |password: &str| {
        let url = format!("redis://rotated:{password}@{}/\n", server.address());
        std::fs::write(file.path(), url).expect("there is room");
    };
    set(&format!(">{PASSWORD}"));
    write(PASSWORD);
    let url = format!("file:{}", file.path().display());
    let client = in_time(builder(&url).lease(HOUR).connect()).succeeds().await;
    let permit = client.named("exports", 1).acquire().succeeds().await;
    for file_first in [true, false] {
        let next = format!("{PASSWORD}-{file_first}");
        if file_first {
            write(&next);
        }
        set(&format!(">{next}"));
        assert!(server.command(&["CLIENT", "KILL", "USER", "rotated"]).int() > 0, "it is connected");
        write(&next);
        in_time(async {
            while permit.renew().await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    permit.release().succeeds().await;
    assert_secret(&format!("{client:?}"));
}

#[tokio::test]
async fn a_password_is_never_shown() {
    let server = Server::builder().password(PASSWORD).start();
    let proxy = Proxy::start(server.address());
    let url = format!("redis://:{PASSWORD}@{}/", proxy.address());
    let settings = builder(&url).store_timeout(Duration::from_millis(300));
    assert_secret(&format!("{settings:?} {settings:#?}"));
    let client = in_time(settings.connect()).succeeds().await;
    let semaphore = client.named("exports", 1);
    // The timeout is short for the calls below, which must fail. On a busy machine it may end this one, too.
    let acquired = async {
        loop {
            match semaphore.acquire().await {
                Ok(permit) => return permit,
                Err(AcquireError::Store(error)) if error.is_temporary() => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let permit = in_time(acquired).await;
    assert_secret(&format!("{client:?} {semaphore:?} {permit:?}"));
    assert_secret(&format!("{:?}", semaphore.inspect().await));

    proxy.refuse(true);
    keeps_the_secret(&in_time(semaphore.acquire()).await.expect_err("the server cannot be reached"));
    keeps_the_secret(&in_time(semaphore.inspect()).await.expect_err("the server cannot be reached"));
    keeps_the_secret(&in_time(permit.renew()).await.expect_err("the server cannot be reached"));
    let handle: PermitHandle = "permits11:exports:h:s.1:1:15000:7:0".parse().expect("it is a handle");
    keeps_the_secret(&in_time(client.adopt(&handle)).await.expect_err("the server cannot be reached"));
    keeps_the_secret(&in_time(client.close()).await.expect_err("the server cannot be reached"));
}

#[tokio::test]
async fn a_server_that_is_too_old_is_named() {
    let info = "redis_version:5.0.14\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";
    let server = FakeServer::start_with_info(info);
    let error = connect_error(&format!("redis://{}/", server.address())).await;
    let ConnectError::Store(StoreError::Unsupported { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("5.0.14") && reason.contains("6.2"), "{reason}");
}

/// `lua::foreign_keys` has every operation.
#[tokio::test]
async fn a_foreign_key_is_an_error_and_stays() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    for part in ["state", "queue", "leases", "free"] {
        let key = format!("permits:{{{part}}}:{part}");
        for foreign in [["SET", &key, "theirs"], ["SADD", &key, "theirs"]] {
            server.command(&foreign);
            let before = server.command(&["DUMP", &key]);
            let semaphore = client.named(part, 1);
            let error = semaphore.acquire().await.expect_err("a key is not ours");
            let AcquireError::Store(StoreError::WrongType { semaphore: named, .. }) = &error else {
                panic!("{part}: {error:?}");
            };
            let text = error.to_string();
            assert!(named == part && text.contains("prefix") && !text.contains("script"), "{text}");
            let error = semaphore.set_limit(2).await;
            let is_refused = matches!(error, Err(AdminError::Store(StoreError::WrongType { .. })));
            assert!(is_refused, "{part}: {error:?}");
            assert_eq!(server.command(&["DUMP", &key]), before, "{part}");
            assert_eq!(server.command(&["KEYS", "*"]).array().len(), 1, "{part}: nothing else is left");
            server.command(&["FLUSHALL"]);
            semaphore.acquire().await.expect("all is ours again").release().succeeds().await;
            server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn without_memory_acquiring_fails_and_giving_back_works() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.named("exports", 2);
    let first = semaphore.acquire().succeeds().await;
    let second = semaphore.acquire().succeeds().await;
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    while semaphore.inspect().succeeds().await.waiting == 0 {}

    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "1"]).text(), "OK");
    // The scripts are gone too, as after a restart.
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]).text(), "OK");
    for name in ["exports", "imports"] {
        let error = client.named(name, 2).acquire().await.expect_err("there is no memory");
        assert!(matches!(error, AcquireError::Store(StoreError::OutOfMemory { .. })), "{error:?}");
        assert!(!error.to_string().contains("script"), "{error}");
        assert!(!error.is_not_now());
    }
    assert_eq!(server.command(&["KEYS", "*imports*"]).array(), []);
    let seen = semaphore.inspect().await.expect("looking works");
    assert_eq!((seen.held, seen.waiting), (2, 1), "the refusals changed nothing");

    first.renew().await.expect("renewing works");
    first.release().await.expect("releasing works");
    let third = in_time(waiter).await.expect("no panic").expect("what is freed is handed on");
    assert_eq!(semaphore.revoke(second.holder(), "enough").await, Ok(true));
    in_time(second.lost()).await;
    semaphore.pause("").await.expect("pausing works");
    semaphore.resume().await.expect("resuming works");
    third.release().await.expect("releasing works");
    let seen = semaphore.inspect().await.expect("looking works");
    assert_eq!((seen.held, seen.waiting), (0, 0));

    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "0"]).text(), "OK");
    semaphore.acquire().await.expect("there is memory again").release().succeeds().await;
}

#[tokio::test]
async fn a_replica_is_a_named_error() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    assert!(wait::until(|| replica.info("master_link_status").as_deref() == Some("up")));
    let timeout = Duration::from_secs(1);
    let client = builder(&replica.url()).store_timeout(timeout).connect().succeeds().await;
    let semaphore = client.named("exports", 1);
    let connections = || {
        let count = replica.info("total_connections_received").expect("servers count");
        count.parse::<u32>().expect("it is a number")
    };
    let before = connections();
    let error = in_time(semaphore.acquire()).await.expect_err("it may not write");
    let AcquireError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("read only replica"), "{reason}");
    let error = in_time(semaphore.set_limit(3)).await.expect_err("it may not write");
    assert!(error.to_string().contains("read only replica"), "{error}");
    let made = connections() - before;
    assert!((3..500).contains(&made), "its address may lead to another server by now: {made} connections");
    nothing_is_left(&primary);
}

#[tokio::test]
async fn a_permit_whose_renewal_cannot_be_sent_is_unsure_and_then_lost() {
    awaited_in_real_time(async || {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let lease = Duration::from_secs(2);
        let client = in_time(builder(&proxy.url()).lease(lease).connect()).succeeds().await;
        let semaphore = client.named("exports", 2);
        let permit = semaphore.acquire().succeeds().await;
        let again = semaphore.acquire().succeeds().await;
        assert_eq!(permit.status(), PermitStatus::Held);
        proxy.refuse(true);
        in_time(reaches(&permit, PermitStatus::Unsure)).await;
        assert!(permit.is_held() && !permit.remaining().is_zero(), "{permit:?}");
        proxy.refuse(false);
        in_time(reaches(&permit, PermitStatus::Held)).await;
        again.release().succeeds().await;

        proxy.refuse(true);
        assert_eq!(in_time(permit.lost()).await, Lost::Expired);
        assert_eq!(permit.status(), PermitStatus::Lost);
        proxy.refuse(false);
        assert_eq!(in_time(permit.release()).await, Err(ReleaseError::Lost(Lost::Expired)));
    })
    .await;
}

async fn reaches(permit: &Permit, status: PermitStatus) {
    while permit.status() != status {
        assert_ne!(permit.status(), PermitStatus::Lost, "it was never {status:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A server that has just started may have forgotten holders. Its recovery window does not depend on the
/// lease of the first request, and the reason of a refusal is right until the end.
#[tokio::test]
async fn a_young_server_refuses_with_the_rest_of_its_window_whatever_the_lease() {
    let server = Server::start();
    let lease = Duration::from_secs(24 * 60 * 60);
    let client = Client::builder(server.url()).lease(lease).connect().succeeds().await;
    let (began, mut refused, mut left) = (std::time::Instant::now(), 0, Duration::from_secs(5));
    let semaphore = client.named("exports", 1);
    let permit = loop {
        match semaphore.try_acquire().await {
            Ok(permit) => break permit,
            Err(AcquireError::Recovering { remaining }) => {
                assert!(remaining <= left, "{remaining:?} after {left:?}");
                let seen = client.named("exports", Limit::Stored).inspect().succeeds().await;
                assert!(seen.recovering <= remaining, "{seen:?}");
                (refused, left) = (refused + 1, remaining);
            }
            Err(error) => panic!("{error:?} with {left:?} left"),
        }
        tokio::time::sleep(left.min(Duration::from_millis(200))).await;
    };
    assert!(refused > 1, "it was refused {refused} times");
    assert!(began.elapsed() < HANGS, "it took {:?}", began.elapsed());
    permit.release().succeeds().await;
}

/// "Not now" would send callers away as if others held the units.
#[tokio::test]
async fn a_store_that_is_gone_or_silent_is_not_busy() {
    // The waiter must be seen within its timeout, while the server answers.
    awaited_in_real_time(async || is_not_busy(false).await).await;
    awaited_in_real_time(async || is_not_busy(true).await).await;
}

async fn is_not_busy(silent: bool) {
    let within = |milliseconds| AcquireOptions::new().timeout(Duration::from_millis(milliseconds));
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.named("exports", 1);
    let _held = in_time(semaphore.acquire()).succeeds().await;
    let waiter = tokio::spawn(semaphore.acquire_with(within(2000)));
    while semaphore.inspect().succeeds().await.waiting == 0 {
        assert!(!waiter.is_finished(), "it waits in the queue");
    }
    if silent {
        server.pause();
    } else {
        server.kill();
    }
    for _ in 0..2 {
        let timed_out = semaphore.acquire_with(within(500));
        for refused in [in_time(timed_out).await, in_time(semaphore.try_acquire()).await] {
            let error = refused.expect_err("the server does not answer");
            assert!(matches!(&error, AcquireError::Store(store) if store.is_temporary()), "{error:?}");
        }
    }
    let error = in_time(waiter).await.expect("it has not panicked").expect_err("no answer");
    assert!(matches!(&error, AcquireError::Store(store) if store.is_temporary()), "{error:?}");
    if silent {
        server.resume();
    }
}
