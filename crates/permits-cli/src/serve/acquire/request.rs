//! The contents of a request: its headers, and its body, which has the fields of a line of
//! `permits hold --many`.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use permits::{AcquireOptions, PermitHandle};
use serde_json::Value;

use super::super::access::single;
use super::super::problem::Problem;
use super::refusal::{invalid, of_input};
use crate::acquire::LEASE;
use crate::fields::{Fields, Object};
use crate::handle::HANDLE_LEASE;
use crate::hold::One;

/// The longest wait in line. Proxies and clients end a request that has no reply for longer.
pub(in super::super) const MAX_WAIT: Duration = Duration::from_secs(60);

/// The longest wait unless the request says another one.
const WAIT: Duration = Duration::from_secs(30);

/// The longest `Idempotency-Key`, as the longest id of a line.
const MAX_KEY: usize = 64;

/// A request for a permit.
#[derive(Debug)]
pub(super) struct Wanted {
    /// As it was sent.
    pub(super) asked: One,
    pub(super) options: AcquireOptions,
    /// The lease of the handle.
    pub(super) lease: Duration,
}

impl Wanted {
    pub(super) fn read(body: &[u8], headers: &HeaderMap) -> Result<Self, Problem> {
        let fields = object(body, "{\"acquire\":NAME}")?;
        let time = |field: &str| {
            let time = fields.0.get(field).and_then(Value::as_f64);
            time.and_then(|time| Duration::try_from_secs_f64(time / 1_000.0).ok())
        };
        let (wait, lease) = (time("timeout_ms"), time("lease_ms").unwrap_or(HANDLE_LEASE));
        let max_hold = fields.0.get("max_hold_ms").is_some_and(|value| !value.is_null());
        let auto_renew = fields.0.get("auto_renew").is_some_and(|value| *value == Value::Bool(true));
        let asked = One::read(fields).map_err(invalid)?;
        if wait.is_some_and(|wait| wait > MAX_WAIT) {
            let most = MAX_WAIT.as_millis();
            return Err(invalid(format!(
                "\"timeout_ms\" is at most {most} over HTTP: ask again after a 429"
            )));
        }
        if max_hold || auto_renew {
            let field = if max_hold { "max_hold_ms" } else { "auto_renew" };
            let reason = "nothing watches a permit over HTTP, which ends with its \"lease_ms\"";
            return Err(invalid(format!("{field:?} is for a process: {reason}")));
        }
        let preferred = preferred_wait(headers);
        let wait = wait.into_iter().chain(preferred).min().unwrap_or(WAIT).min(MAX_WAIT);
        // A waiter whose server dies leaves the line when the short lease ends.
        let options = asked.options.clone().lease(lease.min(LEASE)).timeout(wait);
        Ok(Self { asked, options, lease })
    }
}

/// The handle of a renewal or a release. A release may have the units that its grant counts for.
pub(super) fn handle(body: &[u8], may_count: bool) -> Result<PermitHandle, Problem> {
    let mut fields = object(body, "{\"handle\":HANDLE}")?;
    let known: &[&str] = if may_count { &["handle", "count"] } else { &["handle"] };
    fields.check(known).map_err(invalid)?;
    let text = fields.text("handle").map_err(invalid)?;
    let mut handle: PermitHandle = text.parse().map_err(|error| of_input(&error))?;
    if let Some(units) = fields.number("count", 0).map_err(invalid)? {
        handle.count(units).map_err(|error| of_input(&error))?;
    }
    Ok(handle)
}

pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let key = single(headers, "idempotency-key".parse().expect("it is valid"))?;
    match key {
        Some(key) if !(1..=MAX_KEY).contains(&key.len()) => {
            let reason = format!("the header idempotency-key has 1 to {MAX_KEY} bytes, such as a UUID");
            Err(Problem::new(StatusCode::BAD_REQUEST, reason))
        }
        key => Ok(key.map(str::to_owned)),
    }
}

fn object(body: &[u8], example: &str) -> Result<Fields, Problem> {
    let malformed = |reason: String| Problem::new(StatusCode::BAD_REQUEST, reason);
    let Object { fields, twice } = Object::read(body, "the body", example).map_err(malformed)?;
    match twice {
        None => Ok(Fields(fields)),
        Some(twice) => Err(invalid(format!("{:?} is there twice", crate::text::truncate(&twice, 40)))),
    }
}

/// The seconds of `Prefer: wait=30` (RFC 7240). What is no such preference is ignored, as that RFC demands.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let preferences = values.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    let waits = preferences.filter_map(|one| {
        let (name, value) = one.split_once('=')?;
        let seconds = value.trim().trim_matches('"').parse::<u32>().ok()?;
        name.trim().eq_ignore_ascii_case("wait").then(|| Duration::from_secs(seconds.into()))
    });
    waits.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_the_shortest_of_what_is_said_and_60_s() {
        let wait = |body: &str, prefer: &[&str]| {
            let headers = prefer.iter().map(|value| {
                ("prefer".parse::<axum::http::HeaderName>().expect("valid"), value.parse().expect("valid"))
            });
            let wanted = Wanted::read(body.as_bytes(), &headers.collect()).expect("it is valid");
            let options = serde_json::to_value(wanted.options).expect("texts and numbers");
            options["timeout_ms"].as_u64().expect("it has one")
        };
        for (body, prefer, expected) in [
            (r#"{"acquire":"x"}"#, &[][..], 30_000),
            (r#"{"acquire":"x","timeout_ms":null}"#, &[], 30_000),
            (r#"{"acquire":"x","timeout_ms":60000}"#, &[], 60_000),
            (r#"{"acquire":"x","timeout_ms":0}"#, &["wait=5"], 0),
            (r#"{"acquire":"x"}"#, &["wait=5"], 5_000),
            (r#"{"acquire":"x"}"#, &["respond-async", "foo; bar, Wait=\"7\" ; x=y"], 7_000),
            (r#"{"acquire":"x"}"#, &["wait=100000"], 60_000),
            (r#"{"acquire":"x"}"#, &["wait=x, wait, wait=-1"], 30_000),
        ] {
            assert_eq!(wait(body, prefer), expected, "{body} {prefer:?}");
        }
    }

    #[test]
    fn a_waiter_has_a_short_lease_and_the_handle_its_own() {
        let wanted = |body: &str| Wanted::read(body.as_bytes(), &HeaderMap::new()).expect("it is valid");
        let lease =
            |wanted: &Wanted| serde_json::to_value(&wanted.options).expect("valid")["lease_ms"].clone();
        let long = wanted(r#"{"acquire":"x","lease_ms":60000}"#);
        assert_eq!((lease(&long), long.lease), (15_000.into(), Duration::from_secs(60)));
        let short = wanted(r#"{"acquire":"x","lease_ms":1500.5}"#);
        assert_eq!((lease(&short), short.lease), (1500.5.into(), Duration::from_micros(1_500_500)));
        let unset = wanted(r#"{"acquire":"x"}"#);
        assert_eq!((lease(&unset), unset.lease), (15_000.into(), HANDLE_LEASE));
    }
}
