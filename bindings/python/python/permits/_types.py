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
    auto_renew: Optional[bool]
    """`False` leaves the renewal to `Permit.renew`."""
    supersede: Optional[str]
    """A key. Of the requests that wait with it the newest stays, in the place of the one before it, which gets a
    `SupersededError`."""


class ConnectOptions(TypedDict, total=False):
    """The settings of `connect`. One that is absent or `None` has its default."""

    prefix: Optional[str]
    """The first part of every key; `permits` unless set."""
    label: Optional[str]
    """The label of acquisitions that have none of their own, and the author of this client's changes. Unless set, the label
    is the name of the program, and the author its host name and process id. An empty label is none."""
    lease: Optional[Seconds]
    """The time for which a permit is valid without renewal: 100 ms to 1 day, 15 s unless set."""
    keep: Optional[Seconds]
    """The time for which semaphores keep permits that were released, as in `Client.semaphore`; 0 unless set."""
    recovery: Optional[Recovery]
    """How the store recovers after a restart that may have lost state; `"interval"` unless the URL says."""
    max_waiters: Optional[int]
    """The longest line of a semaphore; 100,000 unless set, and 10,000 at most with `local:`."""
    replicas: Optional[int]
    """The number of replicas that must have a grant before it is reported; 0 unless set."""
    store_timeout: Optional[Seconds]
    """The time for which the store may be unreachable before operations fail; 30 s unless set."""


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
    """Its address, without any password."""
    findings: Tuple[Finding, ...]
    is_healthy: bool
    """True if no finding is a problem."""


@dataclass(frozen=True)
class Changed:
    """The result of a change: the limit and its version are those after a change of the limit."""

    found: bool
    limit: int
    limit_version: int


def made(kind: type[_T], text: str) -> _T:
    """The object of the JSON that the native half returns."""
    return cast(_T, _made(kind, json.loads(text)))


def _made(kind: Any, found: Any) -> Any:
    """The value of a type: a dataclass by its fields, a tuple by its items. A time in milliseconds becomes seconds."""
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


def to_json(given: Mapping[str, object]) -> str:
    """Arguments as JSON for the native half, which checks them."""
    return json.dumps({name: _plain(name, value) for name, value in given.items()}, ensure_ascii=False)


def number(name: str, value: object) -> str:
    """A number as JSON for the native half, which checks it."""
    return json.dumps(_plain(name, value), ensure_ascii=False)


def _plain(name: str, value: Any) -> object:
    """A value that JSON has. Numbers may be of other types, such as those of numpy."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    for convert in (operator.index, float):
        try:
            found = convert(value)
        except (TypeError, ValueError):
            continue
        if abs(found) <= sys.float_info.max:
            return found
        raise InvalidInputError(f"{name} is a finite number, not {value!r:.40}")
    # To be refused.
    return []
