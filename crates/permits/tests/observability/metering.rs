//! The metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use permits::{Acquire, AcquireError, AcquireOptions, Client, Ended, Limit, Lost, Permit, Semaphore};
use permits_testkit::documents::{self, LibraryMetric};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, Proxy, Server, wait};

use crate::{builder, in_time, queued, recorder, timeout};

/// A client of this memory, and a semaphore of it, with the recorder in place.
async fn semaphore(name: &str, limit: u32) -> (Client, Semaphore) {
    recorder::install();
    // More than all tests use.
    let connecting = builder(&format!("memory:{name}")).metric_semaphores(1000).connect();
    let client = connecting.succeeds().await;
    let semaphore = client.named(name, limit);
    (client, semaphore)
}

fn of(metric: &str, semaphore: &str) -> f64 {
    recorder::value(&format!("{metric}{{semaphore={semaphore}}}"))
}

fn of_reason(metric: &str, semaphore: &str, reason: &str) -> f64 {
    recorder::value(&format!("{metric}{{semaphore={semaphore},reason={reason}}}"))
}

/// Demands that one permit is lost for this reason. The loss is signalled first, and then counted.
#[track_caller]
fn one_is_lost(semaphore: &str, reason: &str) {
    let lost = || of_reason("permits_losses_total", semaphore, reason);
    wait::until(|| lost() == 1.0);
    assert_eq!(lost(), 1.0, "permits of {semaphore} that are {reason}");
}

/// Demands that this becomes the number of permits held and of requests that wait.
#[track_caller]
fn becomes(semaphore: &str, held: f64, waiting: f64) {
    let now = || (of("permits_held", semaphore), of("permits_waiting", semaphore));
    wait::until(|| now() == (held, waiting));
    assert_eq!(now(), (held, waiting), "held and waiting of {semaphore}");
}

/// A request that waits.
async fn waiter(semaphore: &Semaphore, options: AcquireOptions) -> Pin<Box<Acquire>> {
    let before = semaphore.inspect().succeeds().await.waiting;
    let mut waiter = Box::pin(semaphore.acquire_with(options));
    assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    queued(semaphore, before + 1).await;
    waiter
}

async fn acquired(semaphore: &Semaphore) -> Permit {
    in_time(semaphore.acquire()).succeeds().await
}

#[tokio::test]
async fn the_page_lists_the_metrics_that_are_described_and_registered() {
    let (client, semaphore) = semaphore("listed", 1).await;
    let held = acquired(&semaphore).await;
    semaphore.try_acquire().await.expect_err("it is held");
    client.close().succeeds().await;
    in_time(held.lost()).await;
    one_is_lost("listed", "closed");

    let lower = |text: String| text.replacen("The", "the", 1);
    let described = recorder::described().into_iter();
    let described: BTreeSet<_> =
        described.map(|(name, kind, unit, text)| (name, kind, unit, lower(text))).collect();
    let listed = documents::library_metrics();
    let row = |metric: LibraryMetric| (metric.name, metric.kind, metric.unit, metric.meaning);
    assert_eq!(described, listed.iter().cloned().map(row).collect());

    // The metrics of a client without a label have no label.
    let mut registered: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (name, kind, labels) in recorder::registered() {
        registered.entry((name, kind.to_owned())).or_default().extend(labels);
    }
    let labels = |metric: LibraryMetric| ((metric.name, metric.kind), metric.labels.into_iter().collect());
    assert_eq!(registered, listed.into_iter().map(labels).collect());
}

#[tokio::test]
async fn a_grant_is_counted_with_its_wait_and_its_hold() {
    let (_client, semaphore) = semaphore("measured", 1).await;
    let first = acquired(&semaphore).await;
    becomes("measured", 1.0, 0.0);
    let second = waiter(&semaphore, AcquireOptions::new()).await;
    becomes("measured", 1.0, 1.0);
    tokio::time::sleep(Duration::from_millis(30)).await;
    first.release().succeeds().await;
    let second = in_time(second).succeeds().await;
    becomes("measured", 1.0, 0.0);
    drop(second);
    becomes("measured", 0.0, 0.0);
    assert_eq!(of("permits_grants_total", "measured"), 2.0);
    for metric in ["permits_wait_seconds", "permits_hold_seconds"] {
        assert_eq!(recorder::samples(&format!("{metric}{{semaphore=measured}}")), 2, "{metric}");
        let seconds = of(metric, "measured");
        assert!((0.03..HANGS.as_secs_f64()).contains(&seconds), "{metric}: {seconds}");
    }
    // The session records a call after it has delivered what the call brought.
    for operation in ["acquire", "release"] {
        let calls = format!("permits_store_call_seconds{{operation={operation}}}");
        assert!(wait::until(|| recorder::samples(&calls) >= 2), "{operation}");
    }
}

#[tokio::test]
async fn a_kept_permit_is_held_by_no_caller_until_it_is_granted_again() {
    let (_client, semaphore) = semaphore("kept", 1).await;
    let semaphore = semaphore.keep(Duration::from_secs(5));
    let began = Instant::now();
    drop(acquired(&semaphore).await);
    let first = began.elapsed();
    becomes("kept", 0.0, 0.0);
    assert_eq!(semaphore.inspect().succeeds().await.held, 1, "it is kept");
    tokio::time::sleep(first + Duration::from_millis(30)).await;
    let began = Instant::now();
    let again = acquired(&semaphore).await;
    becomes("kept", 1.0, 0.0);
    again.release().succeeds().await;
    let both = first + began.elapsed();
    becomes("kept", 0.0, 0.0);
    assert_eq!((of("permits_grants_total", "kept"), of("permits_local_grants_total", "kept")), (2.0, 1.0));
    for metric in ["permits_wait_seconds", "permits_hold_seconds"] {
        assert_eq!(recorder::samples(&format!("{metric}{{semaphore=kept}}")), 2, "{metric}");
    }
    // The time between the two does not count, and less than a microsecond may be missing.
    let held = of("permits_hold_seconds", "kept");
    assert!(held <= both.as_secs_f64() + 0.001, "{held} s of {both:?}");
}

/// Each end of an acquisition that waits, and of one that was granted meanwhile.
#[tokio::test]
async fn the_gauges_come_to_zero_after_every_end_of_an_acquisition() {
    let name = "ends of acquisitions";
    let (client, semaphore) = semaphore(name, 1).await;
    let held = acquired(&semaphore).await;

    drop(waiter(&semaphore, AcquireOptions::new()).await);
    becomes(name, 1.0, 0.0);
    assert_eq!(of_reason("permits_refusals_total", name, "cancelled"), 1.0);

    in_time(semaphore.acquire_with(timeout(5))).await.expect_err("it is held");
    becomes(name, 1.0, 0.0);
    assert_eq!(of_reason("permits_refusals_total", name, "timed_out"), 1.0);

    let revoked = waiter(&semaphore, AcquireOptions::new().holder("revoked")).await;
    becomes(name, 1.0, 1.0);
    semaphore.revoke("revoked", "").await.expect("it waits");
    assert!(matches!(in_time(revoked).await, Err(AcquireError::Revoked { .. })));
    becomes(name, 1.0, 0.0);

    semaphore.try_acquire().await.expect_err("it is held");
    assert_eq!(of_reason("permits_refusals_total", name, "no_permits"), 1.0);
    becomes(name, 1.0, 0.0);

    // Granted, and dropped before its caller has polled it again.
    let granted = waiter(&semaphore, AcquireOptions::new()).await;
    held.release().succeeds().await;
    while semaphore.inspect().succeeds().await.waiting > 0 {}
    drop(granted);
    becomes(name, 0.0, 0.0);
    assert_eq!(of_reason("permits_refusals_total", name, "cancelled"), 2.0);
    assert_eq!(of("permits_grants_total", name), 1.0);

    let held = acquired(&semaphore).await;
    let closed = waiter(&semaphore, AcquireOptions::new()).await;
    becomes(name, 1.0, 1.0);
    client.close().succeeds().await;
    assert!(matches!(in_time(closed).await, Err(AcquireError::Ended(Ended::Closed))));
    becomes(name, 0.0, 0.0);
    one_is_lost(name, "closed");
    drop(held);
    becomes(name, 0.0, 0.0);
}

/// A blocked caller is cancelled by another thread.
#[test]
fn the_gauges_come_to_zero_after_a_cancelled_blocking_acquisition() {
    recorder::install();
    let name = "cancelled while blocked";
    let connecting = builder("memory:blocked").metric_semaphores(1000).connect().wait();
    let client = connecting.expect("there is memory");
    let semaphore = client.named(name, 1);
    let held = semaphore.acquire().wait().expect("it is free");
    let acquiring = semaphore.acquire();
    let canceller = acquiring.canceller();
    let blocked = std::thread::spawn(move || acquiring.wait());
    becomes(name, 1.0, 1.0);
    canceller.cancel();
    assert!(matches!(blocked.join().expect("no panic"), Err(AcquireError::Cancelled)));
    becomes(name, 1.0, 0.0);
    held.release().wait().expect("it is held");
    becomes(name, 0.0, 0.0);
}

/// Each end of a permit.
#[tokio::test]
async fn the_gauges_come_to_zero_after_every_end_of_a_permit() {
    let name = "ends of permits";
    let (client, semaphore) = semaphore(name, 1).await;
    acquired(&semaphore).await.release().succeeds().await;
    becomes(name, 0.0, 0.0);
    drop(acquired(&semaphore).await);
    becomes(name, 0.0, 0.0);

    let revoked = in_time(semaphore.acquire_with(AcquireOptions::new().holder("revoked"))).await;
    let revoked = revoked.expect("it is free");
    semaphore.revoke("revoked", "").succeeds().await;
    assert!(matches!(in_time(revoked.lost()).await, Lost::Revoked { .. }));
    becomes(name, 0.0, 0.0);
    drop(revoked);
    one_is_lost(name, "revoked");

    let short = AcquireOptions::new().lease(Duration::from_millis(100)).auto_renew(false);
    let expired = in_time(semaphore.acquire_with(short)).succeeds().await;
    assert_eq!(in_time(expired.lost()).await, Lost::Expired);
    drop(expired);
    becomes(name, 0.0, 0.0);
    one_is_lost(name, "expired");

    let handle = acquired(&semaphore).await.hand_over().succeeds().await;
    becomes(name, 0.0, 0.0);
    let adopted = client.adopt(&handle).await.expect("it is handed over");
    becomes(name, 1.0, 0.0);
    drop(adopted);
    becomes(name, 0.0, 0.0);
    let hold = format!("permits_hold_seconds{{semaphore={name}}}");
    assert_eq!(recorder::samples(&hold), 6, "one for each permit of a process");
}

#[tokio::test]
async fn reconnections_retries_and_batches_are_counted() {
    recorder::install();
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let client = builder(&proxy.url()).connect().succeeds().await;
    let semaphore = client.named("counted", 100);
    let held = acquired(&semaphore).await;
    let (reconnects, retries) =
        (recorder::value("permits_reconnects_total"), recorder::value("permits_retries_total"));
    proxy.stall(true);
    let mut acquiring: Vec<_> = (0..20).map(|_| Box::pin(semaphore.acquire())).collect();
    for acquire in &mut acquiring {
        // Once to ask for it, and once to send what was gathered.
        for _ in 0..2 {
            assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }
    let (batches, requests) =
        (recorder::value("permits_batches_total"), recorder::value("permits_batched_requests_total"));
    // The calls in flight fail, and are made again on another connection.
    proxy.cut();
    proxy.stall(false);
    for acquire in acquiring {
        drop(in_time(acquire).succeeds().await);
    }
    assert!(wait::until(|| recorder::value("permits_reconnects_total") > reconnects));
    assert!(wait::until(|| recorder::value("permits_retries_total") > retries));
    let batched = || {
        let batches = recorder::value("permits_batches_total") - batches;
        (batches, recorder::value("permits_batched_requests_total") - requests)
    };
    assert!(wait::until(|| batched().1 >= 18.0), "{:?}", batched());
    assert!(batched().0 >= 1.0 && batched().1 >= 2.0 * batched().0, "{:?}", batched());
    held.release().succeeds().await;
}

#[tokio::test]
async fn semaphores_beyond_the_bound_share_a_label_and_without_a_bound_have_none() {
    let (_client, first) = semaphore("within the bound", 1).await;
    drop(acquired(&first).await);
    becomes("within the bound", 0.0, 0.0);
    let url = "memory:within the bound";
    let bounded = |max| async move {
        let connecting = builder(url).metric_semaphores(max).connect();
        connecting.succeeds().await
    };
    // The process has at least one label, so a client that may have one label adds no other.
    let client = bounded(1).await;
    let known = client.named("within the bound", Limit::Stored);
    drop(acquired(&known).await);
    assert_eq!(of("permits_grants_total", "within the bound"), 2.0, "it keeps its label");
    for number in 0..3 {
        let semaphore = client.named(format!("beyond the bound {number}"), 1);
        drop(acquired(&semaphore).await);
    }
    assert_eq!(of("permits_grants_total", "other"), 3.0);

    let unlabelled = bounded(0).await.named("without a label", 1);
    drop(acquired(&unlabelled).await);
    unlabelled.acquire_many(2).await.expect_err("it exceeds the limit");
    assert_eq!(recorder::value("permits_grants_total"), 1.0);
    assert_eq!(recorder::value("permits_refusals_total{reason=exceeds_limit}"), 1.0);
    let all = recorder::series("permits_grants_total");
    assert!(!all.iter().any(|series| series.contains("beyond") || series.contains("without")), "{all:?}");
}

#[tokio::test]
async fn a_recorder_that_panics_harms_nothing() {
    let (client, semaphore) = semaphore("panics", 1).await;
    let held = acquired(&semaphore).await;
    drop(waiter(&semaphore, AcquireOptions::new()).await);
    let next = waiter(&semaphore, AcquireOptions::new()).await;
    held.release().succeeds().await;
    let held = in_time(next).succeeds().await;
    semaphore.revoke(held.holder(), "").succeeds().await;
    assert!(matches!(in_time(held.lost()).await, Lost::Revoked { .. }));
    client.close().succeeds().await;
}

/// A recorder is code of the program: it runs when the lock of the session is free. Otherwise this would
/// hang.
#[test]
fn a_recorder_can_use_permits_itself() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("the system has room").block_on(async {
            let (client, semaphore) = semaphore("recorder inside", 1).await;
            let _ = recorder::USED_INSIDE.set(client.clone());
            let held = acquired(&semaphore).await;
            drop(waiter(&semaphore, AcquireOptions::new()).await);
            let next = waiter(&semaphore, AcquireOptions::new()).await;
            semaphore.revoke(held.holder(), "").succeeds().await;
            in_time(held.lost()).await;
            drop(in_time(next).succeeds().await);
        });
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(HANGS).expect("no lock is held");
    assert!(recorder::ACQUIRED_INSIDE.load(std::sync::atomic::Ordering::Relaxed) > 0);
}
