"""What the chaos tests share: the stamps of a job, and what is known of the leader."""

from __future__ import annotations

import itertools
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import EpochRecord, JobSpec, JobStatus
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.worker import Worker
from tests.support import BOUND

TTL = 2.0
"""The shortest that both servers grant."""

_JOBS = Path(__file__).with_name("jobs.py")


def newest(backend: Backend) -> tuple[Fence, str]:
    """Return the fence of the newest epoch, and whose it is."""
    record = backend.get(keys.EPOCH)
    assert record is not None
    epoch = decode(EpochRecord, record.value, record.key)
    return Fence(epoch.epoch, record.version), epoch.candidate


def refused_for_good(hand: Worker, prefix: str, fence: Fence) -> None:
    """Write with an old fence, many times: it is never done, and Fenced once there is an answer."""
    deadline = Deadline.after(BOUND)
    fenced = number = 0
    while fenced < 5:
        assert not deadline.expired
        number += 1
        try:
            hand.commit(Create(f"{prefix}{number}", b""), fence=fence)
        except Fenced:
            fenced += 1
        except (Unavailable, OutcomeUnknown):
            pass  # Its connection has been away for long.


@attrs.frozen
class Stamps:
    """A job that stamps, and what it has stamped."""

    folder: Path
    job_id: str = "stamps"

    def submit(self, backend: Backend) -> None:
        JobCatalog(backend).submit(
            JobSpec(self.job_id, f"{_JOBS}:stamp", arguments={"path": str(self._path)})
        )

    @property
    def _path(self) -> Path:
        return self.folder / self.job_id

    def of(self, epoch: int) -> list[float]:
        """Return the moments at which the attempts of that epoch were alive."""
        return sorted(
            float(line)
            for file in self.folder.glob(f"{self.job_id}.{epoch}.*")
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        )

    def await_more(self, masters: Masters, epoch: int, count: int = 20) -> None:
        """Wait until the attempts of that epoch have stamped some more."""
        before = len(self.of(epoch))
        masters.until(lambda: len(self.of(epoch)) >= before + count, f"epoch {epoch} stamps")

    def await_newest(self, masters: Masters, count: int = 20) -> int:
        """Wait until the attempts of the newest epoch have stamped some more; return that epoch.

        Which one it is, is up to how busy the machine is: also a new leader may lose its lead.
        """
        before: dict[int, int] = {}

        def stamped() -> bool:
            epoch = newest(masters.backend)[0].epoch
            now = len(self.of(epoch))
            return now >= before.setdefault(epoch, now) + count

        masters.until(stamped, "the newest epoch stamps")
        return max(before)

    def finish(self, backend: Backend) -> str:
        """Let the job end; return its result."""
        self._path.with_suffix(".stop").touch()
        result = JobResultStore(backend).wait(self.job_id, BOUND)

        assert JobStatus.FINISHED is result.status

        return str(result.payload)

    def finish_in_order(self, backend: Backend) -> int:
        """Let the job end; assert that the attempts of each epoch had ended before the next one's
        began; return the epoch in which it ended."""
        last = int(self.finish(backend).removeprefix("epoch "))
        ran = [epoch for epoch in range(1, last + 1) if self.of(epoch)]
        for older, newer in itertools.pairwise(ran):
            self.never_overlap(older, newer)

        # An attempt of the epoch in which it ended may have found that it is to end at once.
        assert last >= ran[-1]

        return last

    def never_overlap(self, older: int, newer: int) -> float:
        """Assert that the older epoch's attempts had ended before the newer one's began; return
        the seconds between."""
        last, first = self.of(older)[-1], self.of(newer)[0]

        assert last < first

        return first - last
