//! What the scripts pack, read back as texts by a script that was written apart from them.

use permits_testkit::Resp;

const SCRIPT: &str = include_str!("packed.lua");

/// The command that reads a `state` key: field, value, … as HGETALL would say it.
pub(crate) fn reading_state(key: &str) -> Vec<&str> {
    vec!["EVAL", SCRIPT, "1", key, "state"]
}

/// The command that reads an `entries` key: holder, entry, …
#[allow(dead_code, reason = "not every suite looks at entries")]
pub(crate) fn reading_entries(key: &str) -> Vec<&str> {
    vec!["EVAL", SCRIPT, "1", key, "entries"]
}

/// A field out of what the command that reads a state was answered; none without a state.
#[allow(dead_code, reason = "not every suite looks at a single field")]
pub(crate) fn field(state: &Resp, name: &str) -> Option<u64> {
    let pairs = state.array().chunks(2);
    let value = pairs.filter(|pair| pair[0].text() == name).map(|pair| pair[1].text()).next()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}")))
}
