"""Requests through the door of this package: the table of requests, which the tests of every door walk."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import permits
import pytest
from support import LIMIT, Server

TABLE = json.loads((Path(__file__).parents[3] / "crates/permits-testkit/requests.json").read_text())

Row = dict[str, Any]


def _options(row: Row) -> Any:
    return row.get("python", row.get("json"))


def _arrived(server: Server, semaphore: permits.Semaphore, options: Any) -> str:
    """Acquires, and returns what the server got, in the form of the table."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as monitor, monitor.makefile() as lines:
        monitor.sendall(b"MONITOR\r\n")
        assert lines.readline() == "+OK\n"
        semaphore.acquire(**options).wait().release()
        line = next(line for line in lines if '"EVALSHA"' in line and f'"{semaphore.name}"' in line)
    found = re.search(TABLE["arrives_as"], line.rstrip())
    assert found, line
    return " ".join(group or "-" for group in found.groups())


@pytest.mark.parametrize("row", TABLE["options"], ids=lambda row: row["field"])
def test_an_option_has_its_effect(row: Row, server: Server, name: str) -> None:
    with permits.connect(server.url, label="", recovery="off") as client:
        semaphore = client.semaphore(name, 9)
        if "arrives" in row:
            assert _arrived(server, semaphore, _options(row)) == row["arrives"]
        elif "refused" in row:
            with semaphore.acquire(weight=9), pytest.raises(permits.NotNowError, match=row["refused"]):
                semaphore.acquire(**_options(row)).wait()
        else:
            permit = semaphore.acquire(**_options(row)).wait()
            assert row["lost"] in str(permit.wait_lost())


@pytest.mark.parametrize("row", [row for row in TABLE["wrong"] if _options(row)], ids=lambda row: row["words"][:40])
def test_a_wrong_request_has_the_words_of_every_door(row: Row) -> None:
    with permits.connect("memory:") as client, pytest.raises(permits.InvalidInputError) as error:
        client.semaphore("n", 1).acquire(**_options(row))
    # The message shows the values as Python writes them.
    assert row["words"].replace(", not true", ", not True") in str(error.value)
    assert isinstance(error.value, ValueError)


def test_every_option_has_a_type() -> None:
    every = {name for row in TABLE["options"] for name in _options(row)}
    assert every == set(permits.AcquireOptions.__annotations__)
