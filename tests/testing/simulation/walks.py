"""Walks at random through what can come next, and compares the states that several of them reach.

``python -m tests.testing.simulation.walks FOLDER`` prints how many states were reached again. The
exit status is 1 if two walks reached states with the same digest, at which something else can come
next, or from which the same step leads elsewhere; or if two steps that do not use the same things
lead elsewhere in the other order.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from jrs.testing.simulation.exploration import Choice, Exploration
from jrs.testing.simulation.explored import Use
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.independence import are_in_conflict
from jrs.testing.simulation.ways import begun, fork

WALKS = 60
SCENARIO = Scenario(masters=2, jobs=1, stages=1, crashes=1, pauses=1, unknowns=1)


Found = tuple[str, Any, Any]
"""A state and what can come next there; or a state with a step, and where that leads; or two states
that have to be the same."""


def main() -> int:
    seen: dict[str, object] = {}
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
                    print("the same state, and something else comes:", one, seen[one], other)
                    return 1
            run.files.restore(saved)
    print(f"states and steps {len(seen)}, reached again {again}, pairs {pairs}")
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
    before = ""
    while not run.settle() and not run.is_over():
        choices, state = list(run.choices()), str(run.state())
        if before:
            yield "step", before, state
        if len(choices) > 1:
            yield "state", state, [choice.says for choice in choices]
        requests = [choice for choice in choices if choice.is_request]
        if len(requests) > 1 and rng.random() < 0.1:
            saved = run.files.save()
            pair = rng.sample(requests, 2)
            ends = []
            for order in (pair, pair[::-1]):
                ends += apart(partial(after, run, order))
                run.files.restore(saved)
            (*used, one), (*_, other) = ends
            if not any(are_in_conflict(a, b) for a, b in product(*map(as_uses, used))):
                yield "pair", one, other
        calm = [one for one in choices if not re.search("is killed|is stopped|is lost", one.says)]
        chosen = rng.choice(calm if calm and rng.random() < 0.95 else choices)
        before = f"{state}: {chosen.says}"
        chosen.take()


def as_uses(used: list[list[str]]) -> list[Use]:
    return [(how, what) for how, what in used]


def after(run: Exploration, order: list[Choice]) -> list[Any]:
    """Take two choices; return what each of them uses, and the state that they lead to."""
    used = []
    for choice in order:
        now = run.scheduler.now
        run.scheduler.used.clear()
        choice.take()
        run.settle()
        time_has_passed = run.scheduler.now > now
        passing = [("w", "time")] if time_has_passed else [("r", "time")]
        used.append([*sorted(run.scheduler.used), ("step", str(choice.owner)), *passing])
    return [[*used, run.state()]]


if __name__ == "__main__":
    sys.exit(main())
