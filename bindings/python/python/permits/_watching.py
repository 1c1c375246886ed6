"""The thread that watches permits and takes the events of the library. It begins with the first client, and ends before the
interpreter.

Each callback runs on a thread of its own, and so does the logging of events, which may block in a handler of the program.
So nothing delays a callback past the deadline of its permit.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ._permits import Call, Mailbox, events
from ._waiting import readable, threads_are_greenlets
from .errors import LostError

Callback = Callable[[LostError], object]

# The key of the call for events.
_EVENTS = 0

_logger = logging.getLogger("permits")
# Do as the libraries of Python do: a program that has not configured logging sees nothing.
_logger.addHandler(logging.NullHandler())


class _Watcher:
    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.keys = itertools.count(_EVENTS + 1)
        self.events: Call[str] | None = None
        self.watched: dict[int, tuple[Call[LostError | None], Callback]] = {}
        self.thread: threading.Thread | None = None
        self.starting = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.has_ended = False

    def start(self) -> None:
        with self.starting:
            # The thread is not alive if it could not be started before.
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self.run, name="permits-watch", daemon=True)
                self.thread.start()
            if self.events is None:
                self.events = events()
                self.mailbox.note(_EVENTS)

    def watch(self, call: Call[LostError | None], callback: Callback) -> None:
        self.start()
        key = next(self.keys)
        self.watched[key] = (call, callback)
        self.mailbox.note(key)

    def run(self) -> None:
        while self.wait():
            for key in self.mailbox.take():
                # If permits are lost because the process ends, nobody is told.
                if not self.has_ended:
                    self.step(key)

    def wait(self) -> bool:
        """Waits until calls have to be polled. False if the thread has to end."""
        if not threads_are_greenlets():
            return self.mailbox.wait()
        readable(self.mailbox)
        return not self.has_ended

    def log(self, call: Call[str]) -> None:
        ended = call.poll(self.mailbox, _EVENTS)
        if ended is None:
            self.mailbox.note(_EVENTS)
        elif ended:
            self.on_thread(self.log_all, json.loads(call.take()))

    def log_all(self, taken: list[dict[str, Any]]) -> None:
        """Logs events, and only then asks for the next ones: the queue of the library is bounded."""
        try:
            for event in taken:
                _log(**event)
        finally:
            self.events = events()
            self.mailbox.note(_EVENTS)

    def step(self, key: int) -> None:
        if key == _EVENTS and self.events is not None:
            return self.log(self.events)
        call, callback = self.watched[key]
        ended = call.poll(self.mailbox, key)
        if ended is None:
            self.mailbox.note(key)
        elif ended:
            del self.watched[key]
            lost = call.take()
            if lost is not None:
                self.on_thread(_run, callback, lost)

    def on_thread(self, work: Callable[..., None], *arguments: object) -> None:
        """Runs code of the program, which may block."""
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        thread = threading.Thread(target=work, args=arguments, name="permits-calls", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system refuses another thread.
            work(*arguments)
        else:
            self.threads.append(thread)

    def stop(self) -> None:
        self.has_ended = True
        self.mailbox.close()
        # A callback or a handler may block. Wait a second; after that its thread ends with the process.
        end = time.monotonic() + 1.0
        if self.thread is not None and self.thread.is_alive():
            self.thread.join(1.0)
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))


def _run(callback: Callback, lost: LostError) -> None:
    try:
        callback(lost)
    except BaseException:
        # Python reports no SystemExit of a thread, so a callback that calls sys.exit() would fail in silence.
        _logger.exception("a callback for a lost permit has failed")


def _log(event: str, level: str, message: str, fields: list[tuple[str, object]]) -> None:
    text = " ".join([message, *(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields)])
    levels = {"error": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO}
    _logger.log(levels[level], "%s", text, extra={"event": event, "fields": dict(fields)})


_watcher = _Watcher()


def watch(call: Call[LostError | None], callback: Callback) -> None:
    """Calls back when the permit is lost, on a thread of its own."""
    _watcher.watch(call, callback)


def start() -> None:
    """Begins to log the events of the library."""
    try:
        _watcher.start()
    except RuntimeError:
        # The system refuses another thread: the program works without its log.
        pass


def stop() -> None:
    """Ends the thread."""
    _watcher.stop()


def _reset() -> None:
    """A forked child has no such thread, and the permits that it watched are the parent's."""
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_reset)
