//! The packed values of the scripts, read back as texts by a script that was written independently of them.

use permits_testkit::Resp;

const SCRIPT: &str = include_str!("packed.lua");

/// The command that reads the state in a `state` key. It returns field, value, … as HGETALL does.
pub(crate) fn reading_state(key: &str) -> Vec<&str> {
    vec!["EVAL", SCRIPT, "1", key, "state"]
}

/// The command that reads the entries in a `state` key: holder, entry, …
#[allow(dead_code, reason = "not every suite reads entries")]
pub(crate) fn reading_entries(key: &str) -> Vec<&str> {
    vec!["EVAL", SCRIPT, "1", key, "entries"]
}

/// A field in the reply to [`reading_state`], or `None` without a state.
#[allow(dead_code, reason = "not every suite reads a single field")]
pub(crate) fn field(state: &Resp, name: &str) -> Option<u64> {
    let pairs = state.array().chunks(2);
    let value = pairs.filter(|pair| pair[0].text() == name).map(|pair| pair[1].text()).next()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}")))
}
