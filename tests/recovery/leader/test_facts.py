"""Gathering facts: what the facts about one job tell about others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.records import keys
from jrs.records.codec import encode
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.attempts import Attempts
from jrs.recovery.leader.facts import Gatherer, Look
from jrs.recovery.leader.job_memory import JobMemory
from jrs.recovery.leader.pause import Pause
from jrs.recovery.leader.suspects import PROBATION, Probations
from jrs.store.jobs import JobCatalog
from jrs.testing.contract import lead
from tests.recovery.support import CLUSTER, FaultyMemory, leader_context, put, result, spec, spoil


def lost(gatherer: Gatherer, job_id: str) -> bool:
    """Gather the facts about a job; return whether it has lost its application."""
    look = gatherer.gather({job_id: JobMemory()}, {}, ())[job_id]
    assert isinstance(look, Look), look
    return look.facts.lost


@pytest.fixture
def woken() -> list[str]:
    """The jobs that the gatherer has had checked."""
    return []


@pytest.fixture
def gatherer(memory: FaultyMemory, root: Path, woken: list[str]) -> Iterator[Gatherer]:
    """Of a leader that knows of a running part of `app`; another part is new."""
    with lead(memory) as leadership:
        gatherer = Gatherer(
            leader_context(leadership, memory, JobStorage(root, CLUSTER)),
            Attempts(time.monotonic),
            count_leader_death=lambda spec, record: (None, 0.0),
            probations=Probations(PROBATION, time.monotonic),
            pause=Pause(memory),
            wake=woken.append,
        )
        for job_id in ("running", "new"):
            JobCatalog(memory).submit(spec(job_id, application="app"))
        assert not lost(gatherer, "running")
        yield gatherer


@pytest.mark.parametrize("first", ["app", "new"])
def test_the_end_of_an_application_wakes_each_of_its_parts(
    memory: FaultyMemory, gatherer: Gatherer, woken: list[str], first: str
) -> None:
    """Once, whether the application itself tells of it or a part that is new: a part that runs has
    no other news of it."""
    put(memory, keys.RESULTS + "app", result("app"))
    lost(gatherer, first)

    assert "running" in woken
    woken.clear()
    assert lost(gatherer, "new")
    assert lost(gatherer, "running")
    lost(gatherer, "app")
    assert "running" not in woken


def test_a_result_of_an_application_that_cannot_be_read(
    memory: FaultyMemory, gatherer: Gatherer, woken: list[str]
) -> None:
    """It does not tell that the application has ended; once it is restored, it does."""
    spoil(memory, keys.RESULTS + "app")
    lost(gatherer, "app")
    assert woken == []

    memory.overwrite(keys.RESULTS + "app", encode(result("app")))
    lost(gatherer, "app")
    assert woken == ["running"]
