"""What a stream does now, as its records tell it while it runs, over a failover."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jrs import StreamProgress, StreamStatus
from jrs.records.model import JobStatus, StopMode
from jrs.store.stops import JobStops
from jrs.store.streams import of_job

from .conftest import Cluster
from .support import BOUND
from .test_streams import expected, make_events, published, submit

DAY = 1767225600.0
"""2026-01-01, the day of the events."""
STAGES = {"sums", "calls"}


@contextmanager
def fed(source: Path) -> Iterator[list[dict[str, Any]]]:
    """Write a file of events every few seconds meanwhile; yield what is written."""
    rows, over = make_events(source, 1), threading.Event()

    def feed() -> None:
        number = 1
        while not over.wait(3.0) and number < 140:  # The events of a day.
            rows.extend(make_events(source, 1, first=number))
            number += 1

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield rows
    finally:
        over.set()
        thread.join()


def known(cluster: Cluster, above: float) -> dict[str, tuple[StreamStatus, StreamProgress]]:
    """Return the stages that tell of a batch with rows, and of a watermark above this one."""
    return {
        one.stage: (one, one.progress)
        for one in of_job(cluster.masters.backend, "job")
        if one.progress is not None and one.progress.rows and (one.progress.watermark or 0) > above
    }


def until_known(cluster: Cluster, above: float) -> dict[str, tuple[StreamStatus, StreamProgress]]:
    found: dict[str, tuple[StreamStatus, StreamProgress]] = {}

    def look() -> bool:
        for stage, one in known(cluster, above).items():
            found.setdefault(stage, one)
        return found.keys() == STAGES

    cluster.masters.until(look, "both tell of a watermark", BOUND)
    return found


def test_what_a_stream_does_now(cluster: Cluster, tmp_path: Path) -> None:
    """The rows, the watermark and the state of a batch come with a later one; a failover keeps
    what is known until there is more, and loses no row."""
    cluster.masters.start("m1")
    cluster.masters.start("m2")
    with fed(tmp_path / "in") as rows:
        submit(cluster, "job", "watched", source=str(tmp_path / "in"))
        first = until_known(cluster, DAY)
        cluster.masters.leader().kill()
        reached = [one.progress for one in of_job(cluster.masters.backend, "job") if one.progress]
        assert len(reached) == 2, "what is known is kept"
        second = until_known(cluster, max(one.watermark or 0 for one in reached))
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.until_clean("job")
    result = cluster.results.wait("job", 0)

    assert (result.status, result.attempt) == (JobStatus.FINISHED, 2), str(result.failure)[:3000]
    assert published(cluster, "job", "sums") == expected(rows)
    assert of_job(cluster.masters.backend, "job") == ()
    for stage in STAGES:
        (status, progress), (newest, later) = first[stage], second[stage]
        assert newest.batch is not None
        assert newest.batch > (status.batch or 0)
        assert status.by_function == (stage == "calls")
        assert status.batch is not None
        assert progress.batch < status.batch
        assert status.batch_at is not None
        assert status.batch_at > progress.started_at > 0
        assert (progress.rows or 0) % 10 == 0
        assert progress.seconds
        assert progress.processed_per_second
        assert progress.state_rows
        assert progress.state_bytes
        assert progress.watermark is not None
        assert later.watermark is not None
        assert DAY < progress.watermark < later.watermark < DAY + 86400
        assert progress.files_behind is progress.offsets_behind is None
