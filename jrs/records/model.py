"""The stored types: frozen values with validators, each with one meaning (docs/concepts.md)."""

from __future__ import annotations

import enum

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.applications import ApplicationRecord, digest_of
from jrs.records.attempts import AttemptSummary as AttemptSummary
from jrs.records.attempts import SparkApplication, newest
from jrs.records.checks import a_job_id, check_json, size_of_json
from jrs.records.checks import bounded_text as _bounded
from jrs.records.checks import bounded_texts as _all_bounded
from jrs.records.cluster import EpochRecord as EpochRecord
from jrs.records.cluster import FormatRecord as FormatRecord
from jrs.records.cluster import MasterInfo as MasterInfo
from jrs.records.field_types import Json as Json
from jrs.records.lineage import Lineage
from jrs.records.obstacles import Obstacle
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
    entry_point: str
    """``package.module:function`` or ``/path/file.py:function``, called as ``f(job, **arguments)``;
    or ``driver:NAME`` for a function that only the driver's own `main` provides."""
    arguments: dict[str, Json] = attrs.field(factory=dict)
    runner: RunnerKind = RunnerKind.PROCESS
    restart: RestartPolicy = attrs.field(factory=RestartPolicy)
    submitted_at: float = 0.0
    """Seconds since 1970, by the submitter's clock."""
    partitions: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(count(MOST_PARTITIONS))
    )
    """The number of partitions of its streams' state; None leaves the choice to Spark."""
    snapshots: SnapshotPolicy = attrs.field(factory=SnapshotPolicy)
    priority: int = attrs.field(default=0, validator=_priority)
    """Of the jobs that wait for slots, those of a higher priority start first."""
    slots: int = attrs.field(default=1, validator=count())
    """How many of a master's slots an attempt takes, in a process of its own. A master with fewer
    slots gives it all that it has."""
    tags: tuple[str, ...] = ()
    """At most 32, to find the job by: ``nightly``, ``team=sales``."""
    timeout: TimeLimits = attrs.field(factory=TimeLimits)
    settings: JobSettings = attrs.field(factory=JobSettings)
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
class Failure(Stored):
    """Why a job did not finish."""

    kind: str
    """``exception``, ``exit`` (the process died), ``timeout``, ``cancel``, ``lost-result``, or
    ``lost-main`` (the job's application has ended without it)."""
    message: str = attrs.field(converter=_bounded)
    detail: str = attrs.field(default="", converter=_bounded)
    """The traceback, or the end of the process's stderr."""
    exit_status: int | None = None
    """The exit code, or minus the signal's number."""


@attrs.frozen
class JobResult(Stored):
    """The durable outcome of a globally terminal job. Written once; never changes."""

    job_id: str = attrs.field(validator=a_job_id)
    status: JobStatus = attrs.field()
    payload: Json = None
    failure: Failure | None = None
    attempt: int = attrs.field(default=1)
    epoch: int = 0
    started_at: float = 0.0
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
        if not isinstance(value, JobStatus) or not value.is_globally_terminal:
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
    state: ResultState
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
    status: JobStatus = JobStatus.FINISHED
    finished_at: float = 0.0
    expired_at: float = 0.0
    submitted_at: float = 0.0
    """0 if an older version wrote the result."""
    started_at: float = 0.0
    by: str = ""
    """Who expired it: a user, or empty for a leader or an older version."""
    reason: str = ""
    """Why, if the user gave a reason."""


@attrs.frozen
class AttemptRecord(Stored):
    """The newest attempt of a job, written before it starts so that its processes can be found."""

    job_id: str = attrs.field(validator=a_job_id)
    attempt: int = 1
    epoch: int = 0
    master: str = ""
    started_at: float = 0.0
    deaths: int = 0
    """The number of attempts that died under a living leader, or alone in a leader that died with
    them. The restart policy counts these."""
    failure: Failure | None = None
    """Why the newest attempt counted in `deaths` died."""
    first_started_at: float = 0.0
    retry_at: float = 0.0
    """When the next attempt may start, by the clock of the leader that recorded this attempt's
    end; 0 while no end is recorded."""
    suspicion: int = 0
    """Above 0 if a leader died while the job ran in its process; see
    `jrs.recovery.leader.suspects`."""
    on_probation: bool = False
    """Whether the suspected job runs alone in its leader's process for a while."""
    unheard: tuple[int, ...] = ()
    """The epochs in which the job was on probation when the leader was replaced, and whose last
    report may still arrive: a process that hangs is replaced before it is dead."""
    mark: str = ""
    """The mark that identifies this attempt's processes; empty if the version that started the
    attempt had no marks."""
    used: float = 0.0
    """The seconds that the job has run, over all attempts, up to `counted_at`."""
    counted_at: float = 0.0
    """Up to when `used` counts, by the leader's clock; 0 while no attempt runs."""
    earlier_marks: tuple[str, ...] = ()
    """The marks of earlier attempts, the newest last: some may have run on another host."""
    host: str = ""
    """The host of its master, on which it runs; empty if an older version started it."""
    pid: int = 0
    """The process that runs the job's function; 0 until that process has recorded it."""
    in_thread: bool = False
    """Whether it runs in a thread of its master: no process has its mark."""
    ended_at: float = 0.0
    """When its end was recorded; 0 before."""
    ended: str = attrs.field(default="", converter=_bounded)
    """How it ended, for people; empty before its end was recorded."""
    earlier: tuple[AttemptSummary, ...] = ()
    """The newest of the earlier attempts, the newest last."""
    earlier_left_out: int = 0
    """The number of older attempts, which are left out."""
    obstacles: tuple[Obstacle, ...] = ()
    """Why masters could not start the job, the newest last."""
    spark: SparkApplication | None = None
    """What it runs on a Spark cluster; None if it uses none, or has not reached it."""
    session: dict[str, str] | None = None
    """The configuration that the job gives its Spark session, so that a session can be prepared for
    the next attempt; None if the job has started none, or the configuration may hold secrets."""
    code: str = ""
    """The version of the code that it runs, as `JobResult.code`; empty until the process that runs
    the job's function has recorded it."""

    @property
    def could_not_start(self) -> bool:
        """Whether this attempt ended because its host lacks what the job needs."""
        last = self.obstacles[-1] if self.obstacles else None
        return last is not None and (last.master, last.attempt) == (self.master, self.attempt)

    def summary(self) -> AttemptSummary:
        """Return what later records keep of the attempt."""
        return AttemptSummary(
            self.attempt, self.epoch, self.master, self.host, self.pid,
            self.started_at, self.ended_at, self.ended, self.spark,
        )  # fmt: skip

    def summaries(self) -> tuple[tuple[AttemptSummary, ...], int]:
        """Return the job's attempts up to this one, and the number of older ones left out."""
        kept, more = newest((*self.earlier, self.summary()))
        return kept, self.earlier_left_out + more


@attrs.frozen
class CleanupJournal(Stored):
    """The progress of a job's cleanup, so that a new leader continues it."""

    job_id: str = attrs.field(validator=a_job_id)
    done: tuple[str, ...] = ()
    tries: int = 0
    problems: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """The remaining resources: each one's name and its newest error, paths included."""
    exhausted: bool = False
    given_up: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """What the cleanup continues without, and why."""
    failed: dict[str, int] = attrs.field(factory=dict)
    """The failed tries of each resource without which the cleanup may continue. Those that hang
    still, or were not begun, do not count."""


@attrs.frozen
class CancelRequest(Stored):
    """A request to cancel the job."""

    job_id: str = attrs.field(validator=a_job_id)
    requested_at: float = 0.0
    reason: str = attrs.field(default="", converter=_bounded)
