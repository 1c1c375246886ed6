"""The exceptions, one class for each reason. All of them are a `PermitsError`.

A message says everything once: the error, and its causes after colons. The values in it are attributes, too.
"""

from __future__ import annotations

import builtins
from typing import Literal

__all__ = [
    "AlreadyHeldError",
    "CancelledError",
    "ClosedError",
    "CoolingError",
    "DeniedError",
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


class NoPermitsError(NotNowError):
    """The units are taken, or other requests wait for them."""


class RecoveringError(NotNowError):
    """The store started or lost its state a moment ago, and earlier holders have time to reconnect."""

    remaining: float
    """The seconds until it grants again."""


class CoolingError(NoPermitsError):
    """Units of grants that count for some time keep it out, and nothing else."""

    remaining: float
    """The seconds until enough of them are free."""


class PausedError(NoPermitsError):
    """An operator has paused the semaphore."""

    remaining: float | None = None
    """The seconds until it would be granted, if the pause has an end and nothing else keeps it out for longer."""


class SupersededError(NotNowError):
    """A later request with the same key has superseded it."""

    key: str


class TimeoutError(NotNowError, builtins.TimeoutError):
    """The timeout has passed, and the store answers. The request has left the line. In an outage it is a `StoreError`."""

    waited: float
    """The timeout, in seconds."""


class LineClosedError(NotNowError):
    """An operator has closed the line."""

    reason: str


class QueueFullError(NotNowError):
    """The line is at its maximum."""

    max: int


class AlreadyHeldError(NotNowError):
    """This holder holds or waits already, by another request."""

    holder: str


class NotReplicatedError(NotNowError):
    """It was granted, but too few replicas confirmed the grant, so it was released."""

    confirmed: int
    wanted: int


class InUseError(NotNowError):
    """The semaphore to delete is in use."""

    semaphore: str
    held: int
    waiting: int


class InvalidInputError(PermitsError, ValueError):
    """A name, holder, weight, limit, lease, time or handle is not valid."""


class UrlError(InvalidInputError):
    """The URL is malformed, or has a scheme that no store serves. The message does not repeat it."""


class ExceedsLimitError(PermitsError):
    """It asks for more units than the limit, which may have been lowered meanwhile."""

    weight: int
    limit: int


class NoLimitError(PermitsError):
    """No limit is stored, and the program declares none."""

    semaphore: str


class LimitMismatchError(PermitsError):
    """Another limit is in force than the one required."""

    semaphore: str
    required: int
    stored: int


class LimitOutOfRangeError(PermitsError):
    """The adjusted limit would be below 1 or above 2**32 - 1."""

    limit: int


class VersionMismatchError(PermitsError):
    """The limit was changed meanwhile."""

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
    """`expired`: it could not be renewed before its deadline. `gone`: the store no longer has it. `revoked`: by an operator.
    `closed`: the client was closed. `forked`: it is the parent process's."""

    reason: str
    """The reason that the operator gave, if it was revoked."""


class ReleasedError(PermitsError):
    """The permit was released or handed over before."""


class GoneError(PermitsError):
    """The permit cannot be adopted: its lease has ended, or it was released or adopted already."""


class RetryLaterError(PermitsError):
    """The store lost its state and cannot put the permit back yet. It is held until its deadline: renew it again."""


class ClosedError(PermitsError):
    """The client was closed."""


class ForkedError(PermitsError):
    """The client was connected before the process was forked: connect in the child."""


class SessionFailedError(PermitsError):
    """The client has panicked inside. Connect again, and report the panic."""


class NotReleasedError(PermitsError):
    """The client is closed, but the store did not confirm every release."""

    count: int
    """The permits and waiting requests that end with their leases."""


class ResourceError(PermitsError, OSError):
    """The operating system refused a thread or random numbers."""


class StoreError(PermitsError):
    """The store refused, or could not be reached."""

    is_temporary: bool
    """True if a retry can succeed."""

    is_outcome_unknown: bool
    """True if the command may have been executed."""


class UnreachableError(StoreError, ConnectionError):
    """The store could not be reached within the store timeout. Nothing has happened."""


class NoAnswerError(StoreError, ConnectionError):
    """The store did not reply: the command may have been executed."""


class DeniedError(StoreError):
    """The store does not accept the user or the password, or does not allow the command."""


class MismatchError(StoreError):
    """The URL does not fit the store."""


class TlsError(StoreError):
    """The server's certificate is not trusted, or the server does not accept the client's."""


class WrongTypeError(StoreError):
    """A key of the semaphore holds data of another program."""


class OtherLayoutError(StoreError):
    """The semaphore or the file is of another version of permits, whose layout this one does not read."""


class UnreadableError(StoreError):
    """What is stored of the semaphore is damaged."""


class OutOfMemoryError(StoreError):
    """The store has no memory left for this."""


class UnsupportedError(StoreError):
    """The store is too old, or lacks something else that is needed."""


class RejectedError(StoreError):
    """The store rejected the command for another reason."""


class MalformedError(StoreError):
    """The reply cannot be decoded, or does not answer the command."""
