"""The checks of jobs: each ends once, runs once at a time, and leaves what it should."""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from jrs.contract.errors import Fenced, InvalidInput
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.testing.chaos.checking.facts import Anomaly, Fact, What
from jrs.testing.chaos.checking.presence import created_again
from jrs.testing.chaos.checking.verdict import Check, Run, check
from jrs.testing.chaos.recorded import Call, Kind, Verb


def _of(facts: Mapping[str, list[Fact]], prefix: str) -> Iterator[tuple[str, list[Fact]]]:
    """Yield the job, or the job and the stage, of each key under a prefix, and what is known."""
    for key, some in facts.items():
        if key.startswith(prefix):
            yield key.removeprefix(prefix), some


def job_of(key: str) -> str:
    """Return the job of a key that has one, or else the key."""
    return keys.job_of(key) if key.startswith(keys.PER_JOB) else key


JUDGED = (keys.JOBS, keys.RESULTS, keys.TOMBSTONES, keys.ATTEMPTS)
"""The prefixes whose keys the checks of this module evaluate together, by job."""


def _written(facts: list[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact.what is What.WRITE and fact.digest is not None]


def _deletes(facts: list[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact.what is What.WRITE and fact.digest is None]


def _proof(facts: list[Fact]) -> Fact | None:
    """Return the first that proves that a key has had a value: a write that is known to have
    happened, or a read, also of what several commits may have written."""
    proofs = (
        fact for fact in facts
        if fact.digest is not None
        and (fact.what is What.READ or (fact.what is What.WRITE and fact.sure))
    )  # fmt: skip
    return min(proofs, key=lambda fact: fact.ended, default=None)


def _has(prefix: str) -> Callable[[Run], bool]:
    """Return what tells whether any key under a prefix has had a value."""
    return lambda run: any(_proof(some) is not None for _, some in _of(run.facts, prefix))


def _has_attempts(run: Run) -> bool:
    return bool(attempts_of(run))


@functools.partial(check, able=_has(keys.RESULTS))
def once_per_job(run: Run) -> Iterator[Anomaly]:
    """Every job has at most one result, and no attempt of it begins behind that."""
    yield from results_of(run.facts, attempts_of(run))


def results_of(
    facts: Mapping[str, list[Fact]], attempts: Iterable[RunningAttempt]
) -> Iterator[Anomaly]:
    """Yield the jobs that end twice, or are attempted when they have ended."""
    running: dict[str, list[RunningAttempt]] = defaultdict(list)
    for attempt in attempts:
        running[attempt.job_id].append(attempt)
    for job_id, some in _of(facts, keys.RESULTS):
        # A tombstone forbids what its result did, so all of this holds behind an expiry, too.
        results = [fact for fact in _written(some) if fact.sure]
        if len({fact.digest for fact in results}) > 1:
            yield f"{job_id} has two results", tuple(fact.name for fact in results)
        seen = {fact.digest: fact for fact in some if fact.what is What.READ and fact.digest}
        if len(seen) > 1:
            yield (
                f"two results of {job_id} were seen",
                tuple(fact.name for fact in seen.values()),
            )
        proof = _proof(some)
        if proof is None:
            continue
        recorded = proof.ended
        for fact in _written(facts.get(keys.ATTEMPTS + job_id, [])):
            if fact.sure and fact.begun > recorded:
                yield (
                    f"an attempt of {job_id} was recorded behind its result",
                    (proof.name, fact.name),
                )
        for attempt in running[job_id]:
            if attempt.begun > recorded:
                yield f"an attempt of {job_id} began behind its result", (attempt.call,)


@functools.partial(check, able=_has(keys.STAGES))
def once_per_stage(run: Run) -> Iterator[Anomaly]:
    """Every stage of a job is recorded as finished at most once, until it is cleaned up."""
    yield from stages_of(run.facts)


def stages_of(facts: Mapping[str, list[Fact]]) -> Iterator[Anomaly]:
    """Yield the stages that finish twice."""
    for stage, some in _of(facts, keys.STAGES):
        if (finished := created_again(some)) is not None:
            yield f"stage {stage} finished twice", tuple(fact.name for fact in finished)


SHUT_OUT = Fenced.__name__
"""The error of a commit that the fence refuses."""


@attrs.frozen
class RunningAttempt:
    """An attempt, until its last sign of life. It begins with its first sign, or its first commit
    if a whole process is the attempt, for that knows no job before. A commit that the fence refuses
    begins nothing: the attempt was shut out in time."""

    process: str
    job_id: str
    epoch: int
    begun: int
    ended: int
    call: str
    """The name of the operation with which it begins."""


def attempts_of(run: Run) -> list[RunningAttempt]:
    """Return the attempts, in the order of their beginnings."""
    last: dict[str, int] = {}
    in_threads: dict[tuple[str, str, int | None], RunningAttempt] = {}
    for event in run.events:
        if event.f is Verb.ALIVE and event.key:
            one = event.process, event.key, event.version
            first = in_threads.get(one) or RunningAttempt(
                event.process, event.key, event.epoch or 0, event.t, event.t,
                f"{event.process}#{event.seq}",
            )  # fmt: skip
            in_threads[one] = attrs.evolve(first, ended=event.t)
        elif event.f is Verb.ALIVE or event.process in last:
            last[event.process] = event.t
    return attempts_in(run.calls if last else (), last, in_threads.values())


def attempts_in(
    calls: Iterable[Call], last: Mapping[str, int], in_threads: Iterable[RunningAttempt]
) -> list[RunningAttempt]:
    """Return the attempts in threads, and those among operations; `last` has the last sign of life
    of each process that is an attempt."""
    found: dict[str, RunningAttempt] = {}
    own = (call for call in calls if call.f is Verb.COMMIT and call.process in last)
    begin = (call for call in own if call.error != SHUT_OUT)
    for call in sorted(begin, key=lambda call: (call.begun, call.seq)):
        if call.process in found:
            continue
        for part in call.value:
            if part[1].startswith(keys.FENCES):
                job_id = part[1].removeprefix(keys.FENCES)
                found[call.process] = RunningAttempt(
                    call.process, job_id, call.epoch or 0, call.begun, last[call.process], call.name
                )
    return sorted([*found.values(), *in_threads], key=lambda one: (one.begun, one.call))


@functools.partial(check, able=_has_attempts)
def no_overlap(run: Run) -> Iterator[Anomaly]:
    """No attempt of a job begins while another attempt of the job is alive."""
    yield from overlaps(attempts_of(run))


def overlaps(attempts: Iterable[RunningAttempt]) -> Iterator[Anomaly]:
    """Yield the attempts that overlap, of those in the order of their beginnings."""
    newest: dict[str, RunningAttempt] = {}
    for attempt in attempts:
        before = newest.get(attempt.job_id)
        if before is not None and attempt.begun < before.ended:
            yield (
                f"two attempts of {attempt.job_id} ran at a time, for at least "
                f"{(before.ended - attempt.begun) / 1e6:.0f} ms",
                (before.call, attempt.call),
            )
        if before is None or attempt.ended > before.ended:
            newest[attempt.job_id] = attempt


_SLACK = 1_000_000_000
"""Nanoseconds: an attempt that a strike has killed gave its last sign of life before that."""


def undisturbed_jobs(run: Run) -> list[str]:
    """Return a line if faults hit something, but none of them while an attempt was alive: then the
    jobs of the run were tested by none."""
    healed = {event.seq: event.t for event in run.events if event.f is Verb.HEAL}
    harm = [(event.t - _SLACK, healed.get(event.seq, event.t) + _SLACK)
            for event in run.events if event.f is Verb.STRIKE]  # fmt: skip
    attempts = attempts_of(run)
    if not harm or not attempts:
        return []
    if any(one.begun < until and since < one.ended for one in attempts for since, until in harm):
        return []
    return ["no attempt of a job was alive while a fault lasted"]


def _has_jobs(run: Run) -> bool:
    return _has(keys.JOBS)(run) or _has(keys.RESULTS)(run)


@functools.partial(check, able=_has_jobs)
def nothing_lost(run: Run) -> Iterator[Anomaly]:
    """Every job whose submission was acknowledged gets a result, and no result disappears."""
    yield from losses_of(run.facts)


def losses_of(facts: Mapping[str, list[Fact]]) -> Iterator[Anomaly]:
    """Yield the jobs that got no result, or whose result is gone."""
    for job_id, some in _of(facts, keys.JOBS):
        submitted = [fact for fact in _written(some) if fact.sure and fact.state is None]
        if submitted and _proof(facts.get(keys.RESULTS + job_id, [])) is None:
            yield f"{job_id} was submitted and has no result", (submitted[0].name,)
    for job_id, some in _of(facts, keys.RESULTS):
        buried = {fact.name for fact in _written(facts.get(keys.TOMBSTONES + job_id, []))}
        expiries = [fact for fact in _deletes(some) if fact.name in buried]
        for fact in _deletes(some):
            if fact.sure and fact.name not in buried:
                yield f"the result of {job_id} is deleted without a tombstone", (fact.name,)
        proof = _proof(some)
        if proof is None or expiries:
            continue
        absent = (fact for fact in some if fact.what is What.READ and fact.digest is None)
        newest = max(absent, key=lambda fact: (fact.begun, fact.name), default=None)
        if newest is not None and newest.begun > proof.ended:
            yield f"the result of {job_id} is gone", (proof.name, newest.name)


@functools.partial(check, needs="left")
def nothing_left(run: Run) -> Iterator[Anomaly]:
    """All results are clean; no record, file or process is left, and `jrs fsck` finds nothing."""
    for line in run.notes.get("left", ()):
        yield line, ()


undisturbed = "undisturbed"
"""For `output_equals`: the same jobs, run without any fault."""


def output_equals(expected: Any) -> Check:
    """Return the check that every job returns what is expected, and writes it.

    Args:
        expected: `undisturbed`, or what each job has to return: by its id or by the id that was
            given to `World.submit`. Of the jobs of a driver, it may name some.

    Raises:
        InvalidInput: it is neither.

    Example::

        world.check(output_equals(undisturbed))
        world.check(output_equals({"orders": {"rows": 42}}))
    """
    if expected != undisturbed and not isinstance(expected, Mapping):
        raise InvalidInput(f"output_equals: no outputs by the ids of jobs: {shown(expected)}")

    def find(run: Run) -> Iterator[Anomaly]:
        answers: Mapping[str, Any] = run.notes.get("undisturbed", {})
        copy_of: Mapping[str, str] = run.notes.get("copy_of", {})
        if isinstance(expected, Mapping):
            answers = {name: {"status": "FINISHED", "payload": payload}
                       for name, payload in expected.items()}  # fmt: skip
        for job_id in run.notes.get("unfinished", ()):
            if job_id in copy_of:  # Others are drivers.
                yield f"{job_id} has returned nothing: it had not ended", ()
        known = {*run.notes.get("ended", ()), *copy_of, *copy_of.values()}
        for name in sorted(answers.keys() - known):
            yield f"{name} has returned nothing: no job has that id", ()
        if not run.notes.get("ended") and not run.notes.get("unfinished"):
            yield "there is nothing to compare: no job has returned anything", ()
        for job_id, ended in run.notes.get("ended", {}).items():
            answer = answers.get(job_id, answers.get(copy_of.get(job_id, job_id)))
            if answer is None:
                # What is expected of a driver may name some of its jobs alone.
                if job_id in copy_of or not isinstance(expected, Mapping):
                    yield f"nothing says what {job_id} should return", ()
                continue
            given = answer.get("id")  # That of the copy which ran without faults.
            for what in ("status", "payload", "files"):
                if what not in answer:
                    continue
                got, should = ended.get(what), answer[what]
                if given is not None and given != job_id:
                    got, should = _without_id(got, job_id), _without_id(should, given)
                if what == "files":  # Rows have no order, and were in that of their ids.
                    got, should = _in_order(got), _in_order(should)
                if got != should:
                    yield f"the {what} of {job_id} is {got}, not {should}", ()

    promise = "Every job returns and writes what it should."
    needs = "ended" if isinstance(expected, Mapping) else "undisturbed"
    given = expected if isinstance(expected, Mapping) else {}
    return Check("output_equals", promise, find, needs, expected=given)


def _in_order(files: Any) -> Any:
    """Return the content of files with the rows of each in one order."""
    if not isinstance(files, dict):
        return files
    return {
        name: sorted(rows, key=_spelled) if isinstance(rows, list) else rows
        for name, rows in files.items()
    }


def _spelled(row: Any) -> str:
    return json.dumps(row, sort_keys=True, default=repr)


def _without_id(value: Any, job_id: str) -> Any:
    """Return JSON in which ``{id}`` stands for the id of the job, as in the arguments of copies."""
    if isinstance(value, str):
        return re.sub(rf"(?<![\w-]){re.escape(job_id)}(?![\w-])", "{id}", value)
    if isinstance(value, list):
        return [_without_id(one, job_id) for one in value]
    if isinstance(value, dict):
        return {_without_id(key, job_id): _without_id(one, job_id) for key, one in value.items()}
    return value


def counts(run: Run) -> dict[str, int]:
    """Return figures of a run."""
    done = [call for call in run.calls if call.type is Kind.OK]
    return {
        "operations": len(run.calls),
        "commits": sum(call.f is Verb.COMMIT for call in done),
        "unknown": sum(call.type is Kind.INFO for call in run.calls),
        "epochs": sum(call.f is Verb.CAMPAIGN for call in done),
        "attempts": len(attempts_of(run)),
        "strikes": sum(event.f is Verb.STRIKE for event in run.events),
    }
