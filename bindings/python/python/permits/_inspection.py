"""Made of docs/reference/status.schema.json: the test `inspections` of permits-testkit writes it."""

from dataclasses import dataclass
from typing import Literal, Optional, Tuple


@dataclass(frozen=True)
class Alert:
    """The thresholds, set by an operator, beyond which the semaphore needs a look."""

    wait: Optional[float]
    """The longest wait that needs no look, in seconds, 1 ms to 366 days. None unless set."""
    waiting: Optional[int]
    """The most waiters that need no look, at least 1. None unless set."""


@dataclass(frozen=True)
class Waits:
    """The waits of requests that were granted out of the line."""

    total_us: int
    """The sum of all waits, in microseconds."""
    numbers: Tuple[int, ...]
    """The number of waits of at most 0.01, 0.1, 1, 10 and 100 s, and of longer ones. Each wait counts
    once, at the lowest bound that it does not exceed. After 4,294,967,295 a number begins again at 0."""


@dataclass(frozen=True)
class HolderInfo:
    """A holder."""

    holder: str
    """The name of the holder."""
    weight: int
    """The number of units."""
    slot: int
    """The slot."""
    token: int
    """The fencing token."""
    lease_remaining: float
    """The rest of the lease, in seconds; for a grant that cools, the time until its units are free."""
    cooling: bool
    """True if the holder has gone, and its grant still counts: see `at_least`."""
    may_be_kept: bool
    """True if the client may keep the permit without using it; false while a request waits, and while the
    semaphore is paused, closed or recovering, or has a pinned lane."""
    age: float
    """The time since the grant, in seconds, by the store's clock."""
    label: Optional[str]
    """The label; `None` if there is none."""
    lane: Optional[str]
    """The lane of the request; `None` if it names no lane."""


@dataclass(frozen=True)
class WaiterInfo:
    """A waiter."""

    holder: str
    """The name of the waiter."""
    weight: int
    """The units that it asks for."""
    position: int
    """The number of waiters before it."""
    age: float
    """The time since it was queued, in seconds, by the store's clock."""
    label: Optional[str]
    """The label; `None` if there is none."""
    lane: Optional[str]
    """The lane of the request; `None` if it names no lane."""


@dataclass(frozen=True)
class LaneInfo:
    """A lane."""

    lane: Optional[str]
    """The name of the lane; `None` for the requests that name no lane."""
    waiting: int
    """The number of waiters in the lane."""
    held: int
    """The units that the lane holds and that count for its limit and floor. Without these, the units of
    its listed holders."""
    limit: Optional[int]
    """The most units that the lane may hold; `None` without a limit of its own."""
    floor: int
    """The units up to which the lane is served before others; 0 without a floor."""
    pinned: bool
    """True if an operator has set the limit and the floor, so that requests do not change them."""


@dataclass(frozen=True)
class ChangeInfo:
    """A change by an operator."""

    change: Literal["limit_set", "unpinned", "paused", "resumed", "line_closed", "line_opened", "alert_set", "alert_removed", "lane_pinned", "lane_unpinned", "revoked"]
    """The change."""
    by: str
    """The label of the client that made it, else its host name and process id."""
    text: str
    """The change as a text for people, such as: set the limit to 4."""
    at: float
    """The time of the change, in seconds since 1970, by the store's clock."""
    age: float
    """The time since the change, in seconds, by the store's clock."""
    limit: Optional[int]
    """The limit that was set; `None` for other changes."""
    holder: Optional[str]
    """The holder or waiter that was revoked; `None` for other changes."""
    reason: Optional[str]
    """The reason of a pause, a closed line or a revocation, possibly empty; `None` for other changes."""


@dataclass(frozen=True)
class Inspection:
    """The state of a semaphore."""

    name: str
    """The name of the semaphore."""
    limit: Optional[int]
    """The number of units that may be held at once; `None` if no limit is stored."""
    limit_version: int
    """The version of the limit: rises with every change of the limit or its pin."""
    pinned: bool
    """True if an operator has pinned the limit."""
    paused: bool
    """True if granting is stopped."""
    pause_remaining: Optional[float]
    """The time until the pause ends by itself, in seconds; `None` if it has no end, or the semaphore is
    not paused."""
    pause_reason: Optional[str]
    """The reason of the pause, possibly empty; `None` if the semaphore is not paused."""
    closed: Optional[str]
    """Why the line is closed, possibly empty; `None` if it is open."""
    alert: Alert
    """The thresholds, set by an operator, beyond which the semaphore needs a look."""
    held: int
    """The number of units that are taken: by holders, kept by a client, or cooling."""
    cooling: int
    """The units among `held` whose holders have left, but which stay taken: see `at_least`."""
    may_be_kept: int
    """The held units of the listed holders whose clients may keep them without using them: see `keep`."""
    waiting: int
    """The number of waiters."""
    oldest_holder_age: Optional[float]
    """The longest age of the listed holders that do not cool, in seconds; `None` if there is none."""
    oldest_waiter_age: Optional[float]
    """The longest age of the listed waiters, in seconds; `None` if there is no waiter."""
    recovering: float
    """The time for which the store still grants no free units after a restart, in seconds; 0 otherwise."""
    grants: int
    """The number of permits granted since the store has the semaphore. It and the other three begin again
    at 0 when the store forgets an idle semaphore, or loses its state."""
    refused: int
    """The number of requests refused since then: at their arrival, or later because of a lowered limit, a
    closed line, or a newer request with their supersede key."""
    expired: int
    """The number of holders and waiters whose lease has ended since then, for example because a program
    crashed."""
    revoked: int
    """The number of holders, waiters and cooling grants that operators have revoked since then."""
    waits: Waits
    """The waits of requests that were granted out of the line."""
    holders: Tuple[HolderInfo, ...]
    """The first 1,000 holders, by the end of their leases."""
    waiters: Tuple[WaiterInfo, ...]
    """The first 1,000 waiters, in order; of a line with lanes, in the order that equal shares give."""
    lanes: Tuple[LaneInfo, ...]
    """The lanes of the waiters and of the listed holders: up to 32, and all that are pinned; those with
    the most waiters first, then those with the most units. Empty if there is only the lane without a
    name."""
    changes: Tuple[ChangeInfo, ...]
    """The last changes by operators, the newest first: 32, those of the last minute up to 256, and of
    each kind (the limit, a pause, a closed line, the alert, lanes, a revocation) at least the last
    one."""
