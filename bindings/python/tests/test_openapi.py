"""docs/reference/openapi.json, by a validator of OpenAPI. Rust compares it with the replies of the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

validator: Any = pytest.importorskip("openapi_spec_validator")


def test_the_description_of_the_http_endpoints_is_valid() -> None:
    path = Path(__file__).parents[3] / "docs/reference/openapi.json"
    description = json.loads(path.read_text())
    validator.validate(description)
    assert description["openapi"].startswith("3.1.")
    description["paths"]["/v1/acquire"]["post"]["parameters"][0]["in"] = "nowhere"
    with pytest.raises(Exception, match="nowhere"):
        validator.validate(description)
