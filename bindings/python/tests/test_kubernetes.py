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
    objects = _objects("serve.yaml") + _objects("cronjob.yaml") + _objects("sidecar.yaml")
    assert [each["kind"] for each in objects] == ["Deployment", "Service", "CronJob", "Deployment"]
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


@pytest.mark.parametrize("name", ["serve.yaml", "cronjob.yaml", "sidecar.yaml"])
def test_pods_are_admitted_where_pod_security_is_restricted(name: str) -> None:
    spec = _objects(name)[0]["spec"]
    pod = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"] + pod.get("initContainers", []):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_sidecar_and_the_worker_share_the_socket() -> None:
    (deployment,) = _objects("sidecar.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,), (worker,) = pod["initContainers"], pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    (volume,) = [each["name"] for each in pod["volumes"] if "emptyDir" in each]
    mounts = [each for container in (sidecar, worker) for each in container["volumeMounts"] if each["name"] == volume]
    assert [each["mountPath"] for each in mounts] == ["/run/permits"] * 2
    (socket,) = [each["value"] for each in worker["env"] if each["name"] == "PERMITS_SOCKET"]
    assert sidecar["args"] == ["hold", "--listen", f"unix:{socket}"]
    assert pod["securityContext"]["runAsUser"] == 65532 and "runAsUser" not in sidecar["securityContext"]
