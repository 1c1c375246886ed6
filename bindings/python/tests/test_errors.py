"""Bad input, and failures of a store: each has an exception of its own, with a plain message."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import permits
import pytest
from support import Server, free_port

Settings = dict[str, Any]


@pytest.fixture(scope="module")
def memory() -> permits.Client:
    return permits.connect("memory:errors")


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (lambda client: client.semaphore("", 1), "empty"),
        (lambda client: client.semaphore("n" * 201, 1), "201"),
        (lambda client: client.semaphore("a\nb", 1), "control"),
        (lambda client: client.semaphore("n", 0), "the limit is 0: it must be at least 1"),
        (lambda client: client.semaphore("n", -1), "limit is a whole number from 1 to 4294967295, not -1"),
        (lambda client: client.semaphore("n", 2**32), str(2**32)),
        (lambda client: client.semaphore("n", 2**70), "limit is a whole number from 1 to .*, not 1.18"),
        (lambda client: client.semaphore("n", 10**5000), "limit is a finite number, not one of so many digits"),
        (lambda client: client.semaphore("n", 1).set_limit(b"3"), "limit is a whole number from 1 to .*, not a list"),
        (lambda client: client.semaphore("n", "4"), 'limit is a whole number from 1 to .*, not the string "4"'),
        (lambda client: client.semaphore("n", 1.5), "limit is a whole number from 1 to .*, not 1.5"),
        (lambda client: client.semaphore("n", 1, exactly=3), "exactly is true or false, not 3"),
        (lambda client: client.semaphore("n", 1, keep="0.2"), 'keep is a time of at least 0 s, not the string "0.2"'),
        (lambda client: client.semaphore("n", exactly=True), "exactly"),
        (lambda client: client.semaphore("n", 1, keep=-0.1), "keep is a time of at least 0 s, not -0.1"),
        (lambda client: client.semaphore("n", 1, keep=float("nan")), "keep is a finite number, not nan"),
        (lambda client: client.semaphore("n", 1, keep=float("inf")), "keep is a finite number, not inf"),
        (lambda client: client.semaphore("n", 1).acquire(weight=object()), "not a list or an object"),
        (lambda client: client.semaphore("n", 1).acquire(timeout=float("nan")), "timeout is a finite number, not nan"),
        (lambda client: client.semaphore("n", 1).acquire(lease=float("inf")), "lease is a finite number, not inf"),
        (lambda client: client.semaphore("n", 1).acquire(holder=b"h"), "holder is a string"),
        (lambda client: client.semaphore("n", 1).limit(lable="l"), 'unknown: write "label"'),
        (lambda client: client.semaphore("n", 1).set_limit(0), "pause"),
        (lambda client: client.semaphore("n", 1).set_alert(wait="30"), 'wait is a time of .* 0 s, not the string "30"'),
        (lambda client: client.semaphore("n", 1).set_alert(waiting="3"), 'waiting is a whole number .* the string "3"'),
        (lambda client: client.semaphore("n", 1).set_lane("", limit=1), "the lane is empty"),
        (lambda client: client.semaphore("n", 1).set_lane("a"), "neither a limit nor a floor of the lane"),
        (lambda client: client.semaphore("n", 1).set_lane("a", limit="1"), 'limit is a whole number .* the string "1"'),
        (lambda client: client.semaphore("n", 1).unpin_lane(7), "lane is a string, not 7"),
        (lambda client: client.semaphore("n", 1).pause("x"), 'time is a time of at least 0 s, not the string "x"'),
        (lambda client: client.semaphore("n", 1).inspect("x"), 'max is a whole number from 0 to .* the string "x"'),
        (lambda client: client.semaphore("n", 1).revoke(""), "empty"),
        (lambda client: client.semaphore("n", 1).close_line("r" * 1001), "1001"),
        (lambda client: client.adopt("permits11:n"), "handle"),
    ],
)
def test_bad_input_is_refused(
    memory: permits.Client, request_of: Callable[[permits.Client], object], message: str
) -> None:
    with pytest.raises(permits.InvalidInputError, match=message) as error:
        request_of(memory)
    assert isinstance(error.value, ValueError) and isinstance(error.value, permits.PermitsError)


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("http://127.0.0.1/", {}, "unknown URL scheme"),
        ("redis://:secret@127.0.0.1:x/", {}, "not valid"),
        ("redis://127.0.0.1/?unknown=1", {}, "unknown"),
        ("memory:", {"lease": 0.01}, "lease"),
        ("memory:", {"keep": -1}, "keep is a time of at least 0 s, not -1"),
        ("memory:", {"keep": float("nan")}, "keep is a finite number, not nan"),
        ("memory:", {"keep": "0.2"}, 'keep is a time of at least 0 s, not the string "0.2"'),
        ("memory:", {"prefix": 4}, "prefix is a string, not 4"),
        ("memory:", {"max_waiters": 1.5}, "max_waiters is a whole number from 0 to 4294967295, not 1.5"),
        ("memory:", {"lable": "l"}, 'unknown: write "label"'),
        ("memory:", {"prefix": "a b"}, "prefix"),
        ("memory:", {"label": "l" * 121}, "121"),
        ("memory:", {"recovery": "soon"}, "recovery"),
        ("memory:", {"replicas": -1}, "replicas"),
    ],
)
def test_bad_settings_are_refused(url: str, settings: Settings, message: str) -> None:
    with pytest.raises(permits.InvalidInputError, match=message) as error:
        permits.connect(url, **settings)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (lambda client: client.semaphore(3, 1), "name is a string, not 3"),
        (lambda client: client.acquire_all([(client.semaphore("n", 1), None)]), "the options of a request are a dict"),
    ],
)
def test_an_argument_of_another_type_is_refused(
    memory: permits.Client, request_of: Callable[[permits.Client], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        request_of(memory)


def test_a_wrong_argument_of_a_permit_is_refused(memory: permits.Client) -> None:
    with memory.semaphore("of a permit", 1).acquire() as permit:
        untyped: Any = permit
        with pytest.raises(permits.InvalidInputError, match='units is a whole number from 1 to .* the string "1"'):
            untyped.release_part("1")
        with pytest.raises(permits.InvalidInputError, match="units is a whole number from 0 to .*, not 1.5"):
            untyped.count(1.5)
        with pytest.raises(permits.InvalidInputError, match='lease is a time of at least 0 s, not the string "1"'):
            untyped.set_lease("1")
        with pytest.raises(TypeError, match="the callback of a loss is a function, not 3"):
            untyped.on_lost(3)


def test_a_text_that_is_not_unicode_is_refused(memory: permits.Client) -> None:
    for request_of in (lambda: memory.semaphore("\ud800", 1), lambda: memory.semaphore("n", 1).acquire(label="\ud800")):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            request_of()


def test_an_error_in_a_handler_has_the_first_one_as_its_context(memory: permits.Client) -> None:
    semaphore = memory.semaphore("context", 1)

    async def acquire() -> None:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            await semaphore.acquire(weight=9)

    for failing in (lambda: semaphore.acquire(weight=9).wait(), lambda: semaphore.set_limit(0)):
        with pytest.raises(permits.PermitsError) as error:
            try:
                raise ZeroDivisionError
            except ZeroDivisionError:
                failing()
        assert isinstance(error.value.__context__, ZeroDivisionError)
    with pytest.raises(permits.ExceedsLimitError) as error:
        asyncio.run(acquire())
    assert isinstance(error.value.__context__, ZeroDivisionError)


def test_the_end_of_a_client_replaces_no_exception_of_its_block(
    memory: permits.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close() -> None:
        raise permits.NotReleasedError("a permit was not released")

    monkeypatch.setattr(memory, "close", close)
    with pytest.raises(ZeroDivisionError), memory:
        raise ZeroDivisionError
    with pytest.raises(permits.NotReleasedError), memory:
        pass


def test_a_store_that_is_away_is_waited_for() -> None:
    with pytest.raises(permits.UnreachableError) as error:
        permits.connect(f"redis://127.0.0.1:{free_port()}/", store_timeout=0)
    assert error.value.is_temporary and not error.value.is_outcome_unknown
    assert isinstance(error.value, ConnectionError)


def test_a_wrong_password_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path, "--requirepass", "right") as server:
        with pytest.raises(permits.DeniedError) as error:
            permits.connect(f"redis://:wrong@127.0.0.1:{server.port}/")
        assert "wrong@" not in str(error.value) and not error.value.is_temporary
        with permits.connect(f"redis://:right@127.0.0.1:{server.port}/") as client:
            assert client.list() == []


def test_a_key_of_another_program_is_refused(server: Server, name: str) -> None:
    server.command("SET", f"permits:{{{name}}}:state", "other")
    with permits.connect(server.url, recovery="off") as client:
        with pytest.raises(permits.WrongTypeError, match="another program"):
            client.semaphore(name, 1).acquire().wait()


def test_a_semaphore_of_another_layout_is_refused_until_it_is_deleted(server: Server, name: str) -> None:
    server.command("HSET", f"permits:{{{name}}}:state", "\tstate", "\x0fof another version")
    with permits.connect(server.url, recovery="off") as client:
        semaphore = client.semaphore(name, 1)
        with pytest.raises(permits.OtherLayoutError, match="layout 15"):
            semaphore.acquire().wait()
        assert semaphore.delete(unreadable=True)
        with semaphore.acquire():
            pass


@pytest.mark.parametrize("timeout", [0, 0.5])
def test_an_outage_is_not_busy(tmp_path: Path, timeout: float) -> None:
    with Server(tmp_path) as server:
        semaphore = permits.connect(server.url, recovery="off", lease=1).semaphore("outage", 1)
        semaphore.acquire().wait().release()
    with pytest.raises(permits.StoreError) as error:
        semaphore.acquire(timeout=timeout).wait()
    assert error.value.is_temporary and not isinstance(error.value, permits.NotNowError)


def test_a_store_is_diagnosed(server: Server) -> None:
    diagnosis = permits.diagnose(server.url)
    assert diagnosis.is_healthy and str(server.port) in diagnosis.store
    assert {finding.severity for finding in diagnosis.findings} <= {"fine", "note"}
    away = permits.diagnose(f"redis://127.0.0.1:{free_port()}/")
    assert not away.is_healthy and any(finding.severity == "problem" for finding in away.findings)


def test_each_code_has_an_exception_and_each_exception_a_code() -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "errors.md").read_text()
    named = set(re.findall(r"\| `([A-Z]\w+Error)` \| `[A-Z_]+` \|", reference))
    # The reference has the bases, a loss and a permit that was released in sentences of their own.
    others = {"PermitsError", "NotNowError", "StoreError", "LostError", "ReleasedError"}
    assert named | others == set(permits.errors.__all__)


@pytest.mark.parametrize("name", permits.errors.__all__)
def test_exceptions_survive_pickling(name: str) -> None:
    error = getattr(permits, name)("a message", semaphore="n")
    again: Any = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.semaphore) == (type(error), "a message", "n")


def test_an_argument_that_is_wrong_is_named(memory: permits.Client) -> None:
    client, name = memory, "an argument"
    semaphore: Any = client.semaphore(name, 1)
    other: Any = client.semaphore(f"{name}/other", 1)
    acquire_all: Any = client.acquire_all
    unset: Any = None
    types: list[tuple[str, Callable[[], object]]] = [
        ("url is a string, not None", lambda: permits.connect(unset)),
        ("url is a string, not None", lambda: permits.diagnose(unset)),
        ("name is a string, not None", lambda: client.semaphore(unset)),
        ("handle is a string, not None", lambda: client.adopt(unset)),
        ("handle is a string, not None", lambda: client.renew(unset)),
        ("handle is a string, not None", lambda: client.release(unset)),
        (f"such as acquire(weight=4), and the limit is that of `client.semaphore({name!r}, 4)`", lambda: semaphore.acquire(4)),
        ("acquire_all() takes one list of semaphores: write acquire_all([one, ", lambda: acquire_all(semaphore, other)),
        (f"not <Semaphore {name!r}>: write acquire_all([one, ", lambda: acquire_all(semaphore)),
        (": 2}: write acquire_all([one, ", lambda: acquire_all({semaphore: 2})),
        (f"{name!r} is no request of acquire_all(): write acquire_all([one, ", lambda: acquire_all([name])),
        ("the options of a request are a dict, not 3", lambda: acquire_all([(semaphore, 3)])),
    ]
    for message, call in types:
        with pytest.raises(TypeError, match=re.escape(message)):
            call()
    values: list[tuple[str, Callable[[], object]]] = [
        (f'semaphore "{name}" is named twice', lambda: acquire_all([semaphore, other, semaphore])),
        ("a lease of 150000 s is out of range: 100 ms to 1 day", lambda: semaphore.acquire(lease=150_000)),
        ("weight is a whole number from 1 to 4294967295, not True", lambda: semaphore.acquire(weight=True)),
        ("time is a time of at least 0 s, not False", lambda: semaphore.pause(False)),
    ]
    for message, call in values:
        with pytest.raises(permits.InvalidInputError, match=re.escape(message)):
            call()


def test_each_exception_that_is_raised_has_a_keyword() -> None:
    bases = {"PermitsError", "NotNowError", "StoreError"}
    classes = [made.__name__ for made in permits.errors.CLASSES.values()]
    assert sorted(classes) == sorted(set(permits.errors.__all__) - bases)
