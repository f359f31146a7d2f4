"""Reading what people write of chaos runs: nemeses in one line, names of checks, kept runs."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.testing.chaos.checking.jobs import (
    no_overlap,
    nothing_left,
    nothing_lost,
    once_per_job,
    once_per_stage,
    output_equals,
    undisturbed,
)
from jrs.testing.chaos.checking.list_append import list_append
from jrs.testing.chaos.checking.run_itself import NOTES, OF_THE_RUN
from jrs.testing.chaos.checking.store import fenced, linearizable, outcomes, serializable
from jrs.testing.chaos.checking.traces import protocol
from jrs.testing.chaos.checking.verdict import Check, Run
from jrs.testing.chaos.checking.watches import watched
from jrs.testing.chaos.faults import ALL, Nemesis
from jrs.testing.chaos.recorded import INCOMPLETE, events_of

CHECKS = {
    each.name: each
    for each in (
        *(once_per_job, once_per_stage, no_overlap, nothing_lost, nothing_left, *OF_THE_RUN),
        *(linearizable, serializable, list_append, fenced, outcomes, watched, protocol),
        output_equals(undisturbed),
    )
}
"""Every check, by its name; outputs are compared with those of a run without faults."""


def nemesis_of(text: str) -> Nemesis:
    """Return the nemesis that a text describes: ``kill(every=2) | pause(3, "attempt")``.

    Raises:
        InvalidInput: it names no nemesis, or gives it what it does not take.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body) if text.strip() else Nemesis()
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InvalidInput(
            f"not a nemesis: {shown(text)}: {error}; write nemeses joined by |, such as "
            f"'kill(every=2) | pause(3)', of: {', '.join(sorted(ALL))}"
        ) from None


def _value(node: ast.expr) -> Nemesis:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _value(node.left) | _value(node.right)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("a nemesis is written with parentheses")
    if node.func.id not in ALL:
        raise ValueError(f"there is no nemesis {node.func.id!r}")
    arguments = [ast.literal_eval(value) for value in node.args]
    named = {part.arg: ast.literal_eval(part.value) for part in node.keywords if part.arg}
    return ALL[node.func.id](*arguments, **named)


def checks_of(names: Sequence[str]) -> list[Check]:
    """Return the checks of these names, and those of the run itself; all, if there are none.

    Raises:
        InvalidInput: there is no such check.
    """
    unknown = sorted(set(names) - CHECKS.keys())
    if unknown:
        raise InvalidInput(f"there is no check {unknown[0]!r}: {', '.join(CHECKS)}")
    if not names:
        return list(CHECKS.values())
    return list(dict.fromkeys([*(CHECKS[name] for name in names), *OF_THE_RUN]))


def asked_for(checks: Iterable[Check], notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notes of a run with the checks that it is asked for; `repeated` makes those. They
    lack what is expected of a job if it is not the same in JSON, such as a tuple."""
    names, expected = list(notes.get("checks", ())), dict(notes.get("expected", {}))
    for one in checks:
        names.append(one.name)
        expected |= {name: value for name, value in one.expected.items() if _is_json(value)}
    return {**notes, "checks": list(dict.fromkeys(names)), "expected": expected}


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (ValueError, TypeError, RecursionError):
        return False


def repeated(names: Sequence[str], notes: Mapping[str, Any]) -> list[Check]:
    """Return the checks of these names, with what the run expected of its jobs. If there are no
    names, return those that it was asked for, as far as they have names; or else all.

    Raises:
        InvalidInput: there is no such check.
    """
    found = checks_of(names or [name for name in notes.get("checks", ()) if name in CHECKS])
    if not (expected := notes.get("expected")):
        return found
    given = output_equals(expected)
    both = (given, CHECKS[given.name]) if undisturbed in notes else (given,)
    return [two for one in found for two in (both if one.name == given.name else (one,))]


def history_in(folder: Path) -> Path:
    """Return the folder with the history of a run that is kept in a folder.

    Raises:
        InvalidInput: it holds none, or those of several clusters.
    """
    history = folder / "history" if (folder / "history").is_dir() else folder
    found = sorted({path.parent for path in history.glob("**/*")
                    if path.suffix in (".jsonl", INCOMPLETE)})  # fmt: skip
    if not found:
        raise InvalidInput(f"{folder} has no history: name the folder of a chaos run")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InvalidInput(f"{folder} has the histories of several clusters: name one of {names}")
    return found[0]


def run_of(folder: Path) -> Run:
    """Return the run that is kept in a folder.

    Raises:
        InvalidInput: it holds none, or one that cannot be read.
    """
    history = history_in(folder)
    notes = folder / NOTES
    try:
        events = events_of(history)
        return Run(events, json.loads(notes.read_text()) if notes.exists() else {})
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"the history in {folder} cannot be read: {shown(error)}") from None
