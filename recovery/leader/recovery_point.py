"""RecoveryPoints: what a job resumes from: its live checkpoints, or its newest usable snapshot.

Every committed batch of every stream is a recovery point. The live checkpoint is the newest, so it
comes first. A snapshot is used only if the live checkpoint is damaged, and an older snapshot only
if a newer one is damaged, too. A job that has had state but has no usable recovery point is held:
starting over would be a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.contract.errors import CorruptRecord, JobHeld, Unavailable, WrongState
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.history import HistoryKind
from jrs.records.model import StreamRecord
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import SnapshotRecord
from jrs.store import heads

from ..checkpoint_format import checkpoint
from ..checkpoint_format.position import position
from ..files.disk_errors import is_lost
from ..files.rescaled_checkpoint import complete_interrupted_rescale
from ..rules.events import EventKind
from ..snapshots import earlier_life, folders, outside_effects
from ..snapshots.catalog import SnapshotCatalog
from ..snapshots.left_out import newest_batch
from ..snapshots.scheduled import take_scheduled_snapshot, until_scheduled_snapshot
from .context import LeaderContext
from .fetched_checkpoints import CheckpointCopies
from .take_over import take_over


class RecoveryPoints:
    """The recovery points of one leader's jobs."""

    def __init__(self, context: LeaderContext) -> None:
        self._backend = context.backend
        self._storage = context.storage
        self._fence = context.fence
        self._emit = context.emit
        self._historian = context.historian
        self._ages = context.ages
        self._copies: CheckpointCopies | None = None
        if self._storage.objects is not None:
            self._copies = CheckpointCopies(
                self._backend, self._storage, self._storage.objects, self._fence, context.runtime
            )
        self._catalog = SnapshotCatalog(
            context.backend,
            context.storage,
            now=context.runtime.now,
            spec_key=context.trust.key,
            historian=context.historian,
        )

    def refuse_foreign_files(self, job_id: str) -> None:
        """Raise `JobHeld` if a job that was never started has files in its folder already.

        The files are of an earlier life, before the backend was new: a sink would skip the batches
        that it finds, and a stage would replace the output that it finds. A restored job has
        records of its files.
        """
        records = self._backend.scan
        if self._backend.get(keys.ATTEMPTS + job_id) is not None or any(
            next(records(prefix), None) for prefix in (keys.stages(job_id), keys.streams(job_id))
        ):
            return
        found = earlier_life.found(self._backend, self._storage, job_id)
        if found and self._storage.objects is None:
            folder = self._storage.folder(job_id)
            raise JobHeld(
                f"job {job_id!r} was never started, and {found}; restore it: jrs snapshot restore "
                f"--from {folder}/snapshots/NUMBER; or move the folder away"
            )
        if found:
            raise JobHeld(
                f"job {job_id!r} was never started, and {found}: delete them, or submit the job "
                "under another id"
            )
        if self._storage.objects is not None:
            self._storage.sweep(job_id)  # What is on this host are copies of objects that are gone.

    def ensure_recoverable(self, job_id: str) -> None:
        """Ensure that the job has a usable recovery point, once nothing of it runs.

        Idempotent. Every damaged checkpoint and snapshot is reported.

        Raises:
            JobHeld: it has had state, and none of it is usable.
            Fenced: a newer leader exists.
            NoSuchSnapshot: the snapshot to go back to was just deleted; the call may be repeated.
            SnapshotInUse: a claim of that snapshot for another job is not complete.
            Unavailable, OutcomeUnknown: the call may be repeated.
        """
        if self._copies is not None:
            self._bring_copies(job_id, self._copies)
        self.complete_rescales(job_id)
        damage = dict(self._damage(job_id))
        if damage and self._copies is not None:
            for stage, why in damage.items():
                if self._copies.is_as_stored(job_id, stage):
                    continue  # To fetch it would change nothing.
                self._emit(EventKind.DAMAGED, job_id, f"the checkpoint of stage {stage!r}: {why}")
                self._copies.forget(job_id, stage)
            self._bring_copies(job_id, self._copies)
            damage = dict(self._damage(job_id))
        if not damage:
            return
        for stage, why in damage.items():
            self._emit(EventKind.DAMAGED, job_id, f"the checkpoint of stage {stage!r}: {why}")
        usable = self._catalog.newest_usable(job_id)
        for record, why in usable.skipped:
            self._emit(EventKind.DAMAGED, job_id, f"snapshot {record.number}: {why}")
        why_not = self._why_held(job_id, usable.record)
        if usable.record is None or why_not:
            what = "; ".join(f"stage {stage!r}: {why}" for stage, why in damage.items())
            for stage in damage:
                # After a resume, the stored state is tried once more.
                self._storage.forget_damage(job_id, self._fence.epoch, stage)
            raise JobHeld(
                f"job {job_id!r} cannot resume from its stored state, and {why_not}: {what}"
            )
        self._catalog.restore(
            usable.record, accept_published=True, fence=self._fence, is_stopped=lambda _: True
        )
        take_over(self._backend, self._storage, job_id, self._fence)
        if self._copies is not None:
            self._bring_copies(job_id, self._copies)
        self._emit(EventKind.RESTORED, job_id, f"resumes from snapshot {usable.record.number}")

    def _why_held(self, job_id: str, usable: SnapshotRecord | None) -> str:
        """Return why the job cannot go back to its newest usable snapshot by itself; empty if it
        can."""
        if usable is None:
            return "has no usable snapshot"
        # A function of `foreachBatch` is told of the new generation; these sinks are not.
        done = list(outside_effects.written(self._backend, self._storage, usable))
        if not done:
            return ""
        return (
            f"goes back to snapshot {usable.number} only by jrs snapshot restore {job_id} "
            f"{usable.number} --accept-published and jrs resume {job_id}, since "
            f"{outside_effects.named(done)}"
        )

    def _bring_copies(self, job_id: str, copies: CheckpointCopies) -> None:
        fetched = copies.bring(job_id)
        if fetched:
            what = ", ".join(fetched)
            self._emit(
                EventKind.RESTORED, job_id, f"fetched from the storage: the checkpoint of {what}"
            )

    def complete_rescales(self, job_id: str) -> None:
        """Complete the swap of checkpoints that a death interrupted, once nothing of the job runs.

        Idempotent.

        Raises:
            Unavailable: the call may be repeated.
        """
        for stage in (record.name for record in self._streams(job_id)):
            try:
                complete_interrupted_rescale(self._checkpoint(job_id, stage))
            except OSError as error:
                raise Unavailable(
                    f"the checkpoint of {job_id!r}, stage {stage!r}, cannot be put into place: "
                    f"{error}"
                ) from error

    def finish_restore(self, job_id: str, end_all: Callable[[], None]) -> bool:
        """Carry out an interrupted restore; return whether there was one that no process works on.

        `end_all` ensures that nothing of the job runs. It is called once no other process can be
        using the job's folders.

        Raises:
            DamagedSnapshot, NoSuchSnapshot: its source cannot be read; the job stays held.
            SnapshotInUse: it claims its source, which the restore of another job needs.
            Fenced, Unavailable, OutcomeUnknown: the call may be repeated.
        """

        def is_stopped(_: str) -> bool:
            end_all()
            return True

        try:
            self._catalog.finish_restore(job_id, fence=self._fence, is_stopped=is_stopped)
        except (folders.BeingRestored, WrongState):
            return False  # Another process is working on it, or it is done.
        return True

    def is_being_restored(self, job_id: str) -> bool:
        """Return whether a process is restoring the job at this moment."""
        folder = folders.restoring(self._storage, job_id)
        with folders.locked(folder) as mine:
            return not mine and folder.is_dir()

    def take_snapshot_if_due(
        self, job_id: str, policy: SnapshotPolicy, failures: int
    ) -> float | None:
        """Take a snapshot if the policy's interval has passed; return the seconds until the next
        one may be due, or None if it could not be taken.

        The first of several failures in a row, and their end, are events of the job's history.

        Args:
            failures: in a row, until now.

        Raises:
            Unavailable: from the backend; the call may be repeated.
        """
        wait = self.until_scheduled_snapshot(job_id, policy)
        why = "" if wait > 0 else self.take_scheduled_snapshot(job_id, policy)
        if why and not failures:
            said = f"a scheduled snapshot could not be taken: {why}; trying again"
            self._record(job_id, said, failures=1)
        elif failures and not why:
            self._record(job_id, "scheduled snapshots are taken again", failures)
        return None if why else wait or policy.every or 0.0

    def _record(self, job_id: str, said: str, failures: int) -> None:
        about = {"failures": failures}
        with self._historian.recorded(job_id, HistoryKind.SNAPSHOT, said, about=about) as event:
            self._backend.commit(*event, fence=self._fence)

    def until_scheduled_snapshot(self, job_id: str, policy: SnapshotPolicy) -> float:
        """Return the seconds until the policy's next snapshot is due; raises as the function."""
        assert policy.every is not None, "without an interval none is ever due"
        return until_scheduled_snapshot(self._catalog, job_id, policy.every)

    def take_scheduled_snapshot(self, job_id: str, policy: SnapshotPolicy) -> str:
        """Take a snapshot that the job's policy requests, and report the outcome; return why it
        could not be taken, or an empty string."""
        outcome = take_scheduled_snapshot(
            self._catalog, job_id, policy, self._fence, lambda age: self._ages.now().before(age)
        )
        if outcome.said:
            self._emit(EventKind.SNAPSHOT, job_id, outcome.said)
        return outcome.why_not

    def _checkpoint(self, job_id: str, stage: str) -> Path:
        return self._storage.checkpoint(job_id, self._fence.epoch, stage)

    def _damage(self, job_id: str) -> Iterator[tuple[str, str]]:
        """Yield the stages that could not resume from their checkpoint, and why."""
        epoch = self._fence.epoch
        for record in self._streams(job_id):
            stage = record.name
            if self._backend.get(keys.stage(job_id, stage)) is not None:
                continue  # It has finished.
            live = self._checkpoint(job_id, stage)
            why = self._storage.damage(job_id, epoch, stage) or self._missing(record, live)
            if why:
                yield stage, why

    def _missing(self, record: StreamRecord, live: Path) -> str:
        """Return what a restart would miss, or an empty string.

        Raises:
            Unavailable: the checkpoint cannot be read now.
        """
        job_id, stage = record.job_id, record.name
        output = self._storage.published(job_id, stage, temporary=False)
        try:
            selected = checkpoint.select(live)
            planned = position(live).planned
            # Objects have the state before the newest batch that counts: before the first, none.
            has_some = selected.batch is not None if self._copies is None else planned >= 0
            if record.has_batches and not has_some:
                return f"{live} has no batch any more"
            published = newest_batch(output)
            head = heads.stored(self._backend, job_id, stage)
            if head is not None:
                # One batch behind it can be planned again, unless it has published rows.
                published = max(published, head[0].batch - 1)
        except FileNotFoundError as error:
            return f"{error.filename} is missing"
        except CorruptRecord as error:
            return str(error)
        except OSError as error:
            why = f"{error.filename or live} cannot be read: {error.strerror}"
            if is_lost(error):
                return why
            raise Unavailable(f"job {job_id!r}, stage {stage!r}: {why}") from error
        if published > planned:
            # Spark's sinks would skip the next batches, up to that one.
            return f"{live} is at batch {planned}, and batch {published} of it was published"
        return ""

    def _streams(self, job_id: str) -> Iterator[StreamRecord]:
        for stored in self._backend.scan(keys.streams(job_id)):
            yield decode(StreamRecord, stored.value, stored.key)
