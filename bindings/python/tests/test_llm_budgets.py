"""docs/use/llm-budgets.md: its program, beside a small API that counts as such APIs do: a call when it has ended."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import documents
import permits
import pytest
from support import LIMIT, Server, comes_to_rest

BUDGET = {"requests": 500, "tokens": 90_000}

# Seconds. The page has a minute and 15 s. A call takes LONG at first and SHORT later, so its end moves within the window.
WINDOW, LONGEST_CALL, LONG, SHORT, BUSY = 2.0, 1.0, 0.3, 0.02, 0.5
CALLS = 260


class _Api:
    """Counts the calls that ended in the last WINDOW seconds. It refuses none for that, but says how many it would have.

    After the call of the number `busy` somebody else has used up the budget for BUSY seconds, so it refuses what begins
    in that time. It says so in its headers before, or not."""

    def __init__(self, busy: int = 0, says_so: bool = False) -> None:
        self.ended: list[tuple[float, int]] = []
        self.over, self.most, self.refused, self.begun = 0, 0, 0, 0
        self.longest = 0.0
        self._busy, self._says_so, self._busy_until, self._start = busy, says_so, 0.0, time.monotonic()

    async def send(self, prompt: str) -> SimpleNamespace:
        self.begun += 1
        number, began = self.begun, time.monotonic()
        if began < self._busy_until:
            self.refused += 1
            headers = {"retry-after": str(self._busy_until - began)}
            return SimpleNamespace(status=429, tokens=0, headers=headers)
        await asyncio.sleep(LONG if began - self._start < WINDOW / 2 else SHORT)
        ended, headers = time.monotonic(), {"x-ratelimit-remaining-tokens": "1"}
        self.longest = max(self.longest, ended - began)
        self.ended.append((ended, 700))
        recent = [tokens for at, tokens in self.ended if at > ended - WINDOW]
        self.most = max(self.most, sum(recent))
        self.over += sum(recent) > BUDGET["tokens"] or len(recent) > BUDGET["requests"]
        if number == self._busy:
            self._busy_until = ended + BUSY
            if self._says_so:
                headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": str(BUSY)}
        return SimpleNamespace(status=200, tokens=700, headers=headers)


async def _asked(server: Server, margin: float, api: _Api) -> list[str]:
    """Three hosts, ten tenants, and one that asks once when the others are in line. The tenants in the order of replies."""
    (block,) = documents.of(__file__)
    text = block.replace("MINUTE, LONGEST_CALL = 60, 15", f"MINUTE, LONGEST_CALL = {WINDOW}, {margin}")
    assert text != block, "the page has the two times"
    text = text.replace("redis://127.0.0.1/", f"{server.url}?recovery=off")
    hosts: list[dict[str, Any]] = [{"__name__": "page", "send": api.send} for _ in range(3)]
    answered: list[str] = []

    async def ask(host: dict[str, Any], tenant: str) -> None:
        reply = await host["ask"](tenant, "a prompt", 2000)
        assert reply.status == 200
        answered.append(tenant)

    try:
        for host in hosts:
            exec(compile(text, "llm-budgets.md", "exec"), host)
        tasks = [asyncio.ensure_future(ask(hosts[n % 3], f"tenant-{n % 10}")) for n in range(CALLS - 1)]
        await asyncio.sleep(WINDOW / 4)
        tasks.append(asyncio.ensure_future(ask(hosts[0], "small")))
        await asyncio.wait_for(asyncio.gather(*tasks), LIMIT)
        for name in ("llm-calls", "llm-requests", "llm-tokens"):
            semaphore = hosts[0]["client"].semaphore(name)
            state = await asyncio.to_thread(comes_to_rest, semaphore)
            await semaphore.apause(0.001)
            for holder in state.holders:
                await semaphore.arevoke_cooling(holder.holder, holder.token)
    finally:
        for host in hosts:
            if "client" in host:
                await host["client"].aclose()
    return answered


def _in_real_time(server: Server, margin: float, busy: int = 0, says_so: bool = False) -> tuple[_Api, list[str]]:
    """Again, if the machine stood still for longer than the margin of the program."""
    for _ in range(10):
        api = _Api(busy, says_so)
        answered = asyncio.run(_asked(server, margin, api))
        assert len(answered) == CALLS
        if api.longest < LONGEST_CALL * 0.8:
            return api, answered
    pytest.fail("ten times a call took longer than the longest one")


def test_the_margin_of_the_page_keeps_the_budget_of_an_api_that_counts_ended_calls(server: Server) -> None:
    api, answered = _in_real_time(server, LONGEST_CALL)
    print(f"with the margin: at most {api.most:,} of {BUDGET['tokens']:,}; {api.over} of {CALLS} would be refused")
    assert (api.over, api.refused, api.begun) == (0, 0, CALLS)
    assert answered.index("small") < CALLS - 100, "the tenant with one prompt did not wait for the others"


def test_without_the_margin_the_api_sees_more_than_its_budget(server: Server) -> None:
    api, _ = _in_real_time(server, 0)
    print(f"without it: at most {api.most:,} of {BUDGET['tokens']:,}; {api.over} of {CALLS} would be refused")
    assert api.over > 0


@pytest.mark.parametrize(("says_so", "least", "most"), [(True, 0, 20), (False, 1, 20)])
def test_a_header_or_the_first_429_pauses_all_hosts(server: Server, says_so: bool, least: int, most: int) -> None:
    api, _ = _in_real_time(server, LONGEST_CALL, 60, says_so)
    print(f"{api.refused} of {api.begun} calls were refused")
    assert least <= api.refused <= most, "those alone that were granted before the pause"
