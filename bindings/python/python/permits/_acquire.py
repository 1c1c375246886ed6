"""`Acquire` and `AcquireAll`: acquisitions, to be waited for in one of four ways."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from . import _permits
from ._permit import Held, Permit, PermitSet, Unheld
from ._telemetry import observed
from ._types import AcquireOptions, Seconds, request, seconds
from ._waiting import block_on, result, threads_are_greenlets

H = TypeVar("H", bound=Held)

_PACKAGE = os.path.dirname(__file__) + os.sep


class Acquisition(Unheld, Generic[H]):
    """An acquisition: nothing is sent until it is waited for, once, in one of four ways.

    `with` and `async with` wait, and release at the end of the block. `wait()` and `await` return what was acquired, which
    the caller releases. A wait that ends early, by an exception or because the task is cancelled, leaves the line.
    """

    def __init__(
        self,
        call: _permits.Call[Any],
        made: Callable[[Any], H],
        name: str,
        semaphores: list[str],
        weight: int,
        timeout: Seconds | None,
    ) -> None:
        self._call = call
        self._made = made
        self._name = name
        self._semaphores = semaphores
        self._weight = weight
        self._timeout = seconds(timeout)
        self._is_begun = False
        self._entered: H | None = None

    def _begin(self) -> None:
        if self._is_begun:
            raise RuntimeError(f"{self._name} was waited for before: make another one")
        self._is_begun = True

    @property
    def position(self) -> int | None:
        """The number of requests before this one in line, when the store last replied; `None` until it is queued."""
        return self._call.position()

    def wait(self) -> H:
        """Blocks this thread until it is acquired. Other threads run meanwhile. Ctrl-C ends the wait.

        On the thread of an asyncio event loop it blocks the loop, with a `RuntimeWarning`: write `async with` or `await`.
        """
        self._begin()
        # A try ends with the reply of the store.
        if self._timeout is None or self._timeout > 0:
            self._warn_of_event_loop()
        with self._observed():
            return self._made(block_on(self._call))

    def _observed(self) -> AbstractContextManager[None]:
        return observed(self._semaphores, self._weight, self._timeout)

    def _warn_of_event_loop(self) -> None:
        # If the holder is a task of the same loop, the wait never ends, and nothing else would say why. A greenlet lets
        # the others run, so an asyncio loop of another greenlet on this thread does not matter.
        if asyncio._get_running_loop() is None or threads_are_greenlets():
            return
        # The warning names the line of the program, whichever way it came here. Python shows it once for each line.
        frame, level = sys._getframe(1), 1
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame, level = frame.f_back, level + 1
        warnings.warn(
            f"{self._name} blocks the asyncio event loop that runs on this thread, so a holder on that loop could not "
            f"release: write `async with {self._call_text} as permit:` or `permit = await {self._call_text}`, or block in "
            "another thread, by asyncio.to_thread",
            RuntimeWarning,
            source=self,
            stacklevel=level + 1,
        )

    def cancel(self) -> None:
        """Cancels it, from any thread: the wait ends with `CancelledError`. Has no effect once it is acquired."""
        self._call.cancel()

    def __await__(self) -> Generator[Any, None, H]:
        return self._result().__await__()

    async def _result(self) -> H:
        self._begin()
        with self._observed():
            return self._made(await result(self._call))

    def __enter__(self) -> H:
        self._entered = self.wait()
        return self._entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._entered = self._entered, None
        if held is not None:
            held.__exit__(kind, error, trace)

    async def __aenter__(self) -> H:
        self._entered = await self._result()
        return self._entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._entered = self._entered, None
        if held is not None:
            await held.__aexit__(kind, error, trace)

    def __bool__(self) -> NoReturn:
        # `if semaphore.acquire():`, as for threading.Semaphore, would run its block without a permit.
        raise TypeError(f"{self!r} is neither true nor false: {self._advice()}")

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __del__(self) -> None:
        if not getattr(self, "_is_begun", True):
            warnings.warn(
                f"{self._name} was never waited for, so nothing was acquired: {self._advice()}",
                RuntimeWarning,
                source=self,
                stacklevel=2,
            )


class Acquire(Acquisition[Permit]):
    """The acquisition of a permit, made by `Semaphore.acquire`."""

    def __init__(self, native: _permits.Semaphore, options: AcquireOptions, name: str, client: object) -> None:
        call, self._holder = native.acquire(request(options))
        weight, timeout = options.get("weight") or 1, options.get("timeout")
        super().__init__(call, lambda permit: Permit(permit, client), f"acquire() of {name!r}", [name], weight, timeout)

    @property
    def holder(self) -> str:
        """The holder that the options name, or else the unique name that the client has made."""
        return self._holder


class AcquireAll(Acquisition[PermitSet]):
    """The acquisition of permits of several semaphores, made by `Client.acquire_all`."""

    _call_text = "client.acquire_all(...)"

    def __init__(
        self,
        call: _permits.Call[list[_permits.Permit]],
        client: object,
        semaphores: list[str],
        weight: int,
        timeout: Seconds | None,
    ) -> None:
        def made(permits: list[_permits.Permit]) -> PermitSet:
            return PermitSet([Permit(permit, client) for permit in permits])

        super().__init__(call, made, "acquire_all()", semaphores, weight, timeout)

    @property
    def semaphore(self) -> str | None:
        """The semaphore in whose line it waits."""
        return self._call.semaphore()
