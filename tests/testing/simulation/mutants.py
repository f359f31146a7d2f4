"""Careless changes of the protocol's code, each of which the simulation has to find.

A mutant replaces a text of one module when it is imported; the text has to be there exactly once,
so a mutant whose code has changed fails loudly. ``python -m tests.testing.simulation.mutants NAME``
runs seeds with a mutant until one fails; with ``--exhaustive``, it goes through all states of small
scenarios.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

SEEDS = 400
"""Seeds that are tried."""
SCENARIO = {
    "jobs": 2,
    "dying": 1,
    "canceled": 1,
    "crashes": 3,
    "pauses": 2,
    "unknowns": 3,
    "most_steps": 25_000,
}


@attrs.frozen
class Mutant:
    """A careless change.

    Attributes:
        says: which one it is, in a sentence.
        parts: texts and what is put in their places.
    """

    name: str
    says: str
    module: str
    parts: tuple[tuple[str, str], ...]

    def changed(self, text: str) -> str:
        """Return the text of the module with the change in it."""
        for old, new in self.parts:
            assert text.count(old) == 1, f"{self.name}: {text.count(old)} times: {old}"
            text = text.replace(old, new)
        return text


def _mutant(name: str, says: str, module: str, *parts: str) -> Mutant:
    return Mutant(name, says, module, tuple(zip(parts[::2], parts[1::2], strict=True)))


STORE, RUN = "jrs.store.result_store", "jrs.recovery.attempt.run"
FENCE, RECORDS = "jrs.store.attempt_fence", "jrs.recovery.leader.attempt_records"
ATTEMPT, DECIDE = "jrs.recovery.attempt.attempt_run", "jrs.recovery.rules.decision"
ACTIONS, CLEANUP = "jrs.recovery.leader.actions", "jrs.recovery.cleanup.job_cleanup"
RESOURCES, RESULTS = "jrs.recovery.cleanup.job_records", "jrs.recovery.leader.results"
READ_BACK, FACTS = "jrs.contract.read_back", "jrs.recovery.leader.facts"
DISPATCHER = "jrs.recovery.leader.dispatcher"

MUTANTS = [
    _mutant(
        "result-without-marker",
        "A result is written without its mark as a dirty one.",
        STORE,
        '            Create(keys.DIRTY + job_id, b""),\n',
        "",
    ),
    _mutant(
        "fence-stays-open",
        "An attempt keeps its right to write when its result is written.",
        FENCE,
        "    return (Update(fence.attempt.key, NOBODY, fence.attempt.version),)",
        "    return ()",
    ),
    _mutant(
        "result-without-fence",
        "An attempt writes its result without a fence.",
        RUN,
        "(store.create_dirty, result, fence, also=ops)",
        "(store.create_dirty, result, None, also=ops)",
    ),
    _mutant(
        "result-under-the-epoch",
        "An attempt checks its leader's epoch, and not that it is still let in.",
        FENCE,
        "    return Fence(fence.epoch, fence.version, Check(stored.key, stored.version))",
        "    return Fence(fence.epoch, fence.version)",
    ),
    _mutant(
        "stage-without-fence",
        "A finished stage is recorded without a fence.",
        ATTEMPT,
        "self.context.backend, *creates, *conditions, *event, fence=self.context.fence\n",
        "self.context.backend, *creates, *conditions, *event\n",
    ),
    _mutant(
        "nobody-is-shut-out",
        "The attempt before is not shut out before the next one is let in.",
        FENCE,
        "    while ops := shut_out_ops(backend, job_id):",
        "    while ops := []:",
    ),
    _mutant(
        "start-as-it-was",
        "An attempt is started whatever has become of its job since that was decided.",
        RECORDS,
        "self._put(key, encode(record), version, *guards, *let_in, *event)",
        "self._put(key, encode(record), version, *let_in, *event)",
    ),
    _mutant(
        "let-in-first",
        "An attempt is let in by a commit before the one that records it.",
        RECORDS,
        "                self._put(key, encode(record), version, *guards, *let_in, *event)",
        "                self._backend.commit(*let_in, fence=self._fence)\n"
        "                self._put(key, encode(record), version, *guards, *event)",
    ),
    _mutant(
        "dirty-runs-again",
        "A job with a dirty result is started again.",
        DECIDE,
        "        return Decision(Action.CLEAN_UP, ",
        "        if facts.spec is Spec.READABLE and facts.attempt is not Attempt.RUNNING:\n"
        '            return Decision(Action.RECOVER, "starting")\n'
        "        return Decision(Action.CLEAN_UP, ",
    ),
    _mutant(
        "cancel-is-forgotten",
        "A request to cancel a job has no effect.",
        DECIDE,
        "    if facts.cancel:\n        return Decision(Action.CANCEL",
        "    if False:\n        return Decision(Action.CANCEL",
    ),
    _mutant(
        "stage-is-forgotten",
        "An attempt does not look whether a stage has finished.",
        ATTEMPT,
        "        return None if stored is None else decode(StageRecord, stored.value, stored.key)",
        "        return None",
    ),
    _mutant(
        "shut-out-without-fence",
        "A leader shuts an attempt out without checking that it still leads.",
        FENCE,
        "            backend.commit(*ops, fence=fence)",
        "            backend.commit(*ops)",
    ),
    _mutant(
        "death-without-fence",
        "A leader records what becomes of attempts without checking that it still leads.",
        RECORDS,
        "        commit_and_read_back(self._backend, op, *guards, fence=self._fence)",
        "        commit_and_read_back(self._backend, op, *guards)",
    ),
    _mutant(
        "spent-starts-again",
        "A job that has died as often as it may is started again.",
        DECIDE,
        "    if facts.attempt is Attempt.SPENT:",
        "    if False:",
    ),
    _mutant(
        "deaths-do-not-count",
        "A death is not added to those before it.",
        RECORDS,
        "        return spec.restart.deaths_after(before.deaths, ran, got_on=got_on)",
        "        return spec.restart.deaths_after(0, ran, got_on=got_on)",
    ),
    _mutant(
        "clean-first",
        "A result is marked clean before its job is cleaned up.",
        CLEANUP,
        "            before = journal.problems\n",
        "            self._store.mark_clean(job_id, fence)\n"
        "            before = journal.problems\n",
    ),
    _mutant(
        "clean-without-fence",
        "A result is marked clean without a fence.",
        CLEANUP,
        "self._store.mark_clean(job_id, fence, also=(*map(Delete, last), *also))",
        "self._store.mark_clean(job_id, None, also=(*map(Delete, last), *also))",
    ),
    _mutant(
        "stages-are-left",
        "The records of stages are not cleaned up.",
        RESOURCES,
        "(keys.HEADS, keys.STAGES, ",
        "(keys.HEADS, ",
    ),
    _mutant(
        "fences-are-left",
        "The record that lets an attempt in is not cleaned up.",
        RESOURCES,
        "    keys.FENCES,\n",
        "",
    ),
    _mutant(
        "spec-goes-at-the-start",
        "The spec of a job is removed when its attempt is recorded.",
        RECORDS,
        "        if not let_in:\n            return record, self._fence\n",
        "        from jrs.contract.operations import Delete\n"
        "        self._backend.commit(Delete(keys.JOBS + job_id), fence=self._fence)\n",
    ),
    _mutant(
        "failed-without-fence",
        "The leader writes the result of a job that failed without a fence.",
        RESULTS,
        "self._store.create_dirty(result, self._fence, also=(*also, *event))",
        "self._store.create_dirty(result, None, also=(*also, *event))",
    ),
    _mutant(
        "cancel-behind-the-back",
        "The result of a canceled job is written while its attempt may still write.",
        ACTIONS,
        "does not matter: the job ends here.\n            self._orphans.end(job_id)",
        "does not matter: the job ends here.\n            pass",
    ),
    _mutant(
        "unknown-is-done",
        "A commit of unknown outcome counts as done.",
        READ_BACK,
        "        if stored is None or stored.value != own.value:\n            raise\n\n\n"
        "def commit_again",
        "        pass\n\n\ndef commit_again",
    ),
    _mutant(
        "unknown-is-refused",
        "A commit of unknown outcome is repeated as if nothing had happened.",
        READ_BACK,
        "    try:\n        backend.commit(own, *others, fence=fence)\n"
        "    except OutcomeUnknown as unknown:",
        "    try:\n        try:\n            backend.commit(own, *others, fence=fence)\n"
        "        except OutcomeUnknown:\n"
        "            backend.commit(own, *others, fence=fence)\n"
        "    except OutcomeUnknown as unknown:",
    ),
    _mutant(
        "no-news",
        "The leader does not hear of changes, and looks only when it begins.",
        DISPATCHER,
        "        self._loop.post(lambda: self._heard(names))",
        "        pass",
        "        if self._clock() >= self._resync_at:",
        "        if False:",
    ),
    _mutant(
        "death-is-not-told",
        "The end of an attempt is not reported to the dispatcher.",
        DISPATCHER,
        "        return self._actions.start(spec, function, self._on_end(spec))",
        "        return self._actions.start(spec, function, lambda handle, ended: None)",
    ),
]
"""The mutants. The texts are those of the code as it is."""


class _Mutating(importlib.abc.MetaPathFinder):
    """Finds one module, with another text."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        text = self._mutant.changed(Path(spec.origin).read_text())
        loader = _Loader(name, spec.origin, text)
        return importlib.util.spec_from_loader(name, loader, origin=spec.origin)


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        self._text = text
        self._path = path

    def get_source(self, name: str) -> str:
        return self._text

    def get_filename(self, name: str) -> str:
        return self._path


def mutant_named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def put_in(mutant: Mutant) -> None:
    """Let the mutant's module be the changed one, when it is imported."""
    assert mutant.module not in sys.modules
    sys.meta_path.insert(0, _Mutating(mutant))


def hunt(seeds: range, scenario: dict[str, Any]) -> dict[str, Any]:
    """Run seeds in this process until one fails; return which one, after how long, and why."""
    from jrs.testing.simulation.failover import Scenario
    from jrs.testing.simulation.random_runs import simulate

    began = time.process_time()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            ended = simulate(seed, Scenario(**scenario), Path(folder))
        if ended.violations:
            return {
                "seed": seed,
                "seconds": round(time.process_time() - began, 2),
                "check": ended.violations[0].check,
                "message": ended.violations[0].message,
                "steps": ended.steps,
                "story": ended.story,
            }
    return {"seed": None, "seconds": round(time.process_time() - began, 2)}


def explore_all(states: int) -> dict[str, Any]:
    """Go through the states of small scenarios until one fails, and search the shortest run that
    does; return how long it took, and why it fails."""
    from jrs.testing.simulation.exhaustive import explore, shortest
    from jrs.testing.simulation.systematic import SMALL

    began = time.monotonic()
    for faults in ({}, {"unknowns": 1}, {"crashes": 1}, {"pauses": 1}):
        found = explore(attrs.evolve(SMALL, **faults), most=states)
        if found.violations:
            took = round(time.monotonic() - began, 2)
            best = shortest(attrs.evolve(SMALL, **faults), found, most=states)
            return {"faults": faults, "seconds": took, "steps": len(best.choices),
                    "first": len(found.choices), "message": best.violations[0],
                    "story": best.story}  # fmt: skip
    return {"faults": None, "seconds": round(time.monotonic() - began, 2)}


if __name__ == "__main__":
    put_in(mutant_named(sys.argv[1]))
    explores = sys.argv[2:] == ["--exhaustive"]
    print(json.dumps(explore_all(2_000) if explores else hunt(range(SEEDS), SCENARIO)))
