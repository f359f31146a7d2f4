"""The stored types: frozen values with validators, each with one meaning (docs/concepts.md)."""

from __future__ import annotations

import enum

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.applications import ApplicationRecord, digest_of
from jrs.records.attempts import AttemptRecord as AttemptRecord
from jrs.records.attempts import AttemptSummary as AttemptSummary
from jrs.records.attempts import Failure as Failure
from jrs.records.checks import a_job_id, check_json, size_of_json
from jrs.records.checks import bounded_text as _bounded
from jrs.records.checks import bounded_texts as _all_bounded
from jrs.records.cluster import EpochRecord as EpochRecord
from jrs.records.cluster import FormatRecord as FormatRecord
from jrs.records.cluster import MasterInfo as MasterInfo
from jrs.records.field_types import Json as Json
from jrs.records.lineage import Lineage
from jrs.records.on_result import OnResult
from jrs.records.policies import MOST, MOST_PARTITIONS, Keep, RestartPolicy, SnapshotPolicy, count
from jrs.records.settings import JobSettings
from jrs.records.stages import StageRecord as StageRecord
from jrs.records.stages import StageSummary as StageSummary
from jrs.records.stages import StreamRecord as StreamRecord
from jrs.records.stages import StreamSink as StreamSink
from jrs.records.stop import StopMode as StopMode
from jrs.records.stop import StopRecord as StopRecord
from jrs.records.stop import StopState as StopState
from jrs.records.stored import Stored
from jrs.records.tags import check_tags
from jrs.records.time_limits import TimeLimits

MAX_STAGES = 1000
"""Most stages that a result summarizes."""
MAX_COPIED_ARGUMENTS = 16 * 1024
"""Most bytes of JSON of a job's arguments that its result keeps."""


def _priority(instance: object, attribute: object, value: object) -> None:
    if type(value) is not int or abs(value) > MOST:
        raise InvalidInput(f"priority must be a whole number, at most {MOST}, not {shown(value)}")


class JobStatus(enum.StrEnum):
    """The status of a job. The last three are globally terminal: only they have a result."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    """Locally terminal: this leader stopped the job, and it can be resumed under any leader."""
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_globally_terminal(self) -> bool:
        return self in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)


class RunnerKind(enum.StrEnum):
    """Where an attempt runs."""

    PROCESS = "process"
    """A process of its own, which can always be killed and dies with its master."""
    THREAD = "thread"
    """The master's own process and SparkSession."""


class ResultState(enum.StrEnum):
    """The state of a result: dirty until all resources of its job are cleaned up, then clean.

    Of an expired result only the tombstone is left."""

    DIRTY = "dirty"
    CLEAN = "clean"
    EXPIRED = "expired"


@attrs.frozen
class JobSpec(Stored):
    """Everything that a master needs to start the job. Never a pickle."""

    job_id: str = attrs.field(validator=a_job_id)
    """The idempotency key: a job of the same id runs once, ever."""
    entry_point: str
    """``package.module:function`` or ``/path/file.py:function``, called as ``f(job, **arguments)``;
    or ``driver:NAME`` for a function that only the driver's own `main` provides."""
    arguments: dict[str, Json] = attrs.field(factory=dict)
    """What the function is called with, by name, as JSON."""
    runner: RunnerKind = RunnerKind.PROCESS
    """Where an attempt runs."""
    restart: RestartPolicy = attrs.field(factory=RestartPolicy)
    """How often the job is started again after it died."""
    submitted_at: float = 0.0
    """Seconds since 1970, by the submitter's clock."""
    partitions: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(count(MOST_PARTITIONS))
    )
    """The number of partitions of its streams' state; None leaves the choice to Spark."""
    snapshots: SnapshotPolicy = attrs.field(factory=SnapshotPolicy)
    """When jrs takes snapshots by itself, and how long it keeps them."""
    priority: int = attrs.field(default=0, validator=_priority)
    """Of the jobs that wait for slots, those of a higher priority start first."""
    slots: int = attrs.field(default=1, validator=count())
    """How many of a master's slots an attempt takes, in a process of its own. A master with fewer
    slots gives it all that it has."""
    tags: tuple[str, ...] = ()
    """At most 32, to find the job by: ``nightly``, ``team=sales``."""
    timeout: TimeLimits = attrs.field(factory=TimeLimits)
    """How long the job, and each attempt, may run."""
    settings: JobSettings = attrs.field(factory=JobSettings)
    """What its attempts run with: Spark's settings, jars, the environment."""
    application: str = ""
    """The application that the job is part of; empty if it is part of none."""
    on_result: OnResult | None = None
    """What jrs runs when it has a result, whatever its status."""
    signature: str = ""
    """The signature of the whole record; see `jrs.records.signing`. Empty if it is not signed."""
    lineage: Lineage | None = None
    """The job that this one was made from."""
    submitted_by: str = ""
    """Who submitted it, as ``user@host``: what the submitting process says, and no proof."""
    traceparent: str = ""
    """The span of its submitter, in the W3C's form; empty if it had none. What is malformed is
    ignored."""
    function: str = ""
    """Where the function of a ``driver:NAME`` is: ``module:qualname``, or ``file.py:qualname`` if
    that file is the program. Empty if unknown, as in specs of older versions."""
    submission: str = ""
    """The digest of what was asked for; see `jrs.records.submission`. Empty if unknown."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_tags(self.tags)
        if self.runner is RunnerKind.THREAD:
            given = [*self.settings.given, *(["slots"] if self.slots > 1 else [])]
            if given:
                raise InvalidInput(
                    f"a job in a thread of its master cannot have {', '.join(given)}: only a "
                    "process of its own can"
                )

    @arguments.validator
    def _check_arguments(self, attribute: object, value: object) -> None:
        if not isinstance(value, dict):
            raise InvalidInput("the arguments of a job must be a JSON object")
        check_json(value, "the arguments")

    def least_reader(self) -> int:
        # An older version would run the job without its settings, or without end, or in silence.
        new = (JobSettings(), TimeLimits(), None)
        return 1 if (self.settings, self.timeout, self.on_result) == new else 2

    @property
    def only_in_driver(self) -> bool:
        return self.entry_point.startswith("driver:")

    def keeps_after(self, status: JobStatus) -> Keep:
        """Return what happens to the snapshots of jrs after such an end."""
        policy = self.snapshots
        kept = {JobStatus.FAILED: policy.on_failed, JobStatus.CANCELED: policy.on_canceled}
        return kept.get(status, policy.on_finished)

    @property
    def call(self) -> str:
        """A digest of what runs: the entry point and the arguments."""
        return digest_of(self.entry_point, self.arguments)

    def copy_for_result(self) -> JobSpec:
        """Return the copy that the job's result keeps: without the signature, and without the
        arguments if they are over `MAX_COPIED_ARGUMENTS`."""
        copy = attrs.evolve(self, signature="")
        if size_of_json(self.arguments) > MAX_COPIED_ARGUMENTS:
            return attrs.evolve(copy, arguments={})
        return copy


@attrs.frozen
class JobResult(Stored):
    """The durable outcome of a globally terminal job. Written once; never changes."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    status: JobStatus = attrs.field()
    """FINISHED, FAILED or CANCELED."""
    payload: Json = None
    """What the job's function returned, as JSON; None if it did not finish."""
    failure: Failure | None = None
    """Why it did not finish; None if it FINISHED."""
    attempt: int = attrs.field(default=1)
    """The number of its last attempt, from 1."""
    epoch: int = 0
    """The epoch of the leader that wrote it."""
    started_at: float = 0.0
    """When its first attempt started: seconds since 1970; 0 if unknown."""
    finished_at: float = 0.0
    """Seconds since 1970, by the clock of the leader that wrote it; 0 if unknown. A result whose
    end is unknown has no age, so that neither `JobResultStore.expire` nor retention removes it."""
    stages: tuple[StageSummary, ...] = ()
    """The newest `MAX_STAGES` of them."""
    stages_left_out: int = 0
    """The number of older stages, which are left out."""
    call: str = ""
    """The digest of what ran, by which another call of the same id is recognized; see
    `JobSpec.call`. Empty if unknown, as of results of older versions."""
    code: str = ""
    """The version of the code that made it: ``JRS_CODE_VERSION`` of the process, else a digest of
    the file with the function. If a leader has ended the job, that of its newest attempt. Empty if
    unknown."""
    application: str = ""
    """The application that the job was part of; empty if it was part of none."""
    main: ApplicationRecord | None = None
    """What ran, if this is the result of an application; None if it is that of a job."""
    spec: JobSpec | None = None
    """A copy of what was submitted, without its signature; None in a result of an older version,
    or if the result was too large."""
    arguments_left_out: bool = False
    """Whether the copy has no arguments because they were too large."""
    attempts: tuple[AttemptSummary, ...] = ()
    """The newest of them, the last one included; empty in a result of an older version."""
    attempts_left_out: int = 0
    """The number of older attempts, which are left out."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.spec is not None:
            copy = self.spec.copy_for_result()
            if copy != self.spec:
                cut = copy.arguments != self.spec.arguments
                object.__setattr__(self, "spec", copy)
                object.__setattr__(self, "arguments_left_out", self.arguments_left_out or cut)
        if more := len(self.stages[:-MAX_STAGES]):
            object.__setattr__(self, "stages", self.stages[more:])
            object.__setattr__(self, "stages_left_out", self.stages_left_out + more)

    @status.validator
    def _check_status(self, attribute: object, value: JobStatus) -> None:
        if value not in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED):
            raise InvalidInput(f"a result is FINISHED, FAILED or CANCELED, not {shown(value)}")

    @property
    def stages_skipped(self) -> int:
        """The number of stages that an earlier attempt than the last one finished."""
        return sum(stage.attempt < self.attempt for stage in self.stages)


@attrs.frozen
class JobResultEntry:
    """A job's entry in the result store.

    `result` is None for an expired entry, whose `tombstone` is left, and for an unreadable entry:
    `problem` then says why, and the job is held.
    """

    job_id: str
    """The id of the job."""
    state: ResultState
    """Dirty, clean or expired."""
    result: JobResult | None
    problem: str | None = None
    tombstone: Tombstone | None = None
    """What is left of an expired result; None if that cannot be read."""
    uncertain: bool = False
    """Whether the job may not have ended: the disk has lost its result, or there never was one."""

    @property
    def status(self) -> JobStatus | None:
        """The status in which the job ended; None if it cannot be read."""
        kept = self.result or self.tombstone
        return kept.status if kept is not None else None

    @property
    def finished_at(self) -> float:
        """When the job ended, in seconds since 1970; 0 if that cannot be read."""
        kept = self.result or self.tombstone
        return kept.finished_at if kept is not None else 0.0


@attrs.frozen
class Tombstone(Stored):
    """The remainder of an expired result, which prevents a second run of the job."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    status: JobStatus = JobStatus.FINISHED
    """How the job ended."""
    finished_at: float = 0.0
    """When the job ended: seconds since 1970, as all times here; 0 if unknown."""
    expired_at: float = 0.0
    """When the result was expired."""
    submitted_at: float = 0.0
    """0 if an older version wrote the result."""
    started_at: float = 0.0
    """As `JobResult.started_at`."""
    by: str = ""
    """Who expired it: a user, or empty for a leader or an older version."""
    reason: str = ""
    """Why, if the user gave a reason."""


@attrs.frozen
class CleanupJournal(Stored):
    """The progress of a job's cleanup, so that a new leader continues it."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    done: tuple[str, ...] = ()
    """The names of the resources that are cleaned up."""
    tries: int = 0
    """How many passes the cleanup has made."""
    problems: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """The remaining resources: each one's name and its newest error, paths included."""
    exhausted: bool = False
    """Whether the cleanup has used up its retries."""
    given_up: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """What the cleanup continues without, and why."""
    failed: dict[str, int] = attrs.field(factory=dict)
    """The failed tries of each resource without which the cleanup may continue. Those that hang
    still, or were not begun, do not count."""
    waits: int = 0
    """How many of the newest tries have only waited for cleaners that had not returned, or for
    snapshots that were in use: they use up no retries."""


@attrs.frozen
class CancelRequest(Stored):
    """A request to cancel the job."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    requested_at: float = 0.0
    """Seconds since 1970, by the clock of the one who asked."""
    reason: str = attrs.field(default="", converter=_bounded)
    """Why, if a reason was given."""
