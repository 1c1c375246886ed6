"""The facts on asyncio: tasks wait, are cancelled, and leave nothing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import permits
import pytest
from support import LIMIT, Server, in_thread, is_idle


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a test on an event loop of its own."""

    async def limited() -> None:
        await asyncio.wait_for(main(), LIMIT)

    asyncio.run(limited())


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[permits.Client, None]:
    async with await permits.aconnect(url, recovery="off") as client:
        yield client


async def waiters(semaphore: permits.Semaphore, number: int) -> None:
    while (await semaphore.ainspect(0)).waiting != number:
        await asyncio.sleep(0)


def test_tasks_wait_in_line_without_blocking_the_loop(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 1)
            order: list[int] = []

            async def work(number: int) -> None:
                async with semaphore.acquire() as permit:
                    assert permit.is_held
                    order.append(number)

            async with semaphore.acquire():
                tasks = []
                for number in range(5):
                    tasks.append(asyncio.ensure_future(work(number)))
                    await waiters(semaphore, number + 1)
            await asyncio.gather(*tasks)
            assert order == [0, 1, 2, 3, 4]
            permit = await semaphore.acquire()
            await permit.arelease()
            assert is_idle(semaphore)

    run(main)


def test_a_cancelled_task_leaves_the_line(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 1)
            permit = await semaphore.acquire()
            task = asyncio.ensure_future(semaphore.acquire())
            await waiters(semaphore, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await waiters(semaphore, 0)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(semaphore.acquire(), 0.02)
            with pytest.raises(TimeoutError):
                await semaphore.acquire(timeout=0.02)
            acquire = semaphore.acquire()
            task = asyncio.ensure_future(acquire)
            await waiters(semaphore, 1)
            in_thread(acquire.cancel).result()
            with pytest.raises(permits.CancelledError):
                await task
            await permit.arelease()
            assert is_idle(semaphore)

    run(main)


def test_a_task_that_is_cancelled_at_any_step_leaves_nothing(url: str, name: str) -> None:
    """The event loop makes some steps between the request and the cancellation: from zero to more than a cycle takes."""

    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 1)

            async def cycle() -> None:
                async with semaphore.acquire():
                    await asyncio.sleep(0)

            outcomes = set()
            for steps in range(60):
                task = asyncio.ensure_future(cycle())
                for _ in range(steps):
                    await asyncio.sleep(0.0002 if steps % 2 else 0)
                task.cancel()
                outcomes.add((await asyncio.gather(task, return_exceptions=True))[0].__class__)
                await (await semaphore.acquire()).arelease()
            assert asyncio.CancelledError in outcomes
            assert is_idle(semaphore)

    run(main)


def test_a_lost_permit_cancels_its_work(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 2)
            began, ended = asyncio.Event(), asyncio.Event()

            async def work() -> str:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()
                return "unreachable"

            with pytest.raises(permits.LostError) as lost:
                async with semaphore.acquire() as permit:
                    running = asyncio.ensure_future(permit.run(work()))
                    await began.wait()
                    await semaphore.arevoke(permit.holder, "enough")
                    await running
            assert lost.value.reason == "enough" and ended.is_set()
            with pytest.raises(permits.LostError):
                async with semaphore.acquire() as permit:
                    await semaphore.arevoke(permit.holder)
                    await permit.await_lost()
            began.clear()
            with pytest.raises(permits.LostError):
                await permit.run(work())
            assert not began.is_set(), "nothing is held"

            async def late() -> str:
                try:
                    await work()
                except asyncio.CancelledError:
                    return "done"
                return "unreachable"

            with pytest.raises(permits.LostError):
                async with semaphore.acquire() as permit:
                    running = asyncio.ensure_future(permit.run(late()))
                    await began.wait()
                    await semaphore.arevoke(permit.holder)
                    await running
            async with semaphore.acquire() as permit:
                assert await permit.run(asyncio.sleep(0, "done")) == "done"
                waiting = asyncio.ensure_future(permit.await_lost())
                await asyncio.sleep(0)
            assert await waiting is None, "it was released"
            with pytest.raises(permits.ReleasedError):
                await permit.run(work())
            with pytest.raises(permits.ReleasedError):
                async with permit:
                    pytest.fail("nothing is held")
            async with client.acquire_all([semaphore]) as permits_of_all:
                waiting = asyncio.ensure_future(permits_of_all.await_lost())
                await asyncio.sleep(0)
                await semaphore.arevoke(permits_of_all[0].holder)
                loss = await waiting
                assert loss is not None and loss.cause == "revoked"
                with pytest.raises(permits.LostError):
                    await permits_of_all.arelease()
            assert is_idle(semaphore)

    run(main)


def test_cancelled_work_ends_before_its_permit(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 1)
            began = asyncio.Event()
            held_at_the_end: list[int] = []

            async def work() -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    held_at_the_end.append((await semaphore.ainspect()).held)

            async def job() -> None:
                async with semaphore.acquire() as permit:
                    await permit.run(work())

            task = asyncio.ensure_future(job())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert held_at_the_end == [1]
            assert is_idle(semaphore)

    run(main)


def test_a_thousand_tasks_share_ten_units(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 10)
            now, most, slots = 0, 0, set()
            all_are_held = asyncio.Event()

            async def work() -> None:
                nonlocal now, most
                async with semaphore.acquire() as permit:
                    now += 1
                    most = max(most, now)
                    slots.add(permit.slot)
                    if now == 10:
                        all_are_held.set()
                    await all_are_held.wait()
                    await asyncio.sleep(0)
                    now -= 1

            # A file is slower than a server.
            tasks = 200 if url.startswith("local:") else 1000
            await asyncio.gather(*(work() for _ in range(tasks)))
            assert most == 10 and slots == set(range(10))
            assert is_idle(semaphore)

    run(main)


@pytest.mark.parametrize("steps", range(4))
def test_a_blocking_operation_completes_the_renewal_of_a_task(url: str, name: str, steps: int) -> None:
    """The operation stops the event loop that would complete the renewal."""

    async def main() -> None:
        async with connected(url) as client:
            permit = await client.semaphore(name, 1).acquire()
            renewal = asyncio.ensure_future(permit.arenew())
            for _ in range(steps):
                await asyncio.sleep(0)
            permit.renew()
            permit.set_lease(60)
            permit.release()
            if steps:
                await renewal
            else:
                with pytest.raises(permits.ReleasedError):
                    await renewal

    in_thread(lambda: run(main)).result(LIMIT)


def test_a_renewal_of_a_set_that_is_given_up_holds_up_no_release(url: str, name: str) -> None:
    """As after Ctrl-C: renewals have begun, and nobody polls them any more."""
    with permits.connect(url, recovery="off") as client:
        with client.acquire_all([client.semaphore(name, 1), client.semaphore(name + "/other", 1)]) as both:
            renewals = [permit._native.call("renew") for permit in both]
            for renewal in renewals:
                renewal.start()
            in_thread(both.release).result(LIMIT)


async def started(*operations: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Begins operations of a permit, one after the other."""
    tasks = [asyncio.create_task(operation) for operation in operations]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def test_an_operation_waits_for_those_before_it_whatever_is_cancelled(server: Server, name: str) -> None:
    async def main() -> None:
        async with connected(server.url) as client:
            semaphore = client.semaphore(name, 1)
            for cancelled in ([], [1], [2], [1, 2], [0], [0, 1, 2]):
                permit = await semaphore.acquire()
                server.command("CLIENT", "PAUSE", "200", "ALL")
                tasks = await started(permit.arenew(), permit.aset_lease(60), permit.arenew())
                for number in cancelled:
                    tasks[number].cancel()
                await permit.arelease()
                assert is_idle(semaphore), cancelled
                for number, result in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                    assert isinstance(result, asyncio.CancelledError) == (number in cancelled), (cancelled, result)
                    assert number in cancelled or result is None, (cancelled, result)

    run(main)


def test_the_permit_of_a_cancelled_hand_over_is_released(server: Server, name: str) -> None:
    async def main() -> None:
        async with connected(server.url) as client:
            semaphore = client.semaphore(name, 1)
            permit = await semaphore.acquire()
            server.command("CLIENT", "PAUSE", "200", "ALL")
            hand_over, release = await started(permit.ahand_over(), permit.arelease())
            hand_over.cancel()
            await release
            await (await semaphore.acquire(timeout=LIMIT)).arelease()

    run(main)


def test_functions_are_limited(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 2)

            @semaphore.limit(weight=2)
            async def work(number: int) -> int:
                return number + await semaphore.aavailable()

            assert await work(1) == 1 and await semaphore.aavailable() == 2

            async def generator() -> AsyncIterator[int]:
                yield 1

            with pytest.raises(TypeError):
                semaphore.limit(generator)

    run(main)


def test_a_wait_that_blocks_its_event_loop_is_warned_of(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 1)

            @semaphore.limit
            def work() -> None:
                pass

            def waits(text: str, wait: Callable[[], object]) -> None:
                with pytest.warns(RuntimeWarning, match=re.escape(f"write `async with {text} as permit:`")) as warned:
                    wait()
                assert [Path(each.filename).name for each in warned] == ["test_asyncio.py"]

            def block() -> None:
                with semaphore.acquire(timeout=timedelta(seconds=LIMIT)):
                    pass

            waits("semaphore.acquire()", block)
            waits("semaphore.acquire()", lambda: semaphore.acquire().wait().release())
            waits("semaphore.acquire()", work)
            waits("client.acquire_all(...)", lambda: client.acquire_all([semaphore]).wait().release())

            # Warnings are errors in these tests. So the call raises, acquires nothing, and no second warning follows.
            with pytest.raises(RuntimeWarning, match="asyncio.to_thread"):
                block()
            gc.collect()
            assert is_idle(semaphore)

            # A timeout of 0 does not wait, and a thread has no event loop: neither is warned of.
            semaphore.acquire(timeout=0).wait().release()
            semaphore.acquire(timeout=timedelta()).wait().release()
            client.acquire_all([(semaphore, {"timeout": 0})]).wait().release()
            client.acquire_all([semaphore], timeout=0).wait().release()
            await asyncio.get_running_loop().run_in_executor(None, block)

    run(main)


def test_anyio_scopes_cancel(url: str, name: str) -> None:
    async def main() -> None:
        async with connected(url) as client:
            semaphore = client.semaphore(name, 1)
            async with semaphore.acquire():
                with anyio.move_on_after(0.02) as scope:
                    await semaphore.acquire()
                assert scope.cancelled_caught
                await waiters(semaphore, 0)
            with anyio.CancelScope() as scope:
                async with semaphore.acquire():
                    scope.cancel()
                    await anyio.sleep_forever()
            (await semaphore.acquire(timeout=0)).release()
            assert is_idle(semaphore)

    anyio.run(main)


def test_one_client_serves_several_loops_and_threads(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 2)
    barrier = threading.Barrier(4)

    async def tasks() -> None:
        async def work() -> None:
            for _ in range(10):
                async with semaphore.acquire():
                    await asyncio.sleep(0)

        barrier.wait(LIMIT)
        await asyncio.gather(*(work() for _ in range(5)))

    def blocking() -> None:
        barrier.wait(LIMIT)
        for _ in range(10):
            with semaphore.acquire():
                pass

    threads = [in_thread(lambda: asyncio.run(tasks())) for _ in range(2)]
    threads += [in_thread(blocking) for _ in range(2)]
    for thread in threads:
        thread.result()
    assert is_idle(semaphore)


def test_a_loop_that_ends_early_leaves_nothing(client: permits.Client, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    held = semaphore.acquire().wait()
    loop = asyncio.new_event_loop()

    async def waiting() -> None:
        await semaphore.acquire()

    async def main() -> asyncio.Task[None]:
        task = asyncio.ensure_future(waiting())
        await waiters(semaphore, 1)
        return task

    task = loop.run_until_complete(main())
    loop.close()
    # The task is never cancelled: it is destroyed, which asyncio reports.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task, loop
    gc.collect()
    held.release()
    semaphore.acquire(timeout=0).wait().release()
    assert is_idle(semaphore)


def test_without_asyncio_it_says_so() -> None:
    call: Awaitable[permits.Client] = permits.aconnect("memory:")
    with pytest.raises(RuntimeError, match="no running event loop"):
        call.__await__().send(None)


@pytest.mark.parametrize("kind", [permits.Client, permits.Semaphore, permits.Permit, permits.PermitSet])
def test_each_blocking_operation_has_a_twin_for_asyncio(kind: type) -> None:
    methods = {name: method for name, method in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
    twins = {name for name, method in methods.items() if inspect.iscoroutinefunction(method)} - {"run"}
    if kind is permits.PermitSet:
        twins -= {"await_lost"}
    assert twins
    for twin in twins:
        blocking = inspect.signature(methods[twin[1:]])
        parameters = [name for name in blocking.parameters if (twin, name) != ("await_lost", "timeout")]
        assert parameters == list(inspect.signature(methods[twin]).parameters)
    source = inspect.getsource(kind)
    for name in methods.keys() - twins:
        if f"def {name}(" in source and "wait(" in inspect.getsource(methods[name]).split('"""')[-1]:
            assert f"a{name}" in twins, f"{name} blocks"
