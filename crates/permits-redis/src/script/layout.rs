//! The things on which the scripts and Rust agree, each once: the fields of a packed state, the parts of a
//! packed entry, the places in a reply, and the bounds that the model has, too.
//!
//! A name such as `$NAME` in the Lua files stands for a text from this module. A text costs nothing when the
//! script runs, unlike a variable, of which a script may have 200.

use crate::model::{
    CHANGES_MAX, CHANGES_MIN, COUNTED_MAX, FORGIVEN_MAX, IDENTITY_EVERY_US, INSPECT_LANES_MAX, INSPECT_MAX,
    KEPT_TOKENS, LANES_MAX, PARTLY_LOST, PAUSED, PROMOTE_MAX, REAP_MAX, TURNS_BY_LEASE, TURNS_MAX, VIEW_MAX,
};
use crate::protocol::{CHANGE_RETRIED_MS, LANE_PINS_MAX, MAX_BATCH, layout};

/// The numbers of a packed state that any command may change. Not in the model: the numbers of holders and
/// waiters, which show that another key has vanished, and `earliest`, before which no lease ends.
const CHANGING: [&str; 14] = [
    "sequence",
    "held",
    "holders",
    "waiting",
    "last_token",
    "last_ticket",
    "slots_made",
    "earliest",
    "checked",
    "grants",
    "refused",
    "kept_until",
    "lanes",
    "last_lane",
];

/// The numbers that an ordinary command reads as well. `pin` is 1 if the limit is pinned, plus 2 if there is
/// an alert, plus 4 for each pinned lane: in all cases the state does not expire. `pause` is the end of a
/// pause, 0 without a pause, and [`PAUSED`] for a pause without an end. While the line is closed, `pause` is
/// -1 minus that number. Nothing cools from `cools_until` on; the model has no such number. `bounded_lanes`
/// is the number of lanes with a limit or a floor, and the last number of this list.
const READ: [&str; 9] = [
    "limit",
    "limit_version",
    "pin",
    "pause",
    "recovering_until",
    "lease_max",
    "expires",
    "cools_until",
    "bounded_lanes",
];

/// The remaining numbers. The identity of the server, which ends with a zero byte, and the waits follow them.
const RARE: [&str; 7] =
    ["cooling", "era_known", "era_began", "expired", "revoked", "alert_wait", "alert_waiting"];

/// Fields that the general course keeps as local variables. It reads every other field as `s.NAME`.
const VARIABLES: [&str; 3] = ["lanes", "last_lane", "bounded_lanes"];

/// The waits that grants have ended: their sum in µs, and the number of them between two bounds.
const WAITS: &str = "<dI4I4I4I4I4I4";
const WAITS_BYTES: usize = 8 + 6 * 4;

/// Added to the first byte of an entry that holds. `$HOLDS` in Lua contains the layout, too.
pub(super) const HOLDS: u8 = 1;

/// Added to the first byte of an entry whose grant is to count for some time, whose lease was changed, or
/// that has a key.
pub(super) const TIMES: u8 = 2;

/// Added to the first byte of an entry whose session may keep the grant.
pub(super) const KEEPS: u8 = 4;

/// Added to the first byte of an entry with a lane or a share.
pub(super) const LANED: u8 = 8;

/// Added to the share of an entry that counts for its lane's limit and floor, or names one of them.
pub(super) const BOUNDED: u16 = 1 << 15;

/// The score of a full lane is its progress times two to this power: higher than the score of any lane that
/// is not full. The progress of a short lane is divided by that.
const SIDE_POWER: i32 = 600;

/// Times the layout, added to the first byte of an entry.
pub(super) const LAYOUTS: u8 = 16;

/// Added to the time for which the grant counts, which is less than 2³¹ ms, of an entry with a key.
pub(super) const KEYED: u32 = 1 << 31;

/// A number of a packed value.
const NUMBER_BYTES: usize = 8;

/// `code` with the text of each `$NAME`. The script is of this kind, its batch begins at the argument
/// `first`, and it publishes by this command.
pub(super) fn filled(code: &str, kind: &str, first: Option<u32>, publish: &str) -> String {
    let first = first.map_or("math.huge".to_owned(), |first| first.to_string());
    let mut texts = vec![("PUBLISH", publish.to_owned()), ("FIRST", first), ("KIND", kind.to_owned())];
    texts.extend(state());
    texts.extend(entry());
    texts.extend([("NOW_AT", 1), ("SEQUENCE_AT", 2), ("RECHECK_AT", 3), ("FLAGS_AT", 6)].map(number));
    texts.extend(bounds());
    let mut parts = code.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        match texts.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => filled.push_str(text),
            None => filled.extend(["$", name]),
        }
        filled.push_str(rest);
    }
    filled
}

fn number((name, value): (&'static str, u64)) -> (&'static str, String) {
    (name, value.to_string())
}

/// The names of the state's fields, and of its numbers; the formats by which they are packed; and where they
/// are.
fn state() -> Vec<(&'static str, String)> {
    let ordinary = [&CHANGING[..], &READ].concat();
    let all = [&ordinary[..], &RARE].concat();
    let locals: Vec<&str> = ordinary.iter().copied().filter(|name| !VARIABLES.contains(name)).collect();
    let in_table =
        |name: &&str| if VARIABLES.contains(name) { (*name).to_owned() } else { format!("s.{name}") };
    let in_table: Vec<String> = all.iter().map(in_table).collect();
    let numbers = |names: &[&str]| "d".repeat(names.len());
    let place = |names: &[&str]| (2 + names.len() * NUMBER_BYTES).to_string();
    vec![
        ("STATE_FIELD", r"\tstate".to_owned()),
        ("CHANGES", r"\tchanges".to_owned()),
        ("REASON", r"\treason".to_owned()),
        ("PINS", r"\tpins".to_owned()),
        ("CHANGING", CHANGING.join(", ")),
        ("ORDINARY", ordinary.join(", ")),
        ("ORDINARY_LOCALS", locals.join(", ")),
        ("STATE", in_table.join(", ")),
        ("PACKED_CHANGING", format!("<B{}c0c0", numbers(&CHANGING))),
        ("UNPACKED_ORDINARY", format!("<{}", numbers(&ordinary))),
        ("PACKED_STATE", format!("<B{}sc0", numbers(&all))),
        ("UNPACKED_STATE", format!("<{}s", numbers(&all))),
        ("NUMBERS_AT", place(&[])),
        ("REST_AT", place(&CHANGING)),
        ("RARE_AT", place(&ordinary)),
        ("SERVER_AT", place(&all)),
        ("WAITS", WAITS.to_owned()),
        ("WAITS_BYTES", WAITS_BYTES.to_string()),
    ]
}

/// The parts of an entry: `entries.lua` describes it.
fn entry() -> Vec<(&'static str, String)> {
    const SHARE_BYTES: u64 = 2;
    let numbers = [
        ("LAYOUT", layout().into()),
        ("HOLDS", (LAYOUTS * layout() + HOLDS).into()),
        ("TIMES", TIMES.into()),
        ("KEEPS", KEEPS.into()),
        ("LANED", LANED.into()),
        ("KEYED", KEYED.into()),
        ("BOUNDED", BOUNDED.into()),
        // The number behind the first byte and the weight.
        ("LEASE_AT", 1 + 4 + 1),
        // First byte, weight, lease, and the lengths of what the holder has of request and session.
        ("ENTRY_BYTES", 1 + 4 + 4 + 1 + 1),
        // The time for which the grant counts, and the number of changes of the lease.
        ("TIMES_BYTES", 4 + 4),
        ("SHARE_BYTES", SHARE_BYTES),
        // The share, and the time at which it was queued.
        ("LANED_BYTES", SHARE_BYTES + 8),
        // Token and slot.
        ("GRANT_BYTES", 8 + 4),
    ];
    let mut texts: Vec<_> = numbers.map(number).into();
    texts.push(("ENTRY", "<BI4I4BB".to_owned()));
    texts.push(("FULL", format!("{:e}", 2_f64.powi(SIDE_POWER))));
    texts.push(("SHORT", format!("{:e}", 2_f64.powi(-SIDE_POWER))));
    texts
}

fn bounds() -> [(&'static str, String); 20] {
    [
        ("CHANGES_MAX", CHANGES_MAX as u64),
        ("CHANGES_MIN", CHANGES_MIN as u64),
        ("COUNTED_MAX", COUNTED_MAX as u64),
        ("FORGIVEN_MAX", FORGIVEN_MAX as u64),
        ("IDENTITY_EVERY_US", IDENTITY_EVERY_US),
        ("PARTLY_LOST", PARTLY_LOST),
        ("INSPECT_LANES_MAX", INSPECT_LANES_MAX as u64),
        ("INSPECT_MAX", INSPECT_MAX.into()),
        ("KEPT_TOKENS", KEPT_TOKENS),
        ("LANES_MAX", LANES_MAX),
        ("PAUSED", PAUSED),
        ("PINS_MAX", LANE_PINS_MAX.into()),
        ("PROMOTE_MAX", PROMOTE_MAX),
        ("REAP_MAX", REAP_MAX as u64),
        ("REFUSE_MAX", MAX_BATCH as u64),
        ("RETRIED_US", 1000 * CHANGE_RETRIED_MS),
        ("TICKETS", 1 << 32),
        ("TURNS_BY_LEASE", TURNS_BY_LEASE as u64),
        ("TURNS_MAX", TURNS_MAX as u64),
        ("VIEW_MAX", VIEW_MAX as u64),
    ]
    .map(number)
}

#[cfg(test)]
mod tests {
    use crate::protocol::OperationKind;
    use crate::script::Scripts;

    #[test]
    fn nothing_is_left_to_fill_in() {
        let scripts = Scripts::new(false);
        for kind in OperationKind::ALL {
            let code = &scripts.of(*kind).code;
            let left =
                code.split('$').skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            assert_eq!(left, None, "{}", kind.name());
        }
    }
}
