"""Waiting for the calls of the native half: a thread blocks, an event loop polls.

No thread of the native half takes the interpreter's lock. It makes a socket readable, which the event loop watches.
A task that is cancelled drops its call, which withdraws the request.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from ._permits import Call, Mailbox

T = TypeVar("T")


def wait(call: Call[T], timeout: float | None = None) -> T:
    """Blocks until the call has ended. A signal's handler runs meanwhile, if this is the main thread.

    With a timeout, for a call whose result may be `None`: that, if it has not ended then.
    """
    return call.wait(threading.current_thread() is threading.main_thread(), timeout)


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
    """The calls that one event loop waits for. The loop keeps it, and through it the tasks that wait, by its reader."""

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
