//! A real client, and a server that talks nonsense: while it connects, in reply to a command, or unasked. The client
//! neither panics nor hangs nor takes the memory that it is told of, and goes on when the server behaves again.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use permits::{AcquireOptions, Client, ConnectError, Semaphore};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::time::timeout;

use super::SEEDS;
use super::damage::{changes, damaged};
use super::fake::{Fake, Nonsense, bulk};
use super::replies::values;
use super::run::cases;

/// More than all that a client ever waits for.
const HANGS: Duration = Duration::from_secs(20);

/// Panics of any thread, also of tasks whose end nobody looks at.
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

fn nonsense(to: &'static [&'static str]) -> impl Strategy<Value = Nonsense> {
    let sound = "*11\r\n:5\r\n:1\r\n:-1\r\n:3\r\n:1\r\n:0\r\n:0\r\n:0\r\n$7\r\ngranted\r\n:7\r\n:0\r\n";
    let message =
        format!(">3\r\n{}{}{}", bulk("message"), bulk("c"), bulk("1 exports\ngranted s.1 7 0 web-3"));
    let bytes = prop_oneof![
        2 => values().prop_map(|value| value.bytes()),
        1 => vec(any::<u8>(), 0..60),
        2 => changes().prop_map(move |changes| damaged(sound.as_bytes(), &changes)),
        1 => changes().prop_map(move |changes| damaged(message.as_bytes(), &changes)),
    ];
    (prop::sample::select(to), bytes, any::<bool>()).prop_map(|(to, bytes, ends)| Nonsense {
        to,
        bytes,
        ends,
    })
}

async fn connect(fake: &Fake) -> Client {
    let client = Client::builder(format!("redis://{}", fake.address())).lease(Duration::from_millis(900));
    client.connect().await.expect("the server behaves")
}

/// Acquires and releases, however that ends; returns whether it ended well.
async fn use_once(exports: &Semaphore) -> Result<bool, String> {
    let options = AcquireOptions::new().wait(Duration::from_secs(5));
    let acquiring = timeout(HANGS, exports.acquire_with(options)).await;
    match acquiring.map_err(|_| "acquiring hangs")? {
        Ok(permit) => Ok(timeout(HANGS, permit.release()).await.map_err(|_| "releasing hangs")?.is_ok()),
        Err(_) => Ok(false),
    }
}

#[test]
fn a_client_survives_nonsense_and_goes_on() {
    let runtime = runtime();
    let fake = Fake::start(false);
    let client = runtime.block_on(connect(&fake));
    let exports = client.semaphore("exports", 3);
    let strategy = vec(nonsense(&["EVALSHA", "EVALSHA", "PING", "SUBSCRIBE"]), 1..3);
    cases(25, SEEDS, &strategy, |all| {
        all.iter().for_each(|nonsense| fake.say(nonsense.clone()));
        runtime.block_on(async {
            use_once(&exports).await?;
            fake.behave();
            // What is on its way back may still be nonsense.
            for _ in 0..20 {
                if use_once(&exports).await? {
                    return Ok(());
                }
            }
            Err("it does not go on".to_owned())
        })?;
        no_panics()
    });
    assert!(fake.behave() > 0, "nothing was said");
}

/// It may have been the reply to something else, and then so would be all that follow.
#[test]
fn after_a_reply_that_makes_no_sense_the_connection_is_another_one() {
    let runtime = runtime();
    let fake = Fake::start(false);
    let client = runtime.block_on(connect(&fake));
    let exports = client.semaphore("exports", 3);
    assert_eq!(runtime.block_on(use_once(&exports)), Ok(true));
    let before = fake.connections();
    fake.say(Nonsense { to: "EVALSHA", bytes: b":1\r\n".to_vec(), ends: false });
    let again = runtime.block_on(async {
        for _ in 0..20 {
            if use_once(&exports).await? {
                return Ok(());
            }
        }
        Err("it does not go on".to_owned())
    });
    assert_eq!(again, Ok(()));
    assert!(fake.connections() > before, "{before} connections before and after");
}

/// A server whose every reply about a semaphore makes no sense is asked again with pauses, also while it serves
/// other semaphores of the same session well.
#[test]
fn a_server_that_goes_on_talking_nonsense_is_not_stormed() {
    const SECONDS: usize = 4;
    let runtime = runtime();
    let fake = Fake::start(false);
    let builder = Client::builder(format!("redis://{}", fake.address()));
    let client = runtime.block_on(builder.connect()).expect("the server behaves");
    let held = ["a", "b", "c", "d", "e", "f", "bad"].map(|name| {
        let acquiring = async { client.semaphore(name, 3).acquire().await };
        runtime.block_on(acquiring).expect("all is granted")
    });
    let (connections, said) = (fake.connections(), fake.behave());
    fake.say_always("bad", b"*1\r\n:1\r\n".to_vec());
    // It is asked for the first time at once, as by a program that looks.
    let _ = runtime.block_on(async { client.open("bad").inspect().await });
    std::thread::sleep(Duration::from_secs(SECONDS as u64));
    let (connections, said) = (fake.connections() - connections, fake.behave() - said);
    // Two connections each time, and pauses that grow to half a second.
    assert!(connections > 1 && connections <= 6 * SECONDS, "{connections} connections in {SECONDS} s");
    assert!(said > 1 && said <= 6 * SECONDS, "{said} calls in {SECONDS} s");
    assert!(held.iter().all(permits::Permit::is_held), "the lease has not ended");
    let again = runtime.block_on(async {
        for _ in 0..20 {
            if use_once(&client.semaphore("bad", 3)).await? {
                return Ok(());
            }
        }
        Err("it does not go on".to_owned())
    });
    assert_eq!(again, Ok(()));
}

/// What a client makes of nonsense while it connects.
async fn connecting(url: String) -> Result<(), String> {
    let client = Client::builder(url).lease(Duration::from_millis(900)).store_timeout(Duration::from_secs(1));
    match timeout(HANGS, client.connect()).await.map_err(|_| "connecting hangs")? {
        Ok(client) => {
            use_once(&client.semaphore("exports", 3)).await?;
            // However that ends.
            let _ = client.close().await;
            Ok(())
        }
        Err(ConnectError::Thread { reason }) => Err(reason),
        Err(_) => Ok(()),
    }
}

#[test]
fn nonsense_while_connecting_is_an_error() {
    let runtime = runtime();
    let said = &["HELLO", "CLIENT", "INFO", "EVAL", "SUBSCRIBE", "EVALSHA", "PING"];
    // Many at once, as some wait for as long as connecting may take.
    cases(1, SEEDS, &vec((nonsense(said), any::<bool>()), 16), |all| {
        runtime.block_on(all_at_once(all.iter().map(|(nonsense, again)| {
            let (nonsense, twice) = (Nonsense { ends: nonsense.ends || *again, ..nonsense.clone() }, *again);
            async move {
                let fake = Fake::start(false);
                fake.say(nonsense.clone());
                if twice {
                    fake.say(nonsense);
                }
                connecting(format!("redis://{}", fake.address())).await
            }
        })))?;
        no_panics()
    });
}

#[test]
fn nonsense_of_sentinels_and_clusters_is_an_error() {
    let runtime = runtime();
    let said = &["SENTINEL", "CLUSTER", "EVALSHA", "SSUBSCRIBE", "INFO"];
    cases(1, SEEDS, &vec((nonsense(said), any::<bool>(), 1_usize..4), 16), |all| {
        runtime.block_on(all_at_once(all.iter().map(|(nonsense, sentinel, times)| {
            let (nonsense, sentinel, times) = (nonsense.clone(), *sentinel, *times);
            async move {
                let fake = Fake::start(!sentinel);
                (0..times).for_each(|_| fake.say(nonsense.clone()));
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

/// The address space that the process has ever had, in bytes.
#[cfg(target_os = "linux")]
fn most_memory() -> u64 {
    memory("VmPeak:")
}

#[cfg(target_os = "linux")]
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Each says that 16 GiB come, or 2^30 items.
#[cfg(target_os = "linux")]
const CLAIMS: [&str; 7] = [
    "$17179869184",
    "*1073741824",
    "%1073741824",
    "~1073741824",
    ">1073741824",
    "=17179869184",
    "!17179869184",
];

/// Each is all that comes.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_not_taken_on_a_servers_word() {
    let runtime = runtime();
    let fake = Fake::start(false);
    let client = runtime.block_on(connect(&fake));
    let exports = client.semaphore("exports", 3);
    runtime.block_on(use_once(&exports)).expect("the server behaves");
    let before = most_memory();
    for claim in CLAIMS {
        fake.say(Nonsense { to: "EVALSHA", bytes: format!("{claim}\r\n").into_bytes(), ends: false });
        runtime.block_on(use_once(&exports)).expect("it does not hang");
    }
    let taken = most_memory() - before;
    assert_eq!(fake.behave(), CLAIMS.len(), "each was said");
    assert!(taken < 4 << 30, "{taken} bytes");
    no_panics().expect("no panics");
}

/// What comes of a reply without end is thrown away when the call's time is over, and so does not add up.
#[cfg(target_os = "linux")]
#[test]
fn a_reply_without_end_takes_memory_for_one_call_alone() {
    const ENOUGH: usize = 256 << 20;
    let runtime = runtime();
    let fake = Fake::start(false);
    let client = runtime.block_on(connect(&fake));
    let exports = client.semaphore("exports", 3);
    runtime.block_on(use_once(&exports)).expect("the server behaves");
    fake.say_without_end(true);
    let (mut most, before) = (0, resident_memory());
    let began = std::time::Instant::now();
    while fake.sent() < ENOUGH {
        assert!(began.elapsed() < 3 * HANGS, "{} bytes were sent", fake.sent());
        let options = AcquireOptions::new().wait(Duration::from_millis(300));
        let acquiring = async { timeout(HANGS, exports.acquire_with(options)).await };
        let ended = runtime.block_on(acquiring).expect("it does not hang");
        assert!(ended.is_err(), "there was no reply");
        most = most.max(resident_memory());
    }
    fake.say_without_end(false);
    let taken = most.saturating_sub(before);
    assert!(taken < ENOUGH as u64 / 2, "{taken} bytes of {} that were sent", fake.sent());
    no_panics().expect("no panics");
}

/// The memory that the process has now, in bytes.
#[cfg(target_os = "linux")]
fn resident_memory() -> u64 {
    memory("VmRSS:")
}
