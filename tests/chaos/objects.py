"""Jobs without Spark for tests whose storage has objects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jrs


def pipeline(job: jrs.Job, stages: int, gate: str = "", fault: str = "") -> dict[str, Any]:
    """Write a file in each stage, and read those of all earlier ones.

    The fourth stage fails for as long as the file `fault` is there.
    """
    done: list[jrs.FinishedStage[int]] = []
    for number in range(stages):

        def write(stage: jrs.Stage, number: int = number) -> int:
            before = [int((one.output / "n.txt").read_text()) for one in done]
            (stage.output / "n.txt").write_text(str(number + sum(before)))
            wait_for(gate, number)
            if number == 3 and fault and Path(fault).exists():
                raise ValueError("there is a fault")
            return number

        done.append(job.stage(f"s{number}", write, temporary=number % 2 == 1))
    return {"sum": sum(int((one.output / "n.txt").read_text()) for one in done)}


def publishing(job: jrs.Job, target: str) -> dict[str, Any]:
    """Write a file in a stage, and publish it."""
    done = job.stage("one", lambda stage: (stage.output / "n.txt").write_text("15"))
    published: dict[str, Any] = job.publish(target, done).result()
    return published


def wait_for(gate: str, number: int) -> None:
    """Wait in a stage until the test lets it continue, if it has a gate."""
    closed = Path(f"{gate}.{number}.closed")
    while gate and closed.exists():
        Path(f"{gate}.{number}.reached").touch()
        time.sleep(0.01)


def expected(stages: int) -> int:
    """Return what `pipeline` sums up."""
    values: list[int] = []
    for number in range(stages):
        values.append(number + sum(values))
    return sum(values)
