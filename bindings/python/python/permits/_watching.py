"""The thread that calls back when permits are lost. It begins with the first callback, and ends before the interpreter."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable

from ._permits import Call, Mailbox
from .errors import LostError

Callback = Callable[[LostError], object]


class _Watcher:
    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.keys = itertools.count()
        self.watched: dict[int, tuple[Call[LostError | None], Callback]] = {}
        self.thread: threading.Thread | None = None
        self.starting = threading.Lock()
        self.has_ended = False

    def watch(self, call: Call[LostError | None], callback: Callback) -> None:
        with self.starting:
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="permits-lost", daemon=True)
                self.thread.start()
        key = next(self.keys)
        self.watched[key] = (call, callback)
        self.mailbox.note(key)

    def run(self) -> None:
        while self.mailbox.wait():
            for key in self.mailbox.take():
                # The permits that are lost because the process ends are not reported.
                if not self.has_ended:
                    self.step(key)

    def step(self, key: int) -> None:
        call, callback = self.watched[key]
        ended = call.poll(self.mailbox, key)
        if ended is None:
            self.mailbox.note(key)
        elif ended:
            del self.watched[key]
            try:
                lost = call.take()
                if lost is not None:
                    callback(lost)
            except Exception:
                logging.getLogger("permits").exception("a callback for a lost permit has failed")

    def stop(self) -> None:
        self.has_ended = True
        self.mailbox.close()
        if self.thread is not None:
            # A callback may block. Then the thread ends with the process.
            self.thread.join(1.0)


_watcher = _Watcher()


def watch(call: Call[LostError | None], callback: Callback) -> None:
    """Calls back when the permit is lost, on a thread of the package."""
    _watcher.watch(call, callback)


def stop() -> None:
    """Ends the thread."""
    _watcher.stop()


def _reset() -> None:
    """A forked child has no such thread, and the permits that it watched are the parent's."""
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_reset)
