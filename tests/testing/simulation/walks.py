"""Walks at random through what can come next, and compares the states that several of them reach.

``python -m tests.testing.simulation.walks FOLDER`` prints how many states were reached again. The
exit status is 1 if two walks reached states with the same digest, at which something else can come
next, or if two steps that have nothing to do with each other lead elsewhere in the other order.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from jrs.testing.simulation.exhaustive import begun, fork
from jrs.testing.simulation.exploration import Choice, Exploration
from jrs.testing.simulation.failover import Scenario

WALKS = 60
SCENARIO = Scenario(masters=2, jobs=1, stages=1, crashes=1, pauses=1, unknowns=1)


Found = tuple[str, Any, Any]
"""A state and what can come next there; or two states that have to be the same."""


def main() -> int:
    seen: dict[str, list[str]] = {}
    again = pairs = 0
    with begun(SCENARIO, Path(sys.argv[1]).absolute()) as run:
        run.settle()
        saved = run.files.save()
        for seed in range(WALKS):
            for kind, one, other in apart(partial(walk, run, Random(seed))):
                if kind == "pair":
                    pairs += 1
                    if one != other:
                        print("another order leads elsewhere:", one, other)
                        return 1
                    continue
                again += one in seen
                if seen.setdefault(one, other) != other:
                    print("the same state, and something else comes:", seen[one], other)
                    return 1
            run.files.restore(saved)
    print(f"states {len(seen)}, reached again {again}, pairs {pairs}")
    return 0 if again and pairs else 1


def apart(steps: Callable[[], Iterable[object]]) -> list[Any]:
    """Do something in a child, and return what it yields."""
    reading, writing = os.pipe()
    if not fork():
        try:
            with os.fdopen(writing, "w") as told:
                told.writelines(json.dumps(one) + "\n" for one in steps())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        found = [json.loads(line) for line in told]
    os.wait()
    return found


def walk(run: Exploration, rng: Random) -> Iterator[Found]:
    while not run.settle() and not run.is_over():
        choices = list(run.choices())
        if len(choices) > 1:
            yield "state", str(run.state()), [choice.says for choice in choices]
        if (pair := independent(choices)) and rng.random() < 0.2:
            saved = run.files.save()
            ends = []
            for order in (pair, pair[::-1]):
                ends += apart(partial(after, run, order))
                run.files.restore(saved)
            yield ("pair", *ends)
        calm = [one for one in choices if not re.search("is killed|is stopped|is lost", one.says)]
        rng.choice(calm if calm and rng.random() < 0.95 else choices).take()


def independent(choices: list[Choice]) -> list[Choice]:
    """Return two reads of different processes, if there are two: their order is no matter."""
    reads = {choice.says.partition(":")[0]: choice for choice in choices if choice.is_read}
    return list(reads.values())[:2] if len(reads) > 1 else []


def after(run: Exploration, order: list[Choice]) -> list[int]:
    """Take two choices; return the state that they lead to."""
    for choice in order:
        choice.take()
        run.settle()
    return [run.state()]


if __name__ == "__main__":
    sys.exit(main())
