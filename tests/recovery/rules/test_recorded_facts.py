"""What the records of a job tell if the disk may have lost one of them."""

from __future__ import annotations

import pytest

from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobSpec, JobStatus
from jrs.recovery.rules.decision import Action, Attempt, Facts, decide
from jrs.recovery.rules.recorded_facts import Stored, gathered

_RESULT = encode(JobResult("j", JobStatus.FINISHED, finished_at=1.0))


def action(stored: dict[str, Stored]) -> tuple[Action, tuple[str, ...]]:
    """Return what a leader does with the job of these records, and what it reports."""
    found = gathered("j", stored)
    decision = decide(
        Facts(
            spec=found.spec_fact,
            result=found.result,
            attempt=Attempt.NONE,
            cancel=found.cancel,
            stop=found.stop_fact(),
        )
    )
    return decision.action, found.problems


def records(*, ended: bool) -> dict[str, Stored]:
    """Return the records of a job that waits for its start, or has ended and is clean."""
    prefixes = (
        *(keys.JOBS, keys.APPLICATIONS, keys.RESULTS, keys.DIRTY, keys.CANCEL, keys.STOPS),
        *(keys.RESTORES, keys.TOMBSTONES),
    )
    stored: dict[str, Stored] = dict.fromkeys(prefixes)
    stored[keys.JOBS] = Record(keys.JOBS + "j", encode(JobSpec("j", "m:f")), 1)
    if ended:
        stored[keys.RESULTS] = Record(keys.RESULTS + "j", _RESULT, 2)
    return stored


@pytest.mark.parametrize(
    "prefix",
    [keys.JOBS, keys.RESULTS, keys.CANCEL, keys.STOPS, keys.RESTORES, keys.TOMBSTONES],
)
def test_a_record_that_may_be_lost_holds_its_job(prefix: str) -> None:
    """D2: damage holds every key that it may have hit. So a job is neither ended, nor canceled, nor
    restored over a record that perhaps never was there, nor started over one that was."""
    stored = records(ended=False)
    assert action(stored) == (Action.RECOVER, ())

    stored[prefix] = CorruptRecord(f"{prefix}j: damaged")

    assert action(stored) == (Action.HOLD, (f"{prefix}j: damaged",))


@pytest.mark.parametrize(
    ("prefix", "done"),
    [
        (keys.DIRTY, Action.CLEAN_UP),  # Repeating a cleanup is harmless.
        (keys.TOMBSTONES, Action.SKIP),  # A result never has one.
        (keys.CANCEL, Action.SKIP),
        (keys.STOPS, Action.SKIP),
    ],
)
def test_of_a_job_with_a_result_only_the_result_counts(prefix: str, done: Action) -> None:
    """D2: what has ended is never held for a record that no longer matters."""
    stored = records(ended=True)
    assert action(stored)[0] is Action.SKIP

    stored[prefix] = CorruptRecord(f"{prefix}j: damaged")

    assert action(stored)[0] is done
