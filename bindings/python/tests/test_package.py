"""The package itself: its version, and what it is as a program."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import permits
import pytest

VERSIONS = Path(__file__).parents[3] / "Cargo.toml"


def test_the_version_is_that_of_the_workspace() -> None:
    assert f'version = "{permits.__version__}"\n' in VERSIONS.read_text()


def test_an_installed_package_names_its_version_and_its_makers() -> None:
    try:
        metadata = importlib.metadata.metadata("permits")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")
    assert metadata["Version"] == permits.__version__
    assert metadata["Author"] == "the permits maintainers"
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE-APACHE", "LICENSE-MIT"]


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--version"], 0), (["run", "exports"], 1)])
def test_as_a_program_it_says_where_the_command_is(arguments: list[str], code: int) -> None:
    program = [sys.executable, "-W", "error", "-m", "permits", *arguments]
    ended = subprocess.run(program, capture_output=True, text=True)
    assert ended.returncode == code
    said = ended.stderr if code else ended.stdout
    assert re.search("cargo install .* crates/permits-cli", said)
    assert code or f"permits {permits.__version__}," in said
