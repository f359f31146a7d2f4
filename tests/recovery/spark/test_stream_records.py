"""The record of a streaming stage: the same query resumes, and another one is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from jrs.contract.errors import JobHeld
from jrs.contract.operations import create_or_update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import StreamRecord, StreamSink
from jrs.recovery.spark import stream_records
from jrs.recovery.spark.plan_hashes import PlanHashes
from jrs.recovery.spark.stream_records import record_query
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import FakeQuery
from tests.recovery.support import FaultyMemory

KEY = keys.stream("job", "sums")
OLD = StreamRecord("job", "sums", False, "printed", "4.1", 5.0)
"""As an older version of jrs recorded it."""
NEW = attrs.evolve(OLD, query="query")


@attrs.define
class Stage:
    """A stage whose query is begun by one attempt after another."""

    lead: Lead
    patch: pytest.MonkeyPatch

    def store(self, record: StreamRecord) -> None:
        stored = self.lead.backend.get(KEY)
        self.lead.backend.commit(create_or_update(KEY, encode(record), stored and stored.version))

    @property
    def stored(self) -> StreamRecord:
        found = self.lead.backend.get(KEY)
        assert found is not None
        return decode(StreamRecord, found.value, KEY)

    def begin(
        self, query: str = "query", printed: str = "printed", *, drawn: bool = False,
        spark: str = "4.1", bounded: bool = False, sink: StreamSink | None = None,
    ) -> StreamRecord:  # fmt: skip
        found, writer = PlanHashes(query, printed, drawn), cast("Any", None)
        self.patch.setattr(stream_records, "plan_hashes", lambda *_: found)
        record = StreamRecord("job", "sums", bounded, "", spark, sink=sink)
        recorded = record_query(self.lead.context(), record, writer)
        assert recorded == self.stored
        return recorded


@pytest.fixture
def stage(memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(Lead(memory, tmp_path / "jobs"), monkeypatch)


def test_the_same_query_resumes_with_other_seeds(stage: Stage) -> None:
    first = stage.begin("query", "one", drawn=True)

    assert (first.plan, first.query, first.spark) == ("one", "query", "4.1")
    assert stage.begin("query", "two", drawn=True) == first
    with pytest.raises(JobHeld, match="is not the query of its checkpoint"):
        stage.begin("other", "three", drawn=True)
    assert stage.stored == first


def test_a_record_of_an_older_version(stage: Stage) -> None:
    """It is compared as before, and completed; an older version finds what it compares."""
    stage.store(OLD)
    with pytest.raises(JobHeld):
        stage.begin("other", "other")
    assert stage.begin() == NEW
    with pytest.raises(JobHeld):
        stage.begin("other")


def test_a_record_of_an_older_version_with_a_seed(stage: Stage) -> None:
    """Its hash cannot be compared: the query is taken for the same, once."""
    stage.store(OLD)

    assert stage.begin("query", "drawn again", drawn=True) == NEW
    with pytest.raises(JobHeld):
        stage.begin("other", "drawn again", drawn=True)


def test_changed_code(stage: Stage) -> None:
    """A record of any plan takes the next one, also if an older version emptied only the plan."""
    for before in (NEW.of_any_plan(), attrs.evolve(NEW, plan="")):
        stage.store(before)

        assert stage.begin("changed").query == "changed"


def test_a_stage_that_was_bounded(stage: Stage) -> None:
    stage.store(NEW)
    with pytest.raises(JobHeld):
        stage.begin(bounded=True)
    with pytest.raises(JobHeld):
        stage.begin(bounded=True, spark="4.3")


def test_another_spark_prints_other_plans(stage: Stage) -> None:
    """The first attempt on it cannot compare them. It records the plan, for those that follow."""
    stage.store(attrs.evolve(NEW, order=3))
    upgraded = stage.begin("q4.3", "p4.3", spark="4.3")

    assert upgraded == attrs.evolve(NEW, plan="p4.3", query="q4.3", spark="4.3", order=3)
    assert stage.begin("q4.3", "p4.3", spark="4.3") == upgraded
    with pytest.raises(JobHeld):
        stage.begin("other", "p4.3", spark="4.3")

    assert stage.begin(spark="4.1") == attrs.evolve(NEW, order=3)  # A host that has it yet.


@pytest.mark.parametrize("changed", [True, False])
def test_the_sink_of_a_stage(stage: Stage, changed: bool) -> None:
    """Another one gets what the checkpoint has not committed, also if the query is another one."""
    table = StreamSink("delta", "/data/one", knows_batches=True)
    stage.store(NEW)
    assert stage.begin(sink=table).sink == table  # An older version knew none.
    assert stage.begin(sink=attrs.evolve(table, knows_batches=False)).sink == attrs.evolve(
        table, knows_batches=False
    )
    query = FakeQuery(stage.lead.storage.checkpoint("job", stage.lead.leadership.epoch, "sums"))
    query.start().run(3).plan()
    if changed:
        stage.store(stage.stored.of_any_plan())
    other = StreamSink("jrs")
    for _ in range(2):
        assert stage.begin(sink=other).sink == attrs.evolve(other, since=3)
        query.run()
    assert stage.stored.has_batches  # Also if its checkpoint is lost later.
    moved = attrs.evolve(table, path="/data/two")
    assert stage.begin(sink=moved).sink == attrs.evolve(moved, since=5)
