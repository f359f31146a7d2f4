"""The progress of queries, read from what Spark reports.

``windows-4.3.json`` was recorded; ``kafka.json`` has the form that Spark's guide shows.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.records.codec import decode, encode
from jrs.records.heads import BatchReport, StreamHead, StreamProgress
from jrs.recovery.spark.progress import ProgressWatch, parsed

FIXTURES = Path(__file__).parents[2] / "fixtures" / "progress"
WINDOWS = json.loads((FIXTURES / "windows-4.3.json").read_text())
KAFKA = json.loads((FIXTURES / "kafka.json").read_text())

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
    | st.sampled_from([10**400, -1, 2**63, "NaN", "9" * 5000, "2026-11-25T00:00:09.500Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def test_a_stateful_query_of_files() -> None:
    """As PySpark 4.3 reported it."""
    assert parsed(json.dumps(WINDOWS)) == StreamProgress(
        batch=3, started_at=1795679281.23, rows=20, rows_per_second=10.9,
        processed_per_second=11.0, seconds=1.818, watermark=1795575019.0,
        state_rows=3, state_bytes=1800,
    )  # fmt: skip


def test_kafka_says_how_far_behind_it_is() -> None:
    """In texts, by source; the slowest partition counts."""
    found = parsed(json.dumps(KAFKA))
    assert found is not None
    assert (found.batch, found.offsets_behind, found.files_behind) == (41, 1532, None)
    assert (found.state_rows, found.watermark) == (None, None)


def test_files_that_are_left() -> None:
    """A metric that some releases have: the sum over the sources."""
    sources = [{"metrics": {"numFilesOutstanding": left}} for left in ("3", "4", "x", "-1")]
    found = parsed(json.dumps({**WINDOWS, "sources": sources}))
    assert found is not None
    assert found.files_behind == 7


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "{}", '{"batchId": -1}',
                                  '{"batchId": "7"}', '{"batchId": 1e3}', "[" * 100_000,
                                  '{"batchId": 9223372036854775808}'])  # fmt: skip
def test_no_progress(text: str) -> None:
    assert parsed(text) is None


@pytest.mark.parametrize("name", sorted({*WINDOWS} - {"batchId"}))
@pytest.mark.parametrize("value", [None, "NaN", -1, 10**400, [], [None], {}, {"metrics": 7}])
def test_a_part_that_is_missing_or_odd(name: str, value: Any) -> None:
    found = parsed(json.dumps({**WINDOWS, name: value}))
    assert found is not None
    assert found.batch == 3


def test_numbers_that_are_none() -> None:
    text = json.dumps(WINDOWS).replace("10.9", "NaN").replace("11.0", "Infinity")
    found = parsed(text.replace('"numInputRows": 20', '"numInputRows": true'))
    assert found is not None
    assert found.rows_per_second is found.processed_per_second is found.rows is None


@given(
    st.dictionaries(st.sampled_from(sorted(WINDOWS)), json_values, max_size=6),
    st.lists(json_values | st.dictionaries(st.just("metrics"), json_values), max_size=3),
)
def test_whatever_spark_reports_can_be_stored(parts: dict[str, Any], sources: list[Any]) -> None:
    """It is never an error, and what comes of it is small and can be read back."""
    found = parsed(json.dumps({**WINDOWS, "sources": sources, **parts}))
    head = StreamHead("job", "sums", 1, 7, report=BatchReport(7, 1.0, found))
    stored = encode(head)
    again = decode(StreamHead, stored, "it")
    assert again.report == head.report
    assert len(stored) < 1000


class Query:
    """A query that reports what the test says, and counts how often it is asked."""

    def __init__(self) -> None:
        self.batch: int | None = None
        self.asked = 0
        self._jsq = self

    def lastProgress(self) -> Any:
        self.asked += 1
        if self.batch is None:
            return None
        if self.batch < 0:
            raise RuntimeError("the JVM is gone")
        return SimpleNamespace(json=lambda: json.dumps({**WINDOWS, "batchId": self.batch}))


def test_a_query_is_asked_once_for_each_batch() -> None:
    query, watch = Query(), ProgressWatch()

    def look(committed: int, reported: int | None) -> int | None:
        query.batch = reported
        watch.look(cast(Any, query), committed)
        found = watch.newest()
        return None if found is None else found.batch

    assert look(0, None) is None
    assert look(0, 0) == 0
    assert look(0, 0) == 0
    assert query.asked == 2
    assert look(3, 2) == 2, "Spark reports a batch a moment after it has committed it"
    assert look(3, 3) == 3
    assert look(4, 5) == 3, "an idle query reports the batch that it waits for"
    assert look(4, -7) == 3
    assert query.asked == 6


def test_every_part_is_filled_by_some_source() -> None:
    both = [parsed(json.dumps(one)) for one in (WINDOWS, KAFKA)]
    never = {field.name for field in attrs.fields(StreamProgress)
             if all(getattr(one, field.name) is None for one in both)}  # fmt: skip
    assert never == {"files_behind", "unknown"}
