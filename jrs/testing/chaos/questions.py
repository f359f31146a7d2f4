"""The look-ups on a damaged store, and how each answer follows from the map."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.model import ResultState
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos.truth import State, Truth

FOLDERS = ("jobs/", "results/", "dirty/", "plain/", "tombstones/")
FRESH = "-new"
"""The end of the key of the record that is committed on the damaged store."""


@attrs.frozen
class Question:
    """A look-up: how to ask it, and how its answer follows from the map."""

    text: str
    ask: Callable[[Backend], Any]
    answer: Callable[[State], Any]


class Refusal(Exception):
    """A part of an answer that is refused."""


def questions(rng: random.Random, truth: Truth, *, few: bool = False) -> Iterator[Question]:
    """Yield look-ups of all kinds: 24, or 6 if `few`."""
    alive, once = truth.alive, truth.once
    gets, ids, pages = (4, 1, 1) if few else (14, 5, 4)
    for number in range(gets):
        kind = number % 7
        if kind == 5:
            key = rng.choice(once)
        elif kind == 6:
            key = f"{rng.choice(alive)}x"
        else:
            key = rng.choice(alive)
        yield _get(key)
    yield _get("last")
    for _ in range(ids):
        yield _has_entry(rng.choice(truth.jobs))
    for _ in range(pages):
        prefix = rng.choice(("", *FOLDERS))
        yield _page(prefix, rng.choice((None, rng.choice(alive))), rng.choice((5, 50)))


def _get(key: str) -> Question:
    return Question(f"get {key}", lambda backend: backend.get(key), lambda state: state.get(key))


def _has_entry(job: str) -> Question:
    def ask(backend: Backend) -> str | None:
        entry = JobResultStore(backend).get(job)
        if entry is not None and entry.problem:
            raise Refusal(entry.problem)
        return str(entry.state.value) if entry else None

    def answer(state: State) -> str | None:
        if keys.RESULTS + job in state:
            dirty = keys.DIRTY + job in state
            return str((ResultState.DIRTY if dirty else ResultState.CLEAN).value)
        return ResultState.EXPIRED.value if keys.TOMBSTONES + job in state else None

    return Question(f"entry of {job}", ask, answer)


def _page(prefix: str, after: str | None, limit: int) -> Question:
    """Ask for a page, without the record that was committed on the damaged store."""

    def ask(backend: Backend) -> list[Record]:
        found = backend.scan(prefix, after=after, limit=limit + 1)
        return [record for record in found if not record.key.endswith(FRESH)][:limit]

    def answer(state: State) -> list[Record]:
        behind = after or ""
        found = sorted(key for key in state if key > behind and key.startswith(prefix))
        return [state[key] for key in found[:limit]]

    return Question(f"page of {limit} of {prefix or 'all'} after {after}", ask, answer)
