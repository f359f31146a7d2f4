"""PlanKeeper: records the plan of each batch of a stage before its function is called for it.

A stage that writes by `foreachBatch` has no commit that jrs refuses: its function may do anything.
So the attempt commits what plans the batch, under its fence, before each call. An attempt that was
shut out calls the function no more; and the next attempt calls it with the batch that it was
called with before, whatever has become of the checkpoint's files. A cluster before format 6 keeps
no plans.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.contract.errors import JobHeld, JrsError
from jrs.contract.operations import Record, Update, create_or_update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import StreamPlan
from jrs.records.objects import BatchManifest, StoredFile
from jrs.store import heads

from ..checkpoint_format import plan_files
from ..checkpoint_format.checkpoint import commit_of
from ..checkpoint_format.plan_files import PlanFiles
from ..checkpoint_format.position import position
from ..files import copied_from
from ..storage.packed_copies import read_record
from .batch_reports import BatchReports, Progress, unknown
from .checkpoint_upload import CheckpointUpload
from .context import AttemptContext
from .held import held_if_unreadable, held_or_away


class PlanKeeper:
    """Keeps the plans of one stage, batch after batch.

    Args:
        progress: asked once for each batch; the plan keeps what it returns, for people.
    """

    def __init__(
        self,
        context: AttemptContext,
        stage: str,
        checkpoint: Path,
        progress: Progress = unknown,
    ) -> None:
        self._context = context
        self._reports = BatchReports(progress, context.runtime.now)
        self._stage = stage
        self._checkpoint = checkpoint
        self._turn = threading.Lock()
        self._files = PlanFiles(checkpoint)
        self._upload: CheckpointUpload | None = None
        self._written: tuple[StreamPlan | None, int, StreamPlan] | None = None
        """A stored plan, the batch after it, and the plan that names that: the same for each try of
        its commit, so that tries leave no more objects than one."""
        self._called: int | None = None
        """The batch for which an earlier attempt has called the function."""
        with held_if_unreadable():
            self._keeps = heads.are_kept(context.backend)
            # A restore, which begins another generation, shuts this attempt out first.
            self._generation = (
                heads.generation_of(context.backend, context.job_id) if self._keeps else 1
            )

    def begin(self) -> None:
        """Write the newest plan into the checkpoint, where it lacks it or has another one. Durable.

        Call it before the query is started.

        Raises:
            JobHeld: the checkpoint ends before that batch, or the plan cannot be read.
            Unavailable: the backend or the disk is away; the call may be repeated.
        """
        if not self._keeps:
            return
        with self._turn, held_or_away(f"restoring the newest plan of stage {self._stage!r}"):
            plan, _ = self._stored()
            if plan is None:
                return
            if self._is_of_earlier(plan) and not plan.is_unread:
                self._called = plan.batch
            if not plan_files.restore(self._checkpoint, plan.batch, plan.files):
                raise self._behind(plan.batch)

    def keep(self, batch: int) -> None:
        """Record what plans a batch, if this attempt has not done so. Durable.

        Raises:
            Fenced: this attempt was shut out: do not call the function.
            JobHeld: the function was called for a later batch already.
            Unavailable: nothing was changed.
            OutcomeUnknown: the plan may be recorded; the call may be repeated.
        """
        if not self._keeps:
            return
        with (
            self._turn,
            held_or_away(f"keeping the plan of batch {batch} of stage {self._stage!r}"),
        ):
            before, record = self._stored()
            if before is not None and before.batch > batch:
                raise self._behind(before.batch)
            if before is not None and self._is_ours(before, batch):
                self._context.check()
                return
            self._commit(batch, before, record)

    def keep_done(self) -> None:
        """Have objects the state behind the newest batch that the function was called for, if the
        query has ended with it: then another host does not call the function for it again. Durable.
        Raises nothing: without that, it does.
        """
        if not self._keeps or self._context.storage.objects is None:
            return
        with self._turn, suppress(JrsError, OSError):
            plan, record = self._stored()
            done = position(self._checkpoint).committed
            if plan is None or record is None or plan.batch != done:
                return
            newest = self._newest(plan)
            if newest is not None and newest.has(commit_of(done)):
                return  # An earlier attempt has brought it: another name would be news.
            files = self._upload_behind(plan).put_complete(done)
            plan = self._named(plan, files)
            self._context.commit(Update(record.key, encode(plan), record.version))

    def may_have(self, batch: int) -> bool:
        """Return whether an earlier attempt called the function for a batch, so that its sink may
        have it by right, whatever has become of the state that the attempt computed."""
        return batch == self._called

    def note_unread(self, batch: int) -> None:
        """Record that the function did not read all of a batch that it was called for first by
        this attempt: no later attempt may take the batch for one that its sink has. Durable.

        Raises: as `keep`.
        """
        if not self._keeps:
            return
        with self._turn, held_or_away(f"noting batch {batch} of stage {self._stage!r}"):
            before, record = self._stored()
            if before is not None and record is not None and before.batch == batch:
                plan = attrs.evolve(before, is_unread=True)
                self._context.commit(Update(record.key, encode(plan), record.version))

    # -- inside ----------------------------------------------------------------------------

    def _commit(self, batch: int, before: StreamPlan | None, record: Record | None) -> None:
        context = self._context
        plan = StreamPlan(
            context.job_id, self._stage, self._generation, batch, context.epoch, context.attempt,
            is_unread=before is not None and before.batch == batch and before.is_unread,
        )  # fmt: skip
        with context.fenced_if_gone():
            if context.storage.objects is not None:
                plan = self._uploaded(plan, before)
            else:
                durable = self._files.make_durable(batch)
                plan = attrs.evolve(plan, files=plan_files.texts(self._checkpoint, durable))
        report = self._reports.of(batch, before.report if before is not None else None)
        plan = attrs.evolve(plan, report=report)
        key = keys.plan(context.job_id, self._stage)
        context.commit(create_or_update(key, encode(plan), record and record.version))

    def _uploaded(self, plan: StreamPlan, before: StreamPlan | None) -> StreamPlan:
        """Return a plan that names the checkpoint in objects. Idempotent."""
        if self._written is None or self._written[:2] != (before, plan.batch):
            named = self._named(plan, self._upload_behind(before).put_planned(plan.batch))
            self._written = before, plan.batch, named
        return self._written[2]

    def _upload_behind(self, before: StreamPlan | None) -> CheckpointUpload:
        """Return the upload that continues from what a plan names."""
        uploads = self._context.uploads
        if self._upload is None:
            newest = self._newest(before)
            known = () if newest is None else newest.checkpoint
            self._upload = CheckpointUpload(uploads.writer, self._stage, self._checkpoint, known)
        return self._upload

    def _newest(self, plan: StreamPlan | None) -> BatchManifest | None:
        """Return what a plan names in objects; None if it names nothing."""
        if plan is None or plan.manifest is None:
            return None
        return read_record(self._context.uploads.objects, BatchManifest, plan.manifest)

    def _named(self, plan: StreamPlan, files: tuple[StoredFile, ...]) -> StreamPlan:
        """Return a plan that names these files of the checkpoint."""
        manifest = BatchManifest(
            plan.job_id, plan.stage, plan.generation, plan.batch, checkpoint=files
        )
        named, _ = self._context.uploads.put_batch(manifest, None)
        copied_from.note(self._checkpoint.parent, plan.generation, named.name)
        return attrs.evolve(plan, manifest=named)

    def _stored(self) -> tuple[StreamPlan | None, Record | None]:
        """Return the newest plan, unless it is of an earlier generation, and its record."""
        key = keys.plan(self._context.job_id, self._stage)
        record = self._context.backend.get(key)
        plan = None if record is None else decode(StreamPlan, record.value, key)
        current = plan is not None and plan.generation == self._generation
        return plan if current else None, record

    def _is_ours(self, plan: StreamPlan, batch: int) -> bool:
        context = self._context
        ours = (batch, context.epoch, context.attempt)
        return (plan.batch, plan.epoch, plan.attempt) == ours

    def _is_of_earlier(self, plan: StreamPlan) -> bool:
        """Return whether an attempt before this one has recorded a plan, and no restore has."""
        context = self._context
        return (plan.epoch, plan.attempt) not in ((0, 0), (context.epoch, context.attempt))

    def _behind(self, batch: int) -> JobHeld:
        return JobHeld(
            f"stage {self._stage!r}: its function was called for batch {batch}, which its "
            "checkpoint does not have; restore the job from a snapshot"
        )
