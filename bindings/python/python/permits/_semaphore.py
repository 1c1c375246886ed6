"""`Semaphore`: acquires, and is administered."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from . import _permits
from ._acquire import Acquire
from ._inspection import Inspection
from ._permit import Unheld
from ._types import AcquireOptions, Changed, Seconds, made, request, to_json
from ._waiting import block_on, result

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Callable[..., Any])


def _of_grant(token: int) -> int:
    if token is None:
        # Without a token the permit of the holder would be revoked.
        raise TypeError("token is the token of a grant, not None")
    return token


class Semaphore(Unheld):
    """A named line with a limit, made by `Client.semaphore`: first come, first served.

    Operations block. Each has a twin for asyncio, with an `a` before its name.
    """

    def __init__(self, native: _permits.Semaphore, name: str, client: object) -> None:
        self._native = native
        self._name = name
        self._client = client

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    def acquire(self, *unnamed: NoReturn, **options: Unpack[AcquireOptions]) -> Acquire:
        """Acquires units, waiting in line: `with`, `async with`, `await`, or `.wait()`.

        - `weight`: The number of units: at least 1, at most the limit. 1 unless set.
        - `timeout`: The longest wait in line; without limit unless set. With 0 the request does not wait: it is granted
          now, or refused.
        - `holder`: The name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit of
          a semaphore: while it holds or waits, a second request with its name is refused. Unique unless set.
        - `label`: A note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders may
          have the same label. The client's unless set; an empty label means no label.
        - `lane`: A lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests of
          one lane are granted in the order in which they came. Lanes that wait get units in proportion to their shares,
          so a thousand requests of one tenant do not stand before the first of another. Requests without a lane are one
          lane together.
        - `share`: The share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets ten
          times the units of one with the share 1. Use the same share for all requests of a lane.
        - `lane_limit`: The most units that the requests of the lane hold together, at least 1; without limit unless
          set. While a lane is at its limit, its requests wait, and requests of other lanes pass them. Use the same
          limit for all requests of a lane: the latest counts.
        - `lane_floor`: The units up to which the lane is served before others, at most the limits of the lane and of
          the semaphore. Unless you set it, or with 0, the request names no floor. While the lane holds fewer, it gets
          the next units. Use the same floor for all requests of a lane: the latest counts.
        - `lane_waiters`: The most requests of the lane that wait, this one included, at least 1; without bound unless
          set. The next one is refused, so one tenant cannot fill the line for all.
        - `lease`: The lease: how long a permit, or a place in line, stays valid if your process dies and nothing renews
          it. 100 ms to 1 day; the client's unless set.
        - `at_least`: The time for which the grant counts, up to 1 day; 0 unless set. If the permit is released or lost
          earlier, its units *cool*: they stay taken until that time has passed since the grant. For example, a limit of
          100 and one minute admit at most 100 in any minute.
        - `max_hold`: The longest time for which the permit is held, at least 100 ms; without limit unless set. The
          permit is lost then, even if it is renewed: for work that may hang.
        - `auto_renew`: Whether the client renews the permit in the background: `True` unless set. If `False`, the
          permit ends with its lease unless your program renews it. A request that waits is always renewed.
        - `supersede`: A key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each
          key: a new request takes the place of the one that waits, which is refused. A permit with the key stays held.
          The request must wait: use a timeout above 0, or no timeout.
        """
        if unnamed:
            raise TypeError(
                f"the options of acquire() have names, such as acquire(weight={unnamed[0]!r}), and the limit is that of "
                f"`client.semaphore({self._name!r}, {unnamed[0]!r})`"
            )
        return self._acquire(options)

    def _acquire(self, options: AcquireOptions) -> Acquire:
        return Acquire(self._native, options, self._name, self._client)

    @overload
    def limit(self, function: F) -> F: ...
    @overload
    def limit(self, **options: Unpack[AcquireOptions]) -> Callable[[F], F]: ...
    def limit(self, function: Callable[..., Any] | None = None, **options: Unpack[AcquireOptions]) -> Any:
        """A decorator: each call of the function, async or not, holds a permit. Takes the options of `acquire`."""
        if function is not None and not callable(function):
            raise TypeError(
                f"limit() decorates a function, and {function!r} is none: write `@semaphore.limit`, and the number in "
                f"`client.semaphore({self._name!r}, {function!r})`"
            )
        # Reports a wrong option here, before the first call.
        self._native.acquire(request(options))

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            return self._limited(function, options)

        return decorate if function is None else decorate(function)

    def _limited(self, function: Callable[..., Any], options: AcquireOptions) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator cannot be decorated: acquire inside it")
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):

            @functools.wraps(function)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                async with self._acquire(options):
                    return await function(*args, **kwargs)

            return limited_async

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            with self._acquire(options):
                returned = function(*args, **kwargs)
                if inspect.isawaitable(returned):
                    # The coroutine would run without the permit.
                    if inspect.iscoroutine(returned):
                        returned.close()
                    raise TypeError(f"{function!r} is not async, and has returned {returned!r}: decorate an async function")
                return returned

        return limited

    def declare(self) -> int:
        """Declares the limit without acquiring. Returns the limit in force."""
        return block_on(self._native.call("declare"))

    async def adeclare(self) -> int:
        """As `declare`, on asyncio."""
        return await result(self._native.call("declare"))

    def _change(self, change: str, **fields: object) -> _permits.Call[str]:
        return self._native.call("change", to_json({"change": change, **fields}))

    def set_limit(self, limit: int, *, version: int | None = None) -> int:
        """Sets the limit and pins it: from now on declarations of programs are ignored, until `unpin`. Returns the
        limit's new version.

        If you give a `version`, the limit is set only if it is still at that version, as `inspect` showed it. Otherwise
        this raises `VersionMismatchError`.
        """
        return made(Changed, block_on(self._change("set_limit", limit=limit, if_version=version))).limit_version

    async def aset_limit(self, limit: int, *, version: int | None = None) -> int:
        """As `set_limit`, on asyncio."""
        return made(Changed, await result(self._change("set_limit", limit=limit, if_version=version))).limit_version

    def adjust_limit(self, number: int) -> int:
        """Adds a number to the limit, and pins the sum as `set_limit` does. Returns the new limit. Calls of several
        sessions add up."""
        return made(Changed, block_on(self._change("adjust_limit", by=number))).limit

    async def aadjust_limit(self, number: int) -> int:
        """As `adjust_limit`, on asyncio."""
        return made(Changed, await result(self._change("adjust_limit", by=number))).limit

    def unpin(self) -> int:
        """Lets programs declare the limit again. A program does so with its next request if its last one was granted or
        queued during the pin, else when it starts again. The limit stays until then. Returns its new version."""
        return made(Changed, block_on(self._change("unpin"))).limit_version

    async def aunpin(self) -> int:
        """As `unpin`, on asyncio."""
        return made(Changed, await result(self._change("unpin"))).limit_version

    def pause(self, time: Seconds | None = None, reason: str = "") -> None:
        """Stops granting, for a reason of at most 1,000 bytes, which may be empty. Holders keep what they hold; waiters
        wait. It stays so until `resume`.

        If you give a time, the pause ends by itself. If pauses overlap, the one that ends last counts.
        """
        block_on(self._change("pause", time=time, reason=reason))

    async def apause(self, time: Seconds | None = None, reason: str = "") -> None:
        """As `pause`, on asyncio."""
        await result(self._change("pause", time=time, reason=reason))

    def resume(self) -> None:
        """Grants again, beginning with the head of the line."""
        block_on(self._change("resume"))

    async def aresume(self) -> None:
        """As `resume`, on asyncio."""
        await result(self._change("resume"))

    def close_line(self, reason: str = "") -> None:
        """Closes the line: waiters are refused with the reason (at most 1,000 bytes), and so are new requests, until
        `open_line`. Holders keep what they hold, renew and release."""
        block_on(self._change("close_line", reason=reason))

    async def aclose_line(self, reason: str = "") -> None:
        """As `close_line`, on asyncio."""
        await result(self._change("close_line", reason=reason))

    def open_line(self) -> None:
        """Opens a closed line."""
        block_on(self._change("open_line"))

    async def aopen_line(self) -> None:
        """As `open_line`, on asyncio."""
        await result(self._change("open_line"))

    def set_alert(self, wait: Seconds | None = None, waiting: int | None = None) -> None:
        """Sets the thresholds beyond which the semaphore needs a look. They replace the earlier ones, so a threshold
        that you do not give is removed. The store keeps them as it keeps a pin. `permits serve`, its page and its
        alerts use them in place of their own. They change no grant."""
        block_on(self._change("set_alert", wait=wait, waiting=waiting))

    async def aset_alert(self, wait: Seconds | None = None, waiting: int | None = None) -> None:
        """As `set_alert`, on asyncio."""
        await result(self._change("set_alert", wait=wait, waiting=waiting))

    def set_lane(self, lane: str, limit: int | None = None, floor: int | None = None) -> None:
        """Sets the limit and the floor of a lane, and pins them: the store then ignores the bounds that requests name,
        until `unpin_lane`. They replace the earlier bounds: a bound that you do not give is removed. All that the lane
        holds counts for them. The store keeps them as it keeps a pinned limit."""
        block_on(self._change("set_lane", lane=lane, limit=limit, floor=floor))

    async def aset_lane(self, lane: str, limit: int | None = None, floor: int | None = None) -> None:
        """As `set_lane`, on asyncio."""
        await result(self._change("set_lane", lane=lane, limit=limit, floor=floor))

    def unpin_lane(self, lane: str) -> None:
        """Lets requests name the limit and the floor of a lane again. The lane keeps its bounds until one of its
        requests names others, or until nobody holds or waits in it."""
        block_on(self._change("unpin_lane", lane=lane))

    async def aunpin_lane(self, lane: str) -> None:
        """As `unpin_lane`, on asyncio."""
        await result(self._change("unpin_lane", lane=lane))

    def revoke(self, holder: str, reason: str = "") -> bool:
        """Revokes a holder's permit, or a waiter's request, and sends it the reason (at most 1,000 bytes). Returns
        whether the semaphore had either.

        The holder may continue to work until it learns of it. A permit with `at_least` then cools: see `revoke_cooling`.
        """
        return made(Changed, block_on(self._change("revoke", holder=holder, reason=reason))).found

    async def arevoke(self, holder: str, reason: str = "") -> bool:
        """As `revoke`, on asyncio."""
        return made(Changed, await result(self._change("revoke", holder=holder, reason=reason))).found

    def revoke_cooling(self, holder: str, token: int) -> bool:
        """Frees a grant that cools: see `at_least`. `token` is the token of the grant, which `inspect` shows. Returns
        whether the grant cooled."""
        return made(Changed, block_on(self._change("revoke", holder=holder, token=_of_grant(token)))).found

    async def arevoke_cooling(self, holder: str, token: int) -> bool:
        """As `revoke_cooling`, on asyncio."""
        return made(Changed, await result(self._change("revoke", holder=holder, token=_of_grant(token)))).found

    def delete(self, *, unreadable: bool = False) -> bool:
        """Forgets the semaphore at once, with all that the store knows of it: the limit, an operator's pins, a pause, a
        closed line, and an alert. Refused while units are held or cool, or requests wait. Returns whether there was
        one.

        A refusal raises `InUseError`. With `unreadable`, a semaphore that raises `UnreadableError` or `OtherLayoutError`
        is deleted, too, even if it is in use.
        """
        return made(Changed, block_on(self._change("delete", unreadable=unreadable))).found

    async def adelete(self, *, unreadable: bool = False) -> bool:
        """As `delete`, on asyncio."""
        return made(Changed, await result(self._change("delete", unreadable=unreadable))).found

    def inspect(self, max: int = 1000) -> Inspection:
        """The limit, and the first `max` holders, waiters and changes, at most 1,000 of each. With 0 there are no lanes."""
        return made(Inspection, block_on(self._native.call("inspect", to_json({"max": max}))))

    async def ainspect(self, max: int = 1000) -> Inspection:
        """As `inspect`, on asyncio."""
        return made(Inspection, await result(self._native.call("inspect", to_json({"max": max}))))

    def available(self) -> int:
        """The units that are not held: the limit less the held units, at least 0. A request for as many may still wait:
        behind others, or because the semaphore is paused or the store recovers. If the store has no limit, because the
        semaphore is not used, the limit is what this program declares."""
        return block_on(self._native.call("available"))

    async def aavailable(self) -> int:
        """As `available`, on asyncio."""
        return await result(self._native.call("available"))

    if not TYPE_CHECKING:

        def _refuse_block(self, *_: object) -> None:
            raise TypeError(f"{self!r} is not a permit: {self._advice()}")

        __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse_block

    def __repr__(self) -> str:
        return f"<Semaphore {self._name!r}>"
