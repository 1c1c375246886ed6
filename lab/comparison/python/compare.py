"""`permits` beside other packages for Python, in one run on one private server. Writes the tables of lab/packages.md.

A cycle is an acquisition and its release, without contention. In the crowd, tasks of one process want one place: each waits,
holds it for 2 ms, releases it, and repeats that. A grant overtakes if a request that began at least 2 ms earlier still waits.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import permits
import pottery
import redis
import redis.asyncio
import self_limiters

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "bindings" / "python" / "tests"))
from support import Server  # noqa: E402

PAGE = ROOT / "lab" / "packages.md"
BEGIN, END = "<!-- figures of scripts/lab python -->", "<!-- end of figures of scripts/lab python -->"
ROUNDS = 5
CYCLES = 500
TASKS, TURNS, HOLD = 32, 5, 0.002


def blocking_cycles(port: int, name: str) -> dict[str, Callable[[], None]]:
    """A cycle of each package, in a thread."""
    client = permits.connect(f"redis://127.0.0.1:{port}/", recovery="off")
    semaphore = client.semaphore(name, 1)
    server = redis.Redis(port=port)

    def ours() -> None:
        with semaphore.acquire():
            pass

    def lock() -> None:
        with server.lock(f"lock/{name}", timeout=15):
            pass

    def redlock() -> None:
        with pottery.Redlock(key=f"redlock/{name}", masters={server}, auto_release_time=15):
            pass

    def pings() -> None:
        server.ping()
        server.ping()

    return {"permits": ours, "redis-py Lock": lock, "pottery Redlock": redlock, "redis-py, two PINGs": pings}


def asyncio_locks(port: int, name: str, client: permits.Client) -> dict[str, Callable[[], Any]]:
    """The lock of each package, on asyncio."""
    semaphore = client.semaphore(name, 1)
    server = redis.asyncio.Redis(port=port, max_connections=2 * TASKS)
    url = f"redis://127.0.0.1:{port}"
    limiter = self_limiters.Semaphore(f"limiter/{name}", 1, 60.0, 60, url, TASKS)

    @asynccontextmanager
    async def redlock() -> AsyncIterator[None]:
        async with pottery.AIORedlock(key=f"redlock/{name}", masters={server}, auto_release_time=15):
            yield

    return {
        "permits": semaphore.acquire,
        "self-limiters Semaphore": lambda: limiter,
        "redis-py Lock": lambda: server.lock(f"lock/{name}", timeout=15),
        "pottery AIORedlock": redlock,
    }


def median_us(times: list[float]) -> float:
    return statistics.median(times) * 1e6


def time_blocking(cycle: Callable[[], None]) -> float:
    times = []
    for _ in range(CYCLES):
        began = time.perf_counter()
        cycle()
        times.append(time.perf_counter() - began)
    return median_us(times)


async def time_asyncio(lock: Callable[[], Any]) -> float:
    times = []
    for _ in range(CYCLES):
        began = time.perf_counter()
        async with lock():
            pass
        times.append(time.perf_counter() - began)
    return median_us(times)


async def crowd(lock: Callable[[], Any]) -> tuple[float, float, float, int]:
    """The time per turn and the waits in ms, and the number of grants that overtook."""
    asked: list[float] = []
    waits: list[float] = []
    overtook = 0

    async def work() -> None:
        nonlocal overtook
        for _ in range(TURNS):
            began = time.perf_counter()
            asked.append(began)
            async with lock():
                asked.remove(began)
                waits.append(time.perf_counter() - began)
                overtook += any(other < began - 0.002 for other in asked)
                await asyncio.sleep(HOLD)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(TASKS)))
    turn = (time.perf_counter() - began) / (TASKS * TURNS)
    waits.sort()
    return turn * 1e3, median_us(waits) / 1e3, waits[int(len(waits) * 0.99)] * 1e3, overtook


async def on_asyncio(
    port: int, measure: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> dict[str, list[Any]]:
    """The measurements of each package, in turns."""
    found: dict[str, list[Any]] = {}
    async with await permits.aconnect(f"redis://127.0.0.1:{port}/", recovery="off") as client:
        for _ in range(ROUNDS):
            for package, lock in asyncio_locks(port, uuid.uuid4().hex, client).items():
                found.setdefault(package, []).append(await measure(lock))
    return found


def ratio(value: float, ours: float) -> str:
    return f"{value / ours:.2f}"


def table(head: str, rows: list[list[str]]) -> str:
    columns = head.count("|") - 1
    lines = [head, "|---|" + "---:|" * (columns - 1), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory)) as server:
        blocking: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for package, cycle in blocking_cycles(server.port, uuid.uuid4().hex).items():
                blocking.setdefault(package, []).append(time_blocking(cycle))
        cycles = asyncio.run(on_asyncio(server.port, time_asyncio))
        crowds = asyncio.run(on_asyncio(server.port, crowd))
    rows = []
    for face, found in (("a thread", blocking), ("asyncio", cycles)):
        ours = statistics.median(found["permits"])
        for package, values in found.items():
            value = statistics.median(values)
            rows.append([f"{face}: {package}", f"{value:.0f}", ratio(value, ours)])
    alone = table("| a cycle without contention | p50, µs | beside `permits` |", rows)
    rows = []
    middle = {package: [statistics.median(each) for each in zip(*found)] for package, found in crowds.items()}
    for package, (turn, half, most, overtook) in middle.items():
        share = f"{100 * overtook / (TASKS * TURNS):.0f} %"
        rows.append([package, f"{turn:.2f}", f"{half:.0f}", f"{most:.0f}", ratio(most, middle["permits"][2]), share])
    head = "| 32 tasks, one place, held for 2 ms | a turn, ms | wait p50, ms | wait p99, ms | beside `permits` | grants that overtook |"
    versions = ", ".join(f"{package} {version(package)}" for package in ("redis", "pottery", "self-limiters"))
    text = f"Python {platform.python_version()}, {versions}:\n\n{alone}\n\n{table(head, rows)}"
    print(text)
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
