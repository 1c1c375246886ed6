//! Parsers of the values of arguments, by the rules of the library.

use std::fmt::Display;
use std::fs;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use permits::{AcquireOptions, Alert, Change, InvalidInput, Limit, PermitHandle, check};
use serde::Deserialize as _;
use serde_json::{Number, Value, json};

use crate::clock::milliseconds;

/// The handle of a permit, as an argument.
#[derive(Debug, Clone)]
pub(crate) enum Handle {
    Text(Box<PermitHandle>),
    /// The handle is read from standard input.
    Input,
}

/// A further semaphore of `--also`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Also {
    pub(crate) name: String,
    /// The limit to declare; without it, the stored limit counts.
    pub(crate) limit: Option<u32>,
    pub(crate) weight: u32,
    pub(crate) lane: Option<LaneArg>,
}

/// A lane and its share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneArg {
    pub(crate) name: String,
    pub(crate) share: u32,
}

pub(super) fn name(text: &str) -> Result<String, InvalidInput> {
    check::name(text).map(|()| text.to_owned())
}

pub(super) fn holder(text: &str) -> Result<String, InvalidInput> {
    check::holder(text).map(|()| text.to_owned())
}

pub(super) fn supersede(text: &str) -> Result<String, String> {
    checked(json!({ "supersede": text })).map(|()| text.to_owned())
}

/// The most bytes of a label.
const MAX_LABEL: usize = 120;

pub(super) fn author(text: &str) -> Result<String, InvalidInput> {
    check::label(text).map(|()| text.to_owned())
}

/// A label of any length: [`cut_label`] gives what is shown of it.
pub(super) fn label(text: &str) -> Result<String, InvalidInput> {
    check::label(cut_label(text)).map(|()| text.to_owned())
}

/// The part of a label that a store takes. A job must not fail because of a text that is only shown, such as
/// the subject of a commit.
pub(crate) fn cut_label(text: &str) -> &str {
    let mut ends = (0..=text.len().min(MAX_LABEL)).rev();
    &text[..ends.find(|end| text.is_char_boundary(*end)).unwrap_or_default()]
}

pub(super) fn prefix(text: &str) -> Result<String, InvalidInput> {
    check::prefix(text).map(|()| text.to_owned())
}

pub(super) fn reason(text: &str) -> Result<String, InvalidInput> {
    check::reason(text).map(|()| text.to_owned())
}

pub(super) fn handle(text: &str) -> Result<Handle, InvalidInput> {
    match text {
        "-" => Ok(Handle::Input),
        text => text.parse().map(|handle| Handle::Text(Box::new(handle))),
    }
}

/// The socket on which `permits hold` listens.
#[derive(Debug, Clone)]
pub(crate) enum Listen {
    /// A Unix socket, which `permits hold` makes at this path.
    At(PathBuf),
    /// The socket that systemd hands over.
    Systemd,
}

/// The database of groups. Groups that come from elsewhere, such as a directory service, have numbers only.
const GROUPS: &str = "/etc/group";

/// A group of users.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The name or the number, as it was given.
    pub(crate) name: String,
    pub(crate) id: u32,
}

/// Finds the group of a name or of a number.
pub(super) fn group(text: &str) -> Result<Group, String> {
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
    });
    match named.or_else(|| text.parse().ok()) {
        Some(id) => Ok(Group { name: text.to_owned(), id }),
        None => Err(format!("{GROUPS} has no such group: make it with groupadd, or give its number")),
    }
}

/// Parses `unix:PATH`, the address of a Unix socket, or `systemd`.
pub(super) fn socket(text: &str) -> Result<Listen, String> {
    if text == "systemd" {
        return Ok(Listen::Systemd);
    }
    let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
    let path =
        path.ok_or("write unix: and the path of a socket, such as unix:/run/permits/socket; or systemd")?;
    match SocketAddr::from_pathname(path) {
        Ok(_) => Ok(Listen::At(path.into())),
        Err(_) => Err(format!("the path has {} bytes, too many for the address of a socket", path.len())),
    }
}

/// Checks options of a request by its rules, in the words that every way to make a request uses.
fn checked(options: Value) -> Result<(), String> {
    AcquireOptions::deserialize(options).map(drop).map_err(|error| error.to_string())
}

/// A number in JSON. A text that is not a number stays as it is, to be refused.
fn number(text: &str) -> Value {
    let whole = text.parse().map(|number: i64| number.into());
    let number = whole.ok().or_else(|| Number::from_f64(text.parse().ok()?));
    number.map_or_else(|| text.into(), Value::Number)
}

/// A number of units that was checked.
fn units(number: &Value) -> u32 {
    number.as_u64().and_then(|units| units.try_into().ok()).expect("the rules allow no other")
}

pub(super) fn limit(text: &str) -> Result<u32, String> {
    let limit = number(text);
    Limit::deserialize(&limit).map(|_| units(&limit)).map_err(|error| error.to_string())
}

pub(super) fn weight(text: &str) -> Result<u32, String> {
    let weight = number(text);
    checked(json!({ "weight": weight })).map(|()| units(&weight))
}

pub(super) fn lane_name(text: &str) -> Result<String, String> {
    checked(json!({ "lane": text })).map(|()| text.to_owned())
}

/// A parser of the numbers for this field of a request that names a lane.
pub(super) fn of_lane(field: &'static str) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = number(text);
        checked(json!({ "lane": "any", field: number })).map(|()| units(&number))
    }
}

pub(super) fn count(text: &str) -> Result<u32, String> {
    whole(text, 0, u32::MAX)
}

pub(super) fn exit_code(text: &str) -> Result<u8, String> {
    whole(text, 0, u8::MAX)
}

/// A number of the type `T`. The message names the range; numbers of `T` beyond it are left to the rules.
fn whole<T: FromStr + Display>(text: &str, least: T, most: T) -> Result<T, String> {
    text.parse().map_err(|_| format!("it must be a whole number from {least} to {most}"))
}

/// Parses a change of a limit: the new one, or with a sign the difference.
pub(super) fn change(text: &str) -> Result<Change, String> {
    if !text.starts_with(['+', '-']) {
        return limit(text).map(|limit| Change::SetLimit { limit, if_version: None });
    }
    let most = i64::from(u32::MAX);
    let by = text.parse().ok().filter(|by| (-most..=most).contains(by));
    by.map(|by| Change::AdjustLimit { by })
        .ok_or_else(|| format!("after a sign it must be a whole number up to {most}"))
}

/// Parses `NAME[=SHARE]`. The share is what follows the last `=`; any other `=` belongs to the name.
pub(super) fn lane(text: &str) -> Result<LaneArg, String> {
    let (name, share) = text.rsplit_once('=').map_or((text, 1.into()), |(name, share)| (name, number(share)));
    checked(json!({ "lane": name, "share": share }))?;
    Ok(LaneArg { name: name.to_owned(), share: units(&share) })
}

/// Parses `NAME[=LIMIT][:WEIGHT][@LANE[=SHARE]]`. The lane is what follows the last `@` that has a limit or a
/// weight before it, unless the text ends with a weight. The weight is the number after the last `:`, the
/// limit that after the last `=` before it; any other `:`, `=` or `@` belongs to the name.
pub(super) fn also(text: &str) -> Result<Also, String> {
    let (text, lane) = split_lane(text);
    let lane = lane.map(self::lane).transpose()?;
    if let Some(mark) = text.chars().last().filter(|last| matches!(last, ':' | '=')) {
        return Err(format!("a number is missing after the last {mark:?}"));
    }
    let (rest, weight) = split_number(text, ':');
    let (name, limit) = split_number(rest, '=');
    let weight = weight.map_or(Ok(1), self::weight)?;
    let limit = limit.map(self::limit).transpose()?;
    let name = self::name(name).map_err(|error| error.to_string())?;
    match limit.filter(|limit| weight > *limit) {
        Some(limit) => Err(format!("a weight of {weight} exceeds the limit of {limit}")),
        None => Ok(Also { name, limit, weight, lane }),
    }
}

/// Splits the lane of a further semaphore off.
fn split_lane(text: &str) -> (&str, Option<&str>) {
    let ends_with = |text, mark| split_number(text, mark).1.is_some();
    if ends_with(text, ':') {
        return (text, None);
    }
    let marks = text.rmatch_indices('@').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let lane = marks.into_iter().find(|(before, _)| ends_with(before, ':') || ends_with(before, '='));
    lane.map_or((text, None), |(before, lane)| (before, Some(lane)))
}

/// Splits a text at the last `mark`, if a number follows it.
fn split_number(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.rsplit_once(mark) {
        Some((rest, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            (rest, Some(number))
        }
        _ => (text, None),
    }
}

pub(super) fn at_least(text: &str) -> Result<Duration, String> {
    time("at_least_ms", text)
}

pub(super) fn lease(text: &str) -> Result<Duration, String> {
    time("lease_ms", text)
}

pub(super) fn max_hold(text: &str) -> Result<Duration, String> {
    time("max_hold_ms", text)
}

/// Parses a time of a request.
fn time(field: &str, text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    checked(json!({ field: milliseconds(time) }))?;
    Ok(time)
}

pub(crate) fn pause(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    check::pause(time).map_err(|error| error.to_string())?;
    Ok(time)
}

pub(super) fn alert_wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    Alert::new(Some(wait), None).map(|_| wait).map_err(|error| error.to_string())
}

pub(super) fn alert_waiting(text: &str) -> Result<u32, String> {
    let waiting = whole(text, 1, u32::MAX)?;
    Alert::new(None, Some(waiting)).map(|_| waiting).map_err(|error| error.to_string())
}

/// Parses the interval of reads of the store.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(100) {
        return Err("it must be at least 100ms".to_owned());
    }
    Ok(interval)
}

/// Parses numbers with `ms`, `s`, `m`, `h` or `d`, the larger unit first, such as `1h30m`, or seconds without
/// a unit. The last number may have a fraction.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let wrong = || "write numbers with ms, s, m, h or d, such as 500ms, 1.5s, 15s or 1h30m".to_owned();
    let (mut rest, mut larger, mut total) = (text, u64::MAX, 0_u64);
    loop {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(whole);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let fraction = after.strip_prefix('.').map(|fraction| &fraction[..digits(fraction)]);
        let after = &after[fraction.map_or(0, |fraction| fraction.len() + 1)..];
        let unit = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at(unit);
        let last = after.is_empty();
        let bare = unit.is_empty() && last && larger == u64::MAX;
        let unit = if bare { "s" } else { unit };
        let milliseconds =
            UNITS.iter().find(|(name, _)| *name == unit).map(|(_, milliseconds)| *milliseconds);
        let milliseconds = milliseconds.filter(|unit| *unit < larger).ok_or_else(wrong)?;
        if number.is_empty() || fraction.is_some_and(|fraction| fraction.is_empty() || !last) {
            return Err(wrong());
        }
        let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds));
        // Rounded to a millisecond.
        let fraction = fraction.map_or(0.0, |digits| format!("0.{digits}").parse().unwrap_or(0.0));
        let part =
            number.and_then(|number| number.checked_add((fraction * milliseconds as f64).round() as u64));
        total = part.and_then(|part| total.checked_add(part)).ok_or("it is too long")?;
        if last {
            return Ok(Duration::from_millis(total));
        }
        (rest, larger) = (after, milliseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("15s", 15_000),
            ("15", 15_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0", 0),
            ("1.5s", 1_500),
            ("0.25", 250),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("2d12h", 216_000_000),
            ("1h2m3s4ms", 3_723_004),
            ("1m1.5s", 61_500),
            ("0.29s", 290),
            ("0.0004s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        let too_long = ["99999999999999999999", "18446744073709551615s", "6000000000000000h"];
        for text in [
            "", "s", "ms", "-1", "+1", "1 s", "1w", "1h1d", "15S", "ten", "1e3", "½s", "1.", "1.s", ".5s",
            "1.2.3s", "1m30", "30s1m", "1s1s", "1.5m1s", "1h 30m",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in too_long {
            assert_eq!(duration(text), Err("it is too long".into()), "{text}");
        }
    }

    #[test]
    fn a_limit_with_a_sign_is_a_difference() {
        for (text, expected) in [
            ("4", Change::SetLimit { limit: 4, if_version: None }),
            ("+2", Change::AdjustLimit { by: 2 }),
            ("-1", Change::AdjustLimit { by: -1 }),
            ("+4294967295", Change::AdjustLimit { by: 4_294_967_295 }),
        ] {
            assert_eq!(change(text), Ok(expected), "{text}");
        }
        for text in ["0", "+", "-", "+-1", "+1.5", "-4294967296", "x"] {
            assert!(change(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_further_semaphore_has_a_limit_and_a_weight_if_numbers_follow() {
        for (text, name, limit, weight) in [
            ("api", "api", None, 1),
            ("api=100", "api", Some(100), 1),
            ("api:2", "api", None, 2),
            ("api=100:2", "api", Some(100), 2),
            ("api/tenant 7=4294967295:4294967295", "api/tenant 7", Some(u32::MAX), u32::MAX),
            ("db:5432:1", "db:5432", None, 1),
            ("db:5432=3", "db:5432", Some(3), 1),
            ("db:main", "db:main", None, 1),
            ("x=y", "x=y", None, 1),
            ("x=1=2", "x=1", Some(2), 1),
            ("x=:1", "x=", None, 1),
            ("x:1=2", "x:1", Some(2), 1),
            ("x:-1", "x:-1", None, 1),
            ("x=٣", "x=٣", None, 1),
        ] {
            let expected = Also { name: name.into(), limit, weight, lane: None };
            assert_eq!(also(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_further_semaphore_has_a_lane_behind_a_limit_or_a_weight() {
        for (text, name, limit, weight, lane) in [
            ("api=100:2@tenant-7", "api", Some(100), 2, Some(("tenant-7", 1))),
            ("api=100@tenant-7=10", "api", Some(100), 1, Some(("tenant-7", 10))),
            ("api:1@tenant-7", "api", None, 1, Some(("tenant-7", 1))),
            ("api:1@b@example.com", "api", None, 1, Some(("b@example.com", 1))),
            ("api:1@b:2=3", "api", None, 1, Some(("b:2", 3))),
            ("api:1@a=b=3", "api", None, 1, Some(("a=b", 3))),
            ("db@host:1@tenant-7", "db@host", None, 1, Some(("tenant-7", 1))),
            ("db@host", "db@host", None, 1, None),
            ("db@host=4", "db@host", Some(4), 1, None),
            ("db:5432@host:1", "db:5432@host", None, 1, None),
            ("db:5432@host=4:1", "db:5432@host", Some(4), 1, None),
            ("db:5432@host:1@x", "db:5432@host", None, 1, Some(("x", 1))),
        ] {
            let lane = lane.map(|(name, share)| LaneArg { name: name.into(), share });
            let expected = Also { name: name.into(), limit, weight, lane };
            assert_eq!(also(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_lane_has_a_share_behind_its_last_equals_sign() {
        for (text, name, share) in [
            ("tenant-7", "tenant-7", 1),
            ("interactive=100", "interactive", 100),
            ("tenant=acme=1000", "tenant=acme", 1000),
            ("b@example.com", "b@example.com", 1),
        ] {
            assert_eq!(lane(text), Ok(LaneArg { name: name.into(), share }), "{text}");
        }
        let long = "x".repeat(121);
        for (text, reason) in [
            ("", "the lane is empty"),
            ("=3", "the lane is empty"),
            ("x=0", "a share of 0 is out of range: 1 to 1000"),
            ("x=1001", "a share of 1001 is out of range: 1 to 1000"),
            ("x=", "share is a whole number from 1 to 1000, not the string \"\""),
            ("x=-1", "share is a whole number from 1 to 1000, not -1"),
            ("tenant=acme", "share is a whole number from 1 to 1000, not the string \"acme\""),
            ("a\tb", "control character"),
            (&long, "the lane has 121 bytes: at most 120"),
        ] {
            let error = lane(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_further_semaphore_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "the semaphore's name is empty"),
            ("=4", "the semaphore's name is empty"),
            (":4", "the semaphore's name is empty"),
            ("=4:2", "the semaphore's name is empty"),
            ("api=", "a number is missing after the last '='"),
            ("api=4:", "a number is missing after the last ':'"),
            ("api=0", "the limit is 0: it must be at least 1"),
            ("api:0", "the weight is 0"),
            ("api=4294967296", "limit is a whole number from 1 to 4294967295, not 4294967296"),
            ("api=4:4294967296", "weight is a whole number from 1 to 4294967295, not 4294967296"),
            ("api=4:5", "a weight of 5 exceeds the limit of 4"),
            ("a\nb=4", "control character"),
            ("api=4@", "the lane is empty"),
            ("api:1@x=0", "a share of 0 is out of range: 1 to 1000"),
            ("api:1@x=1001", "a share of 1001 is out of range: 1 to 1000"),
            ("api:1@x=many", "share is a whole number from 1 to 1000"),
            ("api=4:5@x", "a weight of 5 exceeds the limit of 4"),
        ] {
            let error = also(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
