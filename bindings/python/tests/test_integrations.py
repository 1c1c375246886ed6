"""The files of docs/languages/integrations.md, in the programs of the frameworks, on a server."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import documents
import permits
import pytest
from support import LIMIT, Server, free_port, is_idle, until, waiters

DAYS = [f"day{number}" for number in range(18)]

# A call that writes when it begins, ends and succeeds. The first one for "revoked" revokes the permits that are held.
WORK = """
import asyncio, os, time
import permits

def note(text):
    with open("log", "a") as log:
        log.write(text + "\\n")

def revokes(day):
    try:
        day == "revoked" and open("revoked", "x").close()
    except FileExistsError:
        return False
    if day == "revoked":
        with permits.connect(os.environ["URL"]) as client:
            exports = client.semaphore("exports")
            for holder in exports.inspect().holders:
                exports.revoke(holder.holder, "maintenance")
    return day == "revoked"

def call_api(day):
    note(f"+ {day}")
    revokes(day)
    time.sleep(0.05)
    note(f"- {day}")

async def call_api_async(day):
    note(f"+ {day}")
    try:
        await asyncio.sleep(3600 if await asyncio.to_thread(revokes, day) else 0.05)
        note(f"= {day}")
    finally:
        note(f"- {day}")

def days():
    return os.environ["DAYS"].split()
"""


class Site:
    """A directory with the files of the page, their programs, and a server."""

    def __init__(self, directory: Path, server: Server) -> None:
        self.directory, self.server = directory, server
        self.url = f"{server.url}?recovery=off"
        self.programs: list[subprocess.Popen[str]] = []
        for text in documents.of(__file__):
            # The first line is the name of the file.
            name, block = text.removeprefix("# ").split("\n", 1)
            block = block.replace("redis://127.0.0.1/1", f"{server.url}1")
            (directory / name).write_text(block.replace("redis://127.0.0.1/", self.url))
        (directory / "work.py").write_text(WORK)
        (directory / "log").touch()
        self.client = permits.connect(self.url)
        # The page declares the limit.
        self.exports = self.client.semaphore("exports")

    def start(self, *words: str, days: str = "") -> subprocess.Popen[str]:
        """Starts a program of Python."""
        path = os.pathsep.join(filter(None, [str(self.directory), os.environ.get("PYTHONPATH")]))
        with (self.directory / "errors").open("a") as errors:
            program = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": path, "URL": self.url, "DAYS": days},
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                text=True,
            )
        self.programs.append(program)
        return program

    def log(self, sign: str) -> list[str]:
        """The days of calls that began (+), ended (-) or succeeded (=)."""
        lines = (self.directory / "log").read_text().splitlines()
        return sorted(line[2:] for line in lines if line[0] == sign)

    def errors(self) -> str:
        """The output of the programs."""
        return (self.directory / "errors").read_text()

    def until_ended(self, days: list[str]) -> None:
        """Waits until calls for these days and no others have ended, and nothing is held."""
        try:
            until(lambda: self.log("-") == sorted(days) and is_idle(self.exports))
        except AssertionError:
            raise AssertionError(self.errors()[-4000:]) from None
        running = most = 0
        for line in (self.directory / "log").read_text().splitlines():
            running += {"+": 1, "-": -1, "=": 0}[line[0]]
            most = max(most, running)
        assert 2 <= most <= 4 or len(set(days)) == 1, f"{most} calls at once"

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        for program in self.programs:
            try:
                os.killpg(program.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            program.communicate()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "redis").mkdir()
    with Server(tmp_path / "redis") as server, Site(tmp_path, server) as site:
        yield site


def _needs(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed: scripts/test-python --integrations")


def _send(sender: subprocess.Popen[str], days: list[str]) -> None:
    assert sender.stdin is not None
    sender.stdin.writelines(f"{day}\n" for day in days)
    sender.stdin.flush()


def _get(url: str) -> int:
    """The status of the reply."""
    try:
        with urllib.request.urlopen(url, timeout=LIMIT) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def _break_store(site: Site) -> None:
    """Makes each acquisition fail, as in an outage, without a wait for its end."""
    site.server.command("SET", "permits:{exports}:state", "other")


@_needs("celery", "redis")
def test_celery_keeps_both_limits_over_its_workers(site: Site) -> None:
    for worker in ("one", "two"):
        options = ["--loglevel", "WARNING", "--concurrency", "3", "--without-gossip", "--without-mingle"]
        site.start("-m", "celery", "--app", "tasks", "worker", "--hostname", worker, *options)
    sender = site.start("-c", "import sys, tasks\nfor day in sys.stdin: tasks.export.delay(day.strip())")
    # The task loses its permit at first, and then it is retried.
    _send(sender, ["revoked"])
    site.until_ended(["revoked"] * 2)
    _send(sender, DAYS)
    site.until_ended(["revoked"] * 2 + DAYS)
    # 20 calls have begun in this minute, which is the limit.
    _send(sender, ["late"])
    a_minute = site.client.semaphore("exports-minute")
    waiters(a_minute, 1)
    assert (a_minute.inspect().held, "late" in site.log("+")) == (20, False)


@_needs("dramatiq", "redis")
def test_dramatiq_keeps_the_limit_over_its_processes(site: Site) -> None:
    site.start("-m", "dramatiq", "--processes", "2", "--threads", "4", "actors")
    sender = site.start("-c", "import sys, actors\nfor day in sys.stdin: actors.export.send(day.strip())")
    _send(sender, ["revoked"])
    site.until_ended(["revoked"] * 2)
    with site.exports.acquire(weight=4):
        _send(sender, DAYS)
        # All threads of both processes wait.
        waiters(site.exports, 8)
    site.until_ended(["revoked"] * 2 + DAYS)


@_needs("fastapi", "uvicorn")
def test_fastapi_keeps_the_limit_over_its_workers(site: Site) -> None:
    url = f"http://127.0.0.1:{free_port()}/export"
    site.start("-m", "uvicorn", "--workers", "2", "--port", url[17:].split("/")[0], "web:app")
    until(lambda: _get(url) == 404)
    assert _get(f"{url}/revoked") == 500
    site.until_ended(["revoked"])
    with ThreadPoolExecutor(len(DAYS)) as pool:
        assert set(pool.map(_get, [f"{url}/{day}" for day in DAYS])) == {200}
    site.until_ended(["revoked", *DAYS])
    assert site.log("=") == sorted(DAYS), "the work without a permit was cancelled"
    with site.exports.acquire(weight=4):
        assert _get(f"{url}/refused") == 429
    _break_store(site)
    assert _get(f"{url}/broken") == 503


DJANGO = """
import sys
from concurrent.futures import ThreadPoolExecutor
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path
from work import call_api

def view(request, day):
    call_api(day)
    return HttpResponse()

urlpatterns = [path("export/<day>", view), path("free", lambda request: HttpResponse())]
settings.configure(MIDDLEWARE=["middleware.limited"], ROOT_URLCONF="__main__", SECRET_KEY="of the test")
django.setup()
from django.test import Client

def get(path):
    return Client(raise_request_exception=False).get(path).status_code

with ThreadPoolExecutor(8) as pool:
    print(*pool.map(get, sys.argv[1:]))
"""


@_needs("django")
def test_django_keeps_the_limit_over_its_processes(site: Site) -> None:
    def get(processes: int, *paths: str) -> list[str]:
        """The statuses of the replies, a text of each process."""
        for program in [site.start("-c", DJANGO, *paths) for _ in range(processes)]:
            assert program.wait(LIMIT) == 0, site.errors()
        return re.findall(r"^\d{3}(?: \d{3})*$", site.errors(), re.MULTILINE)[-processes:]

    assert get(2, *(f"/export/{day}" for day in DAYS)) == [" ".join(["200"] * len(DAYS))] * 2
    site.until_ended(DAYS * 2)
    with site.exports.acquire(weight=4):
        assert get(1, "/free", "/export/refused") == ["200 429"]
    assert get(1, "/export/revoked", "/free") == ["500 200"]
    site.until_ended([*DAYS * 2, "revoked"])
    _break_store(site)
    assert get(1, "/free", "/export/broken") == ["200 503"]


def test_asyncio_workers_keep_the_limit_and_repeat_what_was_lost(site: Site) -> None:
    workers = [site.start("worker.py", days=" ".join(DAYS)) for _ in range(2)]
    for worker in workers:
        assert worker.wait(LIMIT) == 0, site.errors()
    site.until_ended(DAYS * 2)
    assert site.start("worker.py", days="revoked").wait(LIMIT) == 0
    site.until_ended(DAYS * 2 + ["revoked"] * 2)
    assert site.log("=").count("revoked") == 1
    assert not site.errors()
