"""What is stored of the batches of streaming stages: which of them count."""

from __future__ import annotations

import attrs

from jrs.records.checks import a_job_id, check_path
from jrs.records.objects import StoredObject
from jrs.records.stored import Stored


@attrs.frozen
class StreamProgress(Stored):
    """What Spark reported of one batch of a stream, once the batch was done. None: unknown."""

    batch: int
    """The batch that all of this is about."""
    started_at: float = 0.0
    """When Spark began the batch, in seconds since 1970; 0 if unknown."""
    rows: int | None = None
    """The rows that it read."""
    rows_per_second: float | None = None
    """The rate at which rows arrived since the batch before."""
    processed_per_second: float | None = None
    """The rate at which Spark processed them."""
    seconds: float | None = None
    """How long the whole batch took."""
    watermark: float | None = None
    """The watermark of the batch, in seconds since 1970."""
    offsets_behind: int | None = None
    """The records that the slowest partition of a source, such as Kafka's, was behind its end."""
    files_behind: int | None = None
    """The files that its sources had found and not read."""
    state_rows: int | None = None
    """The rows in its state."""
    state_bytes: int | None = None
    """The memory that its state used."""


@attrs.frozen
class BatchReport(Stored):
    """What an attempt knew of a stream when it recorded a batch. It changes no decision."""

    batch: int
    """The batch that was recorded. An older jrs may have recorded later ones since."""
    at: float
    """When the attempt first tried to, in seconds since 1970."""
    progress: StreamProgress | None = None
    """The newest that Spark had reported: of the batch before, or of an earlier one."""


@attrs.frozen
class StreamHead(Stored):
    """The newest batch of a streaming stage whose rows count. An attempt moves it by one batch at a
    time, under its fence; that is the commit of the batch."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    generation: int
    """That of its job: see `JobGeneration`."""
    batch: int
    """-1 before the first batch."""
    plan: str = ""
    """The digest of what the batch has read; empty if it is not known."""
    folder: str = ""
    """The staged folder with the batch's rows; empty if none has to be published."""
    manifest: StoredObject | None = None
    """The `BatchManifest` of the batch, where the storage is of objects; None before the first
    batch."""
    report: BatchReport | None = attrs.field(default=None, eq=False)
    """For people; None if none is known. Heads that differ in it alone are equal."""

    def least_reader(self) -> int:
        # Others would look for the rows in a folder.
        return 1 if self.manifest is None else 2


@attrs.frozen
class JobGeneration(Stored):
    """The generation of a job that was restored: 1 plus the number of its restores. Of a job that
    was not, nothing is stored. It is kept as long as the job's result."""

    job_id: str = attrs.field(validator=a_job_id)
    generation: int
    batches: dict[str, int] | None = None
    """The batch of each stage at which it began, -1 before the first; None if unknown."""


@attrs.frozen
class StreamPlan(Stored):
    """The newest batch of a streaming stage for which its function was called (`foreachBatch`). An
    attempt writes it under its fence before the call, so that each later call for the batch gets
    the same input."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    generation: int
    """That of its job: see `JobGeneration`."""
    batch: int
    epoch: int
    attempt: int
    """The attempt that wrote it, and its leader's epoch; both 0 if no attempt has called the
    present code's function: after a restore, and after an upgrade of what left the batch unread."""
    files: dict[str, str] = attrs.field(factory=dict, repr=False, hash=False)
    """The files of the checkpoint that plan the batch, by their paths in it, without those that
    earlier plans have named. All of them are synced; large ones are left out here."""
    manifest: StoredObject | None = None
    """The `BatchManifest` with the checkpoint, where the storage is of objects: before the batch,
    or behind it if the query has ended there."""
    is_unread: bool = False
    """Whether its function did not read all of the batch, though no earlier attempt had called it
    for that batch."""
    report: BatchReport | None = attrs.field(default=None, eq=False)
    """For people; None if none is known. Plans that differ in it alone are equal."""

    def least_reader(self) -> int:
        return 1 if self.manifest is None else 2

    def of_changed_code(self) -> StreamPlan:
        """Return the plan for changed code. A batch that the former code left unread is a new one
        for it: no sink has it yet."""
        if not self.is_unread:
            return self
        return attrs.evolve(self, epoch=0, attempt=0, is_unread=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for path in self.files:
            check_path(path, "the checkpoint")
