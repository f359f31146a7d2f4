"""An attempt with a stream whose storage has objects, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.heads import StreamHead
from jrs.records.model import StreamRecord
from jrs.records.objects import BatchManifest
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.leader.fetched_checkpoints import CheckpointCopies
from jrs.recovery.leader.take_over import take_over
from jrs.recovery.storage.batches import files_of
from jrs.recovery.storage.packed_copies import contents, read_record
from jrs.store import attempt_fence, heads
from tests.recovery.attempt.stream_attempt import PART, Attempt
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Store, storage
from tests.recovery.support import CLUSTER, FaultyMemory


def lead_on(memory: FaultyMemory, folder: Path, store: Store) -> Lead:
    """Return a leadership whose jobs keep their files in objects."""
    made = Lead(memory, folder)
    made.storage = storage(folder, store, CLUSTER)
    return made


def copies(lead: Lead) -> CheckpointCopies:
    assert lead.storage.objects is not None
    return CheckpointCopies(lead.backend, lead.storage, lead.storage.objects, lead.leadership.fence)


def head(lead: Lead) -> StreamHead:
    found = heads.stored(lead.backend, "job", "sums")
    assert found is not None
    return found[0]


def manifest(lead: Lead) -> BatchManifest:
    named = head(lead).manifest
    assert named is not None
    assert lead.storage.objects is not None
    return read_record(lead.storage.objects, BatchManifest, named)


def rows(lead: Lead) -> dict[int, str]:
    """Return the rows that count, by their batch."""
    assert lead.storage.objects is not None
    found = files_of(lead.storage.objects, manifest(lead))
    return {batch: contents(lead.storage.objects, [one])[0].decode() for batch, one in found}


class Stream(Attempt):
    """An attempt whose stream runs batches, as Spark does."""

    def batch(self, text: str = "rows", *, noted: bool = True) -> int:
        """Run one batch; `noted`: Spark notes it once its sink has it."""
        batch = position(self.query.ck).committed + 1
        self.query.batch = batch - 1
        if position(self.query.ck).planned < batch:
            self.plan()
        files = [f"{PART}{batch % 10}.parquet"]
        (self.staging / files[0]).write_text(f"{text} {batch}")
        self.committer.commit(batch, files)
        if noted:
            self.query.commit()
        return batch

    def lose_host(self) -> None:
        shutil.rmtree(self.lead.folder)

    def next(self, attempt: int) -> Stream:
        """Return the next attempt, as its leader lets it in."""
        attempt_fence.shut_out(self.lead.backend, "job", self.lead.leadership.fence)
        take_over(self.lead.backend, self.lead.storage, "job", self.lead.leadership.fence)
        copies(self.lead).bring("job")
        return begin(self.lead, attempt)


def begin(lead: Lead, attempt: int = 1) -> Stream:
    if lead.backend.get(keys.stream("job", "sums")) is None:
        record = StreamRecord("job", "sums", False, "p", "4")
        lead.backend.commit(Create(keys.stream("job", "sums"), encode(record)))
    made = Stream(lead, attempt)
    object.__setattr__(made.context, "storage", lead.storage)
    return made
