//! The cookbook's tenants of one API, at work: no tenant is above its limit, a floor is met by the next
//! releases, and no unit idles while a request waits whose lane is below its limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use permits::{AcquireOptions, Client, Inspection, Permit, Recovery, Semaphore};
use permits_testkit::Server;
use tokio::sync::{Barrier, RwLock};
use tokio::task::JoinSet;

const UNITS: u32 = 20;
const LIMITS: [(&str, u32); 3] = [("a", 15), ("b", 15), ("late", 8)];
const FLOOR: u32 = 6;

/// The token and the tenant of each grant.
type Grants = Arc<Mutex<Vec<(u64, &'static str)>>>;

fn options(tenant: &'static str) -> AcquireOptions {
    let (_, limit) = LIMITS.into_iter().find(|(name, _)| *name == tenant).expect("it is listed");
    let options = AcquireOptions::new().lane(tenant).lane_limit(limit);
    if tenant == "late" { options.lane_floor(FLOOR) } else { options }
}

async fn acquire(api: &Semaphore, tenant: &'static str, grants: &Grants) -> Permit {
    let permit = api.acquire_with(options(tenant)).await.expect("it is granted");
    grants.lock().expect("no panic").push((permit.token(), tenant));
    permit
}

/// The units held in each lane.
fn by_lane(seen: &Inspection) -> BTreeMap<&str, u64> {
    let mut units = BTreeMap::new();
    for holder in &seen.holders {
        *units.entry(holder.lane.as_deref().expect("each names its lane")).or_default() +=
            u64::from(holder.weight);
    }
    units
}

/// Checks a state of the store, which is between two commands.
fn check(seen: &Inspection) {
    let units = by_lane(seen);
    for (tenant, limit) in LIMITS {
        let held = units.get(tenant).copied().unwrap_or(0);
        assert!(held <= u64::from(limit), "{tenant} is above its limit: {units:?}");
        let waits = seen.lanes.iter().any(|lane| lane.lane.as_deref() == Some(tenant) && lane.waiting > 0);
        let idles = seen.held < u64::from(UNITS);
        assert!(!(waits && held < limit.into() && idles), "{tenant} waits, and units idle: {seen:?}");
    }
}

async fn three_tenants(client: Client) {
    let api = client.semaphore("api", UNITS).expect("it is valid");
    let (grants, ends) = (Grants::default(), Arc::new(AtomicBool::new(false)));
    // The lock for releases: while it is locked for writing, nobody releases, and no release is on its way.
    let releases = Arc::new(RwLock::new(()));
    let mut work = JoinSet::new();
    for tenant in ["a", "b"] {
        for number in 0..30 {
            let (api, grants) = (api.clone(), grants.clone());
            let (ends, releases) = (ends.clone(), releases.clone());
            work.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    let permit = acquire(&api, tenant, &grants).await;
                    tokio::time::sleep(Duration::from_millis(1 + number % 4)).await;
                    let _releasing = releases.read().await;
                    permit.release().await.expect("it is held");
                }
            });
        }
    }
    let inspect = async || {
        let seen = api.inspect().await.expect("the store answers");
        check(&seen);
        seen
    };
    let count = || grants.lock().expect("no panic").len();
    while count() < 500 {
        inspect().await;
    }

    // The late one comes when all units are held, with as many requests as its floor, and holds what it gets.
    let locked = releases.write().await;
    let is_recorded = |token| grants.lock().expect("no panic").iter().any(|(other, _)| *other == token);
    let last_token = loop {
        let seen = inspect().await;
        if seen.held == u64::from(UNITS) && seen.holders.iter().all(|holder| is_recorded(holder.token)) {
            break seen.holders.iter().map(|holder| holder.token).max().expect("there are twenty");
        }
    };
    let all_held = Arc::new(Barrier::new(FLOOR as usize + 1));
    let mut late = JoinSet::new();
    for _ in 0..FLOOR {
        let (api, grants, all_held) = (api.clone(), grants.clone(), all_held.clone());
        late.spawn(async move {
            let permit = acquire(&api, "late", &grants).await;
            all_held.wait().await;
            permit.release().await.expect("it is held");
        });
    }
    let of_late = |seen: &Inspection| {
        let lanes = seen.lanes.iter().filter(|lane| lane.lane.as_deref() == Some("late"));
        (by_lane(seen).get("late").copied().unwrap_or(0), lanes.map(|lane| lane.waiting).sum::<u64>())
    };
    while of_late(&inspect().await) != (0, FLOOR.into()) {}
    drop(locked);
    while of_late(&inspect().await) != (FLOOR.into(), 0) {}
    let enough = count() + 500;
    while count() < enough {
        inspect().await;
    }
    all_held.wait().await;
    while late.join_next().await.transpose().expect("no panic").is_some() {}
    ends.store(true, Ordering::Relaxed);
    while work.join_next().await.transpose().expect("no panic").is_some() {}

    // Tokens rise in the order in which the store grants.
    let grants: BTreeSet<(u64, &str)> = grants.lock().expect("no panic").iter().copied().collect();
    let later = grants.range((last_token + 1, "")..).map(|(_, tenant)| *tenant);
    let next: Vec<&str> = later.take(FLOOR as usize).collect();
    assert_eq!(next, ["late"; FLOOR as usize], "the first grants after the releases");
    client.close().await.expect("the store answers");
}

async fn connect(url: &str) -> Client {
    Client::builder(url).recovery(Recovery::Off).connect().await.expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_share_a_server() {
    let server = Server::start();
    three_tenants(connect(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_share_the_memory_of_a_process() {
    three_tenants(connect("memory:tenants").await).await;
}
