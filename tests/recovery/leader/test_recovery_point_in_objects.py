"""What a job resumes from where its storage has objects: the copies, or a snapshot."""

from __future__ import annotations

import attrs
import pytest

from jrs.contract.errors import JobHeld
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import StreamRecord
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.leader.take_over import take_over
from jrs.recovery.rules.events import Event, EventKind
from jrs.store import attempt_fence, heads
from tests.recovery.attempt.objects_attempt import begin, head
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
