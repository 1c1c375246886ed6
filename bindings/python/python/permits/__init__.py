"""A distributed semaphore for Redis and Valkey, and for one machine without a server.

    client = permits.connect("redis://127.0.0.1/")
    exports = client.semaphore("exports", 4)

    with exports.acquire(timeout=30):        # waits in line
        ...                                  # at most 4 of these run at once, anywhere

    async with exports.acquire():            # the same on asyncio
        ...
"""

from . import _permits, errors
from ._acquire import Acquire, AcquireAll
from ._client import Client, aconnect, adiagnose, connect, diagnose
from ._credentials import Credentials
from ._inspection import Alert, ChangeInfo, HolderInfo, Inspection, LaneInfo, WaiterInfo, Waits
from ._permit import Permit, PermitSet
from ._semaphore import Semaphore
from ._types import AcquireOptions, ConnectOptions, Diagnosis, Finding, PermitStatus, Recovery, Seconds
from .errors import *

__version__ = _permits.VERSION

__all__ = [
    "Acquire",
    "AcquireAll",
    "AcquireOptions",
    "Alert",
    "ChangeInfo",
    "Client",
    "ConnectOptions",
    "Credentials",
    "Diagnosis",
    "Finding",
    "HolderInfo",
    "Inspection",
    "LaneInfo",
    "Permit",
    "PermitSet",
    "PermitStatus",
    "Recovery",
    "Seconds",
    "Semaphore",
    "WaiterInfo",
    "Waits",
    "aconnect",
    "adiagnose",
    "connect",
    "diagnose",
    "errors",
]
__all__ += errors.__all__
