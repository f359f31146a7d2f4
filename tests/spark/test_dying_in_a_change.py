"""A suspend or a rescale that is killed -9 at each of its steps ends as if nothing had happened."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from jrs import JobSpec
from jrs.records.model import JobStatus, StopMode, StopState
from jrs.records.policies import RestartPolicy
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.spark import rescaling
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops

from . import deadly_change as deadly
from . import doomed, events
from .conftest import Cluster
from .events import EXPECTED, Event, in_order, published, until_committed, until_or_ended
from .support import BOUND, left_over, marked

FILE = Path(deadly.__file__)
WANTED = 3
RESCALED = [
    ("", deadly.BETWEEN),
    ("asked", "copied", "rewritten"),
    ("quiesced", deadly.REWRITING, "synced"),
    ("noted", "not begun", "in its place", "not started"),
]
"""The steps at which the first attempt of a job dies while it suspends, and those at which the next
ones die while the job is rescaled."""
SUSPENDED = [("attempt", step) for step in deadly.SUSPENDING]
SUSPENDED += [("leader", step) for step in doomed.STEPS]
"""Who dies at which step of a suspend."""
SHORT = (RESCALED[0],)
"""Those that are died at wherever the tests are run; all of them are in the long form."""


def long_form(case: tuple[str, ...]) -> object:
    name = ", then ".join(step for step in case if step)
    return pytest.param(case, id=name, marks=[] if case in SHORT else [pytest.mark.soak])


def test_every_step_is_died_at() -> None:
    """The table of deaths in a rescale leaves no step out."""
    died_at = {step for steps in RESCALED for step in steps if step}

    assert died_at == {
        *deadly.SUSPENDING,
        *deadly.RESCALING,
        deadly.REWRITING,
        deadly.BETWEEN,
    }


def begin(cluster: Cluster, folder: Path, steps: Sequence[str]) -> list[Event]:
    """Start a job whose attempts die at `steps`; return the events that it has read by now. Some of
    its windows are published then, and others are in its state."""
    # The second file is so late that the first one's windows are over.
    rows = events.write(folder, 1) + events.write(folder, 1, first=3)
    often = RestartPolicy(attempts=len(steps) + 1, delay=0.0)
    spec = JobSpec(
        "job", f"{FILE}:changed", {"folder": str(folder), "steps": [*steps]}, restart=often
    )
    JobCatalog(cluster.masters.backend).submit(spec)
    until_or_ended(cluster, "job", lambda: published(cluster, "job", "one"), "it has published")
    return rows


def check_drained(cluster: Cluster, rows: list[Event], attempts: int) -> None:
    """Drain the job; check that it gives what one batch over all rows gives, and leaves nothing."""
    JobStops(cluster.masters.backend).request("job", StopMode.DRAIN)
    cluster.masters.until(lambda: cluster.results.has_entry("job"), "the job has ended", BOUND)
    result = cluster.results.wait("job", 0)

    assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
    assert result.attempt == attempts
    assert published(cluster, "job", "one") == in_order(EXPECTED["windows"](rows))

    cluster.until_clean("job")

    assert left_over(cluster.masters.backend, cluster.storage, "job") == []


@pytest.mark.parametrize("steps", [long_form(steps) for steps in RESCALED])
def test_a_rescale_survives(cluster: Cluster, tmp_path: Path, steps: tuple[str, ...]) -> None:
    """N6, S7: killed at these steps of a rescale, the job resumes where it was, with the requested
    partitions and each row once; nothing half-made is left next to its state.
    """
    folder = tmp_path / "in"
    cluster.masters.start("m")
    rows = begin(cluster, folder, steps)
    JobStops(cluster.masters.backend).reconfigure("job", partitions=WANTED)

    def checkpoint() -> Path:
        return next(cluster.storage.folder("job").glob("e*/streams/one/ck"), Path("nowhere"))

    until_or_ended(
        cluster, "job", lambda: rescaling.partitions(checkpoint()) == WANTED, "it is rescaled"
    )
    planned = position(checkpoint()).planned
    rows += events.write(folder, 1, first=4)
    until_committed(cluster, "job", "one", planned + 1)

    assert {path.name for path in checkpoint().parent.iterdir()} == {"ck", "root", "staging"}
    assert rescaling.partitions(checkpoint()) == WANTED

    rows += events.write(folder, 1, first=5)
    check_drained(cluster, rows, attempts=len(steps) + 1)


@pytest.mark.parametrize("case", [long_form(case) for case in SUSPENDED])
def test_a_suspend_survives(cluster: Cluster, tmp_path: Path, case: tuple[str, str]) -> None:
    """S1, S3: if the attempt or the leader is killed at this step of a suspend, the job is
    suspended and nothing of it runs. Resumed, it continues from there, each row once."""
    who, step = case
    folder, stops = tmp_path / "in", JobStops(cluster.masters.backend)
    if who == "leader":
        doom = [sys.executable, doomed.__file__, step]
        first = cluster.masters.start("doomed", prefix=doom)
        cluster.masters.leader()
        cluster.masters.start("next")
    else:
        cluster.masters.start("m")
    rows = begin(cluster, folder, [step] if who == "attempt" else [])
    stops.request("job", StopMode.SUSPEND)
    stop = stops.wait("job", BOUND)

    assert stop is not None
    assert (stop.mode, stop.state) == (StopMode.SUSPEND, StopState.DONE)
    assert JobCatalog(cluster.masters.backend).view("job").status is JobStatus.SUSPENDED
    assert marked(cluster.masters.backend, "job") == {}
    if who == "leader":
        cluster.masters.until(lambda: not first.alive, "the first leader is dead")

    rows += events.write(folder, 1, first=4)
    stops.resume("job")
    check_drained(cluster, rows, attempts=2)
