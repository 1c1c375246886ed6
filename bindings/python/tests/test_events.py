"""What the library has to say is logged."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import permits
import pytest
from support import LIMIT, Program, Server, until


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    """The records of an event."""
    return [record for record in list(caplog.records) if getattr(record, "event", None) == event]


def test_a_limit_that_another_program_declares_is_a_warning(
    client: permits.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for limit in (2, 3):
        with client.semaphore(name, limit).acquire():
            pass
    until(lambda: logged(caplog, "limit_replaced"))
    record = logged(caplog, "limit_replaced")[0]
    assert (record.name, record.levelno) == ("permits", logging.WARNING)
    assert record.fields == {"semaphore": name, "from": 2, "to": 3}
    assert f'semaphore="{name}" from=2 to=3' in record.getMessage()


def test_a_pinned_limit_is_a_warning(client: permits.Client, name: str, caplog: pytest.LogCaptureFixture) -> None:
    semaphore = client.semaphore(name, 2)
    semaphore.set_limit(5)
    with semaphore.acquire():
        pass
    until(lambda: logged(caplog, "limit_differs"))


def test_a_server_that_came_back_empty_is_told(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "permits")
    with Server(tmp_path) as server, permits.connect(server.url, recovery="interval", lease=1) as client:
        semaphore = client.semaphore(name, 1)
        with semaphore.acquire() as permit:
            server.command("FLUSHALL")
            permit.renew()
            until(lambda: logged(caplog, "recovery_begun"))


def test_a_loss_is_a_warning(client: permits.Client, name: str, caplog: pytest.LogCaptureFixture) -> None:
    semaphore = client.semaphore(name, 1)
    permit = semaphore.acquire().wait()
    semaphore.revoke(permit.holder, "maintenance")
    until(lambda: logged(caplog, "revoked"))
    assert logged(caplog, "revoked")[0].fields["reason"] == "maintenance"


def test_a_handler_that_blocks_delays_no_callback(client: permits.Client, name: str) -> None:
    blocked, called, go_on = threading.Event(), threading.Event(), threading.Event()

    class Blocks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            blocked.set()
            go_on.wait(LIMIT)

    handler = Blocks()
    logging.getLogger("permits").addHandler(handler)
    try:
        permit = client.semaphore(f"{name}-lost", 1).acquire().wait()
        permit.on_lost(lambda lost: called.set())
        for limit in (2, 3):
            with client.semaphore(name, limit).acquire():
                pass
        assert blocked.wait(LIMIT)
        client.semaphore(f"{name}-lost").revoke(permit.holder)
        assert called.wait(LIMIT)
    finally:
        go_on.set()
        logging.getLogger("permits").removeHandler(handler)


HEAD = """
import logging, os, sys
import permits
def work(client):
    for limit in (2, 3):
        with client.semaphore(sys.argv[1], limit).acquire():
            pass
"""


def test_a_program_without_logging_sees_nothing(name: str) -> None:
    with Program(HEAD + "work(permits.connect('memory:'))", name) as program:
        assert program.end() == (0, "", "")


def test_a_forked_child_that_connects_works_on(name: str) -> None:
    text = """
logging.basicConfig(stream=sys.stdout)
parent = permits.connect('memory:')
child = os.fork()
if child == 0:
    client = permits.connect('memory:')
    work(client)
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    with Program(HEAD + text, name) as program:
        assert program.end() == (0, "", "")
