"""BatchCommitter: commits the batches of one streaming stage that writes to the sink of jrs.

The rows of batch N are staged under a name of their own. The commit moves the stage's head from
N - 1 to N, under the attempt's fence. Then the rows are published; the head names them until the
next batch, so the next attempt publishes what a death left (see `batch_rows`). A cluster before
format 6 has no heads: there, publishing itself is the commit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.contract.errors import Conflict, Fenced, JobHeld
from jrs.contract.operations import Check, Create, Record, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.texts import counted
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.heads import StreamHead
from jrs.records.history import HistoryKind
from jrs.store import heads

from ..checkpoint_format.position import input_digest, position
from .batch_reports import BatchReports, Progress, unknown
from .batch_rows import rows_of
from .context import AttemptContext
from .held import held_if_unreadable, held_or_away

_FIRST = (10, 100)
_MANY = 1000
"""The history has these batches of a stream, and then one of so many."""


class LateCommit(Exception):
    """A commit of a query that was stopped meanwhile."""


class BatchCommitter:
    """Commits the batches of one stage, one after the other.

    Args:
        folder: of the stage in its epoch, with ``ck`` and ``staging``.
        output: where the stage's batches are published.
        progress: asked once for each batch; the head keeps what it returns, for people.
    """

    def __init__(
        self,
        context: AttemptContext,
        stage: str,
        folder: Path,
        output: Path,
        progress: Progress = unknown,
    ) -> None:
        self._context = context
        self._stage = stage
        self._folder = folder
        self._rows = rows_of(context, stage, folder, output)
        with held_if_unreadable():
            self._keeps_heads = heads.are_kept(context.backend)
        self._reports = BatchReports(progress, context.runtime.now)
        self._turn = threading.Lock()
        self._run = ""

    @property
    def checkpoint(self) -> Path:
        return self._folder / "ck"

    def new_run(self) -> str:
        """Return the name of a new run of the query; no commit of an earlier run is accepted."""
        with self._turn:
            self._run = self._context.runtime.token()
            return self._run

    def begin(self, since: int = 0) -> None:
        """Publish what an earlier attempt has committed; make the head if the stage has none yet.

        Call it before the staging folder is emptied.

        Args:
            since: the first batch that goes to this sink: the head passes over the batches that
                went to another one meanwhile.

        Raises:
            Fenced: this attempt was shut out.
            JobHeld: the rows of the newest batch are lost, or the head or the checkpoint cannot be
                read.
            Unavailable, OutcomeUnknown: from the backend or the disk; the call may be repeated.
        """
        if not self._keeps_heads:
            return
        with self._turn, held_or_away(f"publishing the newest batch of stage {self._stage!r}"):
            found = self._head()
            committed = position(self.checkpoint).committed
            if found is not None:
                # Spark notes a batch once it was published: then a user may have moved it away.
                self._publish(found[0], is_noted=committed >= found[0].batch)
                self._pass_over(*found, min(since - 1, committed))
                return
            newest = max(committed, *self._rows.published(), -1)
            job_id = self._context.job_id
            generation = heads.generation_of(self._context.backend, job_id)
            head = StreamHead(job_id, self._stage, generation, newest)
            create = Create(keys.head(head.job_id, head.stage), encode(head))
            with suppress(Conflict):  # Of this call itself, if an outcome was unknown.
                commit_and_read_back(self._context.backend, create, fence=self._context.fence)

    def skip(self, committed: int) -> None:
        """Move the head over batches that no sink sees: those that spread the state over another
        number of partitions.

        Raises:
            JobHeld: a batch that the checkpoint calls committed has read something, so its rows
                are missing from the output.
            Unavailable, OutcomeUnknown: from the backend or the disk; the call may be repeated.
        """
        if not self._keeps_heads:
            return
        with self._turn, held_or_away(f"passing over batches of stage {self._stage!r}"):
            head, record = self._present()
            for batch in range(head.batch + 1, committed + 1):
                if input_digest(self.checkpoint, batch) != input_digest(self.checkpoint, batch - 1):
                    raise JobHeld(
                        f"stage {self._stage!r}: its checkpoint has committed batch {committed}, "
                        f"and its output ends at batch {head.batch}: restore the job from a "
                        "snapshot"
                    )
            self._pass_over(head, record, committed)

    def commit(self, batch: int, files: Sequence[str], run: str = "") -> None:
        """Commit a batch, and publish it. Durable and idempotent.

        Args:
            files: the names of the staged files with its rows; none for a batch without rows.
            run: the run of the query that has written them; see `new_run`.

        Raises:
            Fenced: this attempt was shut out. Nothing of the batch counts.
            JobHeld: the head is at another batch, or at another one of this number.
            LateCommit: the query was started again meanwhile. Nothing was changed.
            Unavailable: nothing was changed.
            OutcomeUnknown: the batch may be committed; the call may be repeated.
        """
        with self._turn, held_or_away(f"committing batch {batch} of stage {self._stage!r}"):
            if run != self._run:
                raise LateCommit(f"batch {batch} is of an earlier run of stage {self._stage!r}")
            if self._keeps_heads:
                self._commit(batch, files)
            elif files:
                self._rows.publish_at_once(batch, files)
            # Whatever else is staged belongs to a batch that is already committed.
            self._rows.sweep()

    def ends_at(self, batch: int) -> Check | None:
        """Return the condition that the stage's output ends at `batch`, for the commit that marks
        the stage as finished; None in a cluster without heads.

        Raises:
            Fenced: the job was cleaned up.
            JobHeld: its output ends at another batch.
            Unavailable: the backend did not answer.
        """
        if not self._keeps_heads:
            return None
        with self._turn, held_if_unreadable():
            head, record = self._present()
        if head.batch != batch:
            raise self._out_of_step(batch, head)
        return Check(record.key, record.version)

    # -- inside ----------------------------------------------------------------------------

    def _commit(self, batch: int, files: Sequence[str]) -> None:
        head, record = self._present()
        plan = input_digest(self.checkpoint, batch)
        again = head.batch == batch  # Spark has not noted the commit, and runs the batch again.
        if not again and head.batch != batch - 1:
            raise self._out_of_step(batch, head)
        if again and (not head.plan or self._rows.has_rows(head)):
            if head.plan and plan and head.plan != plan:
                raise JobHeld(
                    f"stage {self._stage!r}: batch {batch} is in its output, and was planned again "
                    "with other input; restore the job from a snapshot"
                )
            self._publish(head)
            return
        if again and not files and head.plan == plan:
            return
        # A batch without rows may have been planned again with some: nothing of it is published.
        moved = self._rows.staged(head, attrs.evolve(head, batch=batch, plan=plan), files)
        moved = attrs.evolve(moved, report=self._reports.of(batch, head.report))
        self._rows.before_commit(moved)
        self._move(record, moved)
        self._publish(moved)

    def _pass_over(self, head: StreamHead, record: Record, last: int) -> None:
        """Move the head over batches that this sink has not seen, up to the last of them."""
        if head.batch < last:
            moved = attrs.evolve(head, batch=last, plan="")
            self._move(record, self._rows.skipped(head, moved))

    def _head(self) -> tuple[StreamHead, Record] | None:
        return heads.stored(self._context.backend, self._context.job_id, self._stage)

    def _present(self) -> tuple[StreamHead, Record]:
        found = self._head()
        if found is None:
            raise Fenced(f"job {self._context.job_id!r} was cleaned up: this attempt stops here")
        return found

    def _out_of_step(self, batch: int, head: StreamHead) -> JobHeld:
        return JobHeld(
            f"stage {self._stage!r}: its checkpoint is at batch {batch} and its output at "
            f"batch {head.batch}; restore the job from a snapshot"
        )

    def _move(self, record: Record, head: StreamHead) -> None:
        own, committed = Update(record.key, encode(head), record.version), head.batch + 1
        if committed % _MANY and committed not in _FIRST:
            self._context.commit(own)
            return
        said = f"stage {self._stage} has committed {counted(committed, 'batch', 'batches')}"
        about = {"stage": self._stage, "batches": committed}
        with self._context.historian.recorded(
            head.job_id, HistoryKind.BATCHES, said, about=about, repeatable=True
        ) as event:
            self._context.commit(own, *event)

    def _publish(self, head: StreamHead, *, is_noted: bool = False) -> None:
        """Publish the batch that the head names, if that has not happened yet."""
        self._rows.publish(head, is_noted=is_noted)
