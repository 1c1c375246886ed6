//! Programs that end without closing their client: what they have dropped is released.
//!
//! The operating system has the release of a permit when its drop returns. So the release is executed,
//! however the program ends next. A test starts its own executable again and again as a program that ends in
//! some way, and each run finds all units free.

use std::env;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use permits::Client;
use permits::{AcquireError, AcquireOptions, Recovery};
use permits_testkit::fork::fork;
use permits_testkit::sound::Named as _;
use permits_testkit::{ChildGuard, HANGS, Server};

const WAY: &str = "PERMITS_ENDS_WAY";
const URL: &str = "PERMITS_ENDS_URL";

const RUNS: usize = 50;
const UNITS: u32 = 10;

/// The code of a test's executable that fails.
const FAILS: i32 = 101;

/// The code of a program that does not find all units free.
const TAKEN: i32 = 3;

/// The test starts this executable again with this name, as a program that ends.
#[test]
#[ignore = "the other test starts it, as a process of its own"]
fn program() -> Result<(), AcquireError> {
    let Ok(way) = env::var(WAY) else { return Ok(()) };
    let url = env::var(URL).expect("the test sets both");
    let connect = || {
        // A leak would last for longer than the test.
        let lease = Duration::from_secs(600);
        Client::builder(&url).lease(lease).recovery(Recovery::Off).connect().wait()
    };
    if way == "exit" {
        // The client is in a static, whose destructor never runs.
        static CLIENT: OnceLock<Client> = OnceLock::new();
        use_all(CLIENT.get_or_init(|| connect().expect("the server is there")));
        std::process::exit(7);
    }
    let client = connect().expect("the server is there");
    use_all(&client);
    if way == "fork" {
        // The child's thread remembers what the parent's has sent.
        let mut child = fork(|| {
            let client = connect().expect("the server is there");
            use_all(&client);
            std::mem::forget(client);
            std::process::exit(7);
        });
        std::process::exit(child.wait(HANGS).expect("it ends"));
    }
    match way.as_str() {
        "return" => Ok(()),
        "error" => {
            let too_heavy = AcquireOptions::new().weight(UNITS + 1);
            client.named("ends", UNITS).acquire_with(too_heavy).wait().map(drop)
        }
        _ => panic!("as the test asks"),
    }
}

/// Acquires all units, one by one, and drops the permits.
fn use_all(client: &Client) {
    let semaphore = client.named("ends", UNITS);
    // A program that does not find all units free ends with a code of its own, because some programs are to
    // end with the code of a failure.
    let acquired = || semaphore.try_acquire().wait().unwrap_or_else(|_| std::process::exit(TAKEN));
    let permits: Vec<_> = (0..UNITS).map(|_| acquired()).collect();
    drop(permits);
}

/// Ends this way again and again. Each run finds all units free.
fn end_in(way: &str, code: i32) {
    let server = Server::start();
    for run in 0..RUNS {
        let mut command = Command::new(env::current_exe().expect("a test knows its executable"));
        command
            .args(["program", "--exact", "--ignored", "--test-threads=1"])
            .env(WAY, way)
            .env(URL, server.url())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = ChildGuard::spawn(&mut command).wait_timeout(HANGS).expect("it ends");
        assert_eq!(status.code(), Some(code), "run {run}, by {way}: {status}");
    }
    let client = Client::connect(&server.url()).wait().expect("the server is there");
    let seen = client.named("ends", UNITS).inspect().wait().expect("the server is there");
    assert_eq!((seen.held, seen.waiting), (0, 0));
    // A program that panics before it has acquired ends with the same code.
    assert!(seen.counts.grants >= RUNS as u64 * u64::from(UNITS), "{:?}", seen.counts);
}

#[test]
fn what_a_program_has_dropped_is_released_when_it_exits() {
    end_in("exit", 7);
}

#[test]
fn what_a_program_has_dropped_is_released_when_main_returns() {
    end_in("return", 0);
}

#[test]
fn what_a_program_has_dropped_is_released_when_it_fails() {
    end_in("error", FAILS);
}

#[test]
fn what_a_program_has_dropped_is_released_when_it_panics() {
    end_in("panic", FAILS);
}

#[test]
fn what_a_forked_child_has_dropped_is_released_when_it_exits() {
    end_in("fork", 7);
}
