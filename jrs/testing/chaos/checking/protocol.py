"""The protocol as a transition function: what each commit may change, given all commits before it.

In short. Epochs grow by one. A leader's commit checks its epoch, an attempt's also its own fence. A
client writes requests alone. Before an attempt is let in, the one before it is shut out; it is let
in by the commit that records it, while its job has a spec and no result. Only the attempt that is
let in finishes stages. A result is written once, dirty, and with it the attempt's fence is closed.
It becomes clean once nothing is left of the job, and its spec is removed only then or before that.
A clean result may be replaced by a tombstone, which keeps the job from running again.

The simulation folds the function over its commits; `traces` folds it over a recorded history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from jrs.contract.operations import EPOCH_KEY
from jrs.records import keys
from jrs.store.attempt_fence import NOBODY
from jrs.testing.chaos.recorded import digest

_NOBODY = digest(NOBODY)
_BY_ANYONE = (
    *(keys.JOBS, keys.CANCEL, keys.STOPS, keys.SNAPSHOTS, keys.RESTORES, keys.CLUSTER),
    *(keys.HISTORY, keys.MASTERS, keys.APPLICATIONS, keys.DOCTOR, keys.LINEAGE, keys.TAGGED),
    keys.FEED,
)
"""What may be written without a fence: requests, and what decides nothing."""
_BY_ATTEMPTS = (keys.STAGES, keys.STREAMS, keys.PLANS, keys.INPUTS)
"""What the attempt that is let in writes, and nobody else creates."""
_LEFT = tuple(prefix for prefix in keys.WHILE_IT_RUNS if prefix != keys.CLEANUP)


@attrs.frozen
class Commit:
    """An accepted commit.

    Attributes:
        number: its place in the order of commits; what it writes has this version.
        epoch: of its fence; None without a fence.
        parts: as in a recorded history.
    """

    number: int
    process: str
    epoch: int | None
    parts: list[list[Any]]


@attrs.define
class State:
    """The map as far as the protocol goes: versions and digests of its keys."""

    epoch: int = 0
    versions: dict[str, int] = attrs.field(factory=dict)
    values: dict[str, str] = attrs.field(factory=dict)
    epoch_version: int | None = None
    had_result: set[str] = attrs.field(factory=set)
    """The jobs that ever had a result."""
    perhaps_deleted: frozenset[str] = frozenset()
    """Keys that a commit of unknown outcome was to delete: they may be absent."""


Rule = Callable[[State, Commit], Iterator[str]]


def violations(
    commits: Iterable[Commit],
    rules: Sequence[Rule] | None = None,
    perhaps_deleted: frozenset[str] = frozenset(),
) -> Iterator[tuple[Commit, str]]:
    """Yield each commit that a rule forbids, and why; without `rules`, that any rule forbids."""
    state = State(perhaps_deleted=perhaps_deleted)
    for commit in commits:
        for why in evaluate(state, commit, RULES if rules is None else rules):
            yield commit, why


def evaluate(state: State, commit: Commit, rules: Sequence[Rule]) -> list[str]:
    """Return why rules forbid a commit, and bring the state up to it."""
    found = [why for rule in rules for why in rule(state, commit)]
    _apply(state, commit)
    return found


def observe(state: State, key: str, version: int | None, value: str | None) -> None:
    """Bring the state up to what a read shows of a key."""
    if version is None:
        state.versions.pop(key, None)
        state.values.pop(key, None)
        return
    state.versions[key] = version
    if key.startswith(keys.RESULTS):
        state.had_result.add(key.removeprefix(keys.RESULTS))
    if value is not None:
        state.values[key] = value


def is_fenced(key: str) -> bool:
    """Return whether each write of a key has to have a fence."""
    return key != EPOCH_KEY and not key.startswith(_BY_ANYONE)


def _apply(state: State, commit: Commit) -> None:
    for kind, key, *more in commit.parts:
        if kind in ("create", "update"):
            state.versions[key] = commit.number
            state.values[key] = more[0]
            if key.startswith(keys.RESULTS):
                state.had_result.add(key.removeprefix(keys.RESULTS))
            if key == EPOCH_KEY:
                state.epoch += 1
                state.epoch_version = commit.number
        elif kind == "delete":
            state.versions.pop(key, None)
            state.values.pop(key, None)


# -- the rules -----------------------------------------------------------------------------------


def conditions_hold(state: State, commit: Commit) -> Iterator[str]:
    """A commit is accepted only if all of its conditions hold."""
    for kind, key, *more in commit.parts:
        found = state.versions.get(key)
        if kind in ("create", "absent") and found is not None:
            yield f"{key} was to be absent, and was at version {found}"
        elif kind in ("update", "check") and found != more[-1]:
            yield f"{key} was to be at version {more[-1]}, and was at {found}"
        elif kind == "delete" and (found is None or more[0] not in (None, found)):
            yield f"{key} was to be at version {more[0]}, and was at {found}"


def epochs_are_current(state: State, commit: Commit) -> Iterator[str]:
    """A commit with a fence is of the newest epoch."""
    if commit.epoch is not None and commit.epoch != state.epoch:
        yield f"it is of epoch {commit.epoch}, and epoch {state.epoch} had begun"


def writes_are_fenced(state: State, commit: Commit) -> Iterator[str]:
    """A commit without a fence writes requests alone."""
    if commit.epoch is not None:
        return
    for key in _written(commit):
        if is_fenced(key):
            yield f"it writes {key} without a fence"


def attempts_are_let_in(state: State, commit: Commit) -> Iterator[str]:
    """An attempt is let in when its job has a spec and no result, by the commit that records it,
    and after the attempt before it was shut out."""
    for kind, key, *more in commit.parts:
        if kind not in ("create", "update") or not key.startswith(keys.FENCES):
            continue
        if more[0] == _NOBODY:
            continue
        job_id = key.removeprefix(keys.FENCES)
        if job_id in state.had_result or keys.TOMBSTONES + job_id in state.versions:
            yield f"an attempt of {job_id} is let in behind its result"
        if keys.JOBS + job_id not in state.versions:
            yield f"an attempt of {job_id} is let in, and it has no spec"
        if state.values.get(key, _NOBODY) != _NOBODY:
            yield f"an attempt of {job_id} is let in, and the one before it was not shut out"
        if keys.ATTEMPTS + job_id not in _written(commit):
            yield f"an attempt of {job_id} is let in, and not recorded"
        if not any(part[:2] == ["check", keys.JOBS + job_id] for part in commit.parts):
            yield f"an attempt of {job_id} is let in, although its spec may have changed"


def attempts_write_by_their_fence(state: State, commit: Commit) -> Iterator[str]:
    """Only the attempt that is let in finishes stages, and it checks that it is."""
    for kind, key, *_ in commit.parts:
        if kind != "create" or not key.startswith(_BY_ATTEMPTS):
            continue
        job_id = keys.job_of(key)
        fence = keys.FENCES + job_id
        checked = [part for part in commit.parts if part[0] == "check" and part[1] == fence]
        if not checked:
            yield f"{key} is written by an attempt that does not check whether it is let in"
        elif state.values.get(fence, _NOBODY) == _NOBODY:
            yield f"{key} is written, and no attempt is let in"
        if job_id in state.had_result:
            yield f"{key} is written behind the result"


def one_result(state: State, commit: Commit) -> Iterator[str]:
    """A job's result is created once, dirty, under a fence, and never changed; the attempt's right
    to write ends with it."""
    for kind, key, *_ in commit.parts:
        if not key.startswith(keys.RESULTS) or kind not in ("create", "update"):
            continue
        job_id = key.removeprefix(keys.RESULTS)
        if kind == "update" or job_id in state.had_result:
            yield f"{job_id} had a result before"
        if ["create", keys.DIRTY + job_id] not in [part[:2] for part in commit.parts]:
            yield f"the result of {job_id} is written, and not as a dirty one"
        fence = keys.FENCES + job_id
        holder = state.values.get(fence, _NOBODY)
        closes = any(part[:3] == ["update", fence, _NOBODY] for part in commit.parts)
        if holder != _NOBODY and not closes:
            yield f"the result of {job_id} is written, and its attempt may still write"


def results_leave_tombstones(state: State, commit: Commit) -> Iterator[str]:
    """A result is removed only by the commit that creates its tombstone, once it is clean."""
    for kind, key, *_ in commit.parts:
        if kind != "delete" or not key.startswith(keys.RESULTS):
            continue
        job_id = key.removeprefix(keys.RESULTS)
        if ["create", keys.TOMBSTONES + job_id] not in [part[:2] for part in commit.parts]:
            yield f"the result of {job_id} is removed, and leaves no tombstone"
        if keys.DIRTY + job_id in state.versions.keys() - state.perhaps_deleted:
            yield f"the result of {job_id} is removed, and it is dirty"


def clean_means_clean(state: State, commit: Commit) -> Iterator[str]:
    """A result becomes clean once it exists and nothing that only a running job needs is left."""
    deleted = {part[1] for part in commit.parts if part[0] == "delete"}
    for key in sorted(deleted):
        if not key.startswith(keys.DIRTY):
            continue
        job_id = key.removeprefix(keys.DIRTY)
        if keys.RESULTS + job_id not in state.versions:
            yield f"{job_id} becomes clean without a result"
        for left in _left_of(state, job_id):
            if left not in deleted:
                yield f"{job_id} becomes clean, and {left} is left"


def _left_of(state: State, job_id: str) -> Iterator[str]:
    for key in state.versions.keys() - state.perhaps_deleted:
        if key.startswith((*_LEFT, keys.JOBS)) and keys.job_of(key) == job_id:
            yield key


def specs_stay_until_the_end(state: State, commit: Commit) -> Iterator[str]:
    """The spec of a job is removed only behind its result."""
    for kind, key, *_ in commit.parts:
        if kind == "delete" and key.startswith(keys.JOBS):
            job_id = key.removeprefix(keys.JOBS)
            if job_id not in state.had_result:
                yield f"the spec of {job_id} is removed, and it has no result"


def _written(commit: Commit) -> list[str]:
    return [part[1] for part in commit.parts if part[0] in ("create", "update", "delete")]


OF_A_JOB: tuple[Rule, ...] = (
    attempts_are_let_in,
    attempts_write_by_their_fence,
    one_result,
    results_leave_tombstones,
    clean_means_clean,
    specs_stay_until_the_end,
)
"""The rules that look at the records of one job alone."""
RULES: tuple[Rule, ...] = (conditions_hold, epochs_are_current, writes_are_fenced, *OF_A_JOB)
"""All rules; docstrings say what each one demands."""
