//! Bytes from a server: replies of every operation, errors, messages, maps of a cluster.

use permits::StoreError;
use permits_core::protocol::{Operation, SessionId, Waits};
use permits_redis::testing::{decode_message, decode_reply, nodes_of_hash_slots};
use proptest::collection::vec;
use proptest::prelude::*;

use super::SEEDS;
use super::damage::{Change, changes, damaged};
use super::operations::{acquire, every_operation, name, release_all, renewal};
use super::run::cases;

/// A value, as a server may send it.
#[derive(Debug, Clone)]
pub(crate) enum Sent {
    Int(i64),
    Bulk(Vec<u8>),
    Simple(String),
    Error(String),
    Double(f64),
    Big(String),
    Flag(bool),
    Nil,
    Null,
    Array(Vec<Sent>),
    Set(Vec<Sent>),
    Push(Vec<Sent>),
    Map(Vec<Sent>),
    /// The header of a bulk string or an array, without its contents.
    Claims(u8, i64),
}

impl Sent {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut all = |mark: char, length: usize, items: &[Self]| {
            out.extend(format!("{mark}{length}\r\n").into_bytes());
            items.iter().for_each(|item| item.write(out));
        };
        match self {
            Self::Array(items) => all('*', items.len(), items),
            Self::Set(items) => all('~', items.len(), items),
            Self::Push(items) => all('>', items.len(), items),
            Self::Map(items) => all('%', items.len() / 2, &items[..items.len() / 2 * 2]),
            Self::Int(int) => out.extend(format!(":{int}\r\n").into_bytes()),
            Self::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).into_bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Self::Simple(text) => out.extend(format!("+{text}\r\n").into_bytes()),
            Self::Error(text) => out.extend(format!("-{text}\r\n").into_bytes()),
            Self::Double(double) => out.extend(format!(",{double}\r\n").into_bytes()),
            Self::Big(digits) => out.extend(format!("({digits}\r\n").into_bytes()),
            Self::Flag(flag) => out.extend(if *flag { b"#t\r\n" } else { b"#f\r\n" }),
            Self::Nil => out.extend(b"$-1\r\n"),
            Self::Null => out.extend(b"_\r\n"),
            Self::Claims(mark, length) => {
                out.push(*mark);
                out.extend(format!("{length}\r\n").into_bytes());
            }
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

/// Words with a meaning in replies, and others.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "granted",
        "waiting",
        "held",
        "lost",
        "again",
        "unknown",
        "no_permits",
        "recovering",
        "cooling",
        "done",
        "other_version",
        "out_of_range",
        "exceeds_limit",
        "exceeds_lane_limit",
        "lane_full",
        "lane_queue_full",
        "paused",
        "superseded",
        "already_held",
        "queue_full",
        "no_limit",
        "limit_mismatch",
        "line_closed",
        "deleted",
        "in_use",
        "holder",
        "",
    ]);
    prop_oneof![4 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..12)]
}

fn integers() -> impl Strategy<Value = i64> {
    let odd = prop::sample::select(vec![-1, i64::MIN, i64::MAX, 1 << 53, 1 << 32, 65_536, 16_384]);
    prop_oneof![4 => 0_i64..20_000, 1 => odd, 1 => any::<i64>()]
}

fn errors() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "MOVED 5 127.0.0.1:1",
        "MOVED",
        "MOVED x",
        "ASK 5",
        "ASK 99999999999 :",
        "NOSCRIPT",
        "ERR",
        "",
        "OOM command",
        "WRONGTYPE",
        "BUSY x",
        "LOADING",
        "READONLY",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "CROSSSLOT",
        "EXECABORT",
    ]);
    prop_oneof![3 => known.prop_map(str::to_owned), 1 => "[ -~]{0,40}"]
}

fn leaves() -> impl Strategy<Value = Sent> {
    prop_oneof![
        6 => integers().prop_map(Sent::Int),
        6 => words().prop_map(Sent::Bulk),
        1 => "[ -~]{0,10}".prop_map(Sent::Simple),
        1 => errors().prop_map(Sent::Error),
        1 => any::<f64>().prop_map(Sent::Double),
        1 => "-?[0-9]{0,30}".prop_map(Sent::Big),
        1 => any::<bool>().prop_map(Sent::Flag),
        1 => prop_oneof![Just(Sent::Nil), Just(Sent::Null)],
        1 => (prop::sample::select(b"$*%~>!=|".to_vec()), integers()).prop_map(|(mark, length)| Sent::Claims(mark, length)),
    ]
}

/// Any value.
pub(crate) fn values() -> impl Strategy<Value = Sent> {
    leaves().prop_recursive(4, 60, 12, |inner| {
        let items = vec(inner, 0..12);
        prop_oneof![
            5 => items.clone().prop_map(Sent::Array),
            1 => items.clone().prop_map(Sent::Set),
            1 => items.clone().prop_map(Sent::Push),
            1 => items.prop_map(Sent::Map),
        ]
    })
}

/// Values that are nearly replies: the numbers that each reply begins with, and more.
fn near_replies() -> impl Strategy<Value = Sent> {
    let numbers = vec(integers().prop_map(Sent::Int), 6);
    let more = vec(
        prop_oneof![6 => integers().prop_map(Sent::Int), 6 => words().prop_map(Sent::Bulk), 1 => leaves()],
        0..14,
    );
    (numbers, more).prop_map(|(numbers, more)| Sent::Array([numbers, more].concat()))
}

fn session() -> SessionId {
    SessionId::new("session").expect("it is plain")
}

/// An operation of each kind, with `count` requests.
fn operations(count: usize) -> Vec<Operation> {
    let names = vec!["web-3"; count];
    let mut operations = every_operation();
    operations[0] = acquire(&names);
    operations[1] = release_all(&names);
    operations[2] = Operation::Renew(vec![renewal("web-3", None); count]);
    operations
}

/// Decodes as the reply to every operation.
fn decode_all(bytes: &[u8]) {
    for count in [0, 1, 2, 500] {
        for operation in operations(count) {
            let _ = decode_reply(bytes, &operation, &name());
        }
    }
}

#[test]
fn any_bytes_are_a_reply_or_an_error() {
    let bytes =
        prop_oneof![vec(any::<u8>(), 0..60), "[*$:+%~>,#_(!=|0-9\r\n-]{0,40}".prop_map(String::into_bytes)];
    cases(400, SEEDS, &bytes, |bytes| {
        decode_all(bytes);
        Ok(())
    });
}

#[test]
fn any_value_is_a_reply_or_an_error() {
    let values = prop_oneof![values(), near_replies()];
    cases(400, SEEDS, &(values, changes()), |(value, changes): &(Sent, Vec<Change>)| {
        let bytes = value.bytes();
        decode_all(&bytes);
        decode_all(&damaged(&bytes, changes));
        Ok(())
    });
}

/// Shows that the tests above pass the first check.
#[test]
fn a_sound_reply_is_understood() {
    let sound = with_fields(&[Sent::Bulk(b"granted".into()), Sent::Int(7), Sent::Int(2)]);
    let reply = decode_reply(&sound, &operations(1)[0], &name()).expect("it is sound");
    assert_eq!((reply.now_us, reply.limit), (5, 3));
}

/// A reply with these fields, behind those that each reply begins with.
fn with_fields(fields: &[Sent]) -> Vec<u8> {
    let first = [5, 1, -1, 3, 1, 0, 0, 0].map(Sent::Int);
    Sent::Array([&first, fields].concat()).bytes()
}

/// An operator sees reasons on a terminal, even if others can write to the store that has them.
#[test]
fn a_reason_with_a_control_character_is_refused() {
    let text = |text: &str| Sent::Bulk(text.into());
    let zeros = |count| vec![Sent::Int(0); count];
    let closed = |reason: &str| with_fields(&[text("line_closed"), text(reason), Sent::Int(0)]);
    // Held, cooling, waiting, and the numbers behind the reasons: alert, counts, waits, holders, changes,
    // waiters.
    let inspected = |paused: &str, closed: &str| {
        let reasons = [Sent::Int(1), Sent::Int(-1), text(paused), Sent::Int(1), text(closed)];
        let numbers = 2 + 4 + 1 + Waits::default().numbers.len() + 3;
        with_fields(&[zeros(3), reasons.into(), zeros(numbers)].concat())
    };
    let all = operations(1);
    let (acquire, renew) = (&all[0], &all[2]);
    let inspect =
        all.iter().find(|operation| matches!(operation, Operation::Inspect { .. })).expect("there is one");
    let (plain, forged) = ("moved", "moved\u{1b}[2J");
    for (sound, malformed, operation) in [
        (closed(plain), closed(forged), acquire),
        (closed(plain), closed(forged), renew),
        (inspected(plain, plain), inspected(forged, plain), inspect),
        (inspected(plain, plain), inspected(plain, forged), inspect),
    ] {
        decode_reply(&sound, operation, &name()).expect("it is sound");
        let refused = decode_reply(&malformed, operation, &name());
        assert!(matches!(refused, Err(StoreError::Malformed { .. })), "{refused:?}");
    }
    for event in ["revoked session.2 web-4", "line_closed session.4 web-6"] {
        let message = |reason| format!("12 exports\n{event}\t{reason}");
        assert_eq!(decode_message(&session(), message(plain).as_bytes()).map(|events| events.len()), Ok(1));
        decode_message(&session(), message(forged).as_bytes()).expect_err("it has a control character");
    }
}

#[test]
fn any_message_is_events_or_an_error() {
    let sound = "12 exports\ngranted session.1 7 0 web-3\nrevoked session.2 web-4\tno more\nrefused session.3 web 5\nline_closed session.4 web 6\t";
    assert_eq!(decode_message(&session(), sound.as_bytes()).expect("it is sound").len(), 4);
    let strategy = (vec(any::<u8>(), 0..60), "[0-9a-z \n\t.-]{0,60}", changes());
    cases(2_000, SEEDS, &strategy, |(bytes, text, changes)| {
        for payload in [bytes.clone(), text.clone().into_bytes(), damaged(sound.as_bytes(), changes)] {
            let _ = decode_message(&session(), &payload);
        }
        Ok(())
    });
}

/// Values that are nearly replies to CLUSTER SLOTS.
fn near_maps() -> impl Strategy<Value = Sent> {
    let host = prop_oneof![
        words().prop_map(Sent::Bulk),
        Just(Sent::Nil),
        Just(Sent::Bulk(b"10.0.0.1".into())),
        leaves()
    ];
    let node = (host, integers()).prop_map(|(host, port)| Sent::Array(vec![host, Sent::Int(port)]));
    let range = (integers(), integers(), node)
        .prop_map(|(first, last, node)| Sent::Array(vec![Sent::Int(first), Sent::Int(last), node]));
    vec(range, 0..5).prop_map(Sent::Array)
}

#[test]
fn any_map_of_a_cluster_is_sound_or_refused() {
    let strategy = (prop_oneof![4 => near_maps(), 1 => values()], changes(), vec(0_u16..16_384, 1..4));
    cases(1_000, SEEDS, &strategy, |(value, changes, slots)| {
        let bytes = value.bytes();
        for bytes in [damaged(&bytes, changes), bytes] {
            let Some(nodes) = nodes_of_hash_slots(&bytes, "asked", slots) else { continue };
            // The first was set.
            if nodes[0].is_none() {
                return Err(format!("slot {} has no node", slots[0]));
            }
        }
        Ok(())
    });
}
