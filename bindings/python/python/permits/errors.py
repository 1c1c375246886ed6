"""The exceptions, one class for each reason. All of them are a `PermitsError`.

A message says everything once: the error, and its causes after colons. The values in it are attributes, too.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ._inspection import Inspection

__all__ = [
    "AlreadyHeldError",
    "CancelledError",
    "ClosedError",
    "CoolingError",
    "LaneFullError",
    "DeniedError",
    "ExceedsLaneLimitError",
    "ExceedsLimitError",
    "ForkedError",
    "GoneError",
    "InUseError",
    "InvalidInputError",
    "LimitMismatchError",
    "LimitOutOfRangeError",
    "LineClosedError",
    "LostError",
    "MalformedError",
    "MismatchError",
    "NoAnswerError",
    "NoLimitError",
    "NoPermitsError",
    "NotNowError",
    "NotReleasedError",
    "NotReplicatedError",
    "OtherLayoutError",
    "OutOfMemoryError",
    "PausedError",
    "PermitsError",
    "QueueFullError",
    "RecoveringError",
    "RejectedError",
    "ReleasedError",
    "ResourceError",
    "RetryLaterError",
    "RevokedError",
    "SessionFailedError",
    "StoreError",
    "SupersededError",
    "TimeoutError",
    "TlsError",
    "TooManyPinsError",
    "UnreachableError",
    "UnreadableError",
    "UnsupportedError",
    "UrlError",
    "VersionMismatchError",
    "WrongTypeError",
]


class PermitsError(Exception):
    """The base of all exceptions of this package."""

    def __init__(self, message: str = "", **attributes: object) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


class NotNowError(PermitsError):
    """Not now: the same request may succeed later."""

    retry_after: float | None = None
    """The seconds after which the same request succeeds if no other comes first, where that is known: time alone frees
    the units."""

    stands_still: bool = False
    """True if a pause, a closed line or a recovery keeps every request out, also where the units are free."""


class NoPermitsError(NotNowError):
    """The units are taken, or other requests wait for them."""


class RecoveringError(NotNowError):
    """The units are free, and the store holds them back. It started or lost its state a moment ago, and earlier holders
    have time to reconnect."""


class CoolingError(NoPermitsError):
    """Units that cool keep the request out. If a pause or a recovery does, too, it ends before them."""


class PausedError(NoPermitsError):
    """An operator has paused the semaphore."""


class LaneFullError(NoPermitsError):
    """The lane of the request holds as much as its limit allows."""

    lane: str


class SupersededError(NotNowError):
    """A later request with the same key has superseded it."""

    key: str


class TimeoutError(NotNowError, builtins.TimeoutError):
    """The timeout has passed, and the store answers, as far as is known. The request has left the line. In an outage
    the error is a `StoreError`."""

    waited: float
    """The timeout, in seconds."""

    inspection: Inspection | None = None
    """What kept the request out: the semaphore when the time was up, without the request, with at most four holders and
    waiters. `None` if the store did not answer within a tenth of the timeout, 0.1 s at most."""


class LineClosedError(NotNowError):
    """An operator has closed the line. A request that waited has left it."""

    reason: str


class QueueFullError(NotNowError):
    """The line is at its maximum, or the lane of the request has as many waiters as the request allows."""

    max: int
    lane: str | None = None
    """The lane, if that is full and not the whole line."""


class AlreadyHeldError(NotNowError):
    """This holder holds or waits already, by another request."""

    holder: str


class NotReplicatedError(NotNowError):
    """The request was granted, but too few replicas confirmed the grant in its time, so the permit was released."""

    confirmed: int
    wanted: int


class InUseError(NotNowError):
    """The semaphore to delete is in use."""

    semaphore: str
    held: int
    waiting: int


class InvalidInputError(PermitsError, ValueError):
    """A name, number, time, handle or option is not valid."""


class UrlError(InvalidInputError):
    """The URL has a scheme that no store serves. Or: the program was built without the store of this scheme, or without
    TLS. Or: the URL is malformed. It is not repeated here, since it may have a password."""


class ExceedsLimitError(PermitsError):
    """The request asks for more units than the limit, which may have been lowered meanwhile."""

    weight: int
    limit: int


class ExceedsLaneLimitError(PermitsError):
    """The request asks for more units than the limit of its lane, which a later request may have lowered."""

    weight: int
    lane: str
    limit: int


class NoLimitError(PermitsError):
    """No limit is stored, and the program declared none."""

    semaphore: str


class LimitMismatchError(PermitsError):
    """The limit in force is not the required one."""

    semaphore: str
    required: int
    stored: int


class LimitOutOfRangeError(PermitsError):
    """The adjusted limit would be below 1 or above 4,294,967,295."""

    limit: int


class TooManyPinsError(PermitsError):
    """As many lanes are pinned as a semaphore may have."""

    semaphore: str
    most: int


class VersionMismatchError(PermitsError):
    """The limit was changed meanwhile, and has another version."""

    expected: int
    version: int
    limit: int


class RevokedError(PermitsError):
    """An operator revoked the waiting request."""

    reason: str


class CancelledError(PermitsError):
    """The program cancelled the acquisition. The request has left the line."""


class LostError(PermitsError):
    """The permit is no longer held: another holder may have used the resource meanwhile."""

    cause: Literal["expired", "gone", "revoked", "held_too_long", "closed", "forked", "session_failed", "other"]
    """`expired`: The permit could not be renewed before its deadline. `gone`: The store no longer has the permit: its
    lease ended there, it was revoked and the message was lost, or the store lost its state and others had the units
    when the permit came back. `revoked`: An operator revoked the permit. `held_too_long`: The permit was held for the
    longest time that its request allows: `max_hold`. `closed`: The client was closed. `forked`: The process is a forked
    child. Its parent still holds the permit. `session_failed`: The client has panicked inside, so that the permit is no
    longer renewed."""

    reason: str
    """The reason that the operator gave, if it was revoked."""


class ReleasedError(PermitsError):
    """The permit was released or handed over before."""


class GoneError(PermitsError):
    """The store no longer has the permit: its lease ended, it was released or adopted, or the store lost it."""


class RetryLaterError(PermitsError):
    """The store lost its state, and cannot put the permit back before other holders have renewed. After a renewal the
    permit is still held until its deadline: renew it again. A hand-over has released it."""


class ClosedError(PermitsError):
    """The client was closed."""


class ForkedError(PermitsError):
    """The process is a forked child, and its parent has connected. Connect in the child: it needs a client of its
    own."""


class SessionFailedError(PermitsError):
    """The client has panicked inside. Connect again, and report the panic."""


class NotReleasedError(PermitsError):
    """The client is closed, but the store could not be reached to release everything."""

    count: int
    """The permits and waiting requests that end with their leases."""


class ResourceError(PermitsError, OSError):
    """The operating system gives no random numbers, from which session ids are made. Or: the background thread could
    not be started."""


class StoreError(PermitsError):
    """The store refused, or could not be reached."""

    is_temporary: bool
    """True if a retry can succeed."""

    is_outcome_unknown: bool
    """True if the command may have been executed."""


class UnreachableError(StoreError, ConnectionError):
    """The store cannot be reached, or cannot serve now: the command was not sent, and nothing has happened. The client
    retries until `store_timeout` has passed."""


class NoAnswerError(StoreError, ConnectionError):
    """The command was sent and not answered: it may have been executed. The client sends it again."""


class DeniedError(StoreError):
    """The store does not accept the user or the password, or does not allow the command."""


class MismatchError(StoreError):
    """The URL does not fit the store: TLS to a server without TLS, a single server's URL for a cluster or a sentinel, a
    database that does not exist."""


class TlsError(StoreError):
    """The server's certificate is not trusted, or the server does not accept the client's."""


class WrongTypeError(StoreError):
    """A key of the semaphore holds data of another program."""


class OtherLayoutError(StoreError):
    """The semaphore or the directory is of another version of `permits`, whose layout this one does not read. Nothing
    was changed. The page about upgrades says what to do."""


class UnreadableError(StoreError):
    """The stored state of the semaphore is damaged. Nothing was changed."""


class OutOfMemoryError(StoreError):
    """The store has no memory left for this."""


class UnsupportedError(StoreError):
    """The store is too old, or lacks something else that is needed."""


class RejectedError(StoreError):
    """The store rejected the command for another reason."""


class MalformedError(StoreError):
    """The reply cannot be decoded, or does not answer the command."""


# The classes of errors by the library's keywords for them, which `_telemetry` reports as outcomes.
CLASSES: dict[str, type[PermitsError]] = {
    "released": ReleasedError,
    "lost": LostError,
    "no_permits": NoPermitsError,
    "recovering": RecoveringError,
    "cooling": CoolingError,
    "paused": PausedError,
    "lane_full": LaneFullError,
    "timed_out": TimeoutError,
    "line_closed": LineClosedError,
    "queue_full": QueueFullError,
    "already_held": AlreadyHeldError,
    "superseded": SupersededError,
    "not_replicated": NotReplicatedError,
    "exceeds_limit": ExceedsLimitError,
    "exceeds_lane_limit": ExceedsLaneLimitError,
    "no_limit": NoLimitError,
    "limit_mismatch": LimitMismatchError,
    "revoked": RevokedError,
    "cancelled": CancelledError,
    "invalid_input": InvalidInputError,
    "version_mismatch": VersionMismatchError,
    "in_use": InUseError,
    "too_many_pins": TooManyPinsError,
    "limit_out_of_range": LimitOutOfRangeError,
    "retry_later": RetryLaterError,
    "gone": GoneError,
    "not_released": NotReleasedError,
    "closed": ClosedError,
    "forked": ForkedError,
    "session_failed": SessionFailedError,
    "invalid_url": UrlError,
    "resource": ResourceError,
    "unreachable": UnreachableError,
    "no_answer": NoAnswerError,
    "denied": DeniedError,
    "mismatch": MismatchError,
    "tls": TlsError,
    "wrong_type": WrongTypeError,
    "other_layout": OtherLayoutError,
    "unreadable": UnreadableError,
    "out_of_memory": OutOfMemoryError,
    "unsupported": UnsupportedError,
    "rejected": RejectedError,
    "malformed": MalformedError,
}
