"""Trace validation: a recorded history keeps the rules of the protocol.

The rules of `protocol` are folded over the commits of each job, in an order that fits all that is
known of its records: in each such order they have to hold. One rule looks at a single write: it has
a fence. Two rules are about all keys, that conditions hold and that epochs are current; the checks
`linearizable` and `fenced` have them, for in a recorded history not every version is known.

So a job is evaluated by its own records, here and on Spark. A commit that changes several jobs is
evaluated for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jrs.records import keys
from jrs.testing.chaos.checking.facts import ANY, Anomaly, Fact, Facts, What
from jrs.testing.chaos.checking.ordering import serial_order
from jrs.testing.chaos.checking.protocol import (
    OF_A_JOB,
    Commit,
    State,
    evaluate,
    is_fenced,
    observe,
)
from jrs.testing.chaos.checking.verdict import Run, check


@check
def protocol(run: Run) -> Iterator[Anomaly]:
    """Every commit keeps the rules of the protocol, given all commits before it."""
    yield from broken_rules(run.facts)


def broken_rules(facts: Mapping[str, list[Fact]]) -> Iterator[Anomaly]:
    """Yield what breaks the protocol; of a job, all keys are needed."""
    jobs: dict[str, Facts] = defaultdict(dict)
    for key, some in facts.items():
        if is_fenced(key):
            yield from _without_fence(key, some)
        if key.startswith(keys.PER_JOB):
            jobs[keys.job_of(key)][key] = some
    for job_id, of_job in jobs.items():
        yield from _of_job(job_id, of_job)


def _without_fence(key: str, facts: list[Fact]) -> Iterator[Anomaly]:
    for fact in facts:
        if fact.what is What.WRITE and fact.sure and fact.epoch is None:
            yield (
                f"a commit of {_process(fact.name)}: it writes {key} without a fence",
                (fact.name,),
            )


def _of_job(job_id: str, facts: Facts) -> Iterator[Anomaly]:
    """Fold the rules over the commits of a job."""
    commits = _commits_of(facts)
    unsure = [(key, fact) for some in commits.values() for key, fact in some
              if not fact.sure and fact.what is What.WRITE]  # fmt: skip
    read = {key: facts[key] for key, _ in unsure}
    order = serial_order(facts, read)
    if not order and any(fact.sure for some in commits.values() for _, fact in some):
        yield f"no order of the commits of {job_id} fits, so no rule could be checked", ()
        return
    reads = _reads_of(read)
    state = State(perhaps_deleted=frozenset(key for key, fact in unsure if fact.digest is None))
    for number, name in enumerate(order, 1):
        for key, fact in reads.get(name, ()):
            observe(state, key, fact.state, fact.digest)
        if name in commits:
            parts = [_part(key, fact) for key, fact in commits[name]]
            commit = Commit(number, _process(name), None, parts)
            for why in evaluate(state, commit, OF_A_JOB):
                yield f"a commit of {commit.process}: {why}", (name,)


def _commits_of(facts: Facts) -> dict[str, list[tuple[str, Fact]]]:
    """Return what each commit asked of these keys, by its name."""
    found: dict[str, list[tuple[str, Fact]]] = defaultdict(list)
    for key, some in facts.items():
        for fact in some:
            if fact.what is _WRITE or fact.what is _CHECK:
                found[fact.name].append((key, fact))
    return found


def _part(key: str, fact: Fact) -> list[Any]:
    """Return the part of a commit that a fact comes from, as a history has it."""
    state = fact.state
    if fact.what is not What.WRITE:
        return ["absent", key] if state is None else ["check", key, state]
    if fact.digest is None:
        return ["delete", key, None if state == ANY else state]
    return ["create", key, fact.digest] if state is None else ["update", key, fact.digest, state]


_WRITE, _CHECK = What.WRITE, What.CHECK


def _reads_of(facts: Facts) -> dict[str, list[tuple[str, Fact]]]:
    """Return what each operation has read of some keys, by its name. Where a write has an unknown
    outcome, and others wrote the same value, only reads show that it happened."""
    found: dict[str, list[tuple[str, Fact]]] = defaultdict(list)
    for key, some in facts.items():
        for fact in some:
            if fact.what is What.READ:
                found[fact.name].append((key, fact))
    return found


def _process(name: str) -> str:
    """Return the process of an operation."""
    return name.rpartition("#")[0]
