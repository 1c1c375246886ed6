"""`Permit` and `PermitSet`: units that are held."""

# The modules of the package use one another's private attributes.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar, overload

from . import _permits, _watching
from ._types import PermitStatus, Seconds, number, seconds
from ._waiting import block_on, result
from .errors import LostError, PermitsError

T = TypeVar("T")
Self = TypeVar("Self", bound="Held")


class Held:
    """What `Permit` and `PermitSet` have in common: `with` and `async with` release it.

    The end of such a block does not wait for the store: the release is sent, and the next in line is granted as soon as it
    arrives. It raises `LostError` if the permit is known to be lost, unless the block itself raises. `release()` waits, and
    tells what the store has replied.
    """

    def release(self) -> None:
        """Releases it."""
        raise NotImplementedError

    async def arelease(self) -> None:
        """As `release`, on asyncio."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Releases it without a wait for the store."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Ends a block: as `_forget`, but raises `LostError` if the permit is known to be lost."""
        raise NotImplementedError

    def _check(self) -> None:
        """Raises `LostError` or `ReleasedError` unless it is held."""
        raise NotImplementedError

    async def await_lost(self) -> LostError | None:
        """As `wait_lost`, on asyncio."""
        raise NotImplementedError

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits `work` while it is held. If it is lost, `work` is cancelled, and `LostError` is raised, unless `work` raises.

        It returns when `work` has ended, also if the caller is cancelled. On one that is lost or was released it raises
        `LostError` or `ReleasedError`, and `work` does not begin.
        """
        try:
            self._check()
        except PermitsError:
            if asyncio.iscoroutine(work):
                work.close()
            elif isinstance(work, asyncio.Future):
                work.cancel()
            raise
        task = asyncio.ensure_future(work)
        lost = asyncio.ensure_future(self.await_lost())
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
            loss = lost.result() if lost.done() else None
            if loss is not None and not task.done():
                task.cancel()
                await asyncio.wait({task})
                if task.cancelled() or task.exception() is None:
                    raise loss
            return await task
        finally:
            task.cancel()
            lost.cancel()
            await asyncio.gather(task, lost, return_exceptions=True)

    def __enter__(self: Self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An exception of the body has precedence.
        if kind is None:
            self._leave()
        else:
            self._forget()

    async def __aenter__(self: Self) -> Self:
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class Permit(Held):
    """Some units of a semaphore, held for a lease that is renewed in the background.

    It is a context manager, which releases it. If you let it become garbage, it is released, with a `ResourceWarning`.
    """

    def __init__(self, native: _permits.Permit, client: object) -> None:
        self._native = native
        # An open client is closed at exit, which releases its permits.
        self._client = client

    @property
    def semaphore(self) -> str:
        """The name of the semaphore."""
        return self._native.semaphore

    @property
    def holder(self) -> str:
        """The holder."""
        return self._native.holder

    @property
    def token(self) -> int:
        """The fencing token: greater than every earlier token of this slot. Compare tokens only within a slot."""
        return self._native.token

    @property
    def slot(self) -> int:
        """The slot: a number from 0, below the limit, that no other live permit has."""
        return self._native.slot

    @property
    def weight(self) -> int:
        """The number of units."""
        return self._native.weight

    @property
    def lease(self) -> float:
        """The lease, in seconds."""
        return self._native.lease

    @property
    def is_held(self) -> bool:
        """True if the permit is held now. A permit that is no longer held never is again."""
        return self.status in (PermitStatus.HELD, PermitStatus.UNSURE)

    @property
    def status(self) -> PermitStatus:
        """Held, unsure, lost or released."""
        return PermitStatus(self._native.status())

    @property
    def lost(self) -> LostError | None:
        """The loss, if the permit is lost. It is returned, not raised."""
        return self._native.lost()

    def remaining(self) -> float:
        """How many seconds the permit is certainly held without another renewal; 0 if it is not held."""
        return self._native.remaining()

    def on_lost(self, callback: Callable[[LostError], object]) -> None:
        """Calls back when the permit is lost, at its deadline at the latest, on a thread of its own. Not after a release.

        If the callback raises an exception, even by `sys.exit()`, it is logged as an error of the logger `permits`.
        """
        if not callable(callback):
            raise TypeError(f"the callback of a loss is a function, not {callback!r}")
        _watching.watch(self._native.call("wait_lost"), callback)

    def wait_lost(self, timeout: Seconds | None = None) -> LostError | None:
        """Blocks until the permit is lost, and returns the loss. `None` if it was released, or the timeout has passed."""
        return block_on(self._native.call("wait_lost"), seconds(timeout))

    async def await_lost(self) -> LostError | None:
        """Waits until the permit is lost, and returns the loss. `None` if it was released."""
        return await result(self._native.call("wait_lost"))

    def renew(self) -> None:
        """Renews the permit now. You need this only after `auto_renew(False)`, or to be sure of a full lease."""
        block_on(self._native.call("renew"))

    async def arenew(self) -> None:
        """As `renew`, on asyncio."""
        await result(self._native.call("renew"))

    def release_part(self, units: int) -> None:
        """Releases some units, but not all. The permit keeps its slot, its token and its lease."""
        block_on(self._native.call("release_part", number("units", units)))

    async def arelease_part(self, units: int) -> None:
        """As `release_part`, on asyncio."""
        await result(self._native.call("release_part", number("units", units)))

    def count(self, units: int) -> None:
        """Corrects the units that the grant of a permit with `at_least` counts for, once the work has shown what it cost.

        The store learns of the last correction with the release. If you count fewer units, the others are free at once. If
        you count more, the line waits until they have cooled. A permit counts for the limit at most.

        It has no effect if the permit is revoked or handed over, if its lease has ended, or if you release it later than
        `at_least` after its grant. Without `at_least` it raises `InvalidInputError`.
        """
        self._native.count(number("units", units))

    def set_lease(self, lease: Seconds) -> None:
        """Gives the permit another lease, 100 ms to 1 day, from now on, and renews it."""
        block_on(self._native.call("set_lease", number("lease", lease)))

    async def aset_lease(self, lease: Seconds) -> None:
        """As `set_lease`, on asyncio."""
        await result(self._native.call("set_lease", number("lease", lease)))

    def auto_renew(self, renew: bool) -> None:
        """Renews the permit in the background from now on, or leaves that to `renew`."""
        self._native.auto_renew(renew)

    def release(self) -> None:
        """Releases the permit: the next in line is granted in the same moment. Has no effect if it was released before.

        Raises `LostError` if the permit was lost before, so that another holder may have used the resource meanwhile, and
        `StoreError` if the store could not be reached until the end of the lease.
        """
        block_on(self._native.call("release"))

    async def arelease(self) -> None:
        """As `release`, on asyncio. If you cancel it, the permit is released in the background."""
        await result(self._native.call("release"))

    def hand_over(self) -> str:
        """Hands the permit over: within one lease, another process makes it again from the handle, by `Client.adopt`.

        Any process that has the handle can take the permit, once. If this raises, the permit has been released, or is
        lost: stop the work.
        """
        return block_on(self._native.call("hand_over"))

    async def ahand_over(self) -> str:
        """As `hand_over`, on asyncio."""
        return await result(self._native.call("hand_over"))

    def _forget(self) -> None:
        self._native.forget()

    def _leave(self) -> None:
        self._native.leave()

    def _check(self) -> None:
        self._native.check()

    def __reduce__(self) -> NoReturn:
        # The end of a copy would release the permit.
        raise TypeError("a permit is neither copied nor pickled: hand_over() makes a handle of it, which is a text")

    def __repr__(self) -> str:
        return (
            f"<Permit of {self.semaphore!r}: {self.status.value}, weight {self.weight}, slot {self.slot}, "
            f"token {self.token}>"
        )

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is None:
            return
        is_held = native.status() in ("held", "unsure")
        # Before the warning, which may be an error.
        native.forget()
        if is_held:
            warnings.warn(
                f"a permit of {native.semaphore!r} was never released: use `with`, or `release()`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )


class PermitSet(Held, Sequence[Permit]):
    """Permits of several semaphores, in the order in which they were acquired."""

    def __init__(self, permits: Sequence[Permit]) -> None:
        self._permits = tuple(permits)

    def __len__(self) -> int:
        return len(self._permits)

    def __iter__(self) -> Iterator[Permit]:
        return iter(self._permits)

    def __contains__(self, key: object) -> bool:
        """Returns whether there is a permit of the semaphore of this name, or this permit."""
        return key in self._permits or any(permit.semaphore == key for permit in self._permits)

    def count(self, value: object) -> int:
        """Raises `TypeError`: the count of a grant belongs to one permit, `permits[name].count(units)`."""
        raise TypeError("a count belongs to one permit: permits[name].count(units)")

    @overload
    def __getitem__(self, key: int | str) -> Permit: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Permit]: ...
    def __getitem__(self, key: int | str | slice) -> Permit | Sequence[Permit]:
        """The permit of a semaphore by its name, or by its index."""
        if not isinstance(key, str):
            return self._permits[key]
        for permit in self._permits:
            if permit.semaphore == key:
                return permit
        raise KeyError(key)

    @property
    def is_held(self) -> bool:
        """True if all are held now."""
        return all(permit.is_held for permit in self._permits)

    @property
    def lost(self) -> LostError | None:
        """The first loss, if a permit is lost. It is returned, not raised."""
        return next((lost for permit in self._permits if (lost := permit.lost)), None)

    def remaining(self) -> float:
        """How many seconds all are certainly held without another renewal; 0 if one is not held."""
        return min((permit.remaining() for permit in self._permits), default=float("inf"))

    def on_lost(self, callback: Callable[[LostError], object]) -> None:
        """Calls back for each permit that is lost, as `Permit.on_lost`."""
        for permit in self._permits:
            permit.on_lost(callback)

    async def await_lost(self) -> LostError | None:
        """Waits until one is lost, and returns the loss. `None` if all were released."""
        tasks = [asyncio.ensure_future(permit.await_lost()) for permit in self._permits]
        try:
            for task in asyncio.as_completed(tasks):
                lost = await task
                if lost is not None:
                    return lost
            return None
        finally:
            for each in tasks:
                each.cancel()

    def renew(self) -> None:
        """Renews all permits. If some fail, raises the first error when all were tried."""
        _wait_for_all([permit._native.call("renew") for permit in self._permits])

    async def arenew(self) -> None:
        """As `renew`, on asyncio."""
        await _results_of_all([permit._native.call("renew") for permit in self._permits])

    def release(self) -> None:
        """Releases all permits. If some fail, raises the first error when all were tried."""
        _wait_for_all([permit._native.call("release") for permit in self._permits])

    async def arelease(self) -> None:
        """As `release`, on asyncio."""
        await _results_of_all([permit._native.call("release") for permit in self._permits])

    def _forget(self) -> None:
        for permit in self._permits:
            permit._forget()

    def _leave(self) -> None:
        losses = [loss for permit in self._permits if (loss := _left(permit)) is not None]
        if losses:
            raise losses[0]

    def _check(self) -> None:
        for permit in self._permits:
            permit._check()

    def __repr__(self) -> str:
        return f"<PermitSet {list(self._permits)!r}>"


class Unheld:
    """The base of objects that a program may mistake for a permit: the attributes of a permit raise an error that says what
    to write.

    Type checkers do not see these attributes, so that they report the mistake.
    """

    _call_text = "semaphore.acquire()"

    def _advice(self) -> str:
        call = self._call_text
        return f"write `with {call} as permit:`, `permit = await {call}` or `permit = {call}.wait()`"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if not name.startswith("_") and hasattr(Permit, name):
                raise AttributeError(f"{self!r} is not a permit, and has no {name!r}: {self._advice()}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _left(permit: Permit) -> LostError | None:
    try:
        permit._leave()
    except LostError as lost:
        return lost
    return None


def _wait_for_all(calls: Sequence[_permits.Call[None]]) -> None:
    """Waits for calls that travel together."""
    for call in calls:
        call.start()
    errors: list[PermitsError] = []
    for call in calls:
        try:
            block_on(call)
        except PermitsError as error:
            errors.append(error)
    if errors:
        raise errors[0]


async def _results_of_all(calls: Sequence[_permits.Call[None]]) -> None:
    """Waits for calls that travel together, on asyncio."""
    for found in await asyncio.gather(*map(result, calls), return_exceptions=True):
        if isinstance(found, BaseException):
            raise found
