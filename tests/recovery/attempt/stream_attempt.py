"""One attempt with a stream, without Spark."""

from __future__ import annotations

from jrs.recovery.attempt.batch_committer import BatchCommitter
from jrs.recovery.leader.take_over import take_over
from jrs.store import attempt_fence
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import FakeQuery

PART = "part-" + "0" * 31


class Attempt:
    """One attempt of the job, with the stream ``sums``."""

    def __init__(self, lead: Lead, attempt: int = 1, *, uses_sink: bool = True) -> None:
        self.lead, backend = lead, lead.backend
        attempt_fence.shut_out(backend, "job", lead.leadership.fence)
        take_over(backend, lead.storage, "job", lead.leadership.fence)
        epoch = lead.leadership.epoch
        name = attempt_fence.name_of(epoch, attempt, "ab" * 16)
        backend.commit(*attempt_fence.let_in_ops(backend, "job", name), fence=lead.leadership.fence)
        fence = attempt_fence.of_attempt(backend, "job", name, lead.leadership.fence)
        assert fence is not None
        self.context = lead.context(attempt)
        object.__setattr__(self.context, "fence", fence)
        self.out = lead.storage.published("job", "sums", temporary=False)
        lead.storage.make_folder(self.out)
        folder = lead.storage.stream_folder("job", epoch, "sums")
        self.committer = BatchCommitter(self.context, "sums", folder, self.out)
        if uses_sink:
            self.committer.begin()
        lead.storage.stream("job", epoch, "sums")  # As `Streams` does: staging is emptied.
        self.staging = folder / "staging"
        self.query = FakeQuery(folder / "ck", "changelog-v2", partitions=1)

    def plan(self) -> None:
        if not (self.query.ck / "metadata").exists():
            self.query.start()
        self.query.plan()

    def write(self, batch: int, text: str = "rows") -> list[str]:
        """Write the rows of a batch, as executors do; return the names of the files."""
        name = f"{PART}{batch % 10}.parquet"
        (self.staging / name).write_text(f"{text} {batch}")
        return [name]

    def run(self, batch: int, text: str = "rows") -> None:
        self.committer.commit(batch, self.write(batch, text))
