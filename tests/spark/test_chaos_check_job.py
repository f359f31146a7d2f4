"""The checks of a history as a job: its verdict is that of plain Python, whatever fails over."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput
from jrs.testing.chaos import (
    Plan,
    World,
    begun,
    fenced,
    kill,
    linearizable,
    no_overlap,
    nothing_left,
    nothing_lost,
    once_per_job,
    once_per_stage,
    output_equals,
    protocol,
    watched,
)
from jrs.testing.chaos.checking.anomalies import ANOMALIES
from jrs.testing.chaos.checking.broken_rules import BROKEN_RULES
from jrs.testing.chaos.checking.generate import generated
from jrs.testing.chaos.checking.job import check
from jrs.testing.chaos.checking.verdict import Run

from .support import BOUND

CHECKS = (linearizable, protocol, watched)


def broken_history(folder: Path) -> Run:
    """Keep a history with faults of several kinds in a folder; return it as a run."""
    events = generated(1)
    for fault in ("stale_read", "unreported_change"):
        events = ANOMALIES[fault].planted(events, 1)
    events = BROKEN_RULES["result_twice"].planted(events, 1)
    folder.mkdir()
    (folder / "p.1.jsonl").write_bytes(b"".join(event.to_line() for event in events))
    return Run(events)


@pytest.mark.timeout(4 * BOUND)
def test_a_verdict_survives_its_leader(tmp_path: Path) -> None:
    """The leader is killed in the middle of the checks. Each stage has finished once, and the
    verdict is the plain one."""
    history = tmp_path / "history"
    run = broken_history(history)
    found = {each.name: sorted(map(str, each.violations(run))) for each in CHECKS}
    assert all(found.values())
    expected = {
        "checks": {name: len(some) for name, some in found.items()},
        "violations": [line for some in found.values() for line in some],
        "whole": True,
    }

    with World(Plan(masters=2, seconds=BOUND, timeout=BOUND), "file", tmp_path / "run") as world:
        world.submit("verdict", check, history=history, checks=list(found))
        world.until_stage("verdict", "protocol", begun, timeout=BOUND)
        assert world.strike(kill("leader"))
        run = world.check(
            *(once_per_job, once_per_stage, no_overlap, nothing_lost, nothing_left),
            *(fenced, linearizable, output_equals({"verdict": expected})),
        )

    assert run.notes["ended"]["verdict"]["status"] == "FINISHED"
    assert sum(event.f == "campaign" and event.type == "ok" for event in run.events) >= 2


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no check on Spark is called 'nothing_left'"):
        check(None, "/tmp", ["nothing_left"])  # type: ignore[arg-type]  # It is not asked for.
