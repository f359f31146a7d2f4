"""The thread that notices stops: nothing ends it but the end of the job's function."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobSpec, StopMode, StopState
from jrs.recovery.attempt import stop_watcher
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.stop_watcher import StopWatcher
from jrs.store.stops import JobStops
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory
from tests.support import until


def test_a_fault_is_said_and_the_stop_is_carried_out(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that had died of it would have left a job that nobody can drain or suspend."""
    lead = Lead(memory, tmp_path / "jobs")
    memory.commit(Create(keys.JOBS + "job", encode(JobSpec("job", "m:f"))))
    run, said, faults = AttemptRun(lead.context()), list[str](), [ZeroDivisionError("a fault")] * 2
    object.__setattr__(run.context, "on_report", lambda report: said.append(report.message))
    suspend = run.suspend

    def fails_at_first() -> None:
        if faults:
            raise faults.pop()
        suspend()

    monkeypatch.setattr(run, "suspend", fails_at_first)
    monkeypatch.setattr(stop_watcher, "_LOOK", 0.01)
    stops = JobStops(memory)
    with StopWatcher(run):
        stops.request("job", StopMode.SUSPEND)

        def state() -> StopState | None:
            found = stops.get("job")
            return None if found is None else found.state

        until(lambda: state() is StopState.QUIESCED, "the job has come to rest")

    assert [text for text in said if "a stop is not carried out: ZeroDivisionError" in text]
    assert len(said) == 1
