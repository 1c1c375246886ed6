"""The entry point by which pytest loads the plugin of the package, which needs pytest 8.

With an older pytest there is no plugin: tests with its mark fail, since nothing would hold their permits. All others run.
"""

from __future__ import annotations

import pytest

if int(pytest.__version__.split(".")[0]) >= 8:
    pytest_plugins = ["permits.pytest_plugin"]
else:

    def pytest_runtest_setup(item: pytest.Item) -> None:
        if item.get_closest_marker("permit") is not None:
            pytest.fail(f"the mark permit needs pytest 8 or newer, and this is {pytest.__version__}", pytrace=False)
