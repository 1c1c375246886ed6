"""docs/reference/openapi.json, by a validator of OpenAPI and by the client that a generator makes of it. Rust compares
it with the replies of the server."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import permits
import pytest
from support import Server

DESCRIPTION = Path(__file__).parents[3] / "docs/reference/openapi.json"
COMMAND = os.environ.get("PERMITS_COMMAND", "")
TOKEN = "0123456789abcdef0123456789abcdef"


def test_the_description_of_the_http_endpoints_is_valid() -> None:
    validator: Any = pytest.importorskip("openapi_spec_validator")
    description = json.loads(DESCRIPTION.read_text())
    validator.validate(description)
    assert description["openapi"].startswith("3.1.")
    description["paths"]["/v1/acquire"]["post"]["parameters"][0]["in"] = "nowhere"
    with pytest.raises(Exception, match="nowhere"):
        validator.validate(description)


@pytest.fixture
def address(server: Server, tmp_path: Path) -> Iterator[str]:
    """The address of `permits serve --acquire`."""
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text(TOKEN)
    serve = [COMMAND, "serve", "--listen", "127.0.0.1:0", "--acquire", "--acquire-tokens", str(tokens)]
    environment = {**os.environ, "PERMITS_URL": server.url}
    with subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = process.stdout.readline()
        assert said.startswith("listening on http://"), said
        yield said.removeprefix("listening on ").rstrip("/\n")
        process.terminate()


@pytest.mark.skipif(not COMMAND, reason="PERMITS_COMMAND does not name the command")
def test_a_generated_client_acquires_renews_and_releases(
    server: Server, address: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openapi_python_client")
    # The generator leaves out what it cannot read of the description, with a warning, which has to fail here.
    options = ["--path", str(DESCRIPTION), "--meta", "none", "--output-path", str(tmp_path / "generated")]
    (tmp_path / "config.json").write_text('{"post_hooks": []}')
    options += ["--config", str(tmp_path / "config.json"), "--fail-on-warning"]
    program = "from openapi_python_client.cli import app; app()"
    made = subprocess.run([sys.executable, "-c", program, "generate", *options], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr

    monkeypatch.syspath_prepend(tmp_path)
    load: Any = importlib.import_module
    acquire, renew, release = (load(f"generated.api.default.{verb}") for verb in ("acquire", "renew", "release"))
    models = load("generated.models")
    # A new semaphore grants nothing at first, because the server may have just lost its state.
    with permits.connect(server.url, recovery="off") as direct, direct.semaphore(name, 1).acquire():
        pass
    request = models.Request(acquire=name, limit=1, timeout_ms=0)
    with load("generated").AuthenticatedClient(base_url=address, token=TOKEN, timeout=300) as client:
        permit = acquire.sync(client=client, body=request, idempotency_key="a")
        assert isinstance(permit, models.Permit) and permit.weight == 1
        refused = acquire.sync_detailed(client=client, body=request, idempotency_key="b")
        assert isinstance(refused.parsed, models.Problem) and refused.parsed.code
        assert (refused.status_code, refused.parsed.status) == (429, 429) and int(refused.headers["Retry-After"]) > 0
        renewed = renew.sync(client=client, body=models.Renewal(handle=permit.handle))
        assert isinstance(renewed, models.Renewed) and renewed.remaining_ms > permit.remaining_ms / 2
        released = release.sync(client=client, body=models.Release(handle=permit.handle))
        assert isinstance(released, models.Released) and released.released is True
        lost = renew.sync_detailed(client=client, body=models.Renewal(handle=permit.handle))
        assert isinstance(lost.parsed, models.Problem) and lost.status_code == 409
        assert isinstance(acquire.sync(client=client, body=request, idempotency_key="b"), models.Permit)
