"""The checks of a large history as a job of jrs, which survives failovers.

    jrs submit verdict jrs.testing.chaos.checking.job:check --arg history=/data/history

Its stages are the steps: the table of the history, each check on Spark, and the verdict. An attempt
that comes after a failover resumes behind the last stage that has finished.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jrs.contract.errors import InvalidInput
from jrs.recovery.attempt.job import FinishedStage, Job, Stage
from jrs.testing.chaos.checking.on_spark import CHECKS, violations
from jrs.testing.chaos.checking.run_itself import wrong_with
from jrs.testing.chaos.checking.tables import to_parquet
from jrs.testing.chaos.checking.verdict import Check, Violation
from jrs.testing.chaos.reading import history_in

_SHOWN = 100
"""How many violations the result names; the output of the job has all of them."""
_FOUND = "violations.jsonl"


def check(job: Job, history: str, checks: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the verdict on a history, as a job.

    Args:
        history: the folder of a run or of its history, or of a table that `to_parquet` has made.
            All hosts that may run the job, and the workers of Spark, have to see it there.
        checks: the names of some checks; by default all that run on Spark.

    Returns:
        ``checks``, with the number of violations of each, and of the run itself, if its folder is
        given and anything was wrong with it; ``violations``, the first ones in words;
        and ``whole``, whether these are all. The output of the stage ``verdict`` has every one,
        with the operations that prove it, as lines of JSON.

    Raises:
        InvalidInput: there is no such check, no history, or one of several clusters.
    """
    wanted = _checks_of(checks)
    place = Path(history)
    if any(place.glob("*.parquet")):
        table, after = (lambda: place), []
    else:
        made = job.stage("table", lambda stage: _make_table(stage, place), temporary=True)
        table, after = (lambda: made.output), [made]
    evaluated = [
        job.stage(each.name, _judging(each, table), after=after, temporary=True) for each in wanted
    ]
    verdict = job.stage("verdict", lambda stage: _verdict(stage, evaluated, place), after=evaluated)
    return verdict.result()


def _checks_of(names: Sequence[str] | None) -> list[Check]:
    known = {each.name: each for each in CHECKS}
    unknown = sorted(set(names or ()) - known.keys())
    if unknown:
        raise InvalidInput(f"no check on Spark is called {unknown[0]!r}: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def _make_table(stage: Stage, history: Path) -> None:
    to_parquet(history_in(history), stage.output)


def _judging(check: Check, table: Callable[[], Path]) -> Callable[[Stage], int]:
    """Return the function of the stage that runs a check."""

    def evaluate(stage: Stage) -> int:
        found = violations(stage.spark, table(), [check])
        with (stage.output / _FOUND).open("w") as lines:
            for one in sorted(found, key=str):
                lines.write(_line(one))
        return len(found)

    return evaluate


def _verdict(
    stage: Stage, evaluated: Sequence[FinishedStage[int]], history: Path
) -> dict[str, Any]:
    of_the_run = wrong_with(history)
    shown = list(map(str, of_the_run))
    with (stage.output / _FOUND).open("w") as found:
        found.writelines(map(_line, of_the_run))
        for each in evaluated:
            with (each.output / _FOUND).open() as lines:
                for line in lines:
                    found.write(line)
                    if len(shown) < _SHOWN:
                        one = json.loads(line)
                        shown.append(f"{one['check']}: {one['message']}")
    counts = {each.name: each.result() for each in evaluated}
    counts |= Counter(one.check for one in of_the_run)
    return {"checks": counts, "violations": shown, "whole": sum(counts.values()) == len(shown)}


def _line(one: Violation) -> str:
    return json.dumps({"check": one.check, "message": one.message, "calls": one.calls}) + "\n"
