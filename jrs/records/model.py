"""The stored types: frozen values with validators, each with one meaning (docs/concepts.md)."""

from __future__ import annotations

import enum

import attrs

from jrs.contract.errors import InvalidInput, JrsError
from jrs.contract.texts import bounded, bounded_map, shown
from jrs.records.checks import check_job_id, check_json
from jrs.records.fields import Json as Json
from jrs.records.policies import MOST_PARTITIONS, RestartPolicy, SnapshotPolicy, count, seconds
from jrs.records.stored import Stored

MAX_STAGES = 1000
"""Most stages that a result summarizes."""


def _job_id(instance: object, attribute: object, value: str) -> None:
    check_job_id(value)


def _bounded(text: str) -> str:
    return bounded(text) if isinstance(text, str) else text  # `check_fields` refuses it later.


def _all_bounded(texts: dict[str, str]) -> dict[str, str]:
    try:
        return bounded_map(texts)
    except (AttributeError, TypeError, ValueError):
        return texts  # `check_fields` refuses it later.


class JobStatus(enum.Enum):
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
        return self in _GLOBALLY_TERMINAL


_GLOBALLY_TERMINAL = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)


class RunnerKind(enum.Enum):
    """Where an attempt runs."""

    PROCESS = "process"
    """A process of its own, which can always be killed and dies with its master."""
    THREAD = "thread"
    """The master's own process and SparkSession."""


class ResultState(enum.Enum):
    """The state of a result: dirty until all resources of its job are cleaned up, then clean.

    Of an expired result only the tombstone is left."""

    DIRTY = "dirty"
    CLEAN = "clean"
    EXPIRED = "expired"


@attrs.frozen
class JobSpec(Stored):
    """Everything that a master needs to start the job. Never a pickle."""

    job_id: str = attrs.field(validator=_job_id)
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
    signature: str = ""
    """The signature of the whole record; see `jrs.records.signing`. Empty if it is not signed."""

    @arguments.validator
    def _check_arguments(self, attribute: object, value: object) -> None:
        if not isinstance(value, dict):
            raise InvalidInput("the arguments of a job must be a JSON object")
        check_json(value, "the arguments")

    @property
    def only_in_driver(self) -> bool:
        return self.entry_point.startswith("driver:")


@attrs.frozen
class Failure(Stored):
    """Why a job did not finish."""

    kind: str
    """``exception``, ``exit`` (the process died), ``cancel`` or ``lost-result``."""
    message: str = attrs.field(converter=_bounded)
    detail: str = attrs.field(default="", converter=_bounded)
    """The traceback, or the end of the process's stderr."""
    exit_status: int | None = None
    """The exit code, or minus the signal's number."""


@attrs.frozen
class StageSummary(Stored):
    """One finished stage of a job: its attempt, epoch and duration."""

    name: str
    attempt: int
    epoch: int
    seconds: float


@attrs.frozen
class JobResult(Stored):
    """The durable outcome of a globally terminal job. Written once; never changes."""

    job_id: str = attrs.field(validator=_job_id)
    status: JobStatus = attrs.field()
    payload: Json = None
    failure: Failure | None = None
    attempt: int = attrs.field(default=1)
    epoch: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    """Seconds since 1970, by the clock of the leader that wrote it."""
    stages: tuple[StageSummary, ...] = ()
    """The newest `MAX_STAGES` of them."""
    stages_left_out: int = 0
    """The number of older stages, which are left out."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if more := len(self.stages[:-MAX_STAGES]):
            object.__setattr__(self, "stages", self.stages[more:])
            object.__setattr__(self, "stages_left_out", self.stages_left_out + more)

    @status.validator
    def _check_status(self, attribute: object, value: JobStatus) -> None:
        if not isinstance(value, JobStatus) or not value.is_globally_terminal:
            raise InvalidInput(
                f"a result's status is FINISHED, FAILED or CANCELED, not {shown(value)}"
            )

    @property
    def stages_skipped(self) -> int:
        """The number of stages that an earlier attempt than the last one finished."""
        return sum(stage.attempt < self.attempt for stage in self.stages)


@attrs.frozen
class JobResultEntry:
    """A job's entry in the result store.

    `result` is None for an expired entry, whose payload is gone, and for an unreadable entry:
    `problem` then says why, and the job is held.
    """

    job_id: str
    state: ResultState
    result: JobResult | None
    problem: str | None = None


@attrs.frozen
class Tombstone(Stored):
    """The remainder of an expired result, which prevents a second run of the job."""

    job_id: str = attrs.field(validator=_job_id)
    status: JobStatus = JobStatus.FINISHED
    finished_at: float = 0.0
    expired_at: float = 0.0


@attrs.frozen
class AttemptRecord(Stored):
    """The newest attempt of a job, written before it starts so that its processes can be found."""

    job_id: str = attrs.field(validator=_job_id)
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
    earlier_marks: tuple[str, ...] = ()
    """The marks of earlier attempts, the newest last: some may have run on another host."""


@attrs.frozen
class StageRecord(Stored):
    """A finished stage. A recovered job does not run it again, but returns its stored result."""

    job_id: str = attrs.field(validator=_job_id)
    name: str
    result: Json
    attempt: int
    epoch: int
    seconds: float
    finished_at: float
    published: str | None = None
    """The staging folder that is renamed into place, relative to the job's folder."""
    temporary: bool = False
    order: int = 0
    """Its position among the stages of its attempt."""
    after: tuple[str, ...] = ()
    """The stages that had to finish before it."""
    target: str | None = None
    """The absolute path where its output is published; None for the job's own folder."""
    serial: int = 0
    """Grows with each commit of finished stages of the job; 0 if not recorded."""

    def finished_before(self, other: StageRecord) -> bool:
        """Return whether this stage finished no later than `other`. Serials decide where both
        have one, because the clocks of two hosts may differ."""
        if self.serial and other.serial:
            return self.serial < other.serial
        return self.finished_at <= other.finished_at

    def summary(self) -> StageSummary:
        """Return the summary that the job's result keeps of the stage."""
        return StageSummary(self.name, self.attempt, self.epoch, self.seconds)


@attrs.frozen
class StreamRecord(Stored):
    """A streaming stage that has been started: the plan and Spark version of its checkpoint."""

    job_id: str = attrs.field(validator=_job_id)
    name: str
    bounded: bool
    plan: str
    """The hash of its plan; a checkpoint is useless to another plan. Empty if any next plan may
    resume from the checkpoint."""
    spark: str
    """The version of Spark; plans of different versions cannot be compared."""
    started_at: float = 0.0

    def of_any_plan(self) -> StreamRecord:
        """Return the record for changed code that resumes from the same checkpoint."""
        return attrs.evolve(self, plan="")


class StopMode(enum.Enum):
    """How a job stops before its end; see `jrs.store.stops`."""

    SUSPEND = "suspend"
    """Stop at a batch boundary, without a result; the job can be resumed."""
    DRAIN = "drain"
    """Process the available input, flush every window, and finish; never resumed."""
    HOLD = "hold"
    """Set by jrs: the job cannot resume from the stored data until an operator has checked it."""


class StopState(enum.Enum):
    """The progress of a stop."""

    REQUESTED = "requested"
    QUIESCED = "quiesced"
    """Every query of a job to be suspended has ended; the leader ends the attempt."""
    DONE = "done"
    """The job is suspended or held. It starts again when it is resumed."""
    REFUSED = "refused"
    """The job cannot be drained; it keeps running, and `reason` says why."""


@attrs.frozen
class StopRecord(Stored):
    """A stop, from its request until the job ends or is resumed."""

    job_id: str = attrs.field(validator=_job_id)
    mode: StopMode
    state: StopState = StopState.REQUESTED
    requested_at: float = 0.0
    reason: str = attrs.field(default="", converter=_bounded)
    grace: float = attrs.field(default=30.0, validator=seconds)
    """Grace period of a suspend, in seconds: after it, the leader ends an attempt that has not
    quiesced."""
    again: bool = False
    """Whether the leader restarts the changed job as soon as it is suspended."""
    stages: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """The step of each streaming stage, for callers that wait."""
    drain: StopRecord | None = None
    """The drain that a hold has interrupted; it continues when the job is resumed."""

    def least_reader(self) -> int:
        return 2  # See `jrs.records.former`.

    def __str__(self) -> str:
        """Return the state of the stop for people."""
        why = f": {self.reason}" if self.reason else ""
        if self.mode is StopMode.HOLD:
            return f"held{why}; 'jrs resume' tries again"
        if self.state is StopState.DONE:
            return f"suspended{why}; resume it with 'jrs resume'"
        if self.state is StopState.REFUSED:
            return f"cannot be drained{why}; the job keeps running"
        return f"{self.mode.value} requested{why}"


@attrs.frozen
class CleanupJournal(Stored):
    """The progress of a job's cleanup, so that a new leader continues it."""

    job_id: str = attrs.field(validator=_job_id)
    done: tuple[str, ...] = ()
    tries: int = 0
    problems: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """The remaining resources: each one's name and its newest error, paths included."""
    exhausted: bool = False


@attrs.frozen
class CancelRequest(Stored):
    """A request to cancel the job."""

    job_id: str = attrs.field(validator=_job_id)
    requested_at: float = 0.0
    reason: str = attrs.field(default="", converter=_bounded)


@attrs.frozen
class MasterInfo(Stored):
    """A master that registered with the cluster."""

    name: str
    host: str
    pid: int
    started_at: float
    seen_at: float
    leading: int | None = None
    """The epoch of its leadership, once it has recovered."""
    reads_format: int = 1
    """The newest cluster format that it works with."""
    max_attempts: int = 0
    """Most attempts in processes of their own that it runs at once while it leads; 0 if unknown."""


@attrs.frozen
class FormatRecord(Stored):
    """The format of the cluster's records, once it was raised."""

    version: int
    raised_at: float = 0.0


@attrs.frozen
class EpochRecord(Stored):
    """The newest epoch: the value of the fence's record."""

    epoch: int
    candidate: str
    """The master that was elected."""
    token: str = ""
    """Names this leadership among those of its candidate; backends may keep a lock under it."""


class JobNotFinished(JrsError):
    """The awaited job ended FAILED or CANCELED."""

    def __init__(self, result: JobResult) -> None:
        self.result = result
        why = f": {result.failure.message}" if result.failure else ""
        super().__init__(f"job {result.job_id!r} ended {result.status.name}{why}")
