"""Helpers of the tests: a server, other programs, conditions to wait for."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import permits

T = TypeVar("T")

LIMIT = 300.0
"""The time in seconds after which what must come hangs: the limit of every wait."""


FIRST_PORT, BLOCKS, BLOCK = 11_000, 500, 20
"""The blocks of ports of the tests, in every language: `ports.rs` of the test kit says why."""

_locks: list[socket.socket] = []
_ports: list[int] = []


def _listener(port: int) -> socket.socket | None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError:
        listener.close()
        return None
    return listener


def free_port() -> int:
    """A port that no other server of any test gets before this process ends."""
    while True:
        while _ports:
            port = _ports.pop()
            if listener := _listener(port):
                listener.close()
                return port
        start = random.randrange(BLOCKS)
        for step in range(BLOCKS):
            first = FIRST_PORT + (start + step) % BLOCKS * BLOCK
            if lock := _listener(first):
                _locks.append(lock)
                _ports.extend(range(first + 1, first + BLOCK))
                break
        else:
            raise AssertionError("no block of ports is free")


class Server:
    """A redis-server of the tests, on a private port."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        program = os.environ.get("PERMITS_TEST_SERVER")
        program = program or shutil.which("redis-server") or shutil.which("valkey-server")
        assert program, "scripts/more/install-redis installs a server"
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen([program, *options, *arguments], stdout=log, stderr=log)

    def command(self, *words: str) -> bytes:
        """Sends a command, and returns the beginning of the reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as connection:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return connection.recv(4096)

    def __enter__(self) -> Server:
        until(self._answers)
        return self

    def _answers(self) -> bool:
        try:
            return self.command("PING")[:1] in (b"+", b"-")
        except OSError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()


def until(condition: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.002)


def comes_to_pass(story: Callable[[], bool]) -> None:
    """Repeats a story whose subject is real time until it comes to pass, at most ten times: on a slow machine the
    permit of a short lease may end for another reason."""
    assert any(story() for _ in range(10)), "the story never comes to pass"


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Runs `work` on a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def waiters(semaphore: permits.Semaphore, number: int) -> None:
    """Waits until the line has so many waiters."""
    until(lambda: semaphore.inspect().waiting == number)


def is_idle(semaphore: permits.Semaphore) -> bool:
    """True if nothing is held and nothing waits."""
    found = semaphore.inspect()
    return (found.held, found.waiting, found.holders, found.waiters) == (0, 0, (), ())


def comes_to_rest(semaphore: permits.Semaphore) -> permits.Inspection:
    """Waits until nobody waits, and what is held only cools. The end of a block does not wait for its release, so
    another session may see the permit for a moment longer."""
    end = time.monotonic() + LIMIT
    while True:
        found = semaphore.inspect()
        held = [holder for holder in found.holders if not holder.cooling]
        if found.waiting == 0 and not held:
            return found
        assert time.monotonic() < end, (semaphore.name, found.waiting, held)
        time.sleep(0.002)


class Program:
    """A Python program of a test. It gets arguments, prints lines, and ends."""

    def __init__(self, text: str, *arguments: str) -> None:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        """The next line that it prints; an empty one if it ends, or prints none in time."""
        assert self.process.stdout is not None
        late = threading.Timer(LIMIT, self.process.kill)
        late.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            late.cancel()

    def end(self, limit: float = LIMIT) -> tuple[int, str, str]:
        """Waits for its end: the exit code, the rest of its output, and its errors."""
        output, errors = self.process.communicate(timeout=limit)
        return self.process.returncode, output, errors

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
