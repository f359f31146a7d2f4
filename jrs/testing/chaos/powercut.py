"""The power-cut simulator: opens and reads every disk state that a power cut could leave.

    python -m jrs.testing.chaos.powercut --cases 30 --seed 1 --resume powercut.jsonl

A case is a recorded history of commits, compactions and leaderships of two handles, with some
hundreds of disk states after each system call. Every commit that was acknowledged, or seen by the
second handle, must exist. Each commit that was under way exists as a whole or not at all. The store
must open and accept another commit. Otherwise the exit status is 1.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.backends.file.backend import FileBackend
from jrs.contract.backend import Backend
from jrs.contract.errors import JrsError
from jrs.contract.operations import Create
from jrs.testing.chaos import runs
from jrs.testing.chaos.crashes import Crash, Tree, crashes
from jrs.testing.chaos.disk import Event, Note
from jrs.testing.chaos.figures import scratch
from jrs.testing.chaos.runs import Run, Tally
from jrs.testing.chaos.workload import ACKNOWLEDGED, BEGUN, Commit, History, Values, record

_MODULE = "jrs.testing.chaos.powercut"
NEVER = ("lost", "refused", "raw", "alarms")
"""The counts that must be 0: an acknowledged commit is missing, or the map is impossible; the store
cannot be opened, read or written; an exception other than `JrsError`; `Backend.check` reports
damage."""
COUNTED = ("cases", "events", "states", *NEVER)

_STEPS = 26
"""Steps of a history."""
_MOST = 40
"""Most states that are tried after one event."""


def run_case(seed: int, case: int, folder: Path, most: int = _MOST) -> Tally:
    """Record a history and open every disk state that a power cut during it could leave.

    Args:
        folder: an empty folder for the stores.
        most: states that are tried after one event.

    Raises:
        RuntimeError: a write bypassed the recorder, so its states would be meaningless.
    """
    origin = folder / "recorded"
    origin.mkdir()
    history = record(random.Random(f"{seed}:{case}"), origin)
    tally = Tally()
    tally.counts.update(cases=1, events=len(history.events))
    rng = random.Random(f"{seed}:{case}:crashes")
    for number, crash in enumerate(crashes(history.events, rng, most)):
        root = folder / str(number)
        lay_out(crash.tree, root)
        tally.counts["states"] += 1
        for kind, what in evaluate(root, crash, history):
            tally.note(case, kind, f"after event {crash.at}: {crash.how}", what)
        shutil.rmtree(root)
    return tally


def lay_out(tree: Tree, root: Path) -> None:
    """Write a disk's content to the new folder `root`."""
    root.mkdir(mode=0o700)
    for path, data in tree.items():
        if data is None:
            (root / path).mkdir(mode=0o700)
        else:
            (root / path).write_bytes(data)


def simulate(
    seed: int,
    cases: range,
    *,
    workers: int = 2,
    most: int = _MOST,
    resume: Path | None = None,
    report: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Evaluate the power cuts of many histories in separate processes; return the tally.

    Args:
        most: states that are tried after one event.
        resume: a file with the histories that were evaluated before; new ones are appended.
        report: called with the whole tally after each history.
    """
    arguments = ["--seed", str(seed), "--most", str(most)]
    return Run(_MODULE, arguments, cases, chunk=1, workers=workers, resume=resume).tally(report)


def evaluate(root: Path, crash: Crash, history: History) -> Iterator[tuple[str, str]]:
    """Yield the kind and a description of each problem of the store at `root`."""
    events, commits = history.events[: crash.at], history.commits
    try:
        with FileBackend(root) as backend:
            found = _contents(backend)
            if found not in _possible(events, commits):
                yield "lost", _difference(found, events, commits)
            if named := list(backend.check()):
                yield "alarms", named[0]
            backend.commit(Create("after/the-cut", b"1"))
            with FileBackend(root) as other:
                if _contents(other) != found | {"after/the-cut": b"1"}:
                    yield "lost", "what was committed after the power cut"
    except JrsError as error:
        yield "refused", f"{type(error).__name__}: {error}"
    except Exception as error:
        yield "raw", f"{type(error).__name__}: {error}"


# -- inside --------------------------------------------------------------------------------


def _contents(backend: Backend) -> Values:
    return {record.key: record.value for record in backend.scan("")}


def _marked(events: list[Event]) -> tuple[set[int], set[int]]:
    """Return the acknowledged commits, and the commits that were under way."""
    acknowledged = {e.number for e in events if isinstance(e, Note) and e.what == ACKNOWLEDGED}
    begun = {e.number for e in events if isinstance(e, Note) and e.what == BEGUN}
    return acknowledged, begun - acknowledged


def _possible(events: list[Event], commits: list[Commit]) -> list[Values]:
    """Return every allowed map: all acknowledged commits, and any of those under way."""
    acknowledged, under_way = _marked(events)
    possible = []
    for size in range(len(under_way), -1, -1):
        for chosen in itertools.combinations(sorted(under_way), size):
            possible.append(_applied(acknowledged.union(chosen), commits))
    return possible


def _applied(numbers: set[int], commits: list[Commit]) -> Values:
    values: Values = {}
    for number in sorted(numbers):
        for key, value in commits[number].items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
    return values


def _difference(found: Values, events: list[Event], commits: list[Commit]) -> str:
    acknowledged, under_way = _marked(events)
    expected = _applied(acknowledged, commits)
    missing = sorted(key for key in expected if key not in found)
    other = sorted(key for key in found if found[key] != expected.get(key))
    return f"{len(under_way)} commits were under way; missing {missing}, other {other}"


def main() -> int:
    parser = runs.parser(_MODULE, 30)
    parser.add_argument("--most", type=int, default=_MOST,
                        help="states tried after one event (default: %(default)s)")  # fmt: skip
    given = parser.parse_args()
    cases = range(given.first, given.first + given.cases)
    if given.worker:
        for case in cases:
            with tempfile.TemporaryDirectory(prefix="jrs-powercut-", dir=scratch()) as folder:
                runs.work(
                    range(case, case + 1),
                    lambda number: run_case(given.seed, number, Path(folder), given.most),
                )
        return 0
    return runs.show(
        lambda report: simulate(
            given.seed, cases, workers=given.workers, most=given.most, resume=given.resume,
            report=report,
        ),
        NEVER, COUNTED, given.show,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
