"""The end of the process: the clients that are open are closed, which releases what is held.

It happens before the interpreter ends, while threads can still run.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from weakref import WeakSet

from . import _watching
from ._permits import Client, exit_begins
from ._waiting import block_on
from .errors import PermitsError

_open: WeakSet[Client] = WeakSet()
_is_registered = False


def opened(client: Client) -> None:
    """Closes the client with the process, unless it is closed before."""
    global _is_registered
    _open.add(client)
    processes = sys.modules.get("multiprocessing.process")
    # A worker of multiprocessing ends without atexit.
    if not _is_registered and processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        _is_registered = True
        Finalize(None, _close_worker, exitpriority=0)


def closed(client: Client) -> None:
    """Notes that the client is closed."""
    _open.discard(client)


def _close_worker() -> None:
    # multiprocessing does this before it waits for the other threads, which may still work and hold permits. At the end
    # of any other process they have ended before.
    threading._shutdown()  # type: ignore[attr-defined]
    _close_all()


def _close_all() -> None:
    exit_begins()
    if sys.is_finalizing():
        # The end of the process ends this subinterpreter, where a thread that waits would never continue.
        for client in list(_open):
            client.call("close").start()
        return
    try:
        _watching.stop()
    finally:
        # Close them even if a signal ends the wait for a callback.
        _close_clients()


def _close_clients() -> None:
    calls = [client.call("close") for client in list(_open)]
    for call in calls:
        call.start()
    for call in calls:
        try:
            block_on(call)
        except PermitsError:
            # The leases end by themselves.
            pass
    _open.clear()


def _forget_all() -> None:
    """Forgets the clients in a forked child: they belong to the parent."""
    global _is_registered
    _is_registered = False
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
