"""The Python blocks of the documents: they run, one after the other, and in several copies at once keep their limits."""

from __future__ import annotations

import ast
import asyncio
import functools
import textwrap
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import documents
import permits
import pytest
from documents import BLOCKS, Block
from support import LIMIT, Server, comes_to_rest, in_thread, is_idle, until

def _run(block: str, server: Server, scope: dict[str, Any]) -> None:
    """Runs a block in this scope, on this server."""
    text = block.replace("redis://127.0.0.1/", f"{server.url}?recovery=off")
    scope.update({"__name__": "block", "permits": permits, "asyncio": asyncio})
    code = compile(textwrap.dedent(text), "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, scope)
    if asyncio.iscoroutine(running):
        asyncio.run(asyncio.wait_for(running, LIMIT))


ALONE = {block.page: [of.text for of in BLOCKS if of.page == block.page and not of.words] for block in BLOCKS if not block.words}


@pytest.mark.parametrize("page", ALONE)
def test_the_blocks_without_words_run(page: str, server: Server) -> None:
    client = permits.connect(server.url, recovery="off")
    for block in ALONE[page]:
        # A block may use what its page has made before: a client, and a semaphore without a pinned limit.
        exports = client.semaphore("exports", 4)
        _run(block, server, {"client": client, "exports": exports})
        assert is_idle(exports), block
    client.close()


JOBS = [101] * 8 + [1] * 4


class _Calls:
    """Functions that count their calls, and how many of them overlap. A heavy job is 5 units. The first call is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self._fresh()
        self.runs, self.most = self._fresh(), self._fresh()

    @staticmethod
    def _fresh() -> Counter[str]:
        return Counter()

    def named(self, name: str) -> Callable[..., SimpleNamespace]:
        def call(*arguments: int) -> SimpleNamespace:
            units = 5 if arguments == (101,) else 1
            with self._lock:
                self.runs[name] += 1
                status = 429 if self.runs[name] == 1 else 200
                self._running[name] += units
                self.most[name] = max(self.most[name], self._running[name])
                assert not self._running["write"] or sum(self._running.values()) == 1, "a writer is alone"
            time.sleep(0.02)
            with self._lock:
                self._running[name] -= units
            return SimpleNamespace(status=status, headers={"Retry-After": "0.1"}, tokens=700)

        return call


COPIES = [block for block in BLOCKS if block.words.startswith("copies=")]


@pytest.mark.parametrize("block", COPIES, ids=lambda block: block.heading)
def test_copies_of_a_block_call_their_functions_as_often_as_its_words_say(block: Block, server: Server) -> None:
    copies, *words = block.words.split()
    # How often each function runs, and how many units it may have at once.
    functions = {name: [int(number) for number in numbers.split("/")] for name, numbers in (word.split("=") for word in words)}
    calls, jobs, prefix = _Calls(), iter(JOBS), uuid.uuid4().hex
    scope: dict[str, Any] = {name: calls.named(name) for name in functions}
    scope["next_job"] = functools.partial(next, jobs, None)
    # Each copy is a host with a client of its own.
    clients = [permits.connect(server.url, recovery="off", prefix=prefix) for _ in range(int(copies.removeprefix("copies=")))]
    scopes = [{**scope, "client": client} for client in clients]
    running = [in_thread(functools.partial(_run, block.text, server, own)) for own in scopes]
    for copy in running:
        copy.result(LIMIT)
    assert calls.runs == {name: runs for name, (runs, _) in functions.items()}
    over = {name: calls.most[name] for name, (_, most) in functions.items() if calls.most[name] > most}
    assert not over
    for name in clients[0].list():
        comes_to_rest(clients[0].semaphore(name))
    for client in clients:
        client.close()


def test_the_blocks_are_found() -> None:
    assert len(ALONE) >= 10 and len(COPIES) >= 10


def test_the_controller_of_the_cookbook_raises_and_halves_the_limit(server: Server) -> None:
    (block,) = documents.of(__file__)
    with permits.connect(server.url, recovery="off", prefix=uuid.uuid4().hex) as client:
        api, limits = client.semaphore("api", 8), []

        def wait(_seconds: float) -> bool:
            """Before the second step a worker is refused, and before the fourth its pause ends."""
            limits.append(api.inspect().limit)
            if len(limits) == 2:
                api.pause(60, "429")
            if len(limits) == 4:
                api.resume()
            return is_set()

        def is_set() -> bool:
            return len(limits) == 5

        with api.acquire(weight=8):
            waiter = in_thread(api.acquire(weight=2).wait)
            until(lambda: api.inspect().waiting == 1)
            _run(block, server, {"client": client, "stopping": SimpleNamespace(wait=wait, is_set=is_set)})
        assert limits == [8, 9, 4, 4, 5]
        waiter.result(LIMIT).release()
