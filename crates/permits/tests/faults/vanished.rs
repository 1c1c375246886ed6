//! Keys that vanish one by one: evicted, or deleted by hand.

use std::time::Duration;

use permits::{AcquireOptions, Client, Permit, Recovery, Semaphore};
use permits_testkit::real_time::awaited_in_real_time;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Connection, HANGS, Server};

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_millis(1500);

/// The last parts of the keys.
const PARTS: [&str; 5] = ["state", "queue", "leases", "free", "lanes"];

/// A semaphore of which all five keys exist: 2 of 2 are held, a slot is free, and one waits.
struct Full {
    semaphore: Semaphore,
    held: Vec<Permit>,
    waiter: JoinHandle<Permit>,
}

impl Full {
    async fn new(holding: &Client, waiting: &Client, name: &str) -> Self {
        let semaphore = holding.named(name, 3);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(semaphore.acquire().succeeds().await);
        }
        semaphore.set_limit(2).succeeds().await;
        held.remove(0).release().succeeds().await;
        let waiter = waiting.named(name, permits::Limit::Stored);
        let acquiring = async move {
            waiter.acquire_with(AcquireOptions::new().lane("a")).await.expect("its turn comes")
        };
        let waiter = tokio::spawn(acquiring);
        while semaphore.inspect_up_to(0).succeeds().await.waiting == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        semaphore.unpin().succeeds().await;
        Self { semaphore, held, waiter }
    }
}

/// The connections that the server has accepted, and the scripts that it has run.
fn counted(connection: &mut Connection) -> (u64, u64) {
    let mut info = |section| connection.call(&["INFO", section]).expect("the server runs").text().to_owned();
    let number = |text: &str| text.trim().parse::<u64>().expect("it is a number");
    let (stats, commands) = (info("stats"), info("commandstats"));
    let connections = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    let calls = commands.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once("calls="));
    let calls = calls.map(|(_, rest)| number(rest.split(',').next().unwrap_or_default())).sum();
    (number(connections.expect("INFO has the field")), calls)
}

async fn client(server: &Server) -> Client {
    let builder = Client::builder(server.url()).lease(LEASE).recovery(Recovery::Interval);
    builder.connect().succeeds().await
}

/// Every subset of the keys of a semaphore vanishes while it is in use. The store notices and heals: holders
/// keep their permits, the waiter is granted when it fits, and meanwhile neither connections nor calls
/// multiply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_subset_of_the_keys_may_vanish_in_use() {
    awaited_in_real_time(any_subset_vanishes).await;
}

async fn any_subset_vanishes() {
    let server = Server::start();
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let mut all = Vec::new();
    for subset in 1..1_usize << PARTS.len() {
        all.push((subset, Full::new(&holding, &waiting, &format!("subset-{subset}")).await));
    }
    let mut connection = server.connect().expect("the server runs");
    let (connections, calls) = counted(&mut connection);
    let began = Instant::now();
    for (subset, _) in &all {
        let chosen = PARTS.iter().enumerate().filter(|(number, _)| subset & (1 << number) != 0);
        let keys = chosen.map(|(_, part)| format!("permits:{{subset-{subset}}}:{part}"));
        let command: Vec<String> = ["DEL".to_owned()].into_iter().chain(keys).collect();
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let deleted = connection.call(&words).expect("the server runs").int();
        assert_eq!(deleted, i64::try_from(command.len()).expect("few") - 1, "all keys of {subset} existed");
    }
    sleep(2 * LEASE).await;
    let (connections_after, calls_after) = counted(&mut connection);
    assert_eq!(connections_after, connections, "a connection was replaced");
    // Renewals three times a lease, rechecks and repeated requests: about 8 a lease of each session.
    let leases = began.elapsed().as_secs_f64() / LEASE.as_secs_f64();
    let most = 40.0 * leases * all.len() as f64;
    assert!(((calls_after - calls) as f64) < most, "{} calls, {most} at most", calls_after - calls);

    for (subset, Full { semaphore, held, waiter }) in all {
        // The store cannot know without any key that the semaphore was in use, so the waiter may come first.
        if subset != (1 << PARTS.len()) - 1 {
            assert!(held.iter().all(Permit::is_held), "{subset}: {held:?}");
            assert!(!waiter.is_finished(), "{subset}: granted beside two holders");
        }
        drop(held);
        let permit = timeout(HANGS, waiter).await;
        let permit = permit.unwrap_or_else(|_| panic!("{subset}: it still waits")).expect("no panic");
        permit.release().succeeds().await;
        let seen = semaphore.inspect().succeeds().await;
        assert_eq!((seen.held, seen.waiting), (0, 0), "{subset}: {seen:?}");
    }
    for client in [holding, waiting] {
        client.close().succeeds().await;
    }
}
