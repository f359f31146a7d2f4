"""Reading the history as a stream with format("jrs"), as far as that needs no JVM."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jrs
from jrs.records.history import HistoryKind
from jrs.recovery.spark.history_stream import HistoryStream
from jrs.recovery.spark.sink import JrsSink
from jrs.store import feed
from jrs.store.historian import Historian, Why
from jrs.testing.contract import lead
from tests.recovery.spark.test_table_source import schema_of


@pytest.fixture
def client(tmp_path: Path) -> Iterator[jrs.Client]:
    with jrs.connect((tmp_path / "store").as_uri()) as client:
        yield client


def stream(client: jrs.Client, **options: str) -> HistoryStream:
    options = {"backend": client.backend.url, "table": "history", **options}
    return JrsSink(options).streamReader(schema_of("history"))


def rows(made: HistoryStream, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events that executors get, which know the rows alone."""
    parts = pickle.loads(pickle.dumps(made.partitions(start, end)))
    batches = (batch for part in parts for batch in made.read(part))
    return [row for batch in batches for row in batch.to_pylist()]


def jobs(made: HistoryStream, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [row["job_id"] for row in rows(made, start, end)]


def test_offsets_are_cursors(client: jrs.Client) -> None:
    """Each batch has what was committed between two of them, however often it is read."""
    made = stream(client)
    begin = made.initialOffset()
    assert made.latestOffset() == begin == {"cursor": ""}
    assert jobs(made, begin, begin) == []
    client.submit("m:f", id="a")
    first = made.latestOffset()
    client.submit("m:f", id="b")
    client.submit("m:f", id="c")
    second = made.latestOffset()
    assert made.latestOffset() == second
    made.stop()

    again = stream(client)
    for one in (made, again):
        assert jobs(one, begin, first) == ["a"]
        assert jobs(one, first, second) == ["b", "c"]
        assert jobs(one, begin, second) == ["a", "b", "c"]
    assert again.latestOffset() == second
    assert stream(client, after=first["cursor"]).initialOffset() == {"cursor": first["cursor"]}


@pytest.mark.parametrize("kept", [25, 55])
def test_a_first_batch_that_has_lost_events_fails(client: jrs.Client, kept: int) -> None:
    """It begins with all that was kept when the query was started. If a part of it, or all of it,
    is swept before the batch is repeated, the batch fails, also one that an older version has
    planned and that is swept as a whole."""
    for number in range(30):
        client.submit("m:f", id=f"job-{number}")
    made = stream(client)
    begin, end = made.initialOffset(), made.latestOffset()
    assert jobs(made, begin, end) == [f"job-{number}" for number in range(30)]
    for number in range(30, 60):
        client.submit("m:f", id=f"job-{number}")
    assert jobs(stream(client), begin, end) == [f"job-{number}" for number in range(30)]
    sweep(client, keep=kept)

    with pytest.raises(jrs.NotFound, match="not kept any more"):
        jobs(stream(client), begin, end)
    if kept < 30:
        with pytest.raises(jrs.NotFound, match="not kept any more"):
            jobs(stream(client), begin, {"cursor": end["cursor"]})


def test_a_first_batch_after_a_sweep(client: jrs.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where as much is kept as may be, a sweep that comes before the first batch is read does not
    make it fail: it begins with what is kept. It has the newest events that are sure."""
    monkeypatch.setattr(feed, "SURE", 20)
    for number in range(30):
        client.submit("m:f", id=f"job-{number}")
    made = stream(client)
    begin, end = made.initialOffset(), made.latestOffset()

    for number in range(30, 35):
        client.submit("m:f", id=f"job-{number}")
    sweep(client, keep=25)
    assert jobs(stream(client), begin, end) == [f"job-{number}" for number in range(10, 30)]

    sweep(client, keep=24)
    with pytest.raises(jrs.NotFound, match="with a new checkpoint"):
        jobs(stream(client), begin, end)


def sweep(client: jrs.Client, keep: int) -> None:
    """Remove the oldest places of the feed."""
    with lead(client.backend) as leadership:
        feed.sweep(client.backend, leadership.fence, keep=keep)


def test_rows_have_ids_facts_and_cursors(client: jrs.Client) -> None:
    facts = {"host": "h", "pid": 7}
    why = Why("recover", 1, facts)
    with Historian(client.backend).recorded("a", HistoryKind.ATTEMPT, why=why) as told:
        client.backend.commit(*told)
    client.submit("m:f", id="b")
    made = stream(client)

    first, second = rows(made, made.initialOffset(), made.latestOffset())
    assert json.loads(first["facts"]) == facts
    assert second["facts"] is None
    assert (first["id"], first["cursor"]) == (entry_of(client, "").id, entry_of(client, "").cursor)
    assert entry_of(client, first["cursor"]).id == second["id"]


def entry_of(client: jrs.Client, after: str) -> jrs.HistoryEntry:
    """Return the first event behind a cursor."""
    return client.history_after(after).entries[0]


def test_many_events_are_more_than_one_page(client: jrs.Client) -> None:
    for number in range(1005):
        client.submit("m:f", id=f"job-{number:04}")
    made = stream(client)

    found = jobs(made, made.initialOffset(), made.latestOffset())
    assert found == [f"job-{number:04}" for number in range(1005)]
    assert jobs(stream(client, prefix="job-01"), {"cursor": ""}, made.latestOffset()) == [
        f"job-01{number:02}" for number in range(100)
    ]
    assert jobs(stream(client, job="job-0007"), {"cursor": ""}, made.latestOffset()) == ["job-0007"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "results"}, "only history is a stream"),
        ({"status": "FAILED"}, "no option 'status'"),
        ({"read": "driver"}, "no option 'read'"),
    ],
)
def test_what_a_stream_cannot_use_is_refused(
    client: jrs.Client, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        stream(client, **options)


def test_outputs_are_no_stream_and_tables_have_no_cursor(client: jrs.Client) -> None:
    with pytest.raises(ValueError, match="only the table 'history'"):
        JrsSink({"backend": client.backend.url}).streamReader(schema_of("history"))
    with pytest.raises(ValueError, match="'after' is an option of readStream"):
        JrsSink({"backend": "x", "table": "history", "after": "x"}).reader(schema_of("history"))
