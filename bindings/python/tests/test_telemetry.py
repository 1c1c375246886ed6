"""Acquisitions are spans and metrics of OpenTelemetry, in programs that use it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import permits
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support import LIMIT


class Telemetry:
    """What a program has recorded."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([self.reader]))

    def spans(self, semaphore: str) -> list[Any]:
        found = self.exporter.get_finished_spans()
        return [span for span in found if (span.attributes or {}).get("semaphore") == semaphore]

    def points(self, name: str, semaphore: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if (point.attributes or {}).get("semaphore") == semaphore
        ]


@pytest.fixture(scope="module")
def telemetry() -> Telemetry:
    return Telemetry()


def test_a_grant_is_a_span_below_the_current_one(client: permits.Client, name: str, telemetry: Telemetry) -> None:
    with trace.get_tracer("program").start_as_current_span("job") as job:
        with client.semaphore(name, 3).acquire(weight=2, timeout=30):
            pass
    (span,) = telemetry.spans(name)
    assert span.name == "acquire"
    assert span.parent is not None and span.parent.span_id == job.get_span_context().span_id
    assert dict(span.attributes) == {"semaphore": name, "weight": 2, "wait": "30s", "outcome": "granted"}
    (wait,) = telemetry.points("permits.wait", name)
    assert wait.count == 1 and 0 <= wait.sum < 30
    assert tuple(wait.explicit_bounds) == (0.001, 0.01, 0.1, 1, 10, 60, 600)
    (grants,) = telemetry.points("permits.grants", name)
    assert grants.value == 1


def test_a_refusal_has_its_reason(client: permits.Client, name: str, telemetry: Telemetry) -> None:
    semaphore = client.semaphore(name, 1)
    with semaphore.acquire():
        with pytest.raises(permits.NoPermitsError):
            semaphore.acquire(timeout=0).wait()
        with pytest.raises(permits.TimeoutError):
            semaphore.acquire(timeout=0.05).wait()
        with pytest.raises(permits.ExceedsLimitError):
            semaphore.acquire(weight=2).wait()
    of_refusals = [span.attributes for span in telemetry.spans(name) if span.attributes["outcome"] != "granted"]
    assert [(of["wait"], of["outcome"], of["error.type"]) for of in of_refusals] == [
        ("no", "no_permits", "NoPermitsError"),
        ("0.05s", "timed_out", "TimeoutError"),
        ("unlimited", "exceeds_limit", "ExceedsLimitError"),
    ]
    reasons = {point.attributes["reason"]: point.value for point in telemetry.points("permits.refusals", name)}
    assert reasons == {"no_permits": 1, "timed_out": 1, "exceeds_limit": 1}


def test_a_task_that_is_cancelled_ends_its_span(client: permits.Client, name: str, telemetry: Telemetry) -> None:
    semaphore = client.semaphore(name, 1)

    async def cancel() -> None:
        waiter = semaphore.acquire()

        async def wait() -> None:
            await waiter

        task = asyncio.create_task(wait())
        while waiter.position is None:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with semaphore.acquire():
        asyncio.run(asyncio.wait_for(cancel(), LIMIT))
    assert [span.attributes["outcome"] for span in telemetry.spans(name)] == ["granted", "cancelled"]


def test_a_set_is_one_span(client: permits.Client, name: str, telemetry: Telemetry) -> None:
    names = [f"{name}/a", f"{name}/b"]
    first, second = (client.semaphore(each, 3) for each in names)
    with client.acquire_all([first, (second, {"weight": 2})], timeout=5):
        with pytest.raises(permits.NoPermitsError):
            client.acquire_all([(first, {"weight": 2}), (second, {"weight": 2})], timeout=0).wait()
    granted, refused = telemetry.spans(",".join(names))
    assert dict(granted.attributes) == {"semaphore": ",".join(names), "weight": 3, "wait": "5s", "outcome": "granted"}
    assert refused.attributes["outcome"] == "no_permits"
    assert [len(telemetry.points("permits.grants", each)) for each in names] == [1, 1]
    # The semaphore that had too few units.
    assert [len(telemetry.points("permits.refusals", each)) for each in names] == [0, 1]


def test_a_program_without_opentelemetry_loads_nothing_of_it() -> None:
    program = (
        "import sys, permits\n"
        "with permits.connect('memory:') as client, client.semaphore('exports', 1).acquire():\n"
        "    print([name for name in sys.modules if 'opentelemetry' in name])\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
