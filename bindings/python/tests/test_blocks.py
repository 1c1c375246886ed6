"""The end of a block releases its permit, and does not wait for the store."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import permits
import pytest
from support import Program, Server, in_thread, is_idle, until, waiters

HEAD = """
import asyncio, os, sys, threading
import permits
client = permits.connect(sys.argv[1], recovery="off", lease=600)
semaphore = client.semaphore(sys.argv[2], 1)
"""

# Programs that end right after a block. The leases are 10 minutes long, so only a release frees a unit.
ENDS = {
    "the program": "with semaphore.acquire(): pass",
    "an exception": "with semaphore.acquire(): sys.exit(3)",
    "the event loop": """
async def main():
    async with semaphore.acquire(): pass
asyncio.run(main())
""",
    "a thread": """
def work():
    with semaphore.acquire(): pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "a fork": """
with semaphore.acquire(): pass
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_after_a_block_has_released(server: Server, name: str, end: str) -> None:
    with Program(HEAD + ENDS[end], server.url, name) as program:
        code, _, errors = program.end()
    assert (code, errors) == (3 if end == "an exception" else 0, "")
    with permits.connect(server.url, recovery="off") as client:
        assert is_idle(client.semaphore(name, 1))


def test_the_release_is_with_the_system_when_the_block_has_ended(server: Server, name: str) -> None:
    with Program(HEAD + "with semaphore.acquire(): pass\nos._exit(0)", server.url, name) as program:
        assert program.end()[0] == 0
    with permits.connect(server.url, recovery="off") as client:
        semaphore = client.semaphore(name, 1)
        until(lambda: is_idle(semaphore))


def test_a_block_ends_while_the_server_is_away(tmp_path: Path, name: str) -> None:
    many = 3_000
    with Server(tmp_path) as server, permits.connect(server.url, recovery="off", lease=600) as client:
        semaphore = client.semaphore(name, many)
        with ExitStack() as stack:
            for _ in range(many):
                stack.enter_context(semaphore.acquire())
            server.process.send_signal(signal.SIGSTOP)
        # The end of the block would have waited here. What the socket does not take is sent later.
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGCONT)
        until(lambda: is_idle(semaphore))


def test_a_block_of_asyncio_ends_while_the_server_is_away(tmp_path: Path, name: str) -> None:
    with Server(tmp_path) as server, permits.connect(server.url, recovery="off", lease=600) as client:
        semaphore = client.semaphore(name, 1)

        async def block() -> None:
            async with semaphore.acquire():
                server.process.send_signal(signal.SIGSTOP)

        asyncio.run(block())
        server.process.send_signal(signal.SIGCONT)
        until(lambda: is_idle(semaphore))


def test_the_next_request_of_a_task_follows_its_release(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    for _ in range(100):
        with semaphore.acquire():
            pass
        # The permit of the block is free, so there is no need to wait.
        with semaphore.acquire(timeout=0):
            pass


def test_the_next_request_of_a_task_is_behind_those_that_wait(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    order = []

    def work() -> None:
        with semaphore.acquire():
            order.append("the other")

    with semaphore.acquire():
        waiting = in_thread(work)
        waiters(semaphore, 1)
    with semaphore.acquire():
        order.append("this one")
    waiting.result()
    assert order == ["the other", "this one"]


def test_a_block_whose_permit_was_released_or_handed_over_ends_quietly(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire() as permit:
        permit.release()
    with semaphore.acquire() as permit:
        handle = permit.hand_over()
    assert client.release(handle)


def test_a_loss_in_a_set_is_raised_when_all_are_released(client: permits.Client, name: str) -> None:
    first, second = client.semaphore(f"{name}-1", 1), client.semaphore(f"{name}-2", 1)
    with pytest.raises(permits.LostError) as error, client.acquire_all([first, second]) as held:
        first.revoke(held[first.name].holder, "maintenance")
        held[first.name].wait_lost()
    assert error.value.reason == "maintenance"
    until(lambda: is_idle(second))


def test_a_block_that_ends_in_a_forked_child_is_the_parents(server: Server, name: str) -> None:
    text = """
child = None
try:
    with semaphore.acquire() as permit:
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert permit.is_held and semaphore.inspect().held == 1
except permits.LostError:
    os._exit(0 if child == 0 else 1)
"""
    with Program(HEAD + text, server.url, name) as program:
        code, _, errors = program.end()
    assert (code, errors) == (0, "")
