//! Many acquisitions at once, each dropped at a random point.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Semaphore};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, random, wait};
use tokio::runtime::Runtime;

use crate::cancellation::fixture::Fixture;
use crate::cancellation::user::poll_once;
use crate::cancellation::{LEASE, UNITS};

#[test]
fn a_storm_of_dropped_acquisitions_leaves_nothing() {
    storm(3000, false);
}

#[test]
fn a_storm_over_a_connection_that_is_cut_leaves_nothing() {
    storm(1000, true);
}

/// Acquires many times, by 64 tasks of 2 clients, and drops each acquisition at a random point.
fn storm(acquisitions: u32, cutting: bool) {
    let seed = random::seed();
    for round in 0..random::cases() {
        storm_of(acquisitions, cutting, seed.wrapping_add(u64::from(round) << 32));
    }
}

/// The time between two cuts of the connections.
const BETWEEN_CUTS: Duration = Duration::from_millis(40);

fn storm_of(acquisitions: u32, cutting: bool, seed: u64) {
    let fixture = Arc::new(Fixture::new());
    let runtime = Runtime::new().expect("a runtime");
    let inside = Arc::new(AtomicU32::new(0));
    let got = Arc::new(AtomicU32::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    // Kept to the end, because the clients release what was dropped.
    let clients = runtime.block_on(async { [fixture.client(LEASE).await, fixture.client(LEASE).await] });
    let cutter = cutting.then(|| {
        let (fixture, ended) = (fixture.clone(), ended.clone());
        thread::spawn(move || {
            while !wait::within(BETWEEN_CUTS, || ended.load(SeqCst)) {
                fixture.proxy.cut();
            }
        })
    });
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|number| {
                let semaphore = clients[number % 2].named("exports", UNITS);
                let (inside, got) = (inside.clone(), got.clone());
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
                tokio::spawn(async move {
                    for _ in 0..acquisitions / 64 {
                        drop_at_random(&semaphore, &mut random, &inside, &got).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(3 * HANGS, task).await.expect("no task hangs").expect("no task panics");
        }
        ended.store(true, SeqCst);
        assert!(got.load(SeqCst) > 0, "some were granted");
    });
    fixture.all_units_come_back();
    cutter.map(thread::JoinHandle::join).transpose().expect("cutting does not panic");
}

async fn drop_at_random(
    semaphore: &Semaphore,
    random: &mut fastrand::Rng,
    inside: &AtomicU32,
    got: &AtomicU32,
) {
    let pause = |random: &mut fastrand::Rng| Duration::from_micros(random.u64(0..3000));
    let weight = random.u32(1..=UNITS);
    let options = AcquireOptions::new().weight(weight);
    let options = if random.bool() { options } else { options.timeout(pause(random)) };
    // Some wait for long, because on a busy machine no other would be granted.
    let timeout = if random.u8(0..8) == 0 { HANGS } else { pause(random) };
    let acquiring = semaphore.acquire_with(options);
    if random.u8(0..4) == 0 {
        let mut acquiring = Box::pin(acquiring);
        for _ in 0..random.u8(0..4) {
            if poll_once(acquiring.as_mut()).is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        return;
    }
    match tokio::time::timeout(timeout, acquiring).await {
        Ok(Ok(permit)) => {
            got.fetch_add(1, SeqCst);
            let before = inside.fetch_add(weight, SeqCst);
            assert!(before + weight <= UNITS, "{before} units are held, and {weight} more");
            if random.bool() {
                tokio::time::sleep(pause(random) / 4).await;
            }
            assert!(permit.is_held());
            inside.fetch_sub(weight, SeqCst);
            if random.bool() {
                permit.release().succeeds().await;
            }
        }
        // The connection may be cut when its time is up.
        Ok(Err(AcquireError::Store(error))) => assert!(error.is_temporary(), "{error}"),
        Ok(Err(error)) => assert!(error.is_not_now(), "{error}"),
        Err(_) => {}
    }
}
