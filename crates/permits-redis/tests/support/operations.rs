//! Operations on the semaphore `exports`, by their holders: the request of a holder has its name as its id.

use permits_core::protocol::{
    AcquireRequest, AdoptRequest, Alert, Grant, Holder, Label, LaneName, LanePin, LimitChange, Name,
    Operation, OperationKind, Pause, PermitTerms, RenewRequest, RequestId, RequestKey, Setting,
};

pub(crate) fn id(text: &str) -> RequestId {
    RequestId::new(text).expect("it is plain")
}

pub(crate) fn name() -> Name {
    Name::new("exports").expect("it is valid")
}

pub(crate) fn holder(name: &str) -> Holder {
    Holder::new(name).expect("it is valid")
}

fn label() -> Label {
    Label::new("night %s").expect("it is valid")
}

pub(crate) fn acquire(holders: &[&str]) -> Operation {
    acquire_among(holders, 10)
}

pub(crate) fn acquire_among(holders: &[&str], queue_max: u32) -> Operation {
    Operation::Acquire { queue_max, requests: holders.iter().map(|name| request(name)).collect() }
}

/// A request that waits.
pub(crate) fn request(name: &str) -> AcquireRequest {
    let terms = PermitTerms { label: label(), ..PermitTerms::new(1, 3_000) };
    AcquireRequest::new(holder(name), id(name), terms)
}

/// A request of this weight that waits in a lane.
pub(crate) fn in_lane(name: &str, lane: &str, weight: u32) -> AcquireRequest {
    let mut request = request(name);
    request.terms.lane = LaneName::new(lane).expect("it is valid");
    request.terms.weight = weight;
    request
}

pub(crate) fn release(name: &str) -> Operation {
    release_all(&[name])
}

pub(crate) fn release_all(names: &[&str]) -> Operation {
    let release = |name: &&str| RequestKey { holder: holder(name), request: id(name) }.into();
    Operation::Release(names.iter().map(release).collect())
}

pub(crate) fn renew(name: &str, grant: Option<Grant>) -> Operation {
    Operation::Renew(vec![renewal(name, grant)])
}

pub(crate) fn renewal(name: &str, grant: Option<Grant>) -> RenewRequest {
    let terms = PermitTerms { label: label(), ..PermitTerms::new(1, 3_000) };
    RenewRequest::new(holder(name), id(name), terms, grant)
}

pub(crate) fn set(request: &str, setting: Setting) -> Operation {
    Operation::Set { origin: id(request).into(), setting }
}

pub(crate) fn change_limit(request: &str, change: LimitChange) -> Operation {
    set(request, Setting::Limit { change, expected_version: None })
}

pub(crate) fn pause(request: &str, paused: bool) -> Operation {
    set(request, Setting::Pause(paused.then(|| Pause { for_ms: None, reason: "".into() })))
}

pub(crate) fn close_line(request: &str, reason: Option<&str>) -> Operation {
    set(request, Setting::Line(reason.map(Into::into)))
}

/// Pins this limit and this floor of a lane, or lifts the pin.
pub(crate) fn pin(request: &str, lane: &str, bounds: Option<(u32, u32)>) -> Operation {
    let lane = LaneName::new(lane).expect("it is valid");
    let pin = bounds.map(|(limit, floor)| LanePin { limit, floor });
    set(request, Setting::Lane { lane, pin })
}

/// An operation of each kind, and each setting.
pub(crate) fn every_operation() -> Vec<Operation> {
    let operations = vec![
        acquire(&["new"]),
        release("a"),
        renew("c", None),
        Operation::Adopt(AdoptRequest {
            holder: holder("b"),
            request: id("b"),
            terms: PermitTerms::new(1, 3_000),
            grant: Grant { token: 1, slot: 0 },
            new_request: id("c"),
            last_token: None,
        }),
        change_limit("l3", LimitChange::Adjust(2)),
        pause("p1", true),
        close_line("c1", Some("moved")),
        set("a1", Setting::Alert(Alert::of(30_000, 100))),
        pin("i1", "lane", Some((2, 1))),
        Operation::Revoke { origin: id("r1").into(), holder: holder("a"), cooling: None, reason: "".into() },
        Operation::Delete { unreadable: false },
        Operation::Inspect { max: 10 },
    ];
    let mut kinds: Vec<_> = operations.iter().map(Operation::kind).collect();
    kinds.dedup();
    assert_eq!(kinds, OperationKind::ALL);
    operations
}
