"""jrs: an embedded JobResultStore and high-availability recovery for Python drivers."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jrs.contract.errors import JrsError as JrsError
    from jrs.records.model import JobNotFinished as JobNotFinished
    from jrs.records.model import JobResult as JobResult
    from jrs.records.model import JobSpec as JobSpec
    from jrs.records.model import JobStatus as JobStatus
    from jrs.records.model import StopMode as StopMode
    from jrs.records.policies import RestartPolicy as RestartPolicy
    from jrs.records.policies import SnapshotPolicy as SnapshotPolicy
    from jrs.recovery.application import Driver as Driver
    from jrs.recovery.application import run as run
    from jrs.recovery.attempt.job import Job as Job
    from jrs.recovery.attempt.job import Stage as Stage
    from jrs.recovery.master import Master as Master
    from jrs.recovery.rules.resource import Resource as Resource
    from jrs.recovery.snapshot_catalog import SnapshotCatalog as SnapshotCatalog
    from jrs.recovery.spark.session import session as spark
    from jrs.store.jobs import JobCatalog as JobCatalog
    from jrs.store.opening import open_backend as open_backend
    from jrs.store.result_store import JobResultStore as JobResultStore
    from jrs.store.stops import JobStops as JobStops

# Loaded when first asked for: the warden and the attempts of every job import this package, and a
# reader of results needs no dispatcher.
_HOMES = {
    "Driver": "jrs.recovery.application",
    "Job": "jrs.recovery.attempt.job",
    "JobCatalog": "jrs.store.jobs",
    "JobNotFinished": "jrs.records.model",
    "JobResult": "jrs.records.model",
    "JobResultStore": "jrs.store.result_store",
    "JobSpec": "jrs.records.model",
    "JobStatus": "jrs.records.model",
    "JobStops": "jrs.store.stops",
    "JrsError": "jrs.contract.errors",
    "Master": "jrs.recovery.master",
    "Resource": "jrs.recovery.cleanup.job_cleanup",
    "RestartPolicy": "jrs.records.policies",
    "SnapshotPolicy": "jrs.records.policies",
    "SnapshotCatalog": "jrs.recovery.snapshot_catalog",
    "Stage": "jrs.recovery.attempt.job",
    "StopMode": "jrs.records.model",
    "open_backend": "jrs.store.opening",
    "run": "jrs.recovery.application",
    "spark": "jrs.recovery.spark.session:session",
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
