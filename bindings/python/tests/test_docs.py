"""The Python blocks of the documents run, one after the other."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import permits
import pytest
from support import LIMIT, Server, is_idle

ROOT = Path(__file__).parents[3]


class _Signal:
    """A signal of a framework, which calls at once."""

    def connect(self, function: Callable[[], None]) -> Callable[[], None]:
        function()
        return function


@pytest.mark.parametrize(
    ("page", "least"), [("docs/python.md", 14), ("README.md", 1), ("bindings/python/README.md", 1)]
)
def test_the_blocks_of_a_page_run(
    page: str, least: int, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    celery = types.ModuleType("celery.signals")
    vars(celery).update(worker_process_init=_Signal(), worker_process_shutdown=_Signal())
    monkeypatch.setitem(sys.modules, "celery", types.ModuleType("celery"))
    monkeypatch.setitem(sys.modules, "celery.signals", celery)
    client = permits.connect(server.url, recovery="off")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= least
    for block in blocks:
        # The programs around a block: it has a client, and a semaphore without a pinned limit.
        exports = client.semaphore("exports", 4)
        scope: dict[str, Any] = {"__name__": page, "permits": permits, "asyncio": asyncio}
        scope.update(client=client, exports=exports)
        text = block.replace("redis://127.0.0.1/", f"{server.url}?recovery=off")
        code = compile(textwrap.dedent(text), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, scope)
        if asyncio.iscoroutine(running):
            asyncio.run(asyncio.wait_for(running, LIMIT))
        assert is_idle(exports), block
    client.close()
