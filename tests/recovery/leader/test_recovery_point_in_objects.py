"""What a job resumes from where its storage has objects: the copies, or a snapshot."""

from __future__ import annotations

import attrs
import pytest

from jrs.contract.errors import JobHeld
from jrs.contract.operations import Delete, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import StreamRecord
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.leader.take_over import take_over
from jrs.recovery.rules.events import Event, EventKind
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.store import attempt_fence, heads
from tests.recovery.attempt.objects_attempt import Stream, begin, copies, head
from tests.recovery.lead import Lead
from tests.recovery.support import leader_context


class Leading:
    """A leader that prepares the job's next attempt."""

    def __init__(self, lead: Lead) -> None:
        self.lead = lead
        self.said: list[Event] = []
        context = leader_context(
            lead.leadership, lead.backend, lead.storage, report=self.said.append
        )
        self._points = RecoveryPoints(context)

    def prepare(self, *, damaged: bool = False) -> None:
        """Ensure that the job can resume, after an attempt that may have reported damage."""
        lead = self.lead
        if damaged:
            lead.storage.report_damage("job", lead.leadership.epoch, "sums", "CANNOT_LOAD")
        attempt_fence.shut_out(lead.backend, "job", lead.leadership.fence)
        take_over(lead.backend, lead.storage, "job", lead.leadership.fence)
        self._points.ensure_recoverable("job")

    @property
    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.said]


def note_batches(lead: Lead) -> None:
    """Record that a stream has had batches, as its second attempt does."""
    stored = lead.backend.get(keys.stream("job", "sums"))
    assert stored is not None
    record = decode(StreamRecord, stored.value, stored.key)
    noted = encode(attrs.evolve(record, has_batches=True))
    lead.backend.commit(Update(stored.key, noted, stored.version))


def test_a9_the_first_batch_is_no_damage(lead: Lead) -> None:
    """A9: of a stream with one batch, objects have its plan, and the state before it is none."""
    begin(lead).batch()
    note_batches(lead)
    stream = begin(lead, 2)
    stream.lose_host()
    leading = Leading(lead)
    leading.prepare()

    assert leading.kinds == [EventKind.RESTORED]
    again = begin(lead, 3)
    at = position(again.query.ck)
    assert (at.planned, at.committed) == (0, -1)
    again.batch()
    again.batch()
    assert head(lead).batch == 1


def test_a_stream_without_its_batches_is_damaged(lead: Lead) -> None:
    begin(lead).batch()
    note_batches(lead)
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {}))
    with pytest.raises(JobHeld, match="has no batch any more"):
        Leading(lead).prepare()


@pytest.mark.parametrize("called", [False, True])
def test_damage_that_objects_have_leads_to_a_snapshot(lead: Lead, called: bool) -> None:
    """The checkpoint is fetched once. What Spark cannot load then, it cannot load anywhere."""
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    SnapshotCatalog(lead.backend, lead.storage).create("job")
    for _ in range(3):
        stream.batch()
    leading = Leading(lead)
    leading.prepare(damaged=True)
    assert leading.kinds == [EventKind.DAMAGED, EventKind.RESTORED]
    assert heads.generation_of(lead.backend, "job") == 1
    if called:
        # The function was called, and Spark could not load the state for it.
        again = begin(lead, 2)
        PlanKeeper(again.context, "sums", again.query.ck).keep(5)
    leading.prepare(damaged=True)

    assert heads.generation_of(lead.backend, "job") == 2
    assert "resumes from snapshot 1" in leading.said[-1].message
    resumed = begin(lead, 3)
    assert position(resumed.query.ck).committed <= head(lead).batch == 2
    resumed.batch()
    resumed.batch()


def test_damage_on_one_host_is_fetched_again(lead: Lead) -> None:
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    SnapshotCatalog(lead.backend, lead.storage).create("job")
    leading = Leading(lead)
    for attempt in (2, 3):
        state = next(
            path for path in stream.query.ck.glob("state/0/0/*.changelog") if path.is_file()
        )
        state.write_bytes(b"\0")
        leading.prepare(damaged=True)
        stream = begin(lead, attempt)
        assert stream.batch() == stream.query.batch
    assert heads.generation_of(lead.backend, "job") == 1
    assert copies(lead).bring("job") == []


def test_damage_in_a_file_that_objects_lack_is_fetched_again(lead: Lead) -> None:
    """A power cut while Spark planned the next batch: to fetch the checkpoint removes that plan."""
    begin(lead)
    stream = Stream(lead, uses_sink=False)
    lead.backend.commit(Delete(keys.head("job", "sums")))
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    stream.query.source = "file:///in"
    stream.query.start()
    for batch in range(3):
        stream.query.plan()
        keeper.keep(batch)
        stream.query.commit()
    keeper.keep_done()
    leading = Leading(lead)
    leading.prepare()
    checkpoint = lead.storage.checkpoint("job", lead.leadership.epoch, "sums")
    (checkpoint / "offsets" / "3").write_bytes(b"")

    leading.prepare()

    assert position(lead.storage.checkpoint("job", lead.leadership.epoch, "sums")).committed == 2
    assert heads.generation_of(lead.backend, "job") == 1
