"""Types of arguments and results."""

from __future__ import annotations

import functools
import json
import math
import operator
import sys
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import (
    Any,
    Literal,
    Optional,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import InvalidInputError

_T = TypeVar("_T")

Seconds = Union[float, timedelta]
"""A time: seconds, or a `timedelta`."""

Recovery = Literal["off", "interval", "strict"]
"""How a store recovers after a restart or failover that may have lost state."""


class AcquireOptions(TypedDict, total=False):
    """The options of `Semaphore.acquire`. One that is absent or `None` has its default."""

    weight: Optional[int]
    """The number of units: at least 1, at most the limit. 1 unless set."""
    timeout: Optional[Seconds]
    """The longest wait in line; without limit unless set. With 0 the request does not wait: it is granted now, or
    refused."""
    holder: Optional[str]
    """The name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit of a semaphore:
    while it holds or waits, a second request with its name is refused. Unique unless set."""
    label: Optional[str]
    """A note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders may have the
    same label. The client's unless set; an empty label means no label."""
    lane: Optional[str]
    """A lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests of one lane are
    granted in the order in which they came. Lanes that wait get units in proportion to their shares, so a thousand
    requests of one tenant do not stand before the first of another. Requests without a lane are one lane together."""
    share: Optional[int]
    """The share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets ten times the
    units of one with the share 1. Use the same share for all requests of a lane."""
    lane_limit: Optional[int]
    """The most units that the requests of the lane hold together, at least 1; without limit unless set. While a lane is
    at its limit, its requests wait, and requests of other lanes pass them. Use the same limit for all requests of a
    lane: the latest counts."""
    lane_floor: Optional[int]
    """The units up to which the lane is served before others, at most the limits of the lane and of the semaphore.
    Unless you set it, or with 0, the request names no floor. While the lane holds fewer, it gets the next units. Use
    the same floor for all requests of a lane: the latest counts."""
    lane_waiters: Optional[int]
    """The most requests of the lane that wait, this one included, at least 1; without bound unless set. The next one is
    refused, so one tenant cannot fill the line for all."""
    lease: Optional[Seconds]
    """The lease: how long a permit, or a place in line, stays valid if your process dies and nothing renews it. 100 ms
    to 1 day; the client's unless set."""
    at_least: Optional[Seconds]
    """The time for which the grant counts, up to 1 day; 0 unless set. If the permit is released or lost earlier, its
    units *cool*: they stay taken until that time has passed since the grant. For example, a limit of 100 and one minute
    admit at most 100 in any minute."""
    max_hold: Optional[Seconds]
    """The longest time for which the permit is held, at least 100 ms; without limit unless set. The permit is lost
    then, even if it is renewed: for work that may hang."""
    auto_renew: Optional[bool]
    """Whether the client renews the permit in the background: `True` unless set. If `False`, the permit ends with its
    lease unless your program renews it. A request that waits is always renewed."""
    supersede: Optional[str]
    """A key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each key: a new request
    takes the place of the one that waits, which is refused. A permit with the key stays held. The request must wait:
    use a timeout above 0, or no timeout."""


class ConnectOptions(TypedDict, total=False):
    """The settings of `connect`. One that is absent or `None` has its default."""

    prefix: Optional[str]
    """The first part of every key: 1 to 64 printable ASCII characters without braces and spaces. `permits` unless set.
    Sessions with different prefixes don't see each other's semaphores."""
    label: Optional[str]
    """The label of acquisitions that have no label of their own, and the author of this client's changes: at most 120
    bytes of printable UTF-8. The file name of the program unless set, and as the author its host name and process id.
    An empty label means no label."""
    lease: Optional[Seconds]
    """The time for which a permit is valid without renewal: 100 ms to 1 day, 15 s unless set. It is also the time until
    the units of a crashed holder are free, and until a disconnected holder loses its permit."""
    keep: Optional[Seconds]
    """The time for which the client keeps a released permit for its next request while nobody else waits, so that this
    request needs no round trip: at most a third of the lease. 0 unless set, which keeps no permit. A semaphore can say
    otherwise."""
    recovery: Optional[Recovery]
    """How long a server grants nothing after a start, since it may have forgotten holders: not at all with `off`, long
    enough for connected holders to reconnect with `interval`, for the longest lease with `strict`. As the URL says
    (`?recovery=…`) unless set, else `interval`."""
    max_waiters: Optional[int]
    """The longest line of a semaphore, beyond which more requests are refused: 100,000 unless set. With `local:` it is
    10,000, and connecting fails if you ask for more."""
    replicas: Optional[int]
    """The number of replicas of the server that must have a grant before it is reported: 0 unless set."""
    store_timeout: Optional[Seconds]
    """The time for which the store may be unreachable before operations that need it fail: 30 s unless set. Permits
    that are held are not affected: they last until their deadlines."""


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
    """The address of the store, without any password."""
    findings: Tuple[Finding, ...]
    is_healthy: bool
    """True if no finding is a problem."""


@dataclass(frozen=True)
class Changed:
    """The result of a change. After a change of the limit it has the new limit and its version."""

    found: bool
    limit: int
    limit_version: int


def made(kind: type[_T], text: str) -> _T:
    """Makes an object from the JSON that the native half returns."""
    return cast(_T, _made(kind, json.loads(text)))


def _made(kind: Any, found: Any) -> Any:
    """Makes a value of a type: a dataclass from its fields, a tuple from its items. Milliseconds become seconds."""
    fields = _fields(kind)
    if fields:
        values = {name: _made(kind, found[name]) for name, kind in fields.items() if name in found}
        times = {name: found[f"{name}_ms"] for name in fields if name not in found}
        return kind(**values, **{name: time if time is None else time / 1000 for name, time in times.items()})
    if get_origin(kind) is tuple:
        item, _ = get_args(kind)
        return tuple(_made(item, one) for one in found)
    return found


@functools.lru_cache(maxsize=None)
def _fields(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind) if is_dataclass(kind) else {}


def seconds(time: Seconds | None) -> float | None:
    """A time in seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else time


def request(options: AcquireOptions) -> str | None:
    """The options of an acquisition as JSON for the native half, which checks them."""
    if not isinstance(options, Mapping):
        raise TypeError(f"the options of a request are a dict, not {options!r}")
    given: dict[str, object] = dict(options)
    if given.get("timeout") == math.inf:
        del given["timeout"]
    return to_json(given) if given else None


def text(name: str, value: object) -> str:
    """A string argument of the native half, whose own error does not name the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {value!r}")
    return value


def to_json(given: Mapping[str, object]) -> str:
    """Arguments as JSON for the native half, which checks them."""
    return json.dumps({name: _plain(name, value) for name, value in given.items()}, ensure_ascii=False)


def number(name: str, value: object) -> str:
    """A number as JSON for the native half, which checks it."""
    return json.dumps(_plain(name, value), ensure_ascii=False)


def _plain(name: str, value: Any) -> object:
    """Turns a value into one that JSON has. Numbers may be of other types, for example from numpy."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    # Python makes a number of bytes, too.
    for convert in () if isinstance(value, (bytes, bytearray, memoryview)) else (operator.index, float):
        try:
            found = convert(value)
        except (TypeError, ValueError):
            continue
        if abs(found) <= sys.float_info.max:
            return found
        shown = found if isinstance(found, float) else "one of so many digits"
        raise InvalidInputError(f"{name} is a finite number, not {shown}")
    # The native half refuses a list.
    return []
