//! A real client, and a server that sends garbage: while the client connects, in reply to a command, or
//! unasked. The client neither panics nor hangs, and continues when the server's replies are valid again.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use permits::{AcquireOptions, Client, ConnectError, Limit, Semaphore};
use permits_testkit::HANGS;
use permits_testkit::fake_server::{FakeServer, Garbage, bulk};
use permits_testkit::sound::Named as _;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::time::timeout;

use super::SEEDS;
use super::damage::{changes, damaged};
use super::replies::values;
use super::run::cases;

/// Panics of any thread, also of tasks that are never joined.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            usual(info);
        }));
    });
}

fn no_panics() -> Result<(), String> {
    let panics = PANICS.load(Ordering::Relaxed);
    if panics == 0 { Ok(()) } else { Err(format!("{panics} panics, see above")) }
}

fn runtime() -> tokio::runtime::Runtime {
    count_panics();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("it needs little")
}

fn garbage(to: &'static [&'static str]) -> impl Strategy<Value = Garbage> {
    let sound = "*11\r\n:5\r\n:1\r\n:-1\r\n:3\r\n:1\r\n:0\r\n:0\r\n:0\r\n$7\r\ngranted\r\n:7\r\n:0\r\n";
    let message =
        format!(">3\r\n{}{}{}", bulk("message"), bulk("c"), bulk("1 exports\ngranted s.1 7 0 web-3"));
    let bytes = prop_oneof![
        2 => values().prop_map(|value| value.bytes()),
        1 => vec(any::<u8>(), 0..60),
        2 => changes().prop_map(move |changes| damaged(sound.as_bytes(), &changes)),
        1 => changes().prop_map(move |changes| damaged(message.as_bytes(), &changes)),
    ];
    (prop::sample::select(to), bytes, any::<bool>()).prop_map(|(to, bytes, ends)| Garbage { to, bytes, ends })
}

async fn connect(fake: &FakeServer) -> Client {
    let client = Client::builder(format!("redis://{}", fake.address())).lease(Duration::from_millis(900));
    client.connect().await.expect("the server behaves")
}

/// A server that behaves, and a semaphore on it.
fn started() -> (tokio::runtime::Runtime, FakeServer, Semaphore) {
    let (runtime, fake) = (runtime(), FakeServer::start());
    let exports = runtime.block_on(connect(&fake)).named("exports", 3);
    (runtime, fake, exports)
}

/// Acquires and releases. Returns whether both succeeded.
async fn use_once(exports: &Semaphore) -> Result<bool, String> {
    let options = AcquireOptions::new().timeout(Duration::from_secs(5));
    let acquiring = timeout(HANGS, exports.acquire_with(options)).await;
    match acquiring.map_err(|_| "acquiring hangs")? {
        Ok(permit) => Ok(timeout(HANGS, permit.release()).await.map_err(|_| "releasing hangs")?.is_ok()),
        Err(_) => Ok(false),
    }
}

/// Acquires and releases once the server behaves. A reply on its way may still be garbage.
async fn go_on(exports: &Semaphore) -> Result<(), String> {
    for _ in 0..20 {
        if use_once(exports).await? {
            return Ok(());
        }
    }
    Err("it does not go on".to_owned())
}

#[test]
fn a_client_survives_garbage() {
    let (runtime, fake, exports) = started();
    let strategy = vec(garbage(&["EVALSHA", "EVALSHA", "PING", "SUBSCRIBE"]), 1..3);
    cases(25, SEEDS, &strategy, |all| {
        all.iter().for_each(|garbage| fake.send(garbage.clone()));
        runtime.block_on(async {
            use_once(&exports).await?;
            fake.behave();
            go_on(&exports).await
        })?;
        no_panics()
    });
    assert!(fake.behave() > 0, "nothing was said");
}

/// The reply may belong to another command, and so may all later replies.
#[test]
fn after_a_malformed_reply_the_connection_is_another_one() {
    let (runtime, fake, exports) = started();
    assert_eq!(runtime.block_on(use_once(&exports)), Ok(true));
    let before = fake.connections();
    fake.send(Garbage { to: "EVALSHA", bytes: b":1\r\n".to_vec(), ends: false });
    assert_eq!(runtime.block_on(go_on(&exports)), Ok(()));
    assert!(fake.connections() > before, "{before} connections before and after");
}

/// A server that sends garbage in reply to every command on one semaphore is called again with pauses, also
/// while it serves other semaphores of the same session.
#[test]
fn a_server_that_keeps_sending_garbage_is_called_with_pauses() {
    let runtime = runtime();
    let fake = FakeServer::start();
    let builder = Client::builder(format!("redis://{}", fake.address()));
    let client = runtime.block_on(builder.connect()).expect("the server behaves");
    let held = ["a", "b", "c", "d", "e", "f", "bad"].map(|name| {
        let acquiring = async { client.named(name, 3).acquire().await };
        runtime.block_on(acquiring).expect("all is granted")
    });
    let (connections, said) = (fake.connections(), fake.behave());
    let began = Instant::now();
    fake.send_always("bad", b"*1\r\n:1\r\n".to_vec());
    // The first call is made at once, as by a program that inspects.
    let _ = runtime.block_on(async { client.named("bad", Limit::Stored).inspect().await });
    std::thread::sleep(Duration::from_secs(4));
    let (connections, said) = (fake.connections() - connections, fake.behave() - said);
    let most = 6 * began.elapsed().as_secs() as usize;
    // Two connections for each retry, with pauses that grow to half a second.
    assert!(connections > 1 && connections <= most, "{connections} connections, {most} at most");
    assert!(said > 1 && said <= most, "{said} calls, {most} at most");
    assert!(held.iter().all(permits::Permit::is_held), "the lease has not ended");
    assert_eq!(runtime.block_on(go_on(&client.named("bad", 3))), Ok(()));
}

/// Connects to a server that sends garbage meanwhile.
async fn connecting(url: String) -> Result<(), String> {
    let client = Client::builder(url).lease(Duration::from_millis(900)).store_timeout(Duration::from_secs(1));
    match timeout(HANGS, client.connect()).await.map_err(|_| "connecting hangs")? {
        Ok(client) => {
            use_once(&client.named("exports", 3)).await?;
            // The outcome is not checked.
            let _ = client.close().await;
            Ok(())
        }
        Err(ConnectError::Thread { reason }) => Err(reason),
        Err(_) => Ok(()),
    }
}

#[test]
fn garbage_while_connecting_is_an_error() {
    let runtime = runtime();
    let said = &["HELLO", "CLIENT", "INFO", "EVAL", "SUBSCRIBE", "EVALSHA", "PING"];
    // Many at once, because some wait until the connect timeout.
    cases(1, SEEDS, &vec((garbage(said), any::<bool>()), 16), |all| {
        runtime.block_on(all_at_once(all.iter().map(|(garbage, again)| {
            let (garbage, twice) = (Garbage { ends: garbage.ends || *again, ..garbage.clone() }, *again);
            async move {
                let fake = FakeServer::start();
                fake.send(garbage.clone());
                if twice {
                    fake.send(garbage);
                }
                connecting(format!("redis://{}", fake.address())).await
            }
        })))?;
        no_panics()
    });
}

#[test]
fn garbage_of_sentinels_and_clusters_is_an_error() {
    let runtime = runtime();
    let said = &["SENTINEL", "CLUSTER", "EVALSHA", "SSUBSCRIBE", "INFO"];
    cases(1, SEEDS, &vec((garbage(said), any::<bool>(), 1_usize..4), 16), |all| {
        runtime.block_on(all_at_once(all.iter().map(|(garbage, sentinel, times)| {
            let (garbage, sentinel, times) = (garbage.clone(), *sentinel, *times);
            async move {
                let fake = if sentinel { FakeServer::start() } else { FakeServer::start_in_cluster() };
                (0..times).for_each(|_| fake.send(garbage.clone()));
                let address = fake.address();
                let url = if sentinel {
                    format!("redis+sentinel://{address}/service")
                } else {
                    format!("redis+cluster://{address}")
                };
                connecting(url).await
            }
        })))?;
        no_panics()
    });
}

async fn all_at_once(
    all: impl Iterator<Item = impl Future<Output = Result<(), String>> + Send + 'static>,
) -> Result<(), String> {
    let tasks: Vec<_> = all.map(tokio::spawn).collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// A reply without end is dropped at the call's timeout, and so several do not add up.
#[cfg(target_os = "linux")]
#[test]
fn a_reply_without_end_takes_memory_for_one_call_alone() {
    const ENOUGH: usize = 256 << 20;
    let (runtime, fake, exports) = started();
    runtime.block_on(use_once(&exports)).expect("the server behaves");
    fake.send_without_end(true);
    let (mut most, before) = (0, resident_memory());
    let began = Instant::now();
    while fake.sent() < ENOUGH {
        assert!(began.elapsed() < 3 * HANGS, "{} bytes were sent", fake.sent());
        let options = AcquireOptions::new().timeout(Duration::from_millis(300));
        let acquiring = async { timeout(HANGS, exports.acquire_with(options)).await };
        let ended = runtime.block_on(acquiring).expect("it does not hang");
        assert!(ended.is_err(), "there was no reply");
        most = most.max(resident_memory());
    }
    fake.send_without_end(false);
    let taken = most.saturating_sub(before);
    assert!(taken < ENOUGH as u64 / 2, "{taken} bytes of {} that were sent", fake.sent());
    no_panics().expect("no panics");
}

/// The resident memory of the process, in bytes.
#[cfg(target_os = "linux")]
fn resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
