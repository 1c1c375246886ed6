"""Programs that gevent or eventlet has patched: a wait in one greenlet lets the others run."""

from __future__ import annotations

import importlib.util

import permits
import pytest
from support import Program, Server, is_idle

PATCHED = {
    "gevent": "import gevent as greenlets, gevent.monkey\ngevent.monkey.patch_all()\n",
    # eventlet warns that it is no longer developed.
    "eventlet": "import warnings\nwarnings.simplefilter('ignore')\nimport eventlet as greenlets\ngreenlets.monkey_patch()\n",
}

PROGRAM = """
import sys, threading, time
import permits

client = permits.connect(sys.argv[1], recovery="off")
semaphore = client.semaphore(sys.argv[2], 1)

def until(is_true):
    while not is_true():
        time.sleep(0.01)

# The first greenlet holds until the second one waits.
def work():
    with semaphore.acquire():
        if not done:
            until(lambda: semaphore.inspect().waiting == 1)
        done.append(True)

done = []
workers = [threading.Thread(target=work) for _ in range(2)]
for each in workers:
    each.start()
for each in workers:
    each.join()
print(len(done), flush=True)

# A greenlet that is ended while it waits leaves the line, and so does one whose acquisition is cancelled.
permit = semaphore.acquire().wait()
waiting = greenlets.spawn(work)
until(lambda: semaphore.inspect().waiting == 1)
greenlets.kill(waiting)
until(lambda: semaphore.inspect().waiting == 0)
acquisition, errors = semaphore.acquire(), []

def wait():
    try:
        acquisition.wait()
    except permits.CancelledError as error:
        errors.append(error)

greenlets.spawn(wait)
until(lambda: semaphore.inspect().waiting == 1)
acquisition.cancel()
until(lambda: errors)

lost = []
assert permit.wait_lost(0.01) is None
permit.on_lost(lost.append)
semaphore.revoke(permit.holder, "maintenance")
print(permit.wait_lost().reason, flush=True)
until(lambda: lost)
print(lost[0].reason, flush=True)
kept = semaphore.acquire().wait()
"""


@pytest.mark.parametrize("package", PATCHED)
def test_a_wait_lets_other_greenlets_run(package: str, server: Server, name: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} not installed: scripts/test-python --integrations")
    with Program(PATCHED[package] + PROGRAM, server.url, name) as program:
        assert program.end() == (0, "2\nmaintenance\nmaintenance\n", "")
    with permits.connect(server.url) as client:
        assert is_idle(client.semaphore(name)), "the client was closed at the end"
