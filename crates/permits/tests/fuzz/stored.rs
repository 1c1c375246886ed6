//! The file of the local store, damaged: it is read or refused, without a panic.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use permits::{Client, ConnectError, Limit};
use permits_core::model::{self, ServerClock, State};
use permits_core::protocol::{
    AcquireRequest, Command, Declaration, Holder, Label, LaneName, LimitChange, Name, Operation, PermitTerms,
    Recovery, RenewRequest, RequestId, RequestKey, SessionId, SupersedeKey,
};
use permits_testkit::sound::Named as _;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::SEEDS;
use super::damage::{changes, damaged, damaged_text};
use super::run::cases;

const NOW_US: u64 = 1_790_000_000_000_000;

fn send(state: &mut Option<State>, now_us: u64, operation: Operation) {
    let server = ServerClock { now_us, run_id: "local", uptime_ms: u64::MAX };
    let command = Command {
        semaphore: Name::new("exports").expect("it is valid"),
        session: SessionId::new("s").expect("it is plain"),
        lease_ms: 15_000,
        recovery: Recovery::Interval,
        declaration: Declaration::Fallback(2),
        operation,
    };
    model::apply(state, &server, &command);
}

fn id(text: &str) -> RequestId {
    RequestId::new(text).expect("it is plain")
}

fn holder(number: usize) -> Holder {
    Holder::new(&format!("web-{number}")).expect("it is valid")
}

fn acquire(numbers: std::ops::Range<usize>) -> Operation {
    let asked = |number| AcquireRequest {
        holder: holder(number),
        request: id("s.1"),
        terms: PermitTerms {
            label: Label::new("night").expect("it is valid"),
            lane: LaneName::new(["", "a", "b"][number % 3]).expect("it is valid"),
            supersede: SupersedeKey::new(["", "k"][number / 2 % 2]).expect("it is valid"),
            ..PermitTerms::new(1, 15_000)
        },
        wait: true,
        supersedes: true,
    };
    Operation::Acquire { queue_max: 9, requests: numbers.map(asked).collect() }
}

fn set_limit(limit: u32) -> Operation {
    let origin = id(&format!("s.{limit}")).into();
    Operation::SetLimit { origin, change: LimitChange::Set(limit), expected_version: None }
}

/// Two hold, two wait, and a slot is free.
fn sound() -> String {
    let mut state = None;
    send(&mut state, NOW_US, set_limit(3));
    send(&mut state, NOW_US, acquire(0..3));
    send(&mut state, NOW_US, set_limit(2));
    send(&mut state, NOW_US, acquire(3..5));
    send(
        &mut state,
        NOW_US,
        Operation::Release(vec![RequestKey { holder: holder(0), request: id("s.1") }.into()]),
    );
    serde_json::to_string(&state.expect("it is used")).expect("it can be written")
}

/// Executes every operation on a state.
fn use_all(state: &State) {
    let renew = |number| RenewRequest {
        holder: holder(number),
        request: id("s.1"),
        terms: PermitTerms::new(1, 15_000),
        lease_version: 0,
        grant: None,
    };
    let release = |number| RequestKey { holder: holder(number), request: id("s.1") };
    let operations = [
        Operation::Renew(Vec::new()),
        acquire(1..7),
        Operation::Renew((0..7).map(renew).collect()),
        Operation::Release((0..7).map(|number| release(number).into()).collect()),
        set_limit(5),
        Operation::Delete { unreadable: false },
        Operation::CloseLine { origin: id("s.7").into(), reason: Some("why".into()) },
        Operation::Pause { origin: id("s.8").into(), pause: None },
        Operation::Revoke {
            origin: id("s.9").into(),
            holder: holder(3),
            cooling: None,
            reason: "why".into(),
        },
        Operation::Inspect { max: 100 },
    ];
    for operation in operations {
        for now_us in [NOW_US, NOW_US + 20_000_000] {
            send(&mut Some(state.clone()), now_us, operation.clone());
        }
    }
}

#[test]
fn a_sound_state_is_read() {
    use_all(&serde_json::from_str(&sound()).expect("it is sound"));
}

#[test]
fn any_stored_state_is_sound_or_refused() {
    let text = sound();
    cases(3_000, SEEDS, &changes(), |changes| {
        let Ok(state) = serde_json::from_str::<State>(&damaged_text(&text, changes)) else { return Ok(()) };
        if state.check_invariants().is_err() {
            return Ok(());
        }
        catch_unwind(AssertUnwindSafe(|| use_all(&state))).map_err(|_| format!("a panic with {state:#?}"))
    });
}

#[test]
fn any_text_is_a_state_or_refused() {
    cases(1_000, SEEDS, &(any::<String>(), changes()), |(text, changes)| {
        let _ = serde_json::from_str::<State>(text);
        let _ = serde_json::from_str::<State>(&damaged_text(&sound(), changes));
        Ok(())
    });
}

/// Opens the file, and makes the store read all of it.
async fn open(path: &Path) -> Result<(), String> {
    let client = match Client::connect(&format!("local:{}", path.display())).await {
        Ok(client) => client,
        Err(ConnectError::Thread { reason }) => return Err(reason),
        Err(_) => return Ok(()),
    };
    // The outcomes are not checked.
    let _ = client.list().await;
    let said = match client.named("exports", Limit::Stored).inspect().await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let _ = client.close().await;
    if said.contains("thread has ended") { Err(said) } else { Ok(()) }
}

/// Damages bytes of the file other than the text of a state, which the tests above damage.
#[test]
fn a_damaged_file_is_read_or_refused() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it needs little");
    let directory = tempfile::TempDir::new().expect("there is room");
    let path = directory.path().join("sound.db");
    runtime.block_on(async {
        let client = Client::connect(&format!("local:{}", path.display())).await.expect("it is new");
        client.named("exports", Limit::Stored).set_limit(3).await.expect("it is done");
        client.close().await.expect("it is closed");
    });
    // The log outlives the closed file, so its contents are written to the file first.
    let whole = rusqlite::Connection::open(&path).expect("it is there");
    whole.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("no other process reads it");
    drop(whole);
    let bytes = fs::read(&path).expect("it is there");
    assert!(bytes.windows(15).any(|window| window == b"\"limit_version\""), "the state is in the file");
    let flips = vec((any::<Index>(), any::<u8>()), 1..6);
    cases(25, SEEDS, &(flips, changes(), any::<bool>()), |(flips, changes, few)| {
        let mut file = if *few { bytes.clone() } else { damaged(&bytes, changes) };
        if file.is_empty() {
            return Ok(());
        }
        for (at, byte) in flips {
            let at = at.index(if *few { 200.min(file.len()) } else { file.len() });
            file[at] = *byte;
        }
        let path = directory.path().join("damaged.db");
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{suffix}", path.display()));
        }
        fs::write(&path, &file).map_err(|error| error.to_string())?;
        runtime.block_on(open(&path))
    });
}
