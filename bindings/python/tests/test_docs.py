"""The Python blocks of the documents: they run, one after the other, and those of the cookbook keep their limits."""

from __future__ import annotations

import ast
import asyncio
import functools
import re
import textwrap
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import permits
import pytest
from support import LIMIT, Server, in_thread, is_idle, until

ROOT = Path(__file__).parents[3]


def _blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _run(block: str, server: Server, scope: dict[str, Any]) -> None:
    """Runs a block in this scope, on this server."""
    text = block.replace("redis://127.0.0.1/", f"{server.url}?recovery=off")
    scope.update({"__name__": "block", "permits": permits, "asyncio": asyncio})
    code = compile(textwrap.dedent(text), "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, scope)
    if asyncio.iscoroutine(running):
        asyncio.run(asyncio.wait_for(running, LIMIT))


# The pages of tasks. test_llm_budgets.py has the other one.
USE = ["ending", "keep", "lanes", "limits", "losing", "newest", "pause", "rates", "several", "slots", "waiting"]


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("README.md", 1),
        ("docs/start.md", 1),
        *((f"docs/use/{page}.md", 1) for page in USE),
        ("docs/reference/errors.md", 1),
        ("docs/languages/python.md", 10),
        ("docs/migration.md", 3),
        ("bindings/python/README.md", 1),
    ],
)
def test_the_blocks_of_a_page_run(page: str, least: int, server: Server) -> None:
    client = permits.connect(server.url, recovery="off")
    blocks = [block for block in _blocks((ROOT / page).read_text()) if "import pytest" not in block]
    assert len(blocks) >= least
    for block in blocks:
        # The programs around a block: it has a client, and a semaphore without a pinned limit.
        exports = client.semaphore("exports", 4)
        _run(block, server, {"client": client, "exports": exports})
        assert is_idle(exports), block
    client.close()


JOBS = [101] * 8 + [1] * 4

# The entries of the cookbook: copies that run at once, and of each function how often it runs, and its units at once at most.
COOKBOOK: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "A mutex": (4, {"post": (4, 1)}),
    "So many a minute, and so many at once": (12, {"call_api": (12, 8)}),
    "Tokens a minute of a paid API": (12, {"call_api": (12, 12)}),
    "When the API says no": (6, {"call_api": (7, 8)}),
    "A limit that adapts": (0, {}),
    "A door that opens every 200 ms": (4, {"step": (4, 1)}),
    "A limit for each tenant, within a limit for all": (12, {"call_api": (12, 10)}),
    "Tenants of one API": (12, {"call_api": (12, 8)}),
    "Interactive before batch": (10, {"reindex": (10, 8), "answer": (10, 8)}),
    "Room for urgent work": (10, {"reindex": (10, 6), "answer": (10, 8)}),
    "Readers and a writer": (4, {"read": (8, 4), "write": (4, 1)}),
    "A licence that lingers": (8, {"simulate": (8, 8)}),
    "One cron job over many hosts": (4, {"backup": (1, 1)}),
    "A deploy lock": (4, {"deploy": (4, 1)}),
    "Database migrations": (4, {"migrate": (4, 1)}),
    "The workers of a job queue": (6, {"work": (12, 20)}),
}


class _Calls:
    """Functions that count their calls, and those that overlap. A heavy job is 5 units. The first call is refused."""

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


def test_the_blocks_of_the_cookbook_do_what_it_says(server: Server) -> None:
    entries = (ROOT / "docs/cookbook.md").read_text().split("\n## ")[1:]
    blocks = {entry.partition("\n")[0]: block for entry in entries for block in _blocks(entry)}
    assert sorted(blocks) == sorted(COOKBOOK), "each entry of the page is tested"
    for heading, (copies, functions) in COOKBOOK.items():
        if copies == 0:  # tested below
            continue
        calls, jobs, prefix = _Calls(), iter(JOBS), uuid.uuid4().hex
        scope: dict[str, Any] = {name: calls.named(name) for name in functions}
        scope["next_job"] = functools.partial(next, jobs, None)
        # Each copy is a host with a client of its own.
        clients = [permits.connect(server.url, recovery="off", prefix=prefix) for _ in range(copies)]
        scopes = [{**scope, "client": client} for client in clients]
        running = [in_thread(functools.partial(_run, blocks[heading], server, own)) for own in scopes]
        for copy in running:
            copy.result(LIMIT)
        assert calls.runs == {name: runs for name, (runs, _) in functions.items()}, heading
        over = {name: calls.most[name] for name, (_, most) in functions.items() if calls.most[name] > most}
        assert not over, heading
        for name in clients[0].list():
            state = clients[0].semaphore(name).inspect()
            assert (state.waiting, [holder for holder in state.holders if not holder.cooling]) == (0, []), name
        for client in clients:
            client.close()


def test_the_controller_of_the_cookbook_raises_and_halves_the_limit(server: Server) -> None:
    entries = (ROOT / "docs/cookbook.md").read_text().split("\n## ")
    (entry,) = (entry for entry in entries if entry.startswith("A limit that adapts"))
    (block,) = _blocks(entry)
    with permits.connect(server.url, recovery="off", prefix=uuid.uuid4().hex) as client:
        api, limits = client.semaphore("api", 8), []

        def wait(_seconds: float) -> bool:
            """Between two steps nothing happens, but before the second a worker is refused."""
            limits.append(api.inspect().limit)
            if len(limits) == 2:
                api.pause(60, "429")
            return len(limits) == 4

        with api.acquire(weight=8):
            waiter = in_thread(api.acquire(weight=2).wait)
            until(lambda: api.inspect().waiting == 1)
            _run(block, server, {"client": client, "stopping": SimpleNamespace(wait=wait)})
        assert limits == [8, 9, 4, 5]
        api.resume()
        waiter.result(LIMIT).release()
