"""The records of a job's stages: the finished ones, and the plans of its streams."""

from __future__ import annotations

import attrs

from jrs.records.checks import a_job_id
from jrs.records.field_types import Json
from jrs.records.objects import StoredObject
from jrs.records.stored import Stored

TAKEN_OVER = 0
"""The attempt of a stage that another job has finished, from which this job was made."""


@attrs.frozen
class StageSummary(Stored):
    """One finished stage of a job: its attempt, epoch and duration."""

    name: str
    """The name of the stage."""
    attempt: int
    """The attempt that finished it; 0 (`TAKEN_OVER`) if that was one of the job that this job was
    made from."""
    epoch: int
    """The epoch of the leader under which it finished."""
    seconds: float
    """How long it ran, in seconds."""
    finished_at: float = 0.0
    """Seconds since 1970, by the clock of its host; 0 if an older version recorded it."""
    has_output: bool = False
    """Whether it has left output that stays when its job has ended. False also if it is not known,
    as of stages that an older version recorded."""


@attrs.frozen
class StageRecord(Stored):
    """A finished stage. A recovered job does not run it again, but returns its stored result."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    name: str
    """The name of the stage."""
    result: Json
    """What its function returned, as JSON."""
    attempt: int
    """As in `StageSummary`."""
    epoch: int
    """The epoch of the leader under which it finished."""
    seconds: float
    """How long it ran, in seconds."""
    finished_at: float
    """Seconds since 1970, by the clock of its host."""
    published: str | None = None
    """The staging folder that is renamed into place, relative to the job's folder."""
    temporary: bool = False
    """Whether its output is removed when the job has ended."""
    order: int = 0
    """Its position among the stages of its attempt."""
    after: tuple[str, ...] = ()
    """The stages that had to finish before it."""
    target: str | None = None
    """The absolute path, or the URL, where its output is published; None for its own place."""
    serial: int = 0
    """Grows with each commit of finished stages of the job; 0 if not recorded."""
    manifest: StoredObject | None = None
    """The `OutputManifest` of its output, where the storage is of objects; None if it wrote none,
    or is a stream."""
    is_published: bool = False
    """Whether the pointer at `target` was written, where that is a URL: it is not written twice."""
    has_rows: bool = False
    """Whether it is a stream with output in its own place; False also if not recorded."""

    def least_reader(self) -> int:
        # Others would look for the output in a folder, or would publish it in one.
        if self.at_url:
            return 3
        return 1 if self.manifest is None else 2

    @property
    def at_url(self) -> bool:
        """Whether its output is published at a URL."""
        return self.target is not None and "://" in self.target

    def finished_before(self, other: StageRecord) -> bool:
        """Return whether this stage finished no later than `other`. Serials decide where both
        have one, because the clocks of two hosts may differ."""
        if self.serial and other.serial:
            return self.serial < other.serial
        return self.finished_at <= other.finished_at

    def summary(self) -> StageSummary:
        """Return the summary that the job's result keeps of the stage."""
        wrote = self.published is not None or self.manifest is not None or self.has_rows
        has_output = wrote and not self.temporary and self.target is None
        return StageSummary(
            self.name, self.attempt, self.epoch, self.seconds, self.finished_at, has_output
        )


@attrs.frozen
class StreamSink(Stored):
    """The sink of a streaming stage."""

    name: str
    """That of its data source, or ``foreachBatch``."""
    path: str = ""
    """Where it writes, without secrets; empty if it is not given one."""
    knows_batches: bool = False
    """Whether it may leave out a batch whose number it has, and jrs cannot look there."""
    since: int = 0
    """The first batch that it gets: the earlier ones went to another sink."""

    def is_same_as(self, other: StreamSink) -> bool:
        """Return whether both are one sink, whatever batches it gets."""
        return (self.name, self.path) == (other.name, other.path)

    def __str__(self) -> str:
        return f"{self.name} at {self.path}" if self.path else self.name


@attrs.frozen
class StreamRecord(Stored):
    """A streaming stage that has been started: the plan and Spark version of its checkpoint."""

    job_id: str = attrs.field(validator=a_job_id)
    name: str
    bounded: bool
    plan: str
    """The hash of its plan as Spark printed it; a checkpoint is useless to another plan. Empty if
    any next plan may resume from the checkpoint. Counts where `query` is empty."""
    spark: str
    """The version of Spark; plans of different versions cannot be compared."""
    started_at: float = 0.0
    order: int = 0
    """Its position among the stages of its attempt; 0 if not recorded."""
    after: tuple[str, ...] = ()
    """The stages that had to finish before it."""
    query: str = ""
    """The hash of the whole plan without what Spark draws at random for each start; empty if an
    older version of jrs recorded the plan."""
    sink: StreamSink | None = None
    """None if an older version of jrs recorded the stage."""
    has_batches: bool = False
    """Whether an attempt has found a committed batch in its checkpoint, so that a checkpoint
    without one is damaged."""

    def of_any_plan(self) -> StreamRecord:
        """Return the record for changed code that resumes from the same checkpoint."""
        return attrs.evolve(self, plan="", query="")
