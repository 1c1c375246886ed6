"""Waiting for the calls of the native half: a thread blocks, an event loop polls, a greenlet polls.

No thread of the native half takes the interpreter's lock. It makes a socket readable, which the event loop watches.
A task that is cancelled drops its call, which withdraws the request.

gevent and eventlet replace functions of the standard library, so that what looks like a thread is a greenlet: one of many
on one thread, which must not block in native code. A greenlet waits in the `select` that they have put there.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import threading
import time
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from ._permits import Call, Mailbox

T = TypeVar("T")


def block_on(call: Call[T], timeout: float | None = None) -> T:
    """Blocks until the call has ended. A signal's handler runs meanwhile, if this is the main thread.

    With a timeout the result is `None` if the call has not ended by then. Use it only for calls that may return `None`.
    """
    if threads_are_greenlets():
        return _wait_in_greenlet(call, timeout)
    return call.wait(threading.current_thread() is threading.main_thread(), timeout)


def threads_are_greenlets() -> bool:
    """True in a program that gevent or eventlet has patched."""
    return select.select.__module__ != "select"


def readable(mailbox: Mailbox, timeout: float | None = None) -> None:
    """Lets other greenlets run until calls of the mailbox have to be polled, or the timeout has passed."""
    select.select([mailbox.fileno()], [], [], timeout)


def _wait_in_greenlet(call: Call[T], timeout: float | None) -> T:
    # Each greenlet waits for a descriptor of its own.
    mailbox = Mailbox()
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            ended = call.poll(mailbox, 0)
            if ended:
                return call.take()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                # As `Call.wait` does: its stub says why.
                return None  # type: ignore[return-value]
            if ended is None:
                # The requests of other greenlets that are ready travel with this one.
                time.sleep(0)
            else:
                readable(mailbox, left)
                mailbox.take()
    finally:
        call.cancel()


async def result(call: Call[T]) -> T:
    """Waits for the call on the event loop that runs."""
    loop = asyncio.get_running_loop()
    calls = _calls_of(loop)
    key = next(calls.keys)
    try:
        while True:
            ended = call.poll(calls.mailbox, key)
            if ended:
                return call.take()
            if ended is None:
                # The requests of other tasks that are ready travel with this one.
                await asyncio.sleep(0)
            else:
                await calls.woken(loop, key)
    finally:
        call.cancel()


class _Calls:
    """The calls that one event loop waits for. A reader of the loop keeps this object, and so the tasks that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.mailbox = Mailbox()
        self.keys = itertools.count()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.mailbox.fileno(), self.deliver)

    async def woken(self, loop: asyncio.AbstractEventLoop, key: int) -> None:
        future = self.waiting[key] = loop.create_future()
        try:
            await future
        finally:
            del self.waiting[key]

    def deliver(self) -> None:
        for key in self.mailbox.take():
            future = self.waiting.get(key)
            if future is not None and not future.done():
                future.set_result(None)


class _Local(threading.local):
    """The event loops of a thread. The map keeps neither them nor their calls."""

    def __init__(self) -> None:
        self.loops: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Calls]] = WeakKeyDictionary()


_local = _Local()


def _calls_of(loop: asyncio.AbstractEventLoop) -> _Calls:
    known = _local.loops.get(loop)
    calls = known() if known is not None else None
    if calls is None:
        calls = _Calls(loop)
        _local.loops[loop] = ref(calls)
    return calls
