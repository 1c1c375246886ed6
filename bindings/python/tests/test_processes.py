"""Signals, forks and the end of a process."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import permits
import pytest
from support import Program, Server, comes_to_pass, is_idle, waiters

HEAD = """
import asyncio, multiprocessing, os, signal, sys, threading, time, warnings
import permits
client = permits.connect(sys.argv[1], recovery="off", lease=600)
semaphore = client.semaphore(sys.argv[2], 1)
def say(*words):
    print(*words, flush=True)
"""


@pytest.fixture(params=["local", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that processes share."""
    if request.param == "local":
        return f"local:{tmp_path}/permits"
    server: Server = request.getfixturevalue("server")
    return server.url


@pytest.mark.parametrize("waiting", ["semaphore.acquire().wait()", "asyncio.run(asyncio.wait_for(semaphore.acquire(), None))"])
def test_control_c_ends_a_wait(client: permits.Client, url: str, name: str, waiting: str) -> None:
    semaphore = client.semaphore(name, 1)
    text = f"""
try:
    {waiting}
except KeyboardInterrupt:
    say("interrupted")
"""
    with semaphore.acquire():
        with Program(HEAD + text, url, name) as program:
            waiters(semaphore, 1)
            program.process.send_signal(signal.SIGINT)
            assert program.line() == "interrupted"
            waiters(semaphore, 0)
            assert program.end() == (0, "", "")
    assert is_idle(semaphore)


def test_a_signal_handler_runs_during_a_wait(client: permits.Client, url: str, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    text = """
signal.signal(signal.SIGUSR1, lambda number, frame: say("handled"))
with semaphore.acquire():
    say("granted")
"""
    with semaphore.acquire() as permit:
        with Program(HEAD + text, url, name) as program:
            waiters(semaphore, 1)
            program.process.send_signal(signal.SIGUSR1)
            assert program.line() == "handled"
            assert semaphore.inspect().waiting == 1, "the wait continues"
            permit.release()
            assert program.line() == "granted"
            assert program.end() == (0, "", "")


def test_other_threads_run_during_a_wait(client: permits.Client, url: str, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    text = """
thread = threading.Thread(target=lambda: semaphore.acquire().wait().release())
thread.start()
for line in sys.stdin:
    say("at work")
thread.join()
"""
    with semaphore.acquire() as permit:
        with Program(HEAD + text, url, name) as program:
            waiters(semaphore, 1)
            assert program.process.stdin is not None
            program.process.stdin.write("a line\n")
            program.process.stdin.flush()
            assert program.line() == "at work"
            permit.release()
            assert program.end() == (0, "", "")


def test_a_program_that_keeps_the_interpreters_lock_keeps_its_permits(server: Server, name: str) -> None:
    """One call of C code keeps the lock for twice the lease, and lets no other thread of Python run."""
    text = """
import time
permit = semaphore.acquire(lease=0.5).wait()
number, took = 1_000_000, 0
while took < 1:
    began = time.monotonic()
    sum(range(number))
    took = time.monotonic() - began
    number *= 2
say(permit.is_held)
"""

    def story() -> bool:
        with Program(HEAD + text, server.url, name) as program:
            ended = program.end()
        assert ended[0] == 0, ended
        return ended[1] == "True\n"

    comes_to_pass(story)


ENDS = {
    "held": "permit = semaphore.acquire().wait(); say('ready')",
    "held by a cycle": "permit = semaphore.acquire().wait(); cycle = [permit]; cycle.append(cycle); del permit; say('ready')",
    "held, an exception": "permit = semaphore.acquire().wait(); say('ready'); sys.exit(3)",
    "held by a thread": """
def work():
    with semaphore.acquire():
        say('ready')
        ready.set()
        threading.Event().wait()
ready = threading.Event()
threading.Thread(target=work, daemon=True).start()
ready.wait()
""",
    "held, watched": "permit = semaphore.acquire().wait(); permit.on_lost(say); say('ready')",
    "held, waited for by threads": """
permit = semaphore.acquire().wait()
for number in range(8):
    threading.Thread(target=lambda: semaphore.acquire().wait(), daemon=True).start()
while semaphore.inspect().waiting < 8: pass
say('ready')
""",
    "held in asyncio": """
async def main():
    global permit
    permit = await semaphore.acquire()
    tasks = [asyncio.ensure_future(semaphore.acquire()) for _ in range(8)]
    while (await semaphore.ainspect()).waiting < 8: pass
    say('ready')
asyncio.run(main())
""",
    "held in a loop that is left": """
async def main():
    global permit, tasks
    permit = await semaphore.acquire()
    tasks = [asyncio.ensure_future(semaphore.acquire()) for _ in range(8)]
    for task in tasks: task._log_destroy_pending = False
    warnings.simplefilter("ignore") # asyncio reports the loop
    while (await semaphore.ainspect()).waiting < 8: pass
    say('ready')
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
""",
    "held in asyncio on a thread": """
async def main():
    permit = await semaphore.acquire()
    tasks = [asyncio.ensure_future(semaphore.acquire()) for _ in range(8)]
    while (await semaphore.ainspect()).waiting < 8: pass
    say('ready')
    ready.set()
    await asyncio.Event().wait()
ready = threading.Event()
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
ready.wait()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_the_interpreter_releases(
    client: permits.Client, url: str, name: str, end: str, long: bool
) -> None:
    semaphore = client.semaphore(name, 1)
    for _ in range(20 if long else 1):
        with Program(HEAD + ENDS[end], url, name) as program:
            code, output, errors = program.end()
        assert (code, output.strip(), errors) == (3 if "exception" in end else 0, "ready", "")
        # The leases are 10 minutes long, so only a release frees a unit.
        assert is_idle(semaphore)


def test_an_interrupted_end_of_the_interpreter_releases(server: Server, name: str) -> None:
    text = """
permit = semaphore.acquire().wait()
permit.on_lost(say)
def join(thread, timeout=None):
    raise KeyboardInterrupt
threading.Thread.join = join
"""
    with Program(HEAD + text, server.url, name) as program:
        _, output, errors = program.end()
    assert output == "" and "KeyboardInterrupt" in errors
    with permits.connect(server.url, recovery="off") as client:
        assert is_idle(client.semaphore(name, 1))


def test_without_a_thread_a_callback_is_refused_or_runs_on_the_watchers(server: Server, name: str) -> None:
    text = """
# As in a forked child: the thread that the client has begun is the parent's.
permits._watching._reset()
def refuse(thread):
    raise RuntimeError("can't start new thread")
start, threading.Thread.start = threading.Thread.start, refuse
permit, other = (client.semaphore(sys.argv[2], 2).acquire().wait() for _ in range(2))
called = threading.Event()
def callback(lost):
    say(lost.cause, threading.current_thread().name)
    called.set()
try:
    permit.on_lost(callback)
except RuntimeError as error:
    say(error)
threading.Thread.start = start
permit.on_lost(callback)
threading.Thread.start = refuse
semaphore.revoke(permit.holder)
called.wait()
"""
    with Program(HEAD + text, server.url, name) as program:
        assert program.end() == (0, "can't start new thread\nrevoked permits-watch\n", "")
    with permits.connect(server.url, recovery="off") as client:
        assert is_idle(client.semaphore(name, 1))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a module with one state is refused in a subinterpreter")
def test_a_subinterpreter_that_is_left_does_not_hold_up_the_end(server: Server, name: str) -> None:
    text = '''
    import _xxsubinterpreters, sys
    work = f"""if True:
        import permits
        client = permits.connect({sys.argv[1]!r}, recovery="off")
        permit = client.semaphore({sys.argv[2]!r}, 1).acquire().wait()
        print("held", flush=True)
    """
    interpreter = _xxsubinterpreters.create()
    _xxsubinterpreters.run_string(interpreter, work)
    '''
    with Program(text, server.url, name) as program:
        assert program.line() == "held"
        assert program.end() == (0, "", "")


def test_a_killed_process_loses_its_permit(client: permits.Client, url: str, name: str) -> None:
    semaphore = client.semaphore(name, 1)
    text = "permit = semaphore.acquire(lease=0.5).wait(); say('ready'); threading.Event().wait()"
    with Program(HEAD + text, url, name) as program:
        assert program.line() == "ready"
        program.process.kill()
        with semaphore.acquire():
            pass
    assert is_idle(semaphore)


def test_a_fork_needs_a_client_of_its_own(server: Server, name: str) -> None:
    text = """
permit = semaphore.acquire().wait()
permit.on_lost(say)
acquire = semaphore.acquire()
def wait():
    try:
        acquire.wait()
    except permits.CancelledError:
        say("cancelled")
thread = threading.Thread(target=wait)
thread.start()
while acquire.position is None: pass
if os.fork() == 0:
    for call in (lambda: semaphore.acquire(timeout=0).wait(), semaphore.inspect, client.close, permit.renew):
        try:
            call()
        except permits.ForkedError as error:
            say(type(error).__name__, str(error))
        except permits.LostError as error:
            say(type(error).__name__, error.cause)
    say(permit.status.value, permit.lost.cause)
    own = permits.connect(sys.argv[1], recovery="off")
    try:
        own.semaphore(sys.argv[2], 1).acquire(timeout=0).wait()
    except permits.NoPermitsError:
        say("the parent holds it")
    held = own.semaphore(sys.argv[2] + "/child", 1).acquire().wait()
    held.on_lost(say)
    sys.exit()
os.wait()
say(permit.status.value, client.semaphore(sys.argv[2] + "/child", 1).available())
acquire.cancel()
thread.join()
"""
    with Program(HEAD + text, server.url, name) as program:
        code, output, errors = program.end()
    forked = "ForkedError the client was connected before the process was forked: connect in the child"
    expected = [forked] * 3 + ["LostError forked", "lost forked", "the parent holds it", "held 1"]
    assert (code, output.splitlines(), errors) == (0, [*expected, "cancelled"], "")


def test_workers_of_multiprocessing_release_at_their_end(server: Server, name: str) -> None:
    text = """
def work(number):
    global permit
    own = permits.connect(sys.argv[1], recovery="off", lease=600)
    permit = own.semaphore(sys.argv[2], 1).acquire().wait()
    say(number)
    # This thread goes on when the function has returned.
    threading.Thread(target=goes_on).start()
def goes_on():
    time.sleep(0.2)
    permit.renew()
context = multiprocessing.get_context("fork")
for number in range(3):
    process = context.Process(target=work, args=(number,))
    process.start()
    process.join()
say(semaphore.available())
"""
    with Program(HEAD + text, server.url, name) as program:
        assert program.end() == (0, "0\n1\n2\n1\n", "")
