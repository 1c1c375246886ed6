"""The pytest plugin: `@pytest.mark.permit("gpu", 2)` holds a permit during a test, and the fixture `permit` gives it.

pytest loads it by the entry point of the package, `_pytest_entry`. No other module imports it, so that the others need no pytest. A permit
is acquired after the marks that skip a test were read and before its first fixture, and is released after its last one.
"""

# The modules of the package use one another's private attributes.
# pyright: reportPrivateUsage=false
from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Optional, Tuple, Union

import pytest

from ._client import Client, connect
from ._permit import Permit, PermitSet
from ._semaphore import Semaphore
from ._types import AcquireOptions, Seconds
from .errors import InvalidInputError, LostError, NotNowError, PermitsError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_HELD = pytest.StashKey[PermitSet]()
_CLIENT = pytest.StashKey[Tuple[int, Client]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "the store of the mark permit [default: $PERMITS_URL or $PERMITS_URL_FILE, else permits_url, else a directory of the project]"
    parser.getgroup("permits").addoption("--permits-url", metavar="URL", help=text)
    parser.addini("permits_url", "the store of the mark permit, unless --permits-url, $PERMITS_URL or $PERMITS_URL_FILE names one")


def pytest_configure(config: pytest.Config) -> None:
    mark = "permit(name, limit=None, *, weight=1, timeout=None, lease=None, at_least=None, lane=None, share=1, ...)"
    config.addinivalue_line("markers", f"{mark}: waits for a permit of a semaphore, and holds it during the test")


def pytest_unconfigure(config: pytest.Config) -> None:
    process, client = config.stash.get(_CLIENT, (None, None))
    if client is not None and process == os.getpid():
        try:
            client.close()
        except PermitsError:
            # The leases end by themselves.
            pass


# The hook is marked neither as first nor as last: so it runs after the marks that skip, and before the fixtures of the
# test.
def pytest_runtest_setup(item: pytest.Item) -> None:
    marks: dict[str, pytest.Mark] = {}
    requests: list[tuple[Semaphore, AcquireOptions]] = []
    for mark in item.iter_markers("permit"):
        try:
            name, semaphore, options = permit(*mark.args, **mark.kwargs)
            # The closest mark of a semaphore counts: the function's mark, then the mark of its class, then the module's.
            if marks.setdefault(name, mark) is mark:
                options["label"] = options.get("label") or _label(item)
                requests.append((semaphore(_client(item.config)), options))
        except (PermitsError, TypeError) as error:
            _fail(f"{_text(mark)}: {error}")
    if not requests:
        return
    try:
        item.stash[_HELD] = _client(item.config).acquire_all(requests).wait()
    except (PermitsError, TypeError) as error:
        refused = getattr(error, "semaphore", None)
        texts = ", ".join(_text(mark) for name, mark in marks.items() if refused in (None, name))
        # The message of a timeout names the holders itself, if the store has answered.
        is_open = isinstance(error, NotNowError) and getattr(error, "inspection", None) is None
        ends = [_holders(each) for each, _ in requests if each.name == refused and is_open]
        _fail(f"{texts}: {error}{''.join(ends)}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        result = yield
    except BaseException:
        # The failure of a fixture has precedence over a failure of the release.
        _taken(item)._forget()
        raise
    held = _taken(item)
    names = ", ".join(repr(each.semaphore) for each in held)
    try:
        held.release()
    except LostError as error:
        _fail(f"{names}: {error}; the resource may have had another user during this test")
    except PermitsError as error:
        _fail(f"{names}: {error}")
    return result


@pytest.fixture(name="permit")
def _permit(request: pytest.FixtureRequest) -> Union[Permit, PermitSet]:
    """The permit of the mark of this test, with its slot and its token. With several marks, their permits by name."""
    held: Optional[PermitSet] = request.node.stash.get(_HELD, None)
    if held is None:
        _fail("the fixture permit needs a mark: write @pytest.mark.permit(name, limit)")
    return held[0] if len(held) == 1 else held


def permit(
    name: str,
    limit: Optional[int] = None,
    *,
    exactly: bool = False,
    keep: Optional[Seconds] = None,
    **options: Unpack[AcquireOptions],
) -> tuple[str, Callable[[Client], Semaphore], AcquireOptions]:
    """The arguments of a mark: the arguments of `Client.semaphore` and of `Semaphore.acquire`."""
    return name, lambda client: client.semaphore(name, limit, exactly=exactly, keep=keep), options


def _fail(text: str) -> NoReturn:
    raise pytest.fail.Exception(text, pytrace=False) from None


def _taken(item: pytest.Item) -> PermitSet:
    """Takes the permits of a test, if it has any."""
    held = item.stash.get(_HELD, PermitSet([]))
    if held:
        del item.stash[_HELD]
    return held


def _client(config: pytest.Config) -> Client:
    """The client of this process, which connects for its first test that has a mark."""
    process, client = config.stash.get(_CLIENT, (None, None))
    if client is None or process != os.getpid():
        client = connect(_url(config))
        config.stash[_CLIENT] = os.getpid(), client
    return client


def _url(config: pytest.Config) -> str:
    option = config.getoption("permits_url")
    variable, file = os.environ.get("PERMITS_URL"), os.environ.get("PERMITS_URL_FILE")
    # An empty option was meant to name a store, so don't use another one in its place.
    if option is not None and not option.strip():
        raise InvalidInputError("--permits-url is empty: name a store, or leave it out")
    if option is None:
        for name, value in (("PERMITS_URL", variable), ("PERMITS_URL_FILE", file)):
            if value is not None and not value.strip():
                raise InvalidInputError(f"{name} is empty: give it a value, or unset it")
        if variable and file:
            raise InvalidInputError("PERMITS_URL and PERMITS_URL_FILE are both set: unset one")
        variable = f"file:{file}" if file else variable
    chosen = option or variable or config.getini("permits_url")
    if chosen:
        return str(chosen).strip()
    # Use one store for all workers and all runs of the project. It outlives a cleaning of temporary files.
    root = config.rootpath.resolve()
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    name = re.sub(r"[^\w.-]", "_", root.name) + "-" + hashlib.sha256(bytes(root)).hexdigest()[:8]
    return f"local:{state}/permits/pytest/{name}"


def _label(item: pytest.Item) -> str:
    """The test and the worker, in at most 120 bytes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    end = f" [{worker}]" if worker else ""
    most = 120 - len(end)
    return item.nodeid.encode()[-most:].decode(errors="ignore") + end


def _text(mark: pytest.Mark) -> str:
    """The mark as it is written."""
    arguments = [repr(value) for value in mark.args] + [f"{key}={value!r}" for key, value in mark.kwargs.items()]
    return f"@pytest.mark.permit({', '.join(arguments)})"


def _holders(semaphore: Semaphore) -> str:
    """Lines that name the holders of a semaphore."""
    try:
        state = semaphore.inspect(max=10)
    except PermitsError as error:
        return f"\nits holders are not known: {error}"
    holders = [f"\n  {each.label or ''} ({each.holder}), for {each.age:.0f} s" for each in state.holders]
    return f"\n{state.held} of {state.limit} units are held, and {state.waiting} requests wait:{''.join(holders)}"
