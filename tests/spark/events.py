"""Events for streaming jobs to read, what the shapes of `shapes.py` have to give of them, by hand
and in plain Python, and what a job has published."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jrs import JobSpec, OutputFiles, connect
from jrs.records.model import Json
from jrs.records.policies import RestartPolicy
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.jobs import JobCatalog

from .conftest import Cluster
from .support import BOUND

SHAPES = Path(__file__).with_name("shapes.py")

Rows = list[tuple[Json, ...]]


@attrs.frozen
class Event:
    """One event: a minute after the beginning of the day, a key, a value that no other has."""

    minute: int
    key: str
    value: int

    @property
    def line(self) -> str:
        at = f"2026-01-01T{_clock(self.minute)}:00Z"
        return json.dumps({"at": at, "key": self.key, "value": self.value})


def write(folder: Path, files: int, first: int = 0) -> list[Event]:
    """Write files of ten minutes of event time each; return their events.

    The last events of a file are in the one behind it, too, for tests of deduplication.
    """
    folder.mkdir(parents=True, exist_ok=True)
    events: list[Event] = []
    for number in range(first, first + files):
        new = [
            Event(number * 10 + minute, f"k{minute % 3}", number * 10 + minute)
            for minute in range(10)
        ]
        # Never seen half written, and in the order of their numbers: Spark goes by the time.
        whole = folder / f".f{number:03d}"
        whole.write_text("\n".join(event.line for event in new))
        os.utime(whole, (1e9 + number, 1e9 + number))
        whole.rename(folder / f"f{number:03d}.json")
        events += new
    return events


def repeat(folder: Path, number: int) -> None:
    """Write the events of file `number` again, into another file that is read after it."""
    again = folder / f".g{number:03d}"
    again.write_text((folder / f"f{number:03d}.json").read_text())
    os.utime(again, (1e9 + number + 0.5, 1e9 + number + 0.5))
    again.rename(folder / f"g{number:03d}.json")


# -- what every shape has to give --------------------------------------------------------------


def stateless(events: list[Event]) -> Rows:
    return [(_clock(event.minute), event.key, event.value) for event in events]


def windows(events: list[Event]) -> Rows:
    return _sums((event.minute // 10 * 10, event.key, event.value) for event in events)


def windows_of_windows(events: list[Event]) -> Rows:
    tens: defaultdict[tuple[int, str], int] = defaultdict(int)
    for event in events:
        tens[event.minute // 10, event.key] += event.value
    return _sums((ten // 3 * 30, key, total) for (ten, key), total in tens.items())


def distinct(events: list[Event]) -> Rows:
    return stateless(list(dict.fromkeys(events)))


def outer_join(events: list[Event]) -> Rows:
    """Every event, and next to each even one itself, as often as it is there."""
    times = {event.value: events.count(event) for event in events}
    return [
        (_clock(event.minute), event.key, event.value, None if event.value % 2 else event.value)
        for event in events
        for _ in range(1 if event.value % 2 else times[event.value])
    ]


def sessions(events: list[Event]) -> Rows:
    """Runs of events of one key, each less than two minutes after the one before it."""
    begun: dict[str, tuple[int, int]] = {}
    found = []
    for event in sorted(events, key=lambda event: event.minute):
        start, last = begun.get(event.key, (event.minute, event.minute))
        if event.minute - last >= 2:
            start = event.minute
        begun[event.key] = start, event.minute
        found.append((start, event.key, event.value))
    return _sums(found)


def timers(events: list[Event]) -> Rows:
    return [(f"{at} {key}", n) for at, key, n, _ in windows(events)]


EXPECTED: dict[str, Callable[[list[Event]], Rows]] = {
    "stateless": stateless,
    "windows": windows,
    "chained": windows_of_windows,
    "distinct": distinct,
    "join": outer_join,
    "sessions": sessions,
    "timers": timers,
}


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def _sums(found: Iterable[tuple[int, str, int]]) -> Rows:
    sums: dict[tuple[int, str], list[int]] = defaultdict(list)
    for minute, key, value in found:
        sums[minute, key].append(value)
    return [(_clock(minute), key, len(v), sum(v)) for (minute, key), v in sums.items()]


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


# -- what a job has done -------------------------------------------------------------------------


def submit(
    cluster: Cluster, job_id: str, name: str, *, file: Path = SHAPES, **arguments: Json
) -> None:
    """Submit a job of `shapes.py`, or of another file; it is started again at once if it dies."""
    spec = JobSpec(job_id, f"{file}:{name}", arguments, restart=RestartPolicy(delay=0.0))
    JobCatalog(cluster.masters.backend).submit(spec)


def published(cluster: Cluster, job_id: str, stage: str) -> Rows:
    """Return the rows that a stage has published, in order; a row twice is there twice."""
    if cluster.storage.objects is not None:
        with connect(cluster.masters.url) as client:
            return in_order(rows_in(client.job(job_id).files(stage), cluster.storage))
    out = cluster.storage.folder(job_id) / "out" / stage
    return in_order(rows_of(out.glob("batch=*/*.parquet")))


def rows_in(files: OutputFiles, storage: JobStorage) -> Rows:
    """Return the rows of a stage's output, in the order of its files."""
    objects = storage.objects
    if objects is None:
        return rows_of(files.paths)
    contents = (objects.get(one.url.removeprefix(f"{objects.url}/")) for one in files.objects)
    return rows_of(pa.BufferReader(content) for content in contents if content is not None)


def rows_of(files: Iterable[Path | pa.BufferReader]) -> Rows:
    """Return the rows of Parquet files, in the order of the files."""
    return [
        tuple(row.values())
        for file in files
        for row in pq.read_table(file, partitioning=None).to_pylist()
    ]


def until_committed(cluster: Cluster, job_id: str, stage: str, batch: int = 0) -> None:
    """Wait until a stage has committed a batch, on whatever epoch."""
    folder = cluster.storage.folder(job_id)
    until_or_ended(
        cluster,
        job_id,
        lambda: any(folder.glob(f"e*/streams/{stage}/ck/commits/{batch}")),
        f"stage {stage} has committed batch {batch}",
    )


def until_or_ended(
    cluster: Cluster, job_id: str, condition: Callable[[], object], what: str
) -> None:
    """Wait until `condition` holds; fail at once, saying how, if the job has ended before."""
    results = cluster.results
    cluster.masters.until(lambda: bool(condition()) or results.has_entry(job_id), what, BOUND)
    if not condition():
        pytest.fail(f"not {what}: {str(results.wait(job_id, 0))[:3000]}")
