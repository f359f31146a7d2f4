"""Readers of a job's history while its leaders are killed: each entry once, and in order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jrs
from jrs.recovery.inspect.history import wrong_decisions
from jrs.store import history, history_checks
from jrs.testing.masters import Masters
from jrs.testing.servers import Server
from tests.chaos.support import Stamps, newest

KILLS = 3
LONG = 3600.0


def read_on(url: str, cluster: str, job_id: str, over: threading.Event) -> list[str]:
    """Read the history with a connection of its own each time, from where the last one had come."""
    seen: list[str] = []
    while True:
        last = over.is_set()
        with jrs.connect(url, cluster=cluster) as client:
            found = client.job(job_id).history(seen[-1] if seen else "")
        seen += [entry.id for entry in found]
        if last:
            return seen
        over.wait(0.02)


def test_readers_over_killed_leaders(server: Server, tmp_path: Path, cluster: str) -> None:
    stamps, over = Stamps(tmp_path), threading.Event()
    with (
        Masters(server.url(), cluster=cluster, storage=tmp_path / "jobs", ttl=LONG) as masters,
        ThreadPoolExecutor(4) as pool,
    ):
        masters.start("m0")
        masters.leader()
        stamps.submit(masters.backend)
        readers = [
            pool.submit(read_on, server.url(), cluster, stamps.job_id, over) for _ in range(3)
        ]
        follower = pool.submit(follow, server.url(), cluster, stamps.job_id)
        try:
            for number in range(1, KILLS + 1):
                stamps.await_more(masters, newest(masters.backend)[0].epoch, 1)
                masters.start(f"m{number}")
                before = newest(masters.backend)[0].epoch
                masters.leader().kill()
                masters.until(
                    lambda before=before: newest(masters.backend)[0].epoch > before,  # type: ignore[misc]
                    "another one leads",
                )
            stamps.await_more(masters, newest(masters.backend)[0].epoch, 1)
            stamps.finish(masters.backend)
            followed = follower.result()
        finally:
            over.set()
        events = history.read(masters.backend, stamps.job_id)

        assert [event.id for event in events] == followed
        assert [reader.result() for reader in readers] == [followed] * 3
        kinds = [event.kind for event in events]
        assert kinds == ["submitted", *["attempt"] * (KILLS + 1), "ended", "clean"]
        epochs = [event.epoch for event in events]
        assert epochs == sorted(epochs)
        assert list(history_checks.problems(masters.backend, stamps.job_id)) == []
        assert list(wrong_decisions(stamps.job_id, events)) == []


def follow(url: str, cluster: str, job_id: str) -> list[str]:
    with jrs.connect(url, cluster=cluster) as client:
        return [entry.id for entry in client.job(job_id).follow_history()]
