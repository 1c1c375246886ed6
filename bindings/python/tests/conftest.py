"""Fixtures: stores, clients, and names that no other test uses."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import permits
import pytest
from support import Server

pytest_plugins = ["pytester"]


def pytest_configure() -> None:
    # A process that was started in the background may ignore SIGINT, and so do the processes that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long tests at full length")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A private redis-server."""
    with Server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", "local", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    if request.param == "memory":
        return f"memory:{uuid.uuid4()}"
    if request.param == "local":
        return f"local:{tmp_path}/permits"
    server: Server = request.getfixturevalue("server")
    return server.url


@pytest.fixture
def client(url: str) -> Iterator[permits.Client]:
    client = permits.connect(url, recovery="off")
    yield client
    client.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a semaphore."""
    return f"{request.function.__name__}/{uuid.uuid4().hex[:8]}"
