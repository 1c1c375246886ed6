"""Types of arguments and results."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Optional, TypedDict, TypeVar, Union, overload

_T = TypeVar("_T")

Seconds = Union[float, timedelta]
"""A time: seconds, or a `timedelta`."""

Recovery = Literal["off", "interval", "strict"]
"""How a store recovers after a restart or failover that may have lost state."""


class AcquireOptions(TypedDict, total=False):
    """The options of `Semaphore.acquire`. One that is absent or `None` has its default."""

    weight: int
    """The number of units; 1 unless set."""
    timeout: Optional[Seconds]
    """The longest wait. `TimeoutError` is raised after it, a `StoreError` if the store does not answer then. With 0 it
    does not wait, and raises `NoPermitsError` unless it is granted now: a `CoolingError` if it is known when. Without one,
    it waits without end."""
    holder: Optional[str]
    """Its name, of which there is at most one in the semaphore. Unique unless set."""
    label: Optional[str]
    """A note for operators, shown beside the holder; that of the client unless set."""
    lane: Optional[str]
    """A tenant, a user, a kind of work. Its requests keep their order, and lanes that wait get units in proportion to their
    shares."""
    share: Optional[int]
    """The share of the lane, 1 to 1,000, the same in all its requests; 1 unless set."""
    lease: Optional[Seconds]
    """The time for which it is valid without renewal; the client's unless set."""
    at_least: Optional[Seconds]
    """The time for which the grant counts, also if it is released earlier."""
    max_hold: Optional[Seconds]
    """The longest time for which it is held. Then it is lost."""
    auto_renew: bool
    """`False` leaves the renewal to `Permit.renew`."""
    supersede: str
    """A key. Of the requests that wait with it the newest stays, in the place of the one before it, which gets a
    `SupersededError`."""


class PermitStatus(Enum):
    """The status of a permit."""

    HELD = "held"
    """Held, and renewed as planned."""
    UNSURE = "unsure"
    """Held, but the last renewal failed: it will be lost at its deadline unless one succeeds."""
    LOST = "lost"
    """No longer held."""
    RELEASED = "released"
    """Released, or handed over."""


@dataclass(frozen=True)
class HolderInfo:
    """A holder, in an `Inspection`."""

    holder: str
    weight: int
    slot: int
    token: int
    lease_remaining: float
    """The rest of its lease in seconds; if it cools, the time until its units are free."""
    cooling: bool
    """True if the holder has gone, and its grant still counts: see `at_least`."""
    may_be_kept: bool
    """True if its client may keep it without using it: see `keep`. False while requests wait."""
    age: float
    """The seconds since its grant, by the store's clock."""
    label: str | None
    lane: str | None


@dataclass(frozen=True)
class WaiterInfo:
    """A waiter, in an `Inspection`."""

    holder: str
    weight: int
    position: int
    """The number of waiters before it."""
    age: float
    """The seconds since it was queued, by the store's clock."""
    label: str | None
    lane: str | None


@dataclass(frozen=True)
class LaneInfo:
    """A lane, in an `Inspection`."""

    lane: str | None
    """Its name; `None` for the lane of the requests that name none."""
    waiting: int
    """The number of its waiters."""
    held: int
    """The units that its listed holders hold."""


@dataclass(frozen=True)
class ChangeInfo:
    """A change by an operator, in an `Inspection`."""

    change: Literal["limit_set", "unpinned", "paused", "resumed", "line_closed", "line_opened", "revoked"]
    by: str
    """The label of the client that made it, else its host name and process id."""
    at: float
    """The time of the change, in seconds since 1970, by the store's clock."""
    age: float
    """The seconds since then, by the store's clock."""
    limit: int | None
    """The limit that was set."""
    holder: str | None
    """The holder or waiter that was revoked."""
    reason: str | None
    """The reason of a pause, a closed line or a revocation, possibly empty."""


@dataclass(frozen=True)
class Waits:
    """The waits of requests that were granted out of the line, since the store has the semaphore."""

    total_us: int
    """Their sum, in microseconds."""
    numbers: tuple[int, ...]
    """How many took at most 0.01, 0.1, 1, 10 and 100 seconds, and more than the bound before; and how many took longer."""


@dataclass(frozen=True)
class Inspection:
    """The state of a semaphore."""

    name: str
    limit: int | None
    """`None` if none is stored."""
    limit_version: int
    """Rises with every change of the limit or its pin."""
    pinned: bool
    paused: bool
    pause_remaining: float | None
    """The seconds until the pause ends by itself; `None` if it has no end, or the semaphore is not paused."""
    pause_reason: str | None
    """The reason of the pause, possibly empty; `None` if it is not paused."""
    closed: str | None
    """The reason for which the line is closed; `None` if it is open."""
    held: int
    """The held units."""
    cooling: int
    """Those of the held units whose holders have gone, and that stay taken: see `at_least`."""
    waiting: int
    """The number of waiters."""
    recovering: float
    """The seconds for which the store still grants no free units after a restart."""
    grants: int
    """Permits granted since the store has the semaphore. It and the other three begin again at 0 when the store forgets it."""
    refused: int
    """Requests refused since then."""
    expired: int
    """Holders and waiters whose lease has ended since then."""
    revoked: int
    """Holders and waiters that operators have revoked since then."""
    waits: Waits
    """The waits of requests that were granted out of the line."""
    holders: tuple[HolderInfo, ...]
    """The first holders, by the end of their leases."""
    waiters: tuple[WaiterInfo, ...]
    """The first waiters, in order; with lanes, in the order that equal shares give."""
    lanes: tuple[LaneInfo, ...]
    """The lanes of waiters and of the listed holders: up to 32, those with the most waiters first. Empty if none is named."""
    changes: tuple[ChangeInfo, ...]
    """The last changes by operators, the newest first: at most 32, and of each kind at least the last one."""


@dataclass(frozen=True)
class Finding:
    """A finding, in a `Diagnosis`."""

    subject: str
    severity: Literal["fine", "note", "problem"]
    observed: str
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """The state of a store."""

    store: str
    """Its address, without any password."""
    findings: tuple[Finding, ...]
    is_healthy: bool
    """True if no finding is a problem."""


def inspection(text: str) -> Inspection:
    """The inspection of the JSON that the native half returns."""
    found = json.loads(text)
    rows = ("holders", HolderInfo), ("waiters", WaiterInfo), ("lanes", LaneInfo), ("changes", ChangeInfo)
    for name, row in rows:
        found[name] = tuple(_of_json(row, fields) for fields in found[name])
    found["waits"] = Waits(found["waits"]["total_us"], tuple(found["waits"]["numbers"]))
    return _of_json(Inspection, found)


def _of_json(kind: type[_T], found: Mapping[str, Any]) -> _T:
    """An object whose fields are found by name, or, if they are times, as milliseconds."""
    times = {name[:-3]: None if time is None else time / 1000 for name, time in found.items() if name.endswith("_ms")}
    fields = {**found, **times}
    return kind(**{name: fields[name] for name in kind.__annotations__})


def diagnosis(fields: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis of the fields that the native half returns."""
    values = dict(fields)
    values["findings"] = tuple(Finding(**finding) for finding in fields["findings"])
    return Diagnosis(**values)


@overload
def seconds(time: Seconds) -> float: ...
@overload
def seconds(time: None) -> None: ...
@overload
def seconds(time: Seconds | None) -> float | None: ...
def seconds(time: Seconds | None) -> float | None:
    """A time in seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else time


def request(options: AcquireOptions) -> str | None:
    """The options of an acquisition as JSON for the native half, which checks them."""
    given: dict[str, object] = dict(options)
    if given.get("timeout") == math.inf:
        del given["timeout"]
    return json.dumps({name: _plain(value) for name, value in given.items()}, default=_number) if given else None


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    # JSON has no other numbers.
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> object:
    """A number of another type, such as those of numpy. What is none becomes a value that is refused."""
    for convert in (operator.index, float):
        try:
            return convert(value)
        except (TypeError, ValueError):
            pass
    return []
