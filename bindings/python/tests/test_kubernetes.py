"""The manifests of contrib/kubernetes/, against the schemas of Kubernetes and against one another."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

MANIFESTS = Path(__file__).parents[3] / "contrib/kubernetes"
yaml: Any = pytest.importorskip("yaml")
kubernetes_validate: Any = pytest.importorskip("kubernetes_validate")


@functools.lru_cache(maxsize=None)
def _objects(name: str) -> list[Any]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


@pytest.mark.parametrize("version", ["newest", "1.30"])
def test_the_manifests_fit_the_schemas(version: str) -> None:
    validated = kubernetes_validate.latest_version() if version == "newest" else version
    objects = _objects("serve.yaml") + _objects("cronjob.yaml")
    assert [each["kind"] for each in objects] == ["Deployment", "Service", "CronJob"]
    for each in objects:
        kubernetes_validate.validate(each, validated, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**each, "spec": {**each["spec"], "replica": 1}}, validated, strict=True)


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
