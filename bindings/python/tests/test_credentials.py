"""Passwords from a function: it is asked for each connection, and again before they end."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta

import permits
import pytest
from permits import Credentials
from permits.errors import InvalidInputError, StoreError
from support import Server, until


@pytest.fixture
def app(server: Server) -> str:
    """The URL of a server with a user, without its password."""
    server.command("ACL", "SETUSER", "app", "reset", "on", ">one", ">two", "~*", "&*", "+@all")
    return server.url.replace("redis://", "redis://app@")


def logins(server: Server) -> int:
    stats = server.command("INFO", "commandstats")
    found = re.search(rb"cmdstat_auth:calls=(\d+)", stats)
    return int(found[1]) if found else 0


def test_the_function_is_asked_for_a_password_and_again_before_it_ends(server: Server, app: str) -> None:
    threads: list[threading.Thread] = []
    before = logins(server)

    def token() -> Credentials:
        threads.append(threading.current_thread())
        return Credentials("one" if len(threads) == 1 else "two", expires_in=timedelta(milliseconds=400))

    with permits.connect(app, recovery="off", credentials=token) as client:
        with client.semaphore("exports", 1).acquire():
            until(lambda: logins(server) >= before + 3)
        assert threading.main_thread() not in threads
    # The thread ends with the client.
    until(lambda: not threads[0].is_alive())


def test_asyncio_and_a_diagnosis_ask_it_too(app: str) -> None:
    async def connects() -> None:
        async with await permits.aconnect(app, recovery="off", credentials=lambda: "one") as client:
            async with client.semaphore("exports", 1).acquire():
                pass

    asyncio.run(connects())
    assert permits.diagnose(app, credentials=lambda: Credentials("two", user="app")).is_healthy


def test_a_function_that_fails_is_the_reason(app: str) -> None:
    def fails() -> str:
        raise OSError("the issuer is down")

    for function, reason in [
        (fails, "the function for credentials: OSError: the issuer is down"),
        (lambda: 5, "it returns int, not a str"),
        (lambda: Credentials("s3cret", expires_in="soon"), "expires_in"),  # type: ignore[arg-type]
        (lambda: Credentials(10**400), "password is no string"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(StoreError, match=reason) as raised:
            permits.connect(app, store_timeout=0, credentials=function)  # type: ignore[arg-type]
        assert "s3cret" not in str(raised.value)


def test_an_answer_that_is_no_text_does_not_end_the_questions(app: str) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError("it has no text")

    given: list[str | Exception] = ["\udcff", Unprintable(), "one"]
    answers = iter(given)

    def token() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    for reason in ["it returns a text that is not Unicode", "Unprintable"]:
        with pytest.raises(StoreError, match=reason):
            permits.connect(app, store_timeout=0, recovery="off", credentials=token)
    permits.connect(app, recovery="off", credentials=token).close()


def test_two_passwords_are_refused(app: str) -> None:
    url = app.replace("app@", ":s3cret@")
    reason = "a password itself, and another password is to come from the function"
    with pytest.raises(InvalidInputError, match=reason) as raised:
        permits.connect(url, credentials=lambda: "one")
    assert "s3cret" not in str(raised.value)
    with pytest.raises(TypeError, match="credentials is a function that returns a password, not str"):
        permits.connect(app, credentials="one")  # type: ignore[arg-type]


def test_no_text_of_credentials_has_the_password() -> None:
    assert repr(Credentials("s3cret", "app", 900)) == "Credentials(user='app', expires_in=900)"
