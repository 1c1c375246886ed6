//! The files of the local store, damaged, and forged messages to its sessions: they are read or refused,
//! without a panic.

use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use permits::{AdminError, Client, ConnectError, StoreError};
use permits_core::model::{self, ServerClock, State};
use permits_core::protocol::{
    AcquireRequest, Alert, Command, Declaration, Holder, Label, LaneName, LanePin, LimitChange, Name,
    Operation, PermitTerms, Recovery, RenewRequest, RequestId, RequestKey, SessionId, Setting, SupersedeKey,
};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::wait::{HOUR, SILENCE, in_time};
use proptest::collection::vec;
use proptest::prelude::*;

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
    let asked = |number| {
        let terms = PermitTerms {
            label: Label::new("night").expect("it is valid"),
            lane: LaneName::new(["", "a", "b"][number % 3]).expect("it is valid"),
            supersede: SupersedeKey::new(["", "k"][number / 2 % 2]).expect("it is valid"),
            ..PermitTerms::new(1, 15_000)
        };
        AcquireRequest { supersedes: true, ..AcquireRequest::new(holder(number), id("s.1"), terms) }
    };
    Operation::Acquire { queue_max: 9, requests: numbers.map(asked).collect() }
}

fn set(request: &str, setting: Setting) -> Operation {
    Operation::Set { origin: id(request).into(), setting }
}

fn set_limit(limit: u32) -> Operation {
    let change = LimitChange::Set(limit);
    set(&format!("s.{limit}"), Setting::Limit { change, expected_version: None })
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
    let renew = |number| RenewRequest::new(holder(number), id("s.1"), PermitTerms::new(1, 15_000), None);
    let release = |number| RequestKey { holder: holder(number), request: id("s.1") };
    let operations = [
        Operation::Renew(Vec::new()),
        acquire(1..7),
        Operation::Renew((0..7).map(renew).collect()),
        Operation::Release((0..7).map(|number| release(number).into()).collect()),
        set_limit(5),
        Operation::Delete { unreadable: false },
        set("s.7", Setting::Line(Some("why".into()))),
        set("s.0", Setting::Alert(Alert::of(1, 1))),
        set(
            "s.0",
            Setting::Lane {
                lane: LaneName::new("lane").expect("it is valid"),
                pin: Some(LanePin { limit: 1, floor: 1 }),
            },
        ),
        set("s.8", Setting::Pause(None)),
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

/// The files that are damaged. A directory has a marker, a semaphore its state, and a file with what stays.
const FILES: [&str; 3] = [".permits", "permits:exports.state", "permits:exports.lasting"];

async fn connect(path: &Path) -> Result<Client, ConnectError> {
    Client::builder(format!("local:{}", path.display())).lease(HOUR).connect().await
}

/// A number of a header: its file, its place in words of four bytes, true in the second header, its value.
type Number = (usize, usize, bool, u64);

/// Makes the checksums in both headers of a file right. `record.rs` of permits-store has their places.
fn mend_checksums(bytes: &mut [u8]) {
    for place in [0, 512] {
        let Some(header) = bytes.get(place..place + 80) else { return };
        let number = |at: usize| {
            let number = header[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        let text = bytes.get(number(56)..number(56).saturating_add(number(64))).unwrap_or_default();
        let of_text = crc32fast::hash(text).to_le_bytes();
        bytes[place + 72..place + 76].copy_from_slice(&of_text);
        let of_header = crc32fast::hash(&bytes[place..place + 76]).to_le_bytes();
        bytes[place + 76..place + 80].copy_from_slice(&of_header);
    }
}

/// Uses a semaphore whose files are damaged, and deletes it. Then it can be read, and another one always.
async fn use_and_mend(client: &Client) -> Result<(), String> {
    let (exports, imports) = (client.named("exports", 3), client.named("imports", 3));
    // The outcomes are not checked.
    let _ = exports.inspect().await;
    if let Ok(permit) = exports.try_acquire().await {
        let _ = permit.release().await;
    }
    let _ = exports.pause("night").await;
    client.list().await.map_err(|error| error.to_string())?;
    let permit = imports.try_acquire().await.map_err(|error| error.to_string())?;
    permit.release().await.map_err(|error| error.to_string())?;
    let deleted = exports.delete_unreadable().await;
    match exports.inspect().await {
        // The damage made its files look like another machine's.
        Ok(_) | Err(AdminError::Store(StoreError::Unsupported { .. })) => Ok(()),
        Err(error) => Err(format!("{error}, after {deleted:?}")),
    }
}

#[test]
fn damaged_files_are_read_or_refused_and_can_be_deleted() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it needs little");
    let directory = tempfile::TempDir::new().expect("there is room");
    let path = directory.path();
    let client = runtime.block_on(async {
        let client = connect(path).succeeds().await;
        for name in ["exports", "imports"] {
            client.named(name, 3).set_limit(3).succeeds().await;
        }
        // The permit is never released, so that there is a holder.
        std::mem::forget(client.named("exports", 3).acquire().succeeds().await);
        client
    });
    let sound = FILES.map(|name| fs::read(path.join(name)).expect("it is there"));
    let number = prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1), any::<u64>()];
    let numbers = vec((0_usize..3, 0_usize..20, any::<bool>(), number), 0..4);
    let check = |(numbers, cut, changes, is_forged): &(Vec<Number>, usize, Vec<_>, bool)| {
        let mut files = sound.clone();
        files[*cut] = damaged(&sound[*cut], changes);
        for (file, place, is_second, number) in numbers {
            let place = 4 * place + if *is_second { 512 } else { 0 };
            if let Some(bytes) = files[*file].get_mut(place..place + 8) {
                bytes.copy_from_slice(&number.to_le_bytes());
            }
        }
        for (name, mut bytes) in FILES.iter().zip(files) {
            if *is_forged {
                mend_checksums(&mut bytes);
            }
            fs::write(path.join(name), bytes).map_err(|error| error.to_string())?;
        }
        runtime.block_on(in_time(async {
            match connect(path).await {
                Ok(client) => {
                    use_and_mend(&client).await?;
                    client.close().await.map_err(|error| error.to_string())?;
                }
                Err(ConnectError::Store(StoreError::OtherLayout { .. })) => {}
                Err(error) => return Err(error.to_string()),
            }
            use_and_mend(&client).await
        }))
    };
    // Each of the numbers in both headers of a file.
    for (file, place) in (0..FILES.len()).flat_map(|file| (6..=16).step_by(2).map(move |place| (file, place)))
    {
        let numbers = [false, true].map(|is_second| (file, place, is_second, u64::MAX));
        check(&(numbers.to_vec(), 0, Vec::new(), true)).expect("the files are refused");
    }
    cases(150, SEEDS, &(numbers, 0_usize..3, changes(), any::<bool>()), check);
}

/// Forged messages name the entries of the session, and say what has not happened.
#[test]
fn any_message_to_a_session_changes_none_of_its_entries() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it needs little");
    let directory = tempfile::TempDir::new().expect("there is room");
    let path = directory.path();
    let (semaphore, permit, waiter) = runtime.block_on(async {
        let semaphore = connect(path).succeeds().await.named("exports", 1);
        let permit = semaphore.acquire().succeeds().await;
        let mut waiter = semaphore.acquire();
        while waiter.position().is_none() {
            assert!(tokio::time::timeout(SILENCE, &mut waiter).await.is_err(), "the only unit is held");
        }
        (semaphore, permit, waiter)
    });
    let mut names = fs::read_dir(path).expect("it is there").flatten().map(|entry| entry.file_name());
    let name = names.find_map(|name| Some(name.to_str()?.strip_prefix(".to-")?.to_owned()));
    let session = name.expect("the session has a FIFO");
    let open = || fs::OpenOptions::new().write(true).open(path.join(format!(".to-{session}")));
    let kinds = [
        r#""Refused""#,
        r#""Superseded""#,
        r#"{"Revoked":"why"}"#,
        r#"{"LineClosed":"why"}"#,
        r#"{"Turn":1000}"#,
        r#"{"Turn":18446744073709551615}"#,
    ];
    let strategy = vec((0..=kinds.len(), 0_usize..4, changes()), 1..20);
    cases(100, SEEDS, &(strategy, any::<Vec<u8>>()), |(messages, bytes)| {
        let mut text = bytes.clone();
        for (kind, entry, changes) in messages {
            let holder = if entry % 2 == 0 { permit.holder() } else { waiter.holder() };
            let number = entry / 2;
            let message = kinds.get(*kind).map_or(r#"{"Recall":"exports"}"#.to_owned(), |kind| {
                format!(
                    r#"{{"Event":[{{"session":"{session}","semaphore":"exports","holder":"{holder}","request":"{session}.{number}","kind":{kind}}},[{number},7]]}}"#
                )
            });
            text.push(b'\n');
            text.extend(damaged(message.as_bytes(), changes));
        }
        text.push(b'\n');
        open().and_then(|mut fifo| fifo.write_all(&text)).map_err(|error| error.to_string())?;
        runtime.block_on(in_time(permit.renew())).map_err(|error| error.to_string())
    });
    runtime.block_on(in_time(async {
        let seen = semaphore.inspect().succeeds().await;
        assert_eq!((seen.held, seen.waiting), (1, 1));
        permit.release().succeeds().await;
        waiter.succeeds().await.release().succeeds().await;
    }));
}
