"""Credentials from a function of the program, for `connect(…, credentials=function)`.

The native half cannot call Python: none of its threads may take the interpreter's lock. So a thread waits for its questions,
calls the function, and hands the answer down. It ends with the client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, Union

from ._permits import Asked
from ._types import Seconds, to_json
from ._waiting import block_on


@dataclass(frozen=True)
class Credentials:
    """What a function for `connect(…, credentials=function)` returns: a password or token, and perhaps more."""

    password: str
    user: Optional[str] = None
    """The user, in place of the one in the URL."""
    expires_in: Optional[Seconds] = None
    """The time for which they are valid. Open connections log in again when three quarters of it have passed."""

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, expires_in={self.expires_in!r})"


Function = Callable[[], Union[str, Credentials]]


def begin(function: Function | None) -> Asked | None:
    """The questions for a client that is about to connect, which a thread answers from now on."""
    if function is None:
        return None
    if not callable(function):
        raise TypeError(f"credentials is a function that returns a password, not {type(function).__name__}")
    asked = Asked()
    threading.Thread(target=_answer_all, args=(asked, function), name="permits-login", daemon=True).start()
    return asked


def _answer_all(asked: Asked, function: Function) -> None:
    while block_on(asked.next()):
        answer = _answer(function)
        try:
            asked.answer(answer)
        except UnicodeEncodeError:
            asked.answer(to_json({"error": "it returns a text that is not Unicode"}))


def _answer(function: Function) -> str:
    try:
        returned = function()
        if isinstance(returned, str):
            returned = Credentials(returned)
        if not isinstance(returned, Credentials):
            raise TypeError(f"it returns {type(returned).__name__}, not a str or permits.Credentials")
        # If it is no text, do not show it: it may be a password.
        password = returned.password if isinstance(returned.password, str) else []
        return to_json({"password": password, "user": returned.user, "expires_in": returned.expires_in})
    except BaseException as error:
        # A thread reports no SystemExit, and the client would wait for an answer.
        return to_json({"error": _described(error)})


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
