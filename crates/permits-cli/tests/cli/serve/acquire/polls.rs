//! A thousand requests that wait at once.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use permits_testkit::{Server, wait};
use serde_json::json;

use super::super::http::reply;
use super::super::slow::{memory, open_files};
use super::super::{Serve, allow_open_files};
use super::{code, granted, start};
use crate::support::{counts, output, permits, prepare, status};

/// The most that wait at once.
const POLLS: usize = 1_000;

/// The time for which the processor is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// The processor time of the server.
fn cpu(serve: &Serve) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", serve.pid())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let mut fields = fields.split_whitespace().skip(11);
    // User and system time, in hundredths of a second.
    let mut time = || fields.next().and_then(|time| time.parse::<u64>().ok()).expect("a time");
    Duration::from_millis(10 * (time() + time()))
}

#[test]
fn a_thousand_polls_wait_in_bounded_memory() {
    allow_open_files(3 * POLLS);
    let server = Server::start();
    prepare(&server, "exports");
    let serve = start(&server);
    let held = serve.acquire(&json!({ "acquire": "exports", "limit": 1 }));
    let used = memory(&serve);
    let body = json!({ "acquire": "exports", "timeout_ms": 60_000 });
    let polls: Vec<TcpStream> = (0..POLLS).map(|_| serve.ask(&body).begin()).collect();
    let waiting = || status(&server, "exports")["waiting"].as_u64();
    assert!(wait::until(|| waiting() == Some(POLLS as u64)), "{:?}", waiting());
    let grown = memory(&serve).saturating_sub(used);
    let (before, began) = (cpu(&serve), Instant::now());
    std::thread::sleep(WATCHED);
    let (watched, worked) = (began.elapsed(), cpu(&serve) - before);
    println!(
        "{POLLS} polls wait: {used} MiB before and {grown} MiB more, {} files; {before:?} of a processor until \
         they wait, {worked:?} in the {watched:?} after that",
        open_files(&serve)
    );
    assert!(grown < 64, "{grown} MiB");
    assert!(worked < watched / 4, "waiting costs little more than two renewals of all: {worked:?}");
    // Another request that would wait is refused at once, and requests that do not wait are served.
    let refused = serve.ask(&body).send();
    assert_eq!(refused.refusal(), (503, "1000 requests wait here already".to_owned()));
    assert_eq!(serve.operate("renew", &json!({ "handle": held["handle"] })).status, 200);
    assert_eq!(serve.read("/api/v1/semaphores").status, 200);
    // Half of the requests are granted, and the clients of the others go away.
    let limit = (POLLS / 2 + 1).to_string();
    output(&mut permits(&server.url(), ["limit", "exports", &limit])).ends(0);
    let mut handles = BTreeSet::new();
    let (first, others) = polls.split_at(POLLS / 2);
    for poll in first {
        let permit = granted(&reply(poll.try_clone().expect("it can be shared")));
        handles.insert(permit["handle"].as_str().expect("a text").to_owned());
    }
    assert_eq!(handles.len(), POLLS / 2, "each has a permit of its own");
    for poll in others {
        poll.shutdown(std::net::Shutdown::Both).expect("it is open");
    }
    assert!(wait::until(|| waiting() == Some(0)), "{:?}", waiting());
    let (holders, _) = counts(&server, "exports");
    assert_eq!(holders, POLLS / 2 + 1);
    let full = serve.ask(&json!({ "acquire": "exports", "timeout_ms": 0 })).send();
    assert_eq!(code(&full), (429, "NO_PERMITS".to_owned()));
    for handle in &handles {
        assert_eq!(serve.operate("release", &json!({ "handle": handle })).status, 200);
    }
    assert_eq!(counts(&server, "exports").0, 1);
}
