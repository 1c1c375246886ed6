//! The contents of a semaphore's five keys, read back into the model's state: the inverse of the Lua's
//! encoding, written independently of it. All that does not parse exactly is an error, so that a number that
//! went through a double's text form, or a key that is left over, is noticed.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use permits_core::model::{Entry, EntryState, Lane, LaneBounds, Lanes, Progress, Side, State};
use permits_core::protocol::{
    Alert, ChangeEffect, ChangeOrigin, ChangeRecord, Counts, Grant, Holder, Label, LaneName, LanePin,
    PermitTerms, RequestId, SessionId, SupersedeKey, Waits,
};
use permits_testkit::{Connection, Resp};

use super::packed;

/// The keys of one semaphore: their contents and their expiry.
pub(crate) struct Dump {
    /// `None` when no key exists.
    pub(crate) state: Option<State>,
    /// PEXPIRETIME of each key that exists (-1: never); `None` from a server older than 7.0.
    expiry: Vec<(String, Option<i64>)>,
}

impl Dump {
    /// Checks that each key expires when the model forgets the state, or never if an operator's change keeps
    /// it.
    pub(crate) fn check_expiry(&self) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        let wanted = if state.never_expires() { -1 } else { state.expires_ms.cast_signed() };
        match self.expiry.iter().find(|(_, at)| at.is_some_and(|at| at != wanted)) {
            Some((key, at)) => Err(format!("{key} expires at {at:?}, and should at {wanted}")),
            None => Ok(()),
        }
    }
}

/// Reads `keys` (state, queue, leases, free, lanes). An error names the fault.
pub(crate) fn read(connection: &mut Connection, keys: &[String; 5]) -> Result<Dump, String> {
    let [state, queue, leases, free, lanes] = keys;
    let mut asked: Vec<Vec<&str>> = vec![packed::reading_state(state), packed::reading_entries(state)];
    asked.extend([queue, leases, free, lanes].map(|key| vec!["ZRANGE", key, "0", "-1", "WITHSCORES"]));
    asked.extend(keys.iter().map(|key| vec!["PEXPIRETIME", key]));
    for command in &asked {
        connection.send(command).map_err(|error| format!("{command:?}: {error}"))?;
    }
    let mut replies = Vec::new();
    for command in &asked {
        replies.push(connection.receive().map_err(|error| format!("{command:?}: {error}"))?);
    }
    let pairs: Vec<Vec<(&str, &str)>> = replies[..6].iter().map(pairs).collect();
    let mut expiry = Vec::new();
    let without_entries = pairs.iter().take(1).chain(&pairs[2..]);
    for ((key, reply), pairs) in keys.iter().zip(&replies[6..]).zip(without_entries) {
        if !pairs.is_empty() {
            expiry.push((key.clone(), if let Resp::Int(at) = reply { Some(*at) } else { None }));
        }
    }
    let [state, entries, queue, leases, free, lanes] = &pairs[..] else { unreachable!("six were read") };
    let left = entries.len() + queue.len() + leases.len() + free.len() + lanes.len();
    let state = match (state.is_empty(), left) {
        (true, 0) => None,
        (true, left) => return Err(format!("no state, and {left} members left over in the other keys")),
        (false, _) => Some(decode(state, entries, queue, leases, free, lanes)?),
    };
    Ok(Dump { state, expiry })
}

fn pairs(reply: &Resp) -> Vec<(&str, &str)> {
    reply.array().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

type Pairs<'a> = [(&'a str, &'a str)];

pub(crate) fn decode(
    state: &Pairs<'_>,
    entries: &Pairs<'_>,
    queue: &Pairs<'_>,
    leases: &Pairs<'_>,
    free: &Pairs<'_>,
    lanes: &Pairs<'_>,
) -> Result<State, String> {
    let mut fields: BTreeMap<&str, &str> = state.iter().copied().collect();
    let mut text = |name: &str| fields.remove(name).ok_or_else(|| format!("the state has no {name:?}"));
    let server = text("server")?.to_owned();
    let changes = text("changes")?;
    let records = text("records")?;
    let by_key = decode_keys(text("keys")?)?;
    let limits = decode_limits(text("limits")?)?;
    let pins = text("pins")?;
    let reason: Arc<str> = text("reason")?.into();
    let paused: i64 = number(text("paused")?)?;
    let closed = (paused < 0).then_some(reason);
    let waits: Vec<u64> = text("waits")?.split(' ').map(number).collect::<Result<_, _>>()?;
    let &[total_us, ref numbers @ ..] = &waits[..] else { return Err("no waits".to_owned()) };
    let numbers: Vec<u32> = numbers.iter().filter_map(|number| u32::try_from(*number).ok()).collect();
    let numbers = numbers.try_into().map_err(|numbers| format!("the waits {numbers:?}"))?;
    let mut field = |name: &str| number::<u64>(text(name)?);
    let waiting = u32::try_from(field("alert_waiting")?).map_err(|error| error.to_string())?;
    let (pin, alert) = (field("pin")?, Alert::of(field("alert_wait")?, waiting));
    if pin / 2 % 2 != u64::from(alert.is_set()) || pin / 4 != check_pins(pins, &limits)? {
        return Err(format!("the pin {pin} with the alert {alert} and the pinned lanes {pins:?}"));
    }
    let decoded = State {
        limit: u32::try_from(field("limit")?).map_err(|error| error.to_string())?,
        limit_version: field("limit_version")?,
        pinned: flag(pin % 2)?,
        paused_until_ms: if paused < 0 { -1 - paused } else { paused }.unsigned_abs(),
        closed,
        alert,
        held: field("held")?,
        cooling: field("cooling")?,
        last_token: field("last_token")?,
        last_ticket: field("last_ticket")?,
        slots_made: field("slots_made")?,
        sequence: field("sequence")?,
        server,
        checked_us: field("checked")?,
        era_known: field("era_known")?,
        era_began_us: field("era_began")?,
        recovering_until_ms: field("recovering_until")?,
        lease_max_ms: field("lease_max")?,
        kept_until_ms: field("kept_until")?,
        expires_ms: field("expires")?,
        entries: decode_entries(entries, queue, leases)?,
        queue: queue
            .iter()
            .map(|(name, ticket)| Ok((number(ticket)?, holder(name)?)))
            .collect::<Result<_, String>>()?,
        lanes: Lanes::new(field("last_lane")?, decode_lanes(lanes, records, queue)?, limits),
        by_key,
        leases: leases
            .iter()
            .map(|(name, deadline)| Ok((number(deadline)?, holder(name)?)))
            .collect::<Result<_, String>>()?,
        free: free.iter().map(|(range, score)| decode_range(range, score)).collect::<Result<_, String>>()?,
        counts: Counts {
            grants: field("grants")?,
            refused: field("refused")?,
            expired: field("expired")?,
            revoked: field("revoked")?,
        },
        waits: Waits { total_us, numbers },
        changes: decode_changes(changes)?,
        damage: None,
    };
    check_counts(&mut fields, &decoded)?;
    check_earliest(fields.remove("earliest"), &decoded)?;
    check_cooling(fields.remove("cools_until"), &decoded)?;
    if fields.is_empty() { Ok(decoded) } else { Err(format!("unknown fields of the state: {fields:?}")) }
}

fn decode_entries(
    entries: &Pairs<'_>,
    queue: &Pairs<'_>,
    leases: &Pairs<'_>,
) -> Result<BTreeMap<Holder, Entry>, String> {
    let tickets: BTreeMap<&str, &str> = queue.iter().copied().collect();
    let deadlines: BTreeMap<&str, &str> = leases.iter().copied().collect();
    let decode = |(name, value): &(&str, &str)| {
        // The lane, the key and the label come last, because they may contain spaces.
        let words = if tickets.contains_key(name) { 12 } else { 14 };
        let mut parts: Vec<&str> = value.splitn(words, ' ').collect();
        let (lane, rest) = parts.pop().unwrap_or_default().split_once('\t').unwrap_or_default();
        let (key, label) = rest.split_once('\t').unwrap_or_default();
        let (request, session, weight, numbers, place) = match (&parts[..], tickets.get(name)) {
            (
                &[request, session, weight, lease, version, at_least, keep, share, limit, floor, queued],
                Some(ticket),
            ) => {
                let place = EntryState::Waiting(number(ticket)?);
                let numbers = [lease, version, at_least, keep, share, queued, limit, floor];
                (request, session, weight, numbers, place)
            }
            (
                &[
                    request,
                    session,
                    weight,
                    lease,
                    version,
                    at_least,
                    keep,
                    share,
                    limit,
                    floor,
                    queued,
                    token,
                    slot,
                ],
                None,
            ) => {
                let grant = Grant { token: number(token)?, slot: number(slot)? };
                let cools = holder(name)?.is_cooling();
                let place = if cools { EntryState::Cooling(grant) } else { EntryState::Holding(grant) };
                let numbers = [lease, version, at_least, keep, share, queued, limit, floor];
                (request, session, weight, numbers, place)
            }
            (_, ticket) => return Err(format!("the entry {name:?} {value:?} with the ticket {ticket:?}")),
        };
        let deadline = deadlines.get(name).ok_or_else(|| format!("the entry {name:?} without a lease"))?;
        let entry = Entry {
            request: id(request)?,
            session: SessionId::new(session).map_err(|error| format!("{session:?}: {error}"))?,
            terms: PermitTerms {
                weight: number(weight)?,
                lease_ms: number(numbers[0])?,
                at_least_ms: number(numbers[2])?,
                label: Label::new(label).map_err(|error| format!("{label:?}: {error}"))?,
                keep: flag(number(numbers[3])?)?,
                lane: LaneName::new(lane).map_err(|error| format!("{lane:?}: {error}"))?,
                share: number(numbers[4])?,
                lane_limit: number(numbers[6])?,
                lane_floor: number(numbers[7])?,
                supersede: SupersedeKey::new(key).map_err(|error| format!("{key:?}: {error}"))?,
            },
            lease_version: number(numbers[1])?,
            deadline: number(deadline)?,
            place,
            queued_us: number(numbers[5])?,
        };
        Ok((holder(name)?, entry))
    };
    entries.iter().map(decode).collect()
}

/// Reads the holders that wait with a supersede key, one in each line.
fn decode_keys(text: &str) -> Result<BTreeMap<SupersedeKey, Holder>, String> {
    let decode = |line: &str| {
        let (key, name) = line.split_once('\t').ok_or_else(|| format!("the key {line:?}"))?;
        Ok((SupersedeKey::new(key).map_err(|error| format!("{key:?}: {error}"))?, holder(name)?))
    };
    text.lines().map(decode).collect()
}

/// The limits and floors of lanes, with what they hold: one in each line.
fn decode_limits(text: &str) -> Result<BTreeMap<LaneName, LaneBounds>, String> {
    let decode = |line: &str| {
        let words: Vec<&str> = line.splitn(5, '\t').collect();
        let &[limit, floor, held, pinned, name] = &words[..] else {
            return Err(format!("the limit {line:?}"));
        };
        let pinned = flag(number(pinned)?)?;
        let name = lane(name)?;
        Ok((name, LaneBounds { limit: number(limit)?, floor: number(floor)?, held: number(held)?, pinned }))
    };
    text.lines().map(decode).collect()
}

/// Checks that the stored names of pinned lanes are the names of the lanes whose bounds are pinned. Returns
/// their number.
fn check_pins(pins: &str, limits: &BTreeMap<LaneName, LaneBounds>) -> Result<u64, String> {
    let mut named: Vec<&str> = pins.lines().collect();
    named.sort_unstable();
    let pinned = limits.iter().filter(|(_, bounds)| bounds.pinned);
    let pinned: Vec<&str> = pinned.map(|(name, _)| name.as_str()).collect();
    if named == pinned {
        Ok(named.len() as u64)
    } else {
        Err(format!("{named:?} are named, and {pinned:?} pinned"))
    }
}

/// The lanes by their progress, and their records as the state has them: one in each line.
fn decode_lanes(
    lanes: &Pairs<'_>,
    records: &str,
    queue: &Pairs<'_>,
) -> Result<BTreeMap<LaneName, Lane>, String> {
    let mut records: BTreeMap<&str, ([u64; 3], f64)> = records
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.splitn(5, '\t').collect();
            let &[lane, next, waiting, other, name] = &words[..] else {
                return Err(format!("the lane {line:?}"));
            };
            Ok((name, ([number(lane)?, number(next)?, number(waiting)?], number(other)?)))
        })
        .collect::<Result<_, String>>()?;
    let waiting: Vec<&str> = records.keys().copied().collect();
    let waits = |name: &str| waiting.contains(&name);
    let mut decode = |(member, score): &(&str, &str)| {
        let progress: f64 = number(score)?;
        let (name, lane) = match member.strip_prefix('-') {
            // The member of an earlier debt has no meaning while the lane waits.
            Some(name) if progress < 0.0 && waits(name) => return Ok(None),
            Some(name) if progress < 0.0 => (name, Lane::Owes { until: Progress(-progress) }),
            None if progress > 0.0 && member.is_char_boundary(6) => {
                let power = 2_f64.powi(600);
                let (side, progress) = match progress {
                    full if full >= power => (Side::Full, full / power),
                    short if short < 1.0 => (Side::Short, short * power),
                    fair => (Side::Fair, fair),
                };
                let (digits, name) = member.split_at(6);
                let found = records.remove(name);
                let ([lane, next, waiting], other) = found.unwrap_or_default();
                let tickets = queue.iter().map(|(_, ticket)| number::<u64>(ticket));
                let tickets = tickets.collect::<Result<Vec<_>, String>>()?;
                let is_of_lane = |ticket: &&u64| {
                    if name.is_empty() { **ticket >= 1 << 50 } else { **ticket >> 32 == lane }
                };
                if lane != number::<u64>(digits.trim_start_matches('0'))?
                    || waiting != tickets.iter().filter(is_of_lane).count() as u64
                {
                    return Err(format!("the lane {member:?}, and the state has {found:?}"));
                }
                let [progress, other] = [progress, other].map(Progress);
                (name, Lane::Waits { number: lane, progress, next, side, other })
            }
            _ => return Err(format!("the lane {member:?} with the score {score}")),
        };
        Ok(Some((LaneName::new(name).map_err(|error| format!("{name:?}: {error}"))?, lane)))
    };
    let known = lanes.iter().filter_map(|lane| decode(lane).transpose()).collect::<Result<_, String>>()?;
    if records.is_empty() {
        Ok(known)
    } else {
        Err(format!("records of lanes that do not wait: {records:?}"))
    }
}

/// The remembered changes, one in each line.
fn decode_changes(text: &str) -> Result<Vec<ChangeRecord>, String> {
    let change = |line: &str| {
        let malformed = || format!("the change {line:?}");
        let [request, at, rest @ ..] = &line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(malformed());
        };
        let (effect, by) = match *rest {
            ["limit", "limit", limit, version, "", by] => {
                (ChangeEffect::Limit { limit: number(limit)?, version: number(version)? }, by)
            }
            ["limit", "unpin", limit, version, "", by] => {
                (ChangeEffect::Unpin { limit: number(limit)?, version: number(version)? }, by)
            }
            ["pause", "pause", until, "", reason, by] => {
                (ChangeEffect::Pause { until_ms: number(until)?, reason: reason.into() }, by)
            }
            ["pause", "resume", "", "", "", by] => (ChangeEffect::Resume, by),
            ["line", "close", "", "", reason, by] => (ChangeEffect::Close(reason.into()), by),
            ["line", "open", "", "", "", by] => (ChangeEffect::Open, by),
            ["alert", "set", wait_ms, waiting, "", by] => {
                (ChangeEffect::Alert(Alert::of(number(wait_ms)?, number(waiting)?)), by)
            }
            ["lane", "pin", bounds, name, "", by] => {
                let (limit, floor) = bounds.split_once(' ').ok_or_else(malformed)?;
                let pin = LanePin { limit: number(limit)?, floor: number(floor)? };
                (ChangeEffect::Lane { lane: lane(name)?, pin: Some(pin) }, by)
            }
            ["lane", "unpin", "", name, "", by] => (ChangeEffect::Lane { lane: lane(name)?, pin: None }, by),
            ["revoke", "revoke", was, name, reason, by] => {
                let waited = was == "waiting";
                (ChangeEffect::Revoke { holder: holder(name)?, waited, reason: reason.into() }, by)
            }
            _ => return Err(malformed()),
        };
        let by = Label::new(by).map_err(|error| format!("{by:?}: {error}"))?;
        Ok(ChangeRecord { origin: ChangeOrigin { request: id(request)?, by }, at_us: number(at)?, effect })
    };
    text.lines().map(change).collect()
}

/// Checks the counts that only the Lua keeps.
fn check_counts(fields: &mut BTreeMap<&str, &str>, state: &State) -> Result<(), String> {
    let waiting = state.queue.len();
    let holders = state.entries.len() - waiting.min(state.entries.len());
    let lanes = state.lanes.known().values().filter(|lane| matches!(lane, Lane::Waits { .. })).count();
    let bounded = state.lanes.bounded().len();
    for (name, wanted) in
        [("holders", holders), ("waiting", waiting), ("lanes", lanes), ("bounded_lanes", bounded)]
    {
        let found = fields.remove(name).ok_or_else(|| format!("the state has no {name:?}"))?;
        if number::<usize>(found)? != wanted {
            return Err(format!("{found} {name} are counted, and there are {wanted}"));
        }
    }
    Ok(())
}

/// Checks that no unit cools beyond `cools_until`: the Lua looks for such units only before.
fn check_cooling(cools_until: Option<&str>, state: &State) -> Result<(), String> {
    let cools_until: i64 = number(cools_until.ok_or("the state has no \"cools_until\"")?)?;
    match state.leases.iter().find(|(deadline, holder)| holder.is_cooling() && *deadline > cools_until) {
        Some(lease) => Err(format!("{lease:?} cools beyond {cools_until}")),
        None => Ok(()),
    }
}

/// Checks that no lease ends before `earliest`: the Lua reaps only from then on.
fn check_earliest(earliest: Option<&str>, state: &State) -> Result<(), String> {
    let earliest: u64 = match earliest {
        Some("inf") => u64::MAX,
        Some(other) => number(other)?,
        None => return Err("the state has no \"earliest\"".to_owned()),
    };
    match state.leases.iter().find(|(deadline, _)| deadline.unsigned_abs() < earliest) {
        Some(lease) => Err(format!("the lease {lease:?} ends before the earliest, {earliest}")),
        None => Ok(()),
    }
}

/// `first-last` or, if they are one, `first`; with the score `first`.
fn decode_range(range: &str, score: &str) -> Result<(u64, u64), String> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    if first != score {
        return Err(format!("the range {range:?} with the score {score}"));
    }
    Ok((number(first)?, number(last)?))
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a plain number"))
}

fn flag(number: u64) -> Result<bool, String> {
    if number < 2 { Ok(number == 1) } else { Err(format!("{number} is not a flag")) }
}

fn holder(text: &str) -> Result<Holder, String> {
    let (name, token) = text.split_once('\t').map_or((text, None), |(name, token)| (name, Some(token)));
    let holder = Holder::new(name).map_err(|error| format!("{text:?}: {error}"))?;
    token.map_or(Ok(holder.clone()), |token| Ok(holder.cooling(number(token)?)))
}

fn lane(text: &str) -> Result<LaneName, String> {
    LaneName::new(text).map_err(|error| format!("{text:?}: {error}"))
}

fn id(text: &str) -> Result<RequestId, String> {
    RequestId::new(text).map_err(|error| format!("{text:?}: {error}"))
}
