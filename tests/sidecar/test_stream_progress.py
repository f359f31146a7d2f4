"""What a stream does now: in the API, in the metrics, on the page and in ``jrs show``."""

from __future__ import annotations

import json
import time
import zlib

import attrs
import pytest
from prometheus_client.parser import text_string_to_metric_families

from jrs import Client, StreamProgress
from jrs.client.stream_texts import StreamTexts
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import BatchReport, StreamHead, StreamPlan
from jrs.records.model import JobSpec, StageRecord, StreamRecord
from jrs.sidecar.metrics import STREAM_METRICS
from jrs.store.streams import StreamStatus, of_job
from tests.sidecar.conftest import READ, Served
from tests.sidecar.test_pages import EVIL, page, put

FULL = StreamProgress(11, 1795679281.0, 1200, 120.04, 1263.1, 0.95, 1795575019.0, 1532, 7, 3, 1800)


@pytest.fixture
def running(client: Client) -> Client:
    """A job with a stream of each kind; of one, a damaged record alone is left."""
    now = time.time()
    client.submit_spec(JobSpec("live", "m:f"))
    for name in ("sums", "calls", "files", "done"):
        put(client, keys.stream("live", name), StreamRecord("live", name, False, "p", "4.3", now))
    put(client, keys.head("live", "sums"),
        StreamHead("live", "sums", 1, 12, report=BatchReport(12, now - 3, FULL)))  # fmt: skip
    put(client, keys.plan("live", "calls"),
        StreamPlan("live", "calls", 1, 4, 1, 1, report=BatchReport(4, now - 90)))  # fmt: skip
    put(client, keys.head("live", "done"), StreamHead("live", "done", 1, 2))
    put(client, keys.stage("live", "done"), StageRecord("live", "done", None, 1, 1, 2.0, now))
    client.backend.commit(Create(keys.head("live", "torn"), b"{"))
    return client


def test_the_streams_of_a_job(running: Client) -> None:
    """Those that have not finished; what is unknown is None."""
    found = {one.stage: one for one in running.job("live").streams()}
    assert list(found) == ["calls", "files", "sums", "torn"]
    assert (found["sums"].batch, found["sums"].progress) == (12, FULL)
    assert (found["calls"].batch, found["calls"].by_function) == (4, True)
    assert (found["files"].batch, found["files"].batch_at) == (None, None)
    assert "not a record of jrs" in found["torn"].problem
    assert running.job("none").streams() == ()


def test_a_batch_of_an_older_version(running: Client) -> None:
    """It keeps the report of the batch before it: that is not taken for one of its own."""
    key = keys.head("live", "sums")
    record = running.backend.get(key)
    assert record is not None
    put(running, key, attrs.evolve(decode(StreamHead, record.value, key), batch=13))
    found = {one.stage: one for one in of_job(running.backend, "live")}["sums"]
    assert (found.batch, found.batch_at, found.progress) == (13, None, FULL)


def test_the_api(running: Client, served: Served) -> None:
    streams = {one["stage"]: one for one in served.get("/v1/jobs/live", token=READ).json["streams"]}
    assert streams["sums"]["batch"] == 12
    assert streams["sums"]["progress"]["offsets_behind"] == 1532
    assert streams["calls"]["progress"] is None


def test_the_metrics(running: Client, served: Served) -> None:
    """Each value that is known; nothing for one that is not."""
    text = served.get("/metrics?job=live", token=READ).text
    samples = {
        (sample.name, sample.labels["stage"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "stage" in sample.labels
    }
    assert {name for name, stage in samples if stage == "sums"} == STREAM_METRICS.keys()
    assert samples["jrs_stream_batch", "sums"] == 12
    assert samples["jrs_stream_rows_per_second", "sums"] == 120.04
    assert {name for name, stage in samples if stage == "calls"} == {
        "jrs_stream_batch", "jrs_stream_batch_timestamp_seconds",
    }  # fmt: skip
    assert not [name for name, stage in samples if stage in ("files", "torn", "done")]


def test_the_page(running: Client, served: Served) -> None:
    text = " ".join(" ".join(page(served, "/jobs/live").texts).split())
    assert "sums batch 12, committed 3 s ago batch 11: 1,200 rows in 0.95 s" in text
    assert "120/s in, 1,263/s processed" in text
    assert "1,532 records in a partition, 7 files 3 rows, 1.8 KiB" in text
    assert "calls batch 4, begun 1 min 30 s ago unknown unknown" in text
    assert "cannot be read: " in text


def test_the_page_without_streams(client: Client, served: Served) -> None:
    client.submit_spec(JobSpec("plain", "m:f"))
    assert {"id": "streams-title"} not in page(served, "/jobs/plain").all("h2")


def test_a_hostile_record_stays_a_text(client: Client, served: Served) -> None:
    client.submit_spec(JobSpec("live", "m:f"))
    body = json.dumps({"job_id": "live", "stage": "s", "generation": 1, "batch": EVIL}).encode()
    record = b'{"jrs":"head/1","crc":"%08x","body":%s}' % (zlib.crc32(body), body)
    client.backend.commit(Create(keys.head("live", "s"), record))
    assert "alert(1)" in " ".join(page(served, "/jobs/live").texts)
    assert served.get("/metrics?job=live", token=READ).status == 200


def test_the_event_of_a_job_has_its_newest_batches(running: Client, served: Served) -> None:
    """So a page is renewed when a batch is committed."""
    events = served.events("/v1/jobs/live/events")
    first = events.until(lambda name, data: name == "job")
    assert first["batches"]["sums"] == 12
    put(running, keys.head("live", "sums"), StreamHead("live", "sums", 1, 13))
    events.until(lambda name, data: name == "job" and data["batches"]["sums"] == 13)
    events.close()


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (None, ["batch 7, committed 2 s ago"]),
        (StreamProgress(6, rows=0, seconds=0.0), ["batch 6: 0 rows in 0 s",
                                                  "behind its sources: unknown"]),
        (StreamProgress(6, rows=10**15, rows_per_second=1e18),
         ["batch 6: 1,000,000,000,000,000 rows; 1,000,000,000,000,000,000/s in"]),
        (StreamProgress(6, state_rows=2**63 - 1, state_bytes=2**63 - 1),
         ["state: 9,223,372,036,854,775,807 rows, 8388608.0 TiB"]),
        (StreamProgress(6, watermark=1e300), ["watermark 1e+300 s"]),
    ],
)  # fmt: skip
def test_texts(progress: StreamProgress | None, said: list[str]) -> None:
    status = StreamStatus("sums", True, 0.0, 7, False, 98.0, progress, "")
    lines = list(StreamTexts.of(status, 100.0).lines())
    assert [line for line in lines if line in said] == said
