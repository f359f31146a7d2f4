"""A job with very many events: how fast one is recorded, and the newest are read.

    python benchmarks/events.py [--events N] [--kind KIND] [--json]

The newest events of each size are recorded one by one, and meanwhile the leader folds the oldest
events, as it does while attempts of the job begin. The others are recorded many at a time. The
leader sweeps the feed in between. How many records the store then has shows that what is kept of a
history is bounded.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

from measure import median_ms, print_plain

from backends import SERVERS
from jrs.contract.backend import Backend
from jrs.contract.operations import Fence
from jrs.records.history import HistoryKind
from jrs.store import feed, history
from jrs.store.historian import Historian
from jrs.store.opening import open_backend

_FOLD = 2
"""Events between two looks of the leader whether it has to fold, as of an attempt that dies."""
_FILL = 250
"""Events that are recorded at a time."""
_SWEEP = 8
"""So many times between two sweeps of the feed."""
_SHARE = 100
"""The newest events whose recording is timed at each size, and how often the history is read."""


def fill(backend: Backend, fence: Fence, first: int, last: int) -> None:
    """Record the events of these numbers, many at a time."""
    historian = Historian(backend, "benchmark", fence.epoch)
    for begin in range(first, last, _FILL):
        sent: list[Future[None]] = []
        for number in range(begin, min(begin + _FILL, last)):
            # Commits of one caller are applied in their order, so that they can continue one chain.
            with historian.recorded("job", HistoryKind.DIED, _text(number)) as event:
                sent.append(backend.commit_async(*event, fence=fence))
        for one in sent:
            one.result()
        history.fold_if_many(backend, "job", fence)
        if begin // _FILL % _SWEEP == 0:
            feed.sweep(backend, fence)


def record(backend: Backend, fence: Fence, first: int, last: int) -> list[float]:
    """Record the events of these numbers one by one; return the seconds of each."""
    historian, took = Historian(backend, "benchmark", fence.epoch), list[float]()
    for number in range(first, last):
        began = time.perf_counter()
        with historian.recorded("job", HistoryKind.DIED, _text(number)) as event:
            backend.commit(*event, fence=fence)
        took.append(time.perf_counter() - began)
        if number % _FOLD == 0:
            history.fold_if_many(backend, "job", fence)
    return took


def _text(number: int) -> str:
    return f"attempt {number} died: exit 9"


def trial(backend: Backend, most: int) -> dict[str, float]:
    """Return the figures at 10^2 events, 10^3 and so on."""
    found, size, done = dict[str, float](), 100, 0
    with backend.campaign("leader", ttl=60.0, stop=threading.Event()) as leadership:  # type: ignore[union-attr]
        while size <= most:
            began = time.perf_counter()
            fill(backend, leadership.fence, done, size - _SHARE)
            if size > _SHARE:
                rate = (size - _SHARE - done) / (time.perf_counter() - began)
                found[f"{size}: filled, events a second"] = rate
            took = record(backend, leadership.fence, size - _SHARE, size)
            feed.sweep(backend, leadership.fence)
            found |= {
                f"{size}: recorded, ms": statistics.median(took) * 1000,
                f"{size}: read, ms": median_ms(lambda: history.read(backend, "job"), _SHARE),
                f"{size}: events kept": len(history.read(backend, "job")),
                f"{size}: records": sum(1 for _ in backend.scan("")),
            }
            size, done = size * 10, size
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=["file", *SERVERS], default="file")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        if given.kind == "file":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-events-"))
            url = (Path(folder) / "store").as_uri()
        else:
            url = stack.enter_context(SERVERS[given.kind]()).url()
        backend = stack.enter_context(open_backend(url, cluster="events"))
        figures = trial(backend, given.events)
    print_plain(figures, digits=3, as_json=given.json)


if __name__ == "__main__":
    main()
