//! The packed entry of a holder or waiter: `entries.lua` describes it. Commands carry it as the hash stores
//! it.
//!
//! A holder's name ends with the request by default, and a request begins with the session. The entry stores
//! such a text once, and its length in place of the copy. Equal entries have equal bytes, so a script
//! compares bytes to see that nothing has changed.

use super::layout::{BOUNDED, HOLDS, KEEPS, KEYED, LANED, LAYOUTS, TIMES};
use crate::protocol::{Grant, Holder, PermitTerms, RequestId, SessionId, layout};

/// The entry of a holder, which has a grant, or of a waiter.
pub(super) struct Entry<'a> {
    pub(super) request: &'a RequestId,
    pub(super) session: &'a SessionId,
    pub(super) terms: &'a PermitTerms,
    pub(super) lease_version: u32,
    pub(super) grant: Option<Grant>,
}

/// Packs the entry of `holder`.
pub(super) fn pack(holder: &Holder, entry: &Entry<'_>) -> Vec<u8> {
    let Entry { request, session, terms, lease_version, grant } = entry;
    let (request, session) = (request.as_str(), session.as_str());
    let request_is_known = holder.as_str().ends_with(request);
    let session_is_known = request.starts_with(session);
    let PermitTerms {
        weight,
        lease_ms,
        at_least_ms,
        label,
        keep,
        lane,
        share,
        lane_limit,
        lane_floor,
        supersede,
    } = terms;
    let [lease_ms, at_least_ms] = [*lease_ms, *at_least_ms]
        .map(|milliseconds| u32::try_from(milliseconds).expect("both are below 2^31"));
    let mut packed = Vec::with_capacity(32 + label.as_str().len());
    let is_keyed = terms.is_keyed();
    let has_times = at_least_ms > 0 || *lease_version > 0 || is_keyed;
    let is_laned = terms.is_laned();
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let flags = flag(has_times, TIMES) + flag(*keep, KEEPS) + flag(is_laned, LANED);
    packed.push(flag(grant.is_some(), HOLDS) + flags + LAYOUTS * layout());
    packed.extend(weight.to_le_bytes());
    packed.extend(lease_ms.to_le_bytes());
    for (id, is_known) in [(request, request_is_known), (session, session_is_known)] {
        packed.push(if is_known { u8::try_from(id.len()).expect("ids have at most 64 bytes") } else { 0 });
    }
    if has_times {
        packed.extend((at_least_ms + if is_keyed { KEYED } else { 0 }).to_le_bytes());
        packed.extend(lease_version.to_le_bytes());
    }
    if is_laned {
        let share = u16::try_from(*share).expect("it is at most 1,000");
        packed.extend((share + if terms.names_bounds() { BOUNDED } else { 0 }).to_le_bytes());
        // The script that queues it writes the time here.
        packed.extend(0_f64.to_le_bytes());
    }
    for (id, is_known) in [(request, request_is_known), (session, session_is_known)] {
        if !is_known {
            packed.extend(id.as_bytes());
            packed.push(0);
        }
    }
    if is_laned {
        packed.extend(lane.as_str().as_bytes());
        packed.push(0);
        if terms.names_bounds() {
            packed.extend(lane_limit.to_le_bytes());
            packed.extend(lane_floor.to_le_bytes());
        }
    }
    if is_keyed {
        packed.extend(supersede.as_str().as_bytes());
        packed.push(0);
    }
    packed.extend(label.as_str().as_bytes());
    if let Some(Grant { token, slot }) = *grant {
        packed.extend((token as f64).to_le_bytes());
        packed.extend(slot.to_le_bytes());
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Label;

    #[test]
    fn a_text_that_a_name_contains_is_not_stored_again() {
        for (holder, request, session, bytes) in [
            ("web/session.17", "session.17", "session", 11),
            ("session.17", "session.17", "session", 11),
            ("web", "session.17", "session", 11 + 11),
            ("web/session.17", "session.17", "other", 11 + 6),
            ("session.17/web", "session.17", "other", 11 + 11 + 6),
            ("7", "17", "7", 11 + 3 + 2),
        ] {
            let holder = Holder::new(holder).expect("it is valid");
            let request = RequestId::new(request).expect("it is plain");
            let session = SessionId::new(session).expect("it is plain");
            let grant = Some(Grant { token: 1 << 52, slot: u32::MAX });
            let times = [(0, 0), (9, 0), (0, 7), (9, 7)];
            let grants = [("", None), ("a note", grant)];
            let all = times.iter().flat_map(|times| grants.map(|(label, grant)| (label, grant, *times)));
            for (label, grant, (at_least_ms, lease_version)) in all {
                let label = Label::new(label).expect("it is valid");
                let terms = PermitTerms { at_least_ms, label, ..PermitTerms::new(3, 15_000) };
                let entry =
                    Entry { request: &request, session: &session, terms: &terms, lease_version, grant };
                let packed = pack(&holder, &entry);
                let more = terms.label.as_str().len()
                    + if grant.is_some() { 12 } else { 0 }
                    + if at_least_ms > 0 || lease_version > 0 { 8 } else { 0 };
                assert_eq!(packed.len(), bytes + more, "{holder}");
            }
        }
    }
}
