"""A span and metrics for each acquisition, in programs that use OpenTelemetry.

This module imports nothing. It only asks whether the program has loaded the API of OpenTelemetry, which does nothing without
an SDK. In other programs an acquisition costs two more lookups.

The Rust library uses the same names. OpenTelemetry's exporters for Prometheus turn `permits.wait`, in seconds, into
`permits_wait_seconds`, and `permits.grants` into `permits_grants_total`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from . import errors

# The same bounds as in the store's histogram, in seconds.
_BOUNDS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0)

_tracer: Any = None
_instruments: Any = None


class Observed:
    """Observes an acquisition: wait for it in a `with` block."""

    def __init__(self, semaphores: Sequence[str], weight: int, timeout: float | None) -> None:
        self._semaphores = semaphores
        self._attributes = {"semaphore": ",".join(semaphores), "weight": weight, "wait": _shown(timeout)}
        self._span: Any = None
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()
        tracer = _loaded_tracer()
        if tracer is not None:
            # The parent is the span that is current here.
            self._span = tracer.start_span("acquire", attributes=self._attributes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = "granted" if error is None else _outcome(error)
        if self._span is not None:
            self._span.set_attribute("outcome", outcome)
            if error is not None:
                self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.end()
        instruments = _loaded_instruments()
        if instruments is None:
            return
        waits, grants, refusals = instruments
        if error is None:
            for semaphore in self._semaphores:
                waits.record(time.monotonic() - self._began, {"semaphore": semaphore})
                grants.add(1, {"semaphore": semaphore})
        else:
            semaphore = getattr(error, "semaphore", None) or self._semaphores[0]
            refusals.add(1, {"semaphore": semaphore, "reason": outcome})


class _Unobserved:
    """Surrounds the wait in a program without OpenTelemetry, and does nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_UNOBSERVED = _Unobserved()


def observed(semaphores: Sequence[str], weight: int, timeout: float | None) -> Observed | _Unobserved:
    """Returns a context manager for the wait for `weight` units of the semaphores."""
    modules = sys.modules
    if semaphores and ("opentelemetry.trace" in modules or "opentelemetry.metrics" in modules):
        return Observed(semaphores, weight, timeout)
    return _UNOBSERVED


def _loaded_tracer() -> Any:
    global _tracer
    # Another thread may just be importing the module: then it has no such function yet.
    if _tracer is None and hasattr(sys.modules.get("opentelemetry.trace"), "get_tracer"):
        _tracer = sys.modules["opentelemetry.trace"].get_tracer("permits")
    return _tracer


def _loaded_instruments() -> Any:
    global _instruments
    if _instruments is None and hasattr(sys.modules.get("opentelemetry.metrics"), "get_meter"):
        meter = sys.modules["opentelemetry.metrics"].get_meter("permits")
        wait = {"unit": "s", "description": "The time from a request to its grant."}
        try:
            waits = meter.create_histogram("permits.wait", **wait, explicit_bucket_boundaries_advisory=_BOUNDS)
        except TypeError:
            # The API is older than 1.30.
            waits = meter.create_histogram("permits.wait", **wait)
        _instruments = (
            waits,
            meter.create_counter("permits.grants", description="The acquisitions that were granted."),
            meter.create_counter("permits.refusals", description="The acquisitions that ended without a permit."),
        )
    return _instruments


def _shown(timeout: float | None) -> str:
    if timeout is None or timeout == math.inf:
        return "unlimited"
    return f"{float(timeout):g}s" if timeout > 0 else "no"


def _outcome(error: BaseException) -> str:
    if not isinstance(error, errors.PermitsError):
        # A task was cancelled, or Ctrl-C was pressed.
        return "cancelled"
    keywords = {made: keyword for keyword, made in errors.CLASSES.items()}
    return keywords.get(type(error), "other")
