//! The tests' own reader of Redis keys: it refuses unknown input, without a panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::SEEDS;
use super::damage::{changes, damaged_text};
use super::dump;
use super::run::cases;

type Pairs = Vec<(String, String)>;

/// One holder, one waiter, as the Lua writes them: state, entries, queue, leases, free.
fn sound() -> [Pairs; 6] {
    let state = [
        ("limit", "2"),
        ("limit_version", "1"),
        ("pinned", "0"),
        ("paused", "0"),
        ("waits", "0 0 0 0 0 0 0"),
        ("reason", ""),
        ("held", "1"),
        ("holders", "1"),
        ("waiting", "2"),
        ("last_token", "1790000000000000"),
        ("last_ticket", "1790000000000003"),
        ("lanes", "2"),
        ("last_lane", "2"),
        ("records", "1\t0\t1\t\n2\t1\t1\tb c"),
        ("keys", "k %s\tweb-5"),
        ("slots_made", "2"),
        ("sequence", "9"),
        ("earliest", "1790000015000"),
        ("server", "run0"),
        ("checked", "1790000000000000"),
        ("era_known", "0"),
        ("era_began", "1780000000000000"),
        ("recovering_until", "0"),
        ("lease_max", "15000"),
        ("expires", "1790000060000"),
        ("cools_until", "0"),
        ("cooling", "0"),
        ("kept_until", "1790000015000"),
        ("grants", "2"),
        ("refused", "1"),
        ("expired", "0"),
        ("revoked", "0"),
        ("changes", "s.9\t1790000000000000\tlimit\tlimit\t2\t1\t\tadmin\n"),
    ];
    let entries = [
        ("web-3", "s.1 s 1 15000 1 0 1 1 0 1790000000000000 1 \t\ta label"),
        ("web-4", "s.2 s 2 15000 0 0 0 1 0 \t\t"),
        ("web-5", "s.3 s 1 15000 0 0 0 7 1790000000000009 b c\tk %s\t"),
    ];
    let parts: [&[(&str, &str)]; 6] = [
        &state,
        &entries,
        &[("web-4", "1790000000000003"), ("web-5", "8589934592")],
        &[("web-3", "1790000015000"), ("web-4", "-1790000015000"), ("web-5", "-1790000015000")],
        &[("0-0", "0")],
        &[("-other", "-2.5"), ("000001", "0"), ("000002b c", "0.5")],
    ];
    parts.map(|part| part.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect())
}

fn decode(parts: &[Pairs; 6]) -> Result<permits_core::model::State, String> {
    let borrowed: Vec<Vec<(&str, &str)>> = parts
        .iter()
        .map(|part| part.iter().map(|(one, other)| (one.as_str(), other.as_str())).collect())
        .collect();
    let [state, entries, queue, leases, free, lanes] = &borrowed[..] else { unreachable!("there are six") };
    dump::decode(state, entries, queue, leases, free, lanes)
}

#[test]
fn a_sound_dump_is_read() {
    let state = decode(&sound()).expect("it is sound");
    assert_eq!((state.held, state.entries.len(), state.queue.len(), state.lanes.known().len()), (1, 3, 2, 3));
}

#[test]
fn the_lowest_deadline_is_read() {
    let mut parts = sound();
    parts[3][1].1 = i64::MIN.to_string();
    let state = decode(&parts).expect("a deadline is any number");
    assert_eq!(state.leases.first().map(|(deadline, _)| *deadline), Some(i64::MIN));
}

#[test]
fn any_dump_is_read_or_refused() {
    let damage = vec((0_usize..6, any::<prop::sample::Index>(), any::<bool>(), changes()), 1..4);
    cases(1_000, SEEDS, &damage, |damage| {
        let mut parts = sound();
        for (part, at, key, changes) in damage {
            let part = &mut parts[*part];
            let at = at.index(part.len());
            let field = if *key { &mut part[at].0 } else { &mut part[at].1 };
            *field = damaged_text(field, changes);
        }
        let _ = decode(&parts);
        Ok(())
    });
}
