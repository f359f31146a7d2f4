"""The metrics of the API's own process; ``/metrics?job=ID``: of one job; ``/metrics?prefix=ID``: of
the jobs whose ids begin so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from jrs.client.client import Client
from jrs.client.listing import JobOrder
from jrs.client.overview import job_line
from jrs.contract.clock import Clock
from jrs.contract.errors import InvalidInput, JrsError
from jrs.contract.texts import printable
from jrs.records.model import JobStatus
from jrs.recovery.health.metrics import CONTENT_TYPE, OPEN_METRICS, asks_open
from jrs.sidecar.answers import problem_answer
from jrs.sidecar.changes import Changes
from jrs.sidecar.problems import problem_of
from jrs.store.streams import StreamStatus

_LOOKED_BACK = 24 * 3600.0
"""Seconds for which the jobs of a prefix are looked for."""


class _OfJob(Collector):
    """The metrics of one job. Its id is no label: who asks knows it."""

    def __init__(self, client: Client, job_id: str) -> None:
        job = client.job(job_id)
        self._view = job.view()
        self._line = job_line(self._view, None)
        self._streams = job.streams()

    def collect(self) -> Iterator[Metric]:
        status = GaugeMetricFamily("jrs_job_status", "The job's status: 1 for the one it has.",
                                   labels=["status"])  # fmt: skip
        for one in JobStatus:
            status.add_metric([one.value], float(self._view.status is one))
        yield status
        line = self._line
        dirty = line.state == "dirty"
        for name, said, value in (
            ("jrs_job_attempts", "Attempts so far.", line.attempt),
            ("jrs_job_stages_finished", "Stages that have finished.", line.stages),
            ("jrs_job_started_timestamp_seconds", "When it was first started.", line.started_at),
            ("jrs_job_ended_timestamp_seconds", "When it ended.", line.finished_at),
            ("jrs_job_cleanup_pending", "Whether it is not cleaned up: 1 or 0.", dirty),
        ):
            yield GaugeMetricFamily(name, f"{said}", value=float(value))
        for name, (said, read) in STREAM_METRICS.items():
            family = GaugeMetricFamily(name, said, labels=["stage"])
            for stream in self._streams:
                found = read(stream)
                if found is not None:
                    family.add_metric([printable(stream.stage)], float(found))
            yield family


def _progress(name: str) -> Callable[[StreamStatus], float | None]:
    """Return what reads a number of a stream's progress."""
    return lambda one: None if one.progress is None else getattr(one.progress, name)


STREAM_METRICS: dict[str, tuple[str, Callable[[StreamStatus], float | None]]] = {
    "jrs_stream_batch": ("The newest batch that the stream has recorded.", lambda one: one.batch),
    "jrs_stream_batch_timestamp_seconds": (
        "When the newest batch was recorded.",
        lambda one: one.batch_at,
    ),
    "jrs_stream_progress_batch": (
        "The batch whose rows, rates, watermark, lag and state are shown.",
        _progress("batch"),
    ),
    "jrs_stream_rows": ("Rows that the batch read.", _progress("rows")),
    "jrs_stream_rows_per_second": ("Rows that arrived per second.", _progress("rows_per_second")),
    "jrs_stream_processed_per_second": (
        "Rows that Spark processed per second.",
        _progress("processed_per_second"),
    ),
    "jrs_stream_batch_seconds": ("How long the batch took.", _progress("seconds")),
    "jrs_stream_watermark_timestamp_seconds": (
        "The watermark of the stream.",
        _progress("watermark"),
    ),
    "jrs_stream_offsets_behind": (
        "Records that the slowest partition of a source was behind its end.",
        _progress("offsets_behind"),
    ),
    "jrs_stream_files_behind": (
        "Files that the sources had found and not yet read.",
        _progress("files_behind"),
    ),
    "jrs_stream_state_rows": ("Rows in the state of the stream.", _progress("state_rows")),
    "jrs_stream_state_bytes": (
        "Memory that the state of the stream used.",
        _progress("state_bytes"),
    ),
}
"""The metrics of streams: what each says, and how it is read. An unknown value has no sample."""


class _OfPrefix(Collector):
    """The metrics of the jobs whose ids begin so, such as those of a canary."""

    def __init__(self, client: Client, prefix: str, now: Clock = time.time) -> None:
        since = now() - _LOOKED_BACK
        newest = client.views(
            status=JobStatus.FINISHED, prefix=prefix, order=JobOrder.ENDED, since=since
        )
        self._finished = next((view.entry.finished_at for view in newest if view.entry), 0.0)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "jrs_prefix_finished_timestamp_seconds",
            "When the newest of these jobs that FINISHED has ended; 0: none within a day.",
            value=self._finished,
        )


def handler(client: Client, changes: Changes) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers ``/metrics``."""
    own = CollectorRegistry()
    ProcessCollector(registry=own)
    streams = Gauge("jrs_api_readers", "Streams and long polls that are open.", registry=own)
    streams.set_function(lambda: changes.readers)

    async def metrics(request: Request) -> Response:
        registry = own
        if {"job", "prefix"} <= {*request.query_params}:
            return problem_answer(problem_of(InvalidInput("give either job or prefix")))
        for name, kind in (("job", _OfJob), ("prefix", _OfPrefix)):
            wanted = request.query_params.get(name)
            if wanted is None:
                continue
            registry = CollectorRegistry()
            try:
                registry.register(await asyncio.to_thread(kind, client, wanted))
            except JrsError as error:
                return problem_answer(problem_of(error))
        if asks_open(",".join(request.headers.getlist("accept"))):
            text = await asyncio.to_thread(openmetrics.generate_latest, registry)
            return Response(text, media_type=OPEN_METRICS)
        text = await asyncio.to_thread(generate_latest, registry)
        return Response(text, media_type=CONTENT_TYPE)

    return metrics
