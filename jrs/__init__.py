"""jrs: an embedded JobResultStore and high-availability recovery for Python drivers.

Every name that users need is here. It is loaded when it is first asked for: the watchdog and the
attempts of every job import this package, and a reader of results needs no dispatcher.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jrs.client.client import Client as Client
    from jrs.client.client import connect as connect
    from jrs.client.client import diagnose as diagnose
    from jrs.client.job import JobHandle as JobHandle
    from jrs.client.snapshots import JobSnapshots as JobSnapshots
    from jrs.contract.backend import Backend as Backend
    from jrs.contract.backend import Capabilities as Capabilities
    from jrs.contract.backend import Diagnostic as Diagnostic
    from jrs.contract.clock import Deadline as Deadline
    from jrs.contract.errors import AccessDenied as AccessDenied
    from jrs.contract.errors import Conflict as Conflict
    from jrs.contract.errors import CorruptRecord as CorruptRecord
    from jrs.contract.errors import DamagedSnapshot as DamagedSnapshot
    from jrs.contract.errors import DuplicateJob as DuplicateJob
    from jrs.contract.errors import Fenced as Fenced
    from jrs.contract.errors import InvalidInput as InvalidInput
    from jrs.contract.errors import JobHeld as JobHeld
    from jrs.contract.errors import JobIsRunning as JobIsRunning
    from jrs.contract.errors import JrsError as JrsError
    from jrs.contract.errors import NoSuchJob as NoSuchJob
    from jrs.contract.errors import NoSuchResult as NoSuchResult
    from jrs.contract.errors import NoSuchSnapshot as NoSuchSnapshot
    from jrs.contract.errors import NotFound as NotFound
    from jrs.contract.errors import OutcomeUnknown as OutcomeUnknown
    from jrs.contract.errors import Refused as Refused
    from jrs.contract.errors import ResultExists as ResultExists
    from jrs.contract.errors import ResultExpired as ResultExpired
    from jrs.contract.errors import ResultIsDirty as ResultIsDirty
    from jrs.contract.errors import SnapshotInUse as SnapshotInUse
    from jrs.contract.errors import TooLarge as TooLarge
    from jrs.contract.errors import Unavailable as Unavailable
    from jrs.contract.errors import UnsupportedVersion as UnsupportedVersion
    from jrs.contract.errors import WrongAddress as WrongAddress
    from jrs.contract.errors import WrongState as WrongState
    from jrs.contract.leadership import Leadership as Leadership
    from jrs.contract.leadership import Lifeline as Lifeline
    from jrs.contract.operations import Absent as Absent
    from jrs.contract.operations import Check as Check
    from jrs.contract.operations import Create as Create
    from jrs.contract.operations import Delete as Delete
    from jrs.contract.operations import Fence as Fence
    from jrs.contract.operations import Record as Record
    from jrs.contract.operations import Update as Update
    from jrs.contract.runtime import Runtime as Runtime
    from jrs.contract.watch import Watch as Watch
    from jrs.records.model import AttemptRecord as AttemptRecord
    from jrs.records.model import CancelRequest as CancelRequest
    from jrs.records.model import CleanupJournal as CleanupJournal
    from jrs.records.model import EpochRecord as EpochRecord
    from jrs.records.model import Failure as Failure
    from jrs.records.model import JobNotFinished as JobNotFinished
    from jrs.records.model import JobResult as JobResult
    from jrs.records.model import JobResultEntry as JobResultEntry
    from jrs.records.model import JobSpec as JobSpec
    from jrs.records.model import JobStatus as JobStatus
    from jrs.records.model import MasterInfo as MasterInfo
    from jrs.records.model import ResultState as ResultState
    from jrs.records.model import RunnerKind as RunnerKind
    from jrs.records.model import StageRecord as StageRecord
    from jrs.records.model import StageSummary as StageSummary
    from jrs.records.model import StopMode as StopMode
    from jrs.records.model import StopRecord as StopRecord
    from jrs.records.model import StopState as StopState
    from jrs.records.policies import Keep as Keep
    from jrs.records.policies import RestartPolicy as RestartPolicy
    from jrs.records.policies import SnapshotPolicy as SnapshotPolicy
    from jrs.records.signing import SpecKey as SpecKey
    from jrs.records.snapshots import Manifest as Manifest
    from jrs.records.snapshots import RestoreRecord as RestoreRecord
    from jrs.records.snapshots import SnapshotFile as SnapshotFile
    from jrs.records.snapshots import SnapshotFormat as SnapshotFormat
    from jrs.records.snapshots import SnapshotRecord as SnapshotRecord
    from jrs.records.snapshots import SnapshotStage as SnapshotStage
    from jrs.recovery.application import Driver as Driver
    from jrs.recovery.application import run as run
    from jrs.recovery.attempt.entry_point import check_entry as check_entry
    from jrs.recovery.attempt.job import FinishedStage as FinishedStage
    from jrs.recovery.attempt.job import Job as Job
    from jrs.recovery.attempt.job import Stage as Stage
    from jrs.recovery.attempt.job import Stream as Stream
    from jrs.recovery.attempt.job import StreamStage as StreamStage
    from jrs.recovery.checkpoint_format.unreadable import (
        UnreadableCheckpoint as UnreadableCheckpoint,
    )
    from jrs.recovery.cleanup.job_cleanup import CleanupPolicy as CleanupPolicy
    from jrs.recovery.inspect.explain import Explanation as Explanation
    from jrs.recovery.inspect.fsck import FsckReport as FsckReport
    from jrs.recovery.inspect.history import HistoryEntry as HistoryEntry
    from jrs.recovery.inspect.history import HistoryKind as HistoryKind
    from jrs.recovery.leader.trust import Trust as Trust
    from jrs.recovery.master import Master as Master
    from jrs.recovery.rules.decision import Action as Action
    from jrs.recovery.rules.events import Event as Event
    from jrs.recovery.rules.events import EventKind as EventKind
    from jrs.recovery.rules.resource import Resource as Resource
    from jrs.recovery.snapshot_catalog import SnapshotCatalog as SnapshotCatalog
    from jrs.recovery.snapshots.catalog import RecoverySource as RecoverySource
    from jrs.recovery.snapshots.restore import Restored as Restored
    from jrs.recovery.spark.session import spark as spark
    from jrs.store.cluster_format import ClusterFormat as ClusterFormat
    from jrs.store.jobs import JobCatalog as JobCatalog
    from jrs.store.jobs import JobView as JobView
    from jrs.store.masters import MasterRole as MasterRole
    from jrs.store.masters import MasterView as MasterView
    from jrs.store.opening import open_backend as open_backend
    from jrs.store.result_store import JobResultStore as JobResultStore
    from jrs.store.stops import JobStops as JobStops

_ROOMS = {
    "jrs.client.client": ("Client", "connect", "diagnose"),
    "jrs.client.job": ("JobHandle",),
    "jrs.client.snapshots": ("JobSnapshots",),
    "jrs.contract.backend": (
        "Backend",
        "Capabilities",
        "Diagnostic",
    ),
    "jrs.contract.clock": ("Deadline",),
    "jrs.contract.errors": (
        "AccessDenied",
        "Conflict",
        "CorruptRecord",
        "DamagedSnapshot",
        "DuplicateJob",
        "Fenced",
        "InvalidInput",
        "JobHeld",
        "JobIsRunning",
        "JrsError",
        "NoSuchJob",
        "NoSuchResult",
        "NoSuchSnapshot",
        "NotFound",
        "OutcomeUnknown",
        "Refused",
        "ResultExists",
        "ResultExpired",
        "ResultIsDirty",
        "SnapshotInUse",
        "TooLarge",
        "Unavailable",
        "UnsupportedVersion",
        "WrongAddress",
        "WrongState",
    ),
    "jrs.contract.leadership": (
        "Leadership",
        "Lifeline",
    ),
    "jrs.contract.operations": (
        "Absent",
        "Check",
        "Create",
        "Delete",
        "Explanation",
        "Fence",
        "Record",
        "Update",
    ),
    "jrs.contract.runtime": ("Runtime",),
    "jrs.contract.watch": ("Watch",),
    "jrs.records.model": (
        "AttemptRecord",
        "CancelRequest",
        "CleanupJournal",
        "EpochRecord",
        "Failure",
        "JobNotFinished",
        "JobResult",
        "JobResultEntry",
        "JobSpec",
        "JobStatus",
        "MasterInfo",
        "ResultState",
        "RunnerKind",
        "StageRecord",
        "StageSummary",
        "StopMode",
        "StopRecord",
        "StopState",
    ),
    "jrs.records.policies": (
        "Keep",
        "RestartPolicy",
        "SnapshotPolicy",
    ),
    "jrs.records.signing": ("SpecKey",),
    "jrs.records.snapshots": (
        "Manifest",
        "RestoreRecord",
        "SnapshotFile",
        "SnapshotFormat",
        "SnapshotRecord",
        "SnapshotStage",
    ),
    "jrs.recovery.application": (
        "Driver",
        "run",
    ),
    "jrs.recovery.attempt.entry_point": ("check_entry",),
    "jrs.recovery.attempt.job": (
        "FinishedStage",
        "Job",
        "Stage",
        "Stream",
        "StreamStage",
    ),
    "jrs.recovery.checkpoint_format.unreadable": ("UnreadableCheckpoint",),
    "jrs.recovery.cleanup.job_cleanup": ("CleanupPolicy",),
    "jrs.recovery.inspect.explain": ("Explanation",),
    "jrs.recovery.inspect.fsck": ("FsckReport",),
    "jrs.recovery.inspect.history": ("HistoryEntry", "HistoryKind"),
    "jrs.recovery.leader.trust": ("Trust",),
    "jrs.recovery.master": ("Master",),
    "jrs.recovery.rules.decision": ("Action",),
    "jrs.recovery.rules.events": ("Event", "EventKind"),
    "jrs.recovery.rules.resource": ("Resource",),
    "jrs.recovery.snapshots.catalog": ("RecoverySource",),
    "jrs.recovery.snapshots.restore": ("Restored",),
    "jrs.recovery.spark.session": ("spark",),
    "jrs.store.cluster_format": ("ClusterFormat",),
    "jrs.store.jobs": ("JobView",),
    "jrs.store.masters": ("MasterRole", "MasterView"),
    "jrs.store.opening": ("open_backend",),
    "jrs.store.result_store": ("JobResultStore",),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Absent",
    "AccessDenied",
    "Action",
    "AttemptRecord",
    "Backend",
    "CancelRequest",
    "Capabilities",
    "Check",
    "CleanupJournal",
    "CleanupPolicy",
    "Client",
    "ClusterFormat",
    "Conflict",
    "CorruptRecord",
    "Create",
    "DamagedSnapshot",
    "Deadline",
    "Delete",
    "Diagnostic",
    "Driver",
    "DuplicateJob",
    "EpochRecord",
    "Event",
    "EventKind",
    "Explanation",
    "Failure",
    "Fence",
    "Fenced",
    "FinishedStage",
    "FsckReport",
    "HistoryEntry",
    "HistoryKind",
    "InvalidInput",
    "Job",
    "JobHandle",
    "JobHeld",
    "JobIsRunning",
    "JobNotFinished",
    "JobResult",
    "JobResultEntry",
    "JobResultStore",
    "JobSnapshots",
    "JobSpec",
    "JobStatus",
    "JobView",
    "JrsError",
    "Keep",
    "Leadership",
    "Lifeline",
    "Manifest",
    "Master",
    "MasterInfo",
    "MasterRole",
    "MasterView",
    "NoSuchJob",
    "NoSuchResult",
    "NoSuchSnapshot",
    "NotFound",
    "OutcomeUnknown",
    "Record",
    "RecoverySource",
    "Refused",
    "Resource",
    "RestartPolicy",
    "RestoreRecord",
    "Restored",
    "ResultExists",
    "ResultExpired",
    "ResultIsDirty",
    "ResultState",
    "RunnerKind",
    "Runtime",
    "SnapshotFile",
    "SnapshotFormat",
    "SnapshotInUse",
    "SnapshotPolicy",
    "SnapshotRecord",
    "SnapshotStage",
    "SpecKey",
    "Stage",
    "StageRecord",
    "StageSummary",
    "StopMode",
    "StopRecord",
    "StopState",
    "Stream",
    "StreamStage",
    "TooLarge",
    "Trust",
    "Unavailable",
    "UnreadableCheckpoint",
    "UnsupportedVersion",
    "Update",
    "Watch",
    "WrongAddress",
    "WrongState",
    "__version__",
    "check_entry",
    "connect",
    "diagnose",
    "open_backend",
    "run",
    "spark",
]


_OLD = {
    "JobCatalog": ("jrs.store.jobs", "jrs.connect(…) and its jobs"),
    "JobStops": ("jrs.store.stops", "suspend, drain and resume of jrs.connect(…).job(id)"),
    "SnapshotCatalog": ("jrs.recovery.snapshot_catalog", "jrs.connect(…).job(id).snapshots"),
}
"""Names of 0.1, which are gone in 0.3, and what to use; see docs/upgrading.md."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("jrs")
    if name in _OLD:
        room, instead = _OLD[name]
        warnings.warn(
            f"jrs.{name} will be removed in 0.3: use {instead}", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(room), name)
    if name not in _HOMES:
        raise AttributeError(f"module 'jrs' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    if found.__module__ != __name__:
        if hasattr(found, "__attrs_attrs__"):
            # While the names in its annotations are those of the module that it was defined in.
            import_module("attrs").resolve_types(found)
        found.__module__ = __name__
    return found


def __dir__() -> list[str]:
    return __all__
