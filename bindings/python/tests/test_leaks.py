"""Memory, threads and descriptors over many cycles."""

from __future__ import annotations

import sys

import pytest
from support import LIMIT, Program

TEXT = """
import asyncio, gc, os, sys, threading
import permits

def pages():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def counts():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(gc.get_objects())

client = permits.connect("memory:")
semaphore = client.semaphore("leaks", 2)

def blocking(cycles):
    for _ in range(cycles):
        with semaphore.acquire(timeout=300) as permit:
            permit.on_lost(print)
            permit.lost

async def tasks(cycles):
    for _ in range(cycles):
        async with semaphore.acquire():
            task = asyncio.ensure_future(semaphore.acquire(weight=2))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

def run(cycles):
    blocking(cycles // 2)
    # Event loops come and go.
    for _ in range(10):
        asyncio.run(tasks(cycles // 20))

cycles = int(sys.argv[1])
run(2000)
before, counted = pages(), counts()
run(cycles)
after = counts()
print(pages() - before, *(now - then for now, then in zip(after, counted)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cycles_leave_nothing(long: bool) -> None:
    """At full length, a leak of 20 bytes a cycle makes this fail. A leak of 400 bytes always does."""
    cycles = 100_000 if long else 5_000
    with Program(TEXT, str(cycles)) as program:
        code, output, errors = program.end(20 * LIMIT)
    assert (code, errors) == (0, "")
    memory, descriptors, threads, objects = map(int, output.split())
    print(f"{cycles} cycles: {memory} bytes, {descriptors} descriptors, {threads} threads, {objects} objects")
    assert memory < 2_000_000 and descriptors <= 0 and threads <= 0 and objects < 200
