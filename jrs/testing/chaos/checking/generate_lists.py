"""Histories of lists without any fault, made of a seed: clients read some lists and append."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from jrs.testing.chaos.checking.generate import (
    ABSENT,
    Row,
    Shape,
    SimulatedMap,
    SimulatedProcess,
    events,
)
from jrs.testing.chaos.recorded import LISTS, Event

LONGEST = 60
"""How many elements a list gets, about. Then there are other lists."""


def list_rows(seed: int, shape: Shape, longest: int = LONGEST) -> Iterator[Row]:
    """Yield the events of a history; the two of an operation stand together."""
    yield from _Lists(Random(seed), shape, longest).rows()


def generated_lists(seed: int, shape: Shape, longest: int = LONGEST) -> list[Event]:
    """Return the events of a history of lists without any fault."""
    return events(list_rows(seed, shape, longest))


class _Lists(SimulatedMap):
    """Each process reads some lists, and then commits under the condition that they are as it has
    read them."""

    def __init__(self, random: Random, shape: Shape, longest: int) -> None:
        super().__init__(random, shape)
        self.longest_list = longest
        self.generation = 0
        self.read: dict[str, dict[str, tuple[int | None, str | None]]] = {}
        """What each process has read, but not yet committed to."""
        self._begin_lists()

    def _begin_lists(self) -> None:
        self.generation += 1
        self.prefix = f"{LISTS}{self.generation:05}/"
        self.keys = [f"{self.prefix}{number:02}" for number in range(self.shape.keys)]

    def _start(self) -> SimulatedProcess:
        self.started += 1
        return SimulatedProcess(f"c{self.started}.{self.started}")

    def rows(self) -> Iterator[Row]:
        random = self.random
        turns: list[int] = []
        for _ in range(self.shape.operations):
            turns = turns or random.sample(range(len(self.processes)), len(self.processes))
            place = turns.pop()
            process = self.processes[place]
            chance = random.random()
            if (read := self.read.pop(process.name, None)) is not None:
                if not (yield from self._commit(process, self._parts(read), None)):
                    self.processes[place] = self._start()
            elif chance < 0.1:
                yield from self._page(process)
            elif chance < 0.2:
                yield from self._get(process, random.choice(self.keys))
            else:
                yield from self._read_some(process)

    def _read_some(self, process: SimulatedProcess) -> Iterator[Row]:
        begun, ended = self._times(process)
        some = self.random.sample(self.keys, min(self.random.randint(1, 3), len(self.keys)))
        self.read[process.name] = {key: self.records.get(key, ABSENT) for key in some}
        read = [[key, *self.records.get(key, ABSENT)] for key in some]
        name, seq = process.name, process.seq
        yield name, seq, "invoke", "get_many", "", None, None, None, begun, ""
        yield name, seq, "ok", "get_many", "", read, None, None, ended, ""

    def _page(self, process: SimulatedProcess) -> Iterator[Row]:
        begun, ended = self._times(process)
        read = [[key, *self.records[key]] for key in self.keys if key in self.records]
        name, seq, prefix = process.name, process.seq, self.prefix
        yield name, seq, "invoke", "scan", prefix, None, None, None, begun, ""
        yield name, seq, "ok", "scan", prefix, [None, None, read], None, None, ended, ""

    def _parts(self, read: dict[str, tuple[int | None, str | None]]) -> list[list[Any]]:
        """Return a commit that appends to most of the lists that were read; to one at least."""
        parts: list[list[Any]] = []
        for number, (key, (version, text)) in enumerate(read.items()):
            if number and self.random.random() < 0.3:
                parts.append(["absent", key] if version is None else ["check", key, version])
                continue
            elements = [] if text is None else text.split()
            elements += [self._element() for _ in range(self.random.choice((1, 1, 2)))]
            if len(elements) >= self.longest_list and key in self.keys:
                self._begin_lists()
            new = " ".join(elements)
            parts.append(["create", key, new] if version is None else ["update", key, new, version])
        return parts

    def _element(self) -> str:
        self.values += 1
        return str(self.values)
