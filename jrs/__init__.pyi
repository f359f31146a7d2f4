"""The public names and the modules that define them, for type checkers and for `__init__.py`."""

import jrs.recovery.snapshot_catalog
import jrs.store.jobs
import jrs.store.stops

from .client.client import Client as Client
from .client.client import connect as connect
from .client.client import diagnose as diagnose
from .client.job import JobHandle as JobHandle
from .client.snapshots import JobSnapshots as JobSnapshots
from .contract.backend import Backend as Backend
from .contract.backend import Capabilities as Capabilities
from .contract.backend import Diagnostic as Diagnostic
from .contract.clock import Deadline as Deadline
from .contract.errors import AccessDenied as AccessDenied
from .contract.errors import Conflict as Conflict
from .contract.errors import CorruptRecord as CorruptRecord
from .contract.errors import DamagedSnapshot as DamagedSnapshot
from .contract.errors import DuplicateJob as DuplicateJob
from .contract.errors import Fenced as Fenced
from .contract.errors import InvalidInput as InvalidInput
from .contract.errors import JobHeld as JobHeld
from .contract.errors import JobIsRunning as JobIsRunning
from .contract.errors import JrsError as JrsError
from .contract.errors import NoSuchJob as NoSuchJob
from .contract.errors import NoSuchResult as NoSuchResult
from .contract.errors import NoSuchSnapshot as NoSuchSnapshot
from .contract.errors import NotFound as NotFound
from .contract.errors import OutcomeUnknown as OutcomeUnknown
from .contract.errors import Refused as Refused
from .contract.errors import ResultExists as ResultExists
from .contract.errors import ResultExpired as ResultExpired
from .contract.errors import ResultIsDirty as ResultIsDirty
from .contract.errors import SnapshotInUse as SnapshotInUse
from .contract.errors import TooLarge as TooLarge
from .contract.errors import Unavailable as Unavailable
from .contract.errors import UnsupportedVersion as UnsupportedVersion
from .contract.errors import WrongAddress as WrongAddress
from .contract.errors import WrongState as WrongState
from .contract.leadership import Leadership as Leadership
from .contract.leadership import Lifeline as Lifeline
from .contract.operations import Absent as Absent
from .contract.operations import Check as Check
from .contract.operations import Create as Create
from .contract.operations import Delete as Delete
from .contract.operations import Fence as Fence
from .contract.operations import Record as Record
from .contract.operations import Update as Update
from .contract.runtime import Runtime as Runtime
from .contract.watch import Watch as Watch
from .records.model import AttemptRecord as AttemptRecord
from .records.model import CancelRequest as CancelRequest
from .records.model import CleanupJournal as CleanupJournal
from .records.model import EpochRecord as EpochRecord
from .records.model import Failure as Failure
from .records.model import JobNotFinished as JobNotFinished
from .records.model import JobResult as JobResult
from .records.model import JobResultEntry as JobResultEntry
from .records.model import JobSpec as JobSpec
from .records.model import JobStatus as JobStatus
from .records.model import MasterInfo as MasterInfo
from .records.model import ResultState as ResultState
from .records.model import RunnerKind as RunnerKind
from .records.model import StageRecord as StageRecord
from .records.model import StageSummary as StageSummary
from .records.model import StopMode as StopMode
from .records.model import StopRecord as StopRecord
from .records.model import StopState as StopState
from .records.policies import Keep as Keep
from .records.policies import RestartPolicy as RestartPolicy
from .records.policies import SnapshotPolicy as SnapshotPolicy
from .records.signing import SpecKey as SpecKey
from .records.snapshots import Manifest as Manifest
from .records.snapshots import RestoreRecord as RestoreRecord
from .records.snapshots import SnapshotFile as SnapshotFile
from .records.snapshots import SnapshotFormat as SnapshotFormat
from .records.snapshots import SnapshotRecord as SnapshotRecord
from .records.snapshots import SnapshotStage as SnapshotStage
from .recovery.application import Driver as Driver
from .recovery.application import run as run
from .recovery.attempt.entry_point import check_entry as check_entry
from .recovery.attempt.job import FinishedStage as FinishedStage
from .recovery.attempt.job import Job as Job
from .recovery.attempt.job import Stage as Stage
from .recovery.attempt.job import Stream as Stream
from .recovery.attempt.job import StreamStage as StreamStage
from .recovery.checkpoint_format.unreadable import UnreadableCheckpoint as UnreadableCheckpoint
from .recovery.cleanup.job_cleanup import CleanupPolicy as CleanupPolicy
from .recovery.inspect.explain import Explanation as Explanation
from .recovery.inspect.fsck import FsckReport as FsckReport
from .recovery.inspect.history import HistoryEntry as HistoryEntry
from .recovery.inspect.history import HistoryKind as HistoryKind
from .recovery.leader.trust import Trust as Trust
from .recovery.master import Master as Master
from .recovery.rules.decision import Action as Action
from .recovery.rules.events import Event as Event
from .recovery.rules.events import EventKind as EventKind
from .recovery.rules.resource import Resource as Resource
from .recovery.snapshots.catalog import RecoverySource as RecoverySource
from .recovery.snapshots.restore import Restored as Restored
from .recovery.spark.session import spark as spark
from .store.cluster_format import ClusterFormat as ClusterFormat
from .store.jobs import JobView as JobView
from .store.masters import MasterRole as MasterRole
from .store.masters import MasterView as MasterView
from .store.opening import open_backend as open_backend
from .store.result_store import JobResultStore as JobResultStore

# Deprecated; loaded with a warning.
JobCatalog = jrs.store.jobs.JobCatalog
JobStops = jrs.store.stops.JobStops
SnapshotCatalog = jrs.recovery.snapshot_catalog.SnapshotCatalog

__version__: str
__all__: list[str]  # All of these, without the deprecated ones.
