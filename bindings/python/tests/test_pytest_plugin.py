"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from collections import Counter
from pathlib import Path

import documents
import permits
import pytest
from support import LIMIT, is_idle

ROOT = Path(__file__).parents[3]


class Project:
    """A project with tests, and a store."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.directory = pytester.path
        self.url = f"local:{self.directory}/store"
        monkeypatch.setenv("XDG_STATE_HOME", str(self.directory / "state"))
        monkeypatch.setenv("URL", self.url)
        monkeypatch.delenv("PERMITS_URL", raising=False)
        monkeypatch.delenv("PERMITS_URL_FILE", raising=False)
        # The plugins of other packages take a second to be imported.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        pytester.makeini("[pytest]\n")

    def run(self, tests: str, *options: str) -> tuple[int, str]:
        """Runs tests, in processes of their own if there are several: the exit code, and the output."""
        self.pytester.makepyfile(test_it=tests)
        command = ["-q", "-ra", "-p", "no:cacheprovider", "--strict-markers", "-p", "permits._pytest_entry"]
        if "-n" in options:
            ran = self.pytester.runpytest_subprocess(*command, "-p", "xdist", *options, timeout=LIMIT)
        else:
            ran = self.pytester.runpytest_inprocess(*command, *options, no_reraise_ctrlc=True)
        assert not ran.errlines, ran.errlines
        return ran.ret, "\n".join(ran.outlines)

    def is_idle(self, *names: str) -> bool:
        with permits.connect(self.url) as client:
            return client.list() == sorted(names) and all(is_idle(client.semaphore(name)) for name in names)


def test_before_pytest_8_marked_tests_fail_and_others_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest imports the entry point in every run, used or not."""
    entry = importlib.util.find_spec("permits._pytest_entry")
    assert entry is not None and entry.origin is not None
    pytester.makepyfile(entry_of_old=Path(entry.origin).read_text().replace("pytest.__version__", "'7.4.4'"))
    pytester.makepyfile("""
        import pytest

        @pytest.mark.permit("gpu", 2)
        def test_marked(): pass

        def test_other(): pass
    """)
    pytester.syspathinsert()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    options = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnknownMarkWarning", "-p", "entry_of_old"]
    ran = pytester.runpytest_inprocess(*options)
    ran.assert_outcomes(passed=1, errors=1)
    ran.stdout.fnmatch_lines(["*the mark permit needs pytest 8 or newer, and this is 7.4.4"])


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


def test_the_package_names_the_plugin() -> None:
    entry = 'permits = "permits._pytest_entry"'
    assert f"[project.entry-points.pytest11]\n{entry}\n" in (ROOT / "bindings/python/pyproject.toml").read_text()
    for package in importlib.metadata.distributions():
        # The package has no distribution if it is used without being installed.
        if package.metadata["Name"] == "permits":
            assert [f'{each.name} = "{each.value}"' for each in package.entry_points] == [entry]


def test_at_most_the_limit_run_at_once_over_all_workers_of_xdist(project: Project) -> None:
    code, output = project.run(
        """
        import os, time
        import pytest

        def note(text):
            with open("log", "a") as log:
                log.write(text + "\\n")

        @pytest.fixture
        def resource(permit):
            note(f"+ {permit.slot} {os.environ['PYTEST_XDIST_WORKER']}")
            yield
            time.sleep(0.02)
            note("-")

        @pytest.mark.permit("gpu", 2)
        @pytest.mark.parametrize("number", range(16))
        def test_trains(number, resource):
            time.sleep(0.02)
        """,
        "-n",
        "4",
        f"--permits-url={project.url}",
    )
    assert code == 0 and "16 passed" in output, output
    running, most = 0, 0
    workers, slots = Counter[str](), Counter[str]()
    for line in (project.directory / "log").read_text().splitlines():
        running += 1 if line[0] == "+" else -1
        most = max(most, running)
        if line[0] == "+":
            slots[line.split()[1]] += 1
            workers[line.split()[2]] += 1
    assert (most, running, sorted(slots)) == (2, 0, ["0", "1"])
    assert len(workers) > 2, "more workers than permits have run tests"
    assert project.is_idle("gpu")


def test_a_permit_is_held_from_before_the_first_fixture_until_after_the_last(project: Project) -> None:
    code, output = project.run(
        """
        import os
        import permits
        import pytest

        pytestmark = pytest.mark.permit("project", 5)

        def held(name):
            with permits.connect(os.environ["URL"]) as client:
                return client.semaphore(name).inspect().held

        @pytest.fixture(autouse=True)
        def fixture():
            before = held("gpu")
            yield
            assert held("gpu") == before

        @pytest.mark.permit("gpu", 3, weight=2, exactly=True, keep=0)
        def test_one(permit):
            assert held("gpu") == 2 and permit["gpu"].weight == 2 and permit["project"].token > 0

        @pytest.mark.permit("gpu", 3)
        class TestClass:
            def test_of_the_class(self, permit):
                assert sorted(each.semaphore for each in permit) == ["gpu", "project"] and held("gpu") == 1

            @pytest.mark.permit("gpu", 3, weight=3)
            def test_with_a_closer_mark(self):
                assert held("gpu") == 3

        def test_between():
            assert held("gpu") == 0

        @pytest.mark.skip
        @pytest.mark.permit("skipped", 1)
        def test_skipped(): pass

        @pytest.mark.permit("gpu", 3)
        def test_interrupted(permit):
            raise KeyboardInterrupt
        """,
        f"--permits-url={project.url}",
    )
    assert code == pytest.ExitCode.INTERRUPTED and "4 passed, 1 skipped" in output, output
    assert project.is_idle("gpu", "project")


def test_a_wrong_mark_fails_its_test_and_says_why(project: Project) -> None:
    wrong = {
        "": "missing 1 required positional argument: 'name'",
        "'gpu', 0": "the limit is 0: it must be at least 1",
        "''": "the semaphore's name is empty",
        "'gpu', 2, wieght=1": 'unknown: write "weight"',
        "'gpu', 2, weight=3": "a weight of 3 exceeds the limit of 2",
        "'gpu', 2, timeout=-1": "timeout is a time of at least 0 s, not -1",
        "'unlimited'": 'semaphore "unlimited" has no limit yet',
    }
    tests = [f"@pytest.mark.permit({mark})\ndef test_{number}(): pass\n" for number, mark in enumerate(wrong)]
    unmarked = "def test_unmarked(permit): pass\n"
    code, output = project.run("import pytest\n" + "\n".join(tests) + unmarked, f"--permits-url={project.url}")
    assert code == pytest.ExitCode.TESTS_FAILED and f"{len(wrong) + 1} errors" in output, output
    assert "passed" not in output and "Traceback" not in output and "During handling" not in output
    for mark, reason in wrong.items():
        said = rf"^@pytest\.mark\.permit\({re.escape(mark)}\): .*{re.escape(reason)}"
        assert re.search(said, output, re.MULTILINE), mark
    assert "the fixture permit needs a mark: write @pytest.mark.permit(name, limit)" in output


def test_a_test_whose_permit_does_not_come_in_time_says_which_holds_it(project: Project) -> None:
    with permits.connect(project.url) as client, client.semaphore("gpu", 2).acquire(weight=2, label="nightly"):
        code, output = project.run(
            """
            import pytest

            @pytest.mark.permit("gpu", 2, timeout=0.1)
            @pytest.mark.permit("free", 1)
            def test_waits(): pass

            def test_other(): pass
            """,
            f"--permits-url={project.url}",
        )
    assert code == pytest.ExitCode.TESTS_FAILED and "1 passed, 1 error" in output, output
    refused = re.escape("""@pytest.mark.permit('gpu', 2, timeout=0.1): no permit of "gpu": no permit within 100ms""")
    # The library names the holders, or the plugin does if the store was slow.
    at_once = r': 2 of 2 held by "nightly" \(.+\) for \d+ s, 0 waiting\n'
    later = r"\n2 of 2 units are held, and 0 requests wait:\n  nightly \(.+\), for \d+ s\n"
    assert re.search(f"{refused}({at_once}|{later})", output), output
    assert project.is_idle("free", "gpu")


def test_a_permit_that_is_lost_during_a_test_fails_it(project: Project) -> None:
    code, output = project.run(
        """
        import os
        import permits
        import pytest

        def revoke(permit):
            with permits.connect(os.environ["URL"]) as client:
                assert client.semaphore("gpu").revoke(permit.holder, "maintenance")

        @pytest.mark.permit("gpu", 2)
        def test_loses(permit):
            revoke(permit)
            assert permit.wait_lost(30)

        @pytest.fixture
        def broken():
            yield
            assert False, "the fixture"

        @pytest.mark.permit("gpu", 2)
        def test_loses_and_fails(permit, broken):
            revoke(permit)

        @pytest.mark.permit("gpu", 2)
        def test_next(permit): pass
        """,
        f"--permits-url={project.url}",
    )
    assert code == pytest.ExitCode.TESTS_FAILED and "3 passed, 2 errors" in output, output
    said = "'gpu': the permit was revoked: maintenance; the resource may have had another user during this test"
    assert len(re.findall(f"^{said}", output, re.MULTILINE)) == 1 and "AssertionError: the fixture" in output, output
    assert project.is_idle("gpu")


def test_the_option_the_environment_the_setting_and_a_directory_of_the_project_name_the_store(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = """
    import pytest

    @pytest.mark.permit("gpu", 1)
    def test_it(): pass
    """

    def stores(*options: str) -> set[str]:
        code, output = project.run(tests, *options)
        assert code == 0, output
        found = {marker.parent for marker in project.directory.rglob(".permits")}
        for store in found:
            shutil.rmtree(store)
        return {re.sub("-[0-9a-f]{8}", "-HASH", str(store.relative_to(project.directory))) for store in found}

    assert stores() == {f"state/permits/pytest/{project.directory.name}-HASH"}
    project.pytester.makeini("[pytest]\npermits_url = local:setting\n")
    assert stores() == {"setting"}
    monkeypatch.setenv("PERMITS_URL", "local:environment")
    assert stores() == {"environment"}
    assert stores("--permits-url=local:option") == {"option"}
    monkeypatch.setenv("PERMITS_URL_FILE", "")
    code, output = project.run(tests)
    assert code == pytest.ExitCode.TESTS_FAILED and "PERMITS_URL_FILE is empty: " in output
    monkeypatch.delenv("PERMITS_URL_FILE")
    for option, variable in (("--permits-url=", "PERMITS_URL"), ("-q", "")):
        monkeypatch.setenv("PERMITS_URL", variable)
        code, output = project.run(tests, option)
        source = "--permits-url" if variable else "PERMITS_URL"
        assert code == pytest.ExitCode.TESTS_FAILED and f"{source} is empty: " in output
    (project.directory / "url").write_text("local:file\n")
    monkeypatch.setenv("PERMITS_URL_FILE", str(project.directory / "url"))
    monkeypatch.setenv("PERMITS_URL", "local:environment")
    code, output = project.run(tests)
    assert code == pytest.ExitCode.TESTS_FAILED and "are both set: unset one" in output
    monkeypatch.delenv("PERMITS_URL")
    assert stores() == {"file"}
    code, output = project.run(tests, "--permits-url=nope:")
    assert code == pytest.ExitCode.TESTS_FAILED and "the URL is not valid: it begins with none of local:" in output


def test_the_example_of_the_page_runs(project: Project) -> None:
    (block,) = documents.of(__file__)
    project.pytester.makepyfile(training="def train(device): assert device in (0, 1)")
    code, output = project.run(block, f"--permits-url={project.url}")
    assert code == 0 and "2 passed" in output, output
