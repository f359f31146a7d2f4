"""The attempts of a job: the newest one, and what its records keep of those that have ended."""

from __future__ import annotations

import attrs

from jrs.records.checks import a_job_id, bounded_text
from jrs.records.obstacles import Obstacle
from jrs.records.stored import Stored

MAX_ATTEMPTS = 20
"""Most attempts that a record keeps: the newest ones."""
_ENDED_LIMIT = 1024
"""Bytes of the text that says how an attempt ended: a record keeps many of them."""


def _bounded(text: str) -> str:
    return bounded_text(text, _ENDED_LIMIT)


@attrs.frozen
class SparkApplication(Stored):
    """The application of an attempt on Spark."""

    id: str
    """Spark's own id of it, such as ``app-20261120183000-0000``."""
    master: str = ""
    """Spark's master, such as ``spark://host:7077`` or ``local[4]``."""
    ui: str = ""
    """The address of its user interface, while it runs; empty if that is off."""
    waiting: bool = False
    """Whether it has had no executor yet."""

    def __str__(self) -> str:
        return f"as {self.id} on {self.master}"


@attrs.frozen
class AttemptSummary(Stored):
    """One attempt of a job: where and when it ran, and how it ended."""

    attempt: int
    """Its number: the first attempt of a job is 1."""
    epoch: int = 0
    """The epoch of the leader that started it."""
    master: str = ""
    """The master that started it."""
    host: str = ""
    """The host that it ran on; empty if an older version recorded it."""
    pid: int = 0
    """The process that ran the job's function; 0 if it is unknown."""
    started_at: float = 0.0
    """Seconds since 1970, by the clock of its host."""
    ended_at: float = 0.0
    """The same; 0 while it runs, and if no process saw its end."""
    ended: str = attrs.field(default="", converter=_bounded)
    """How it ended, for people; empty while it runs."""
    spark: SparkApplication | None = None
    """What it ran on Spark; None if it used none. In Spark's local mode it is known once the job
    has ended, of the attempt that ended it."""


def newest(attempts: tuple[AttemptSummary, ...]) -> tuple[tuple[AttemptSummary, ...], int]:
    """Return the attempts that a record keeps, and the number of older ones that it leaves out."""
    more = max(0, len(attempts) - MAX_ATTEMPTS)
    return attempts[more:], more


@attrs.frozen
class Failure(Stored):
    """Why a job did not finish."""

    kind: str
    """``exception``, ``exit`` (the process died), ``timeout``, ``cancel``, ``lost-result``, or
    ``lost-main`` (the job's application has ended without it)."""
    message: str = attrs.field(converter=bounded_text)
    """The reason in short, for people."""
    detail: str = attrs.field(default="", converter=bounded_text)
    """The traceback, or the end of the process's stderr."""
    exit_status: int | None = None
    """The exit code, or minus the signal's number."""


@attrs.frozen
class AttemptRecord(Stored):
    """The newest attempt of a job, written before it starts so that its processes can be found."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    attempt: int = 1
    """Its number: the first attempt of a job is 1."""
    epoch: int = 0
    """The epoch of the leader that started it."""
    master: str = ""
    """The master that started it."""
    started_at: float = 0.0
    """When it started: seconds since 1970, as all times here, by its leader's clock."""
    deaths: int = 0
    """The number of attempts that died under a living leader, or alone in a leader that died with
    them. The restart policy counts these."""
    failure: Failure | None = None
    """Why the newest attempt counted in `deaths` died."""
    first_started_at: float = 0.0
    """When the job's first attempt started; 0 if unknown."""
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
    ended: str = attrs.field(default="", converter=bounded_text)
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
