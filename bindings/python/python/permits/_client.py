"""`connect`, and `Client`: one session with a store."""

# The modules of the package use one another's private attributes.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, List, NoReturn, Union

from . import _exit, _permits, _watching
from ._acquire import AcquireAll
from ._credentials import Function, begin
from ._permit import Permit
from ._semaphore import Semaphore
from ._types import AcquireOptions, ConnectOptions, Diagnosis, Seconds, made, number, request, seconds, text, to_json
from ._waiting import block_on, result
from .errors import PermitsError

if TYPE_CHECKING:
    from typing_extensions import Unpack

Request = Union[Semaphore, "tuple[Semaphore, AcquireOptions]"]


class Client:
    """A session with a store, made by `connect` or `aconnect`.

    It has a background thread, which keeps the connection and renews permits. It is a context manager, which closes it, and
    it is closed when the interpreter exits. It serves all threads and event loops of a process. In a forked child every call
    of the store raises `ForkedError`, and its permits are lost: connect in the child.
    """

    def __init__(self, native: _permits.Client) -> None:
        self._native = native
        _exit.opened(native)

    def semaphore(
        self, name: str, limit: int | None = None, *, exactly: bool = False, keep: Seconds | None = None
    ) -> Semaphore:
        """The semaphore of this name (1 to 200 bytes of printable UTF-8). Nothing is sent.

        The limit is declared with the first acquisition. The latest declaration of any program counts, unless an operator
        has pinned a limit. Without one, the stored limit counts. With `exactly`, acquiring fails with `LimitMismatchError`
        if another limit is in force when the request reaches the store.

        - `keep`: how long a permit that was released stays with the client while no request waits. The next acquisition of
          this process then calls no server. At most a third of the lease; 0 keeps no permits. Unless set, the client's
          `keep` applies.
        """
        options = to_json({"exactly": exactly, "keep": keep})
        return Semaphore(self._native.semaphore(text("name", name), number("limit", limit), options), name, self)

    def acquire_all(self, requests: Iterable[Request], *others: NoReturn, timeout: Seconds | None = None) -> AcquireAll:
        """Acquires permits of several semaphores, all or none: `with`, `async with`, `await`, or `.wait()`.

        A request is a semaphore, or a semaphore with the options of `Semaphore.acquire`. They are acquired one after the
        other, in an order that all programs share, so that no two programs wait for one another forever. The shortest
        timeout is that of the whole wait. The attribute `semaphore` of an error is the semaphore that was not acquired.
        """
        pairs: List[tuple[_permits.Semaphore, str | None]] = []
        if others:
            raise TypeError(f"acquire_all() takes one list of semaphores: {_ALL}")
        names, given = [], [AcquireOptions(timeout=timeout)]
        for semaphore, options in _pairs(requests):
            pairs.append((semaphore._native, request(options)))
            names.append(semaphore.name)
            given.append(options)
        call = self._native.acquire_all(pairs, request({"timeout": timeout}))
        # The native half has checked them.
        timeouts = [time for options in given if (time := seconds(options.get("timeout"))) is not None]
        weight = sum(options.get("weight") or 1 for options in given[1:])
        return AcquireAll(call, self, names, weight, min(timeouts, default=None))

    def list(self) -> List[str]:
        """The names of the semaphores that the store has, sorted."""
        return made(list, block_on(self._native.call("list")))

    async def alist(self) -> List[str]:
        """As `list`, on asyncio."""
        return made(list, await result(self._native.call("list")))

    def adopt(self, handle: str) -> Permit:
        """Takes over a permit that another process handed over with `Permit.hand_over`. A handle is valid once."""
        return Permit(block_on(self._native.call("adopt", text("handle", handle))), self)

    async def aadopt(self, handle: str) -> Permit:
        """As `adopt`, on asyncio."""
        return Permit(await result(self._native.call("adopt", text("handle", handle))), self)

    def renew(self, handle: str) -> bool:
        """Renews the permit of a handle for another lease, and leaves it to the handle. Returns whether the store has it."""
        return block_on(self._native.call("renew", text("handle", handle)))

    async def arenew(self, handle: str) -> bool:
        """As `renew`, on asyncio."""
        return await result(self._native.call("renew", text("handle", handle)))

    def release(self, handle: str) -> bool:
        """Releases the permit of a handle. Returns whether the store had it."""
        return block_on(self._native.call("release", text("handle", handle)))

    async def arelease(self, handle: str) -> bool:
        """As `release`, on asyncio."""
        return await result(self._native.call("release", text("handle", handle)))

    def close(self) -> None:
        """Ends the session: acquisitions that wait fail with `ClosedError`, permits are lost, and everything is released.

        Raises `NotReleasedError` if the store did not confirm every release within 5 seconds.
        """
        _exit.closed(self._native)
        block_on(self._native.call("close"))

    async def aclose(self) -> None:
        """As `close`, on asyncio."""
        _exit.closed(self._native)
        await result(self._native.call("close"))

    def __repr__(self) -> str:
        return f"<Client {self._native.store!r}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except PermitsError:
            # An exception of the block has precedence.
            if kind is None:
                raise

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except PermitsError:
            if kind is None:
                raise


def _pairs(requests: Iterable[Request]) -> Iterator[tuple[Semaphore, AcquireOptions]]:
    """The requests of `acquire_all`, each with its options."""
    one: object = requests
    if isinstance(one, Mapping) or not isinstance(one, Iterable):
        raise TypeError(f"acquire_all() takes a list of semaphores, not {one!r}: {_ALL}")
    for each in requests:
        pair: object = (each, AcquireOptions()) if isinstance(each, Semaphore) else each
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], Semaphore)):
            raise TypeError(f"{each!r} is no request of acquire_all(): {_ALL}")
        yield pair[0], pair[1]


_ALL = 'write acquire_all([one, (other, {"weight": 2})])'


def connect(url: str, *, credentials: Function | None = None, **settings: Unpack[ConnectOptions]) -> Client:
    """Connects to the store at `url`: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`, `redis+cluster://`,
    `local:` or `memory:`.

    The settings are `prefix`, `label`, `lease`, `keep`, `recovery`, `max_waiters`, `replicas` and `store_timeout`.
    `ConnectOptions` says more about each.

    `credentials` is a function that returns the password of the server, or `Credentials`. It is called on a thread of its
    own: for each new connection, and before its credentials end, for the connections that are open. It has 10 seconds.
    """
    _watching.start()
    return Client(block_on(_permits.connect(text("url", url), to_json(settings), _program(), begin(credentials))))


async def aconnect(url: str, *, credentials: Function | None = None, **settings: Unpack[ConnectOptions]) -> Client:
    """As `connect`, on asyncio."""
    _watching.start()
    return Client(await result(_permits.connect(text("url", url), to_json(settings), _program(), begin(credentials))))


def diagnose(url: str, *, credentials: Function | None = None, **settings: Unpack[ConnectOptions]) -> Diagnosis:
    """Finds the problems of a store, with advice: what `permits doctor` prints. Of the settings of `connect` it uses
    `prefix`, `lease` and `credentials`."""
    return made(Diagnosis, block_on(_permits.diagnose(text("url", url), to_json(settings), begin(credentials))))


async def adiagnose(url: str, *, credentials: Function | None = None, **settings: Unpack[ConnectOptions]) -> Diagnosis:
    """As `diagnose`, on asyncio."""
    return made(Diagnosis, await result(_permits.diagnose(text("url", url), to_json(settings), begin(credentials))))


def _program() -> str:
    """The name of the program: the file of a script, the package of `python -m`."""
    path = (getattr(sys, "argv", None) or [""])[0]
    if os.path.basename(path) == "__main__.py":
        path = os.path.dirname(path)
    name = os.path.basename(path)
    name = os.path.basename(sys.executable or "python") if name in ("", "-c", "-m") else name
    return name.encode(errors="replace").decode()  # the name of a file may not be valid text
