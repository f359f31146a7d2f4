"""jrs: an embedded JobResultStore and high-availability recovery for Python drivers."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jrs.backend import open_backend as open_backend
    from jrs.errors import JobNotFinished as JobNotFinished
    from jrs.errors import JrsError as JrsError
    from jrs.jobs import JobCatalog as JobCatalog
    from jrs.model import JobResult as JobResult
    from jrs.model import JobSpec as JobSpec
    from jrs.model import JobStatus as JobStatus
    from jrs.model import StopMode as StopMode
    from jrs.policy import RestartPolicy as RestartPolicy
    from jrs.policy import SnapshotPolicy as SnapshotPolicy
    from jrs.recovery.application import Driver as Driver
    from jrs.recovery.application import run as run
    from jrs.recovery.cleanup import Resource as Resource
    from jrs.recovery.job import Job as Job
    from jrs.recovery.job import Stage as Stage
    from jrs.recovery.master import Master as Master
    from jrs.recovery.snapshots.catalog import SnapshotCatalog as SnapshotCatalog
    from jrs.recovery.spark import session as spark
    from jrs.stops import JobStops as JobStops
    from jrs.store import JobResultStore as JobResultStore

# Loaded when first asked for: the warden and the attempts of every job import this package, and a
# reader of results needs no dispatcher.
_HOMES = {
    "Driver": "jrs.recovery.application",
    "Job": "jrs.recovery.job",
    "JobCatalog": "jrs.jobs",
    "JobNotFinished": "jrs.errors",
    "JobResult": "jrs.model",
    "JobResultStore": "jrs.store",
    "JobSpec": "jrs.model",
    "JobStatus": "jrs.model",
    "JobStops": "jrs.stops",
    "JrsError": "jrs.errors",
    "Master": "jrs.recovery.master",
    "Resource": "jrs.recovery.cleanup",
    "RestartPolicy": "jrs.policy",
    "SnapshotPolicy": "jrs.policy",
    "SnapshotCatalog": "jrs.recovery.snapshots.catalog",
    "Stage": "jrs.recovery.job",
    "StopMode": "jrs.model",
    "open_backend": "jrs.backend",
    "run": "jrs.recovery.application",
    "spark": "jrs.recovery.spark:session",
}

__all__ = [
    "Driver",
    "Job",
    "JobCatalog",
    "JobNotFinished",
    "JobResult",
    "JobResultStore",
    "JobSpec",
    "JobStatus",
    "JobStops",
    "JrsError",
    "Master",
    "Resource",
    "RestartPolicy",
    "SnapshotCatalog",
    "SnapshotPolicy",
    "Stage",
    "StopMode",
    "__version__",
    "open_backend",
    "run",
    "spark",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("jrs")
    if name not in _HOMES:
        raise AttributeError(f"module 'jrs' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return __all__
