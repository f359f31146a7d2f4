"""Faults of the protocol to plant in histories that have none: each breaks one rule of it.

Each function writes the life of a job of its own, as `anomalies` does with keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from jrs.records import keys
from jrs.store.attempt_fence import NOBODY
from jrs.testing.chaos.checking.planted import Amid, Anomaly
from jrs.testing.chaos.recorded import digest

BROKEN_RULES: dict[str, Anomaly] = {}
"""All faults of the protocol, by their names."""


@attrs.define
class _Life:
    """The life of a job, step by step."""

    amid: Amid
    versions: dict[str, int] = attrs.field(factory=dict)

    def key(self, prefix: str) -> str:
        """Return a key of the job; a stage has a name, too."""
        key = prefix + self.amid.key.replace("/", "-")
        return f"{key}/first" if prefix == keys.STAGES else key

    def commit(self, *parts: list[Any], bare: bool = False) -> None:
        epoch, version, _ = max((1, 0, 0), *self.amid.leads)
        if bare:
            self.amid.commit(*parts)
        else:
            self.amid.commit(*parts, epoch=epoch, version=version)
        made = self.amid.next()
        self.versions.update((part[1], made) for part in parts if part[0] in ("create", "update"))

    def create(self, prefix: str) -> list[Any]:
        return ["create", self.key(prefix), f"the {prefix}"]

    def check(self, prefix: str) -> list[Any]:
        return ["check", self.key(prefix), self.versions.get(self.key(prefix), 1)]

    def delete(self, prefix: str) -> list[Any]:
        return ["delete", self.key(prefix), None]

    def shut_out(self) -> list[Any]:
        fence = self.key(keys.FENCES)
        return ["update", fence, digest(NOBODY), self.versions[fence]]

    def submit(self) -> None:
        self.commit(self.create(keys.JOBS), bare=True)

    def let_in(self) -> None:
        self.commit(self.create(keys.FENCES), self.create(keys.ATTEMPTS), self.check(keys.JOBS))

    def end(self) -> None:
        self.commit(self.create(keys.RESULTS), self.create(keys.DIRTY), self.shut_out())


def _breaks(plant: Callable[[_Life], None]) -> None:
    def planted(amid: Amid) -> None:
        plant(_Life(amid))

    BROKEN_RULES[plant.__name__] = Anomaly(plant.__name__, "protocol", planted)


@_breaks
def write_without_fence(life: _Life) -> None:
    life.commit(life.create(keys.GENERATIONS), bare=True)


@_breaks
def let_in_without_spec(life: _Life) -> None:
    life.let_in()


@_breaks
def let_in_behind_result(life: _Life) -> None:
    life.submit()
    life.commit(life.create(keys.RESULTS), life.create(keys.DIRTY))
    life.let_in()


@_breaks
def let_in_next_to_another(life: _Life) -> None:
    life.submit()
    life.let_in()
    fence, attempt = life.key(keys.FENCES), life.key(keys.ATTEMPTS)
    life.commit(
        ["update", fence, "another", life.versions[fence]],
        ["update", attempt, "another", life.versions[attempt]],
        life.check(keys.JOBS),
    )


@_breaks
def let_in_unrecorded(life: _Life) -> None:
    life.submit()
    life.commit(life.create(keys.FENCES), life.check(keys.JOBS))


@_breaks
def let_in_with_a_changed_spec(life: _Life) -> None:
    life.submit()
    life.commit(life.create(keys.FENCES), life.create(keys.ATTEMPTS))


@_breaks
def stage_without_its_fence(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.commit(life.create(keys.STAGES))


@_breaks
def stage_of_one_shut_out(life: _Life) -> None:
    life.submit()
    life.let_in()
    own = life.check(keys.FENCES)
    life.commit(life.shut_out())
    life.commit(life.create(keys.STAGES), own)


@_breaks
def stage_behind_result(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.end()
    life.commit(life.create(keys.STAGES), life.check(keys.FENCES))


@_breaks
def result_twice(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.end()
    result = life.key(keys.RESULTS)
    life.commit(["update", result, "another", life.versions[result]])


@_breaks
def result_that_is_not_dirty(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.commit(life.create(keys.RESULTS), life.shut_out())


@_breaks
def result_with_an_open_fence(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.commit(life.create(keys.RESULTS), life.create(keys.DIRTY))


@_breaks
def result_removed_without_tombstone(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.end()
    life.commit(life.delete(keys.JOBS), life.delete(keys.FENCES), life.delete(keys.ATTEMPTS))
    life.commit(life.delete(keys.DIRTY))
    life.commit(life.delete(keys.RESULTS))


@_breaks
def result_removed_while_it_is_dirty(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.end()
    life.commit(life.delete(keys.RESULTS), life.create(keys.TOMBSTONES))


@_breaks
def clean_without_result(life: _Life) -> None:
    life.commit(life.create(keys.DIRTY))
    life.commit(life.delete(keys.DIRTY))


@_breaks
def clean_before_it_is_cleaned_up(life: _Life) -> None:
    life.submit()
    life.let_in()
    life.end()
    life.commit(life.delete(keys.JOBS), life.delete(keys.FENCES))
    life.commit(life.delete(keys.DIRTY))


@_breaks
def spec_removed_before_the_end(life: _Life) -> None:
    life.submit()
    life.commit(life.delete(keys.JOBS))


@_breaks
def records_that_fit_no_order(life: _Life) -> None:
    spec = life.key(keys.JOBS)
    life.submit()
    old = life.versions[spec]
    life.commit(["update", spec, "new", old])
    life.amid.read(life.versions[spec], "new", spec)
    life.amid.read(old, f"the {keys.JOBS}", spec)
