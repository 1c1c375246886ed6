"""The manifests of contrib/kubernetes/, against the schemas of Kubernetes and against one another."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MANIFESTS = Path(__file__).parents[3] / "contrib/kubernetes"

if importlib.util.find_spec("kubernetes_validate") is None:
    pytest.skip("kubernetes-validate is not installed", allow_module_level=True)


def _validate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", *words]
    return subprocess.run(command, capture_output=True, text=True)


def _objects(name: str) -> list[Any]:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


@pytest.mark.parametrize("version", [[], ["-k", "1.30"]], ids=["newest", "1.30"])
def test_the_manifests_fit_the_schemas(version: list[str]) -> None:
    validated = _validate(*version, *(str(MANIFESTS / name) for name in ("serve.yaml", "cronjob.yaml")))
    assert validated.returncode == 0, validated.stdout + validated.stderr
    said = validated.stdout + validated.stderr
    assert (said.count("passed for resource"), said.count("WARN")) == (3, 0), said


def test_an_unknown_field_does_not_fit(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((MANIFESTS / "serve.yaml").read_text().replace("tcpSocket", "tcpSockets"))
    assert _validate(str(wrong)).returncode == 1


def test_the_monitor_finds_the_service_and_the_service_its_pods() -> None:
    deployment, service = _objects("serve.yaml")
    (monitor,) = _objects("servicemonitor.yaml")
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    (container,) = template["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    assert [port["targetPort"]] == [each["name"] for each in container["ports"]]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    assert f'up{{job="{job}"}} == 0' in (MANIFESTS.parent / "alerts.yml").read_text()
    (volume,) = template["spec"]["volumes"]
    assert volume["secret"]["defaultMode"] == 0o440
    secret = endpoint["authorization"]["credentials"]
    assert secret["name"] == volume["secret"]["secretName"]
    (mount,) = container["volumeMounts"]
    assert f"{mount['mountPath']}/{secret['key']}" in container["args"]
