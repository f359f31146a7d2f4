"""The vocabulary: frozen values with validators, each with one meaning (see docs/concepts.md)."""

from __future__ import annotations

import enum
import json
import re

import attrs

from jrs.contract.errors import InvalidInput, JrsError, TooLarge
from jrs.contract.texts import bounded, bounded_map, shown
from jrs.records.fields import Json as Json
from jrs.records.fields import as_json
from jrs.records.policies import MOST_PARTITIONS, RestartPolicy, SnapshotPolicy, count, seconds
from jrs.records.stored import Stored

MAX_PAYLOAD = 256 * 1024
"""Largest JSON payload of a result, a stage or a spec's arguments, in bytes of its encoding."""

MAX_STAGES = 1000
"""Most stages that a result has a summary of."""

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_encoder = json.JSONEncoder(allow_nan=False)


def check_job_id(job_id: object) -> str:
    """Return `job_id`, or raise `InvalidInput` saying what a job id looks like."""
    return _check_name(job_id, "job id")


def check_stage_name(name: object) -> str:
    """Return `name`, or raise `InvalidInput`; a stage is named like a job."""
    return _check_name(name, "stage name")


def check_master_name(name: object) -> str:
    """Return `name`, or raise `InvalidInput`; a master is named like a job."""
    return _check_name(name, "master name")


def _check_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not _JOB_ID.fullmatch(name):
        raise InvalidInput(
            f"not a {what}: {shown(name)} (1 to 128 of A-Z a-z 0-9 . _ -, the first one a letter "
            "or digit)"
        )
    return name


def check_json(value: Json, what: str) -> Json:
    """Return `value` as JSON would give it back (tuples as lists), or raise.

    Raises:
        InvalidInput: not JSON; see `as_json`.
        TooLarge: its encoding is over `MAX_PAYLOAD`.
    """
    try:
        plain = as_json(value)
    except InvalidInput as error:
        raise InvalidInput(f"not JSON: {what}: {error}") from None
    encoded = _encoder.encode(plain)
    if len(encoded) > MAX_PAYLOAD:
        raise TooLarge(
            f"too large: {what}, {len(encoded):,} bytes of JSON; limit {MAX_PAYLOAD:,}. Store the "
            "data where it belongs (a file, a table) and give its location instead"
        )
    return plain


def _job_id(instance: object, attribute: object, value: str) -> None:
    check_job_id(value)


def _bounded(text: str) -> str:
    return bounded(text) if isinstance(text, str) else text  # Refused by its type afterwards.


def _all_bounded(texts: dict[str, str]) -> dict[str, str]:
    try:
        return bounded_map(texts)
    except (AttributeError, TypeError, ValueError):
        return texts  # No texts, and refused by its type afterwards.


class JobStatus(enum.Enum):
    """Where a job stands. The last three are globally terminal: only they have a result."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    """Locally terminal: this leader stopped the job and another may resume it."""
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
    """A session of its own; can always be killed; dies with its master."""
    THREAD = "thread"
    """The master's own process and SparkSession."""


class ResultState(enum.Enum):
    """A result is dirty until every resource of its job is cleaned up. Expired: a tombstone."""

    DIRTY = "dirty"
    CLEAN = "clean"
    EXPIRED = "expired"


@attrs.frozen
class JobSpec(Stored):
    """What is needed to start the job on any master. Never a pickle."""

    job_id: str = attrs.field(validator=_job_id)
    entry_point: str
    """``package.module:function`` or ``/path/file.py:function``, called as ``f(job, **arguments)``;
    or ``driver:NAME`` for a function that only the driver's own `main` can give."""
    arguments: dict[str, Json] = attrs.field(factory=dict)
    runner: RunnerKind = RunnerKind.PROCESS
    restart: RestartPolicy = attrs.field(factory=RestartPolicy)
    submitted_at: float = 0.0
    """Seconds since 1970, by the submitter's clock."""
    partitions: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(count(MOST_PARTITIONS))
    )
    """Over how many partitions its streams' state is spread; None leaves it to Spark."""
    snapshots: SnapshotPolicy = attrs.field(factory=SnapshotPolicy)
    signature: str = ""
    """Over all of the record; see `jrs.records.signing`. Empty if nobody has signed it."""

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
    """One finished stage of a job: when and by which attempt it was run."""

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
    """How many older ones there were."""

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
        """How many stages the last attempt found finished by an earlier one."""
        return sum(stage.attempt < self.attempt for stage in self.stages)


@attrs.frozen
class JobResultEntry:
    """A job's place in the store.

    `result` is None for an expired entry, whose payload is gone, and for one that cannot be
    read: `problem` then says why, and the job is held.
    """

    job_id: str
    state: ResultState
    result: JobResult | None
    problem: str | None = None


@attrs.frozen
class Tombstone(Stored):
    """What expiry leaves behind, so that it never permits a second run."""

    job_id: str = attrs.field(validator=_job_id)
    status: JobStatus = JobStatus.FINISHED
    finished_at: float = 0.0
    expired_at: float = 0.0


@attrs.frozen
class AttemptRecord(Stored):
    """The newest attempt of a job, written before it starts, so that its processes can be found."""

    job_id: str = attrs.field(validator=_job_id)
    attempt: int = 1
    epoch: int = 0
    master: str = ""
    started_at: float = 0.0
    deaths: int = 0
    """Attempts so far that died under a living leader, or alone in a leader that died with them;
    what the restart policy counts."""
    failure: Failure | None = None
    """Why the newest of those died."""
    first_started_at: float = 0.0
    retry_at: float = 0.0
    """When the next attempt may start, by the clock of the leader that noted this one's end; 0
    while no end is noted."""
    suspicion: int = 0
    """Above 0: a leader died in whose process the job ran; see `jrs.recovery.leader.suspects`."""
    on_probation: bool = False
    """Whether it runs alone in its leader's process for a while, since it is suspected."""
    unheard: tuple[int, ...] = ()
    """The epochs in which it was on probation when the leader was replaced, whose last words may
    still come: a process that hangs is replaced before it is dead."""
    mark: str = ""
    """What this attempt's processes were born with, by which they are found; empty if the attempt
    was started by a version that had no such marks."""
    earlier_marks: tuple[str, ...] = ()
    """The marks of the attempts before it, the newest last: some may have run on another host."""


@attrs.frozen
class StageRecord(Stored):
    """A finished stage. Its presence is the mark: a recovered job hands its result back."""

    job_id: str = attrs.field(validator=_job_id)
    name: str
    result: Json
    attempt: int
    epoch: int
    seconds: float
    finished_at: float
    published: str | None = None
    """The staging folder's name, relative to the job's folder, that is renamed into place."""
    temporary: bool = False
    order: int = 0
    """Its place among the stages that its attempt went through."""
    after: tuple[str, ...] = ()
    """The stages that had to be finished before it."""
    target: str | None = None
    """The absolute path where its output is published, if that is not the job's own place."""
    serial: int = 0
    """Grows with each commit of finished stages of the job; 0 if it was not recorded."""

    def finished_before(self, other: StageRecord) -> bool:
        """Return whether this stage had finished when `other` did; by their serials, since the
        clocks of two hosts may differ."""
        if self.serial and other.serial:
            return self.serial < other.serial
        return self.finished_at <= other.finished_at

    def summary(self) -> StageSummary:
        """Return what the job's result keeps of the stage."""
        return StageSummary(self.name, self.attempt, self.epoch, self.seconds)


@attrs.frozen
class StreamRecord(Stored):
    """A streaming stage that was started once: what its checkpoint belongs to."""

    job_id: str = attrs.field(validator=_job_id)
    name: str
    bounded: bool
    plan: str
    """The hash of its plan; a checkpoint means nothing to another one. Empty if the next one is to
    go on from it, whatever it is."""
    spark: str
    """The version of Spark, without which plans cannot be compared."""
    started_at: float = 0.0

    def of_any_plan(self) -> StreamRecord:
        """Return it as it is for other code, which goes on from the same checkpoint."""
        return attrs.evolve(self, plan="")


class StopMode(enum.Enum):
    """What is wanted of a job that is to stop before its end; see `jrs.store.stops`."""

    SUSPEND = "suspend"
    """Stand still where it can be resumed; there is no result."""
    DRAIN = "drain"
    """Process what is there, flush every window, and finish; never resumed."""
    HOLD = "hold"
    """Nobody asked: it cannot go on from what is stored until an operator has looked."""


class StopState(enum.Enum):
    """How far a stop has come."""

    REQUESTED = "requested"
    QUIESCED = "stands"
    """A suspend: every query has come to its end; the leader ends the attempt."""
    DONE = "done"
    """The job is suspended, or held. It starts again when it is resumed."""
    REFUSED = "refused"
    """A drain that is not possible; the job goes on, and `reason` says why."""


@attrs.frozen
class StopRecord(Stored):
    """A stop, from its request to the end of the job or until it is resumed."""

    job_id: str = attrs.field(validator=_job_id)
    mode: StopMode
    state: StopState = StopState.REQUESTED
    requested_at: float = 0.0
    reason: str = attrs.field(default="", converter=_bounded)
    patience: float = attrs.field(default=30.0, validator=seconds)
    """A suspend: seconds after which the leader ends an attempt that has not come to stand."""
    again: bool = False
    """Whether the job is started again, changed, as soon as it stands."""
    stages: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """Which streaming stage is at which step, for whoever waits."""
    drain: StopRecord | None = None
    """A hold: the drain that it has interrupted, which goes on when the job is resumed."""


@attrs.frozen
class CleanupJournal(Stored):
    """What is done and what is left of a job's cleanup, so that a new leader goes on with it."""

    job_id: str = attrs.field(validator=_job_id)
    done: tuple[str, ...] = ()
    tries: int = 0
    problems: dict[str, str] = attrs.field(factory=dict, converter=_all_bounded)
    """What is left: each resource's name and its newest error, paths included."""
    exhausted: bool = False


@attrs.frozen
class CancelRequest(Stored):
    """Somebody asked for the job to be canceled."""

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
    """The epoch it leads in, once it has recovered."""
    reads_format: int = 1
    """The newest format of a cluster that it works with."""
    max_attempts: int = 0
    """How many attempts in processes of their own it runs at once while it leads; 0: not known."""


@attrs.frozen
class FormatRecord(Stored):
    """The format that the cluster's records are written in, once it was raised."""

    version: int
    raised_at: float = 0.0


@attrs.frozen
class EpochRecord(Stored):
    """The value of the fence's record."""

    epoch: int
    candidate: str
    token: str = ""
    """Names this leadership among all of its candidate's; backends may keep a lock under it."""


class JobNotFinished(JrsError):
    """A job that was waited for ended FAILED or CANCELED."""

    def __init__(self, result: JobResult) -> None:
        self.result = result
        why = f": {result.failure.message}" if result.failure else ""
        super().__init__(f"job {result.job_id!r} ended {result.status.name}{why}")
