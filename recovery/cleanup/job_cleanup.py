"""JobCleanup: the only code that removes anything of a job, as one idempotent unit.

Running it twice, on two masters, or again after an interruption at any point ends in the same
state. Finished steps are journalled, so that a new leader continues and `jrs explain` names what is
left. Prioritised resources come first, one after the other, each only once those before it are
gone. All others follow; none of them can block another. Only when every resource is gone is the
result marked clean, in the commit that deletes the job's last records.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    JrsError,
    OutcomeUnknown,
    Unavailable,
)
from jrs.contract.operations import (
    Check,
    Create,
    Delete,
    Fence,
    Op,
    Record,
    Update,
    create_or_update,
)
from jrs.contract.texts import is_printable, shown, with_reason
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.field_types import Json
from jrs.records.history import HistoryKind
from jrs.records.model import CleanupJournal
from jrs.store.cluster_format import is_at_least
from jrs.store.historian import Historian
from jrs.store.result_store import JobResultStore

from ..rules.resource import Resource
from .job_records import JobRecords, delete_records
from .journal import counted, journal_in
from .tries import Problem, Tried, Tries, problem_of

_SINCE_FORMAT = 5
"""The first cluster format in which a clean job keeps the journal of what was given up."""
_LONGEST_NAME = 128
"""Characters of a resource's name; journals store it."""


class CleanupHistory(Protocol):
    """Records in a job's history what comes of its cleanup."""

    def recorded(
        self,
        job_id: str,
        kind: HistoryKind,
        text: str,
        *,
        about: Mapping[str, Json] | None = None,
        repeatable: bool = False,
    ) -> AbstractContextManager[tuple[Op, ...]]:
        """As `Historian.recorded`."""

    def folding(
        self, job_id: str, kind: HistoryKind, text: str, *, about: Mapping[str, Json] | None = None
    ) -> tuple[Op, ...]:
        """As `Historian.folding`."""


class JobCleanup:
    """Cleans up after one job at a time, under the leader's fence.

    Raises:
        InvalidInput: a resource is not a `Resource`, has no name, or has the name of another one.
    """

    def __init__(self, backend: Backend, resources: Sequence[Resource]) -> None:
        for resource in resources:
            name = getattr(resource, "name", None)
            if not isinstance(resource, Resource) or not isinstance(name, str):
                raise InvalidInput(
                    f"not a resource: {type(resource).__name__}; it must be a jrs.Resource with a "
                    "name"
                )
            if not 0 < len(name) <= _LONGEST_NAME or not is_printable(name):
                raise InvalidInput(
                    f"not a resource's name: {shown(name)}; give it 1 to {_LONGEST_NAME} "
                    "characters in one line"
                )
        names = [resource.name for resource in resources]
        if len(set(names)) < len(names):
            raise InvalidInput(f"two resources have the same name: {', '.join(sorted(names))}")
        self._backend = backend
        self._store = JobResultStore(backend)
        self._resources = tuple(resources)
        self._tries = Tries(backend, self._outlasted)
        self._passes = Counter[str]()
        """How many passes of each job are under way: two if one is of a lost leadership."""
        self._lock = threading.Lock()

    def run(
        self,
        job_id: str,
        fence: Fence | None,
        *,
        is_last: Callable[[int], bool] = lambda tries: False,
        timeout: float = threading.TIMEOUT_MAX,
        history: CleanupHistory | None = None,
        begins: Callable[[], None] = lambda: None,
        said: Callable[[str, str], None] = lambda name, problem: None,
    ) -> CleanupJournal:
        """Do one pass over the remaining resources; mark the result clean if nothing remains.

        Return the journal: `problems` names what is left. The caller decides when to try again;
        if the pass of that number `is_last`, the journal records that no retry follows. A resource
        that has not finished after `timeout` seconds counts as left. It continues in a thread of
        its own, and the next pass takes its outcome: the journal asks for that pass once all that
        was left had to be waited for. Such passes use up no retries, and neither do those that only
        find snapshots in use. `history` records what comes of it. `begins` is called before the
        first pass, and `said` with what the cleanup continues without, and why.

        Raises:
            Fenced: a newer leader exists; it continues from the journal.
            CorruptRecord: the journal cannot be read.
            Unavailable, OutcomeUnknown: from the backend; the pass can be repeated.
        """
        with self._one_pass(job_id, fence):
            stored = self._backend.get(keys.CLEANUP + job_id)
            journal = CleanupJournal(job_id) if stored is None else journal_in(stored)
            if stored is None:
                begins()
            before = journal.problems

            def give_up(name: str, why: str) -> None:
                nonlocal journal, stored
                journal = attrs.evolve(journal, given_up={**journal.given_up, name: why})
                self._write(journal, stored, fence)
                stored = self._backend.get(keys.CLEANUP + job_id)
                if stored is None or stored.value != encode(journal):
                    raise Unavailable(f"the journal of {job_id!r} could not be written")
                said(name, why)

            failed = dict(journal.failed)
            done, problems, doomed = self._pass(
                journal, failed, fence, Deadline.after(timeout), give_up
            )
            journal = attrs.evolve(
                counted(journal, problems, is_last), done=self._ordered(done), failed=failed
            )
            about: dict[str, Json] = {"tries": journal.tries, "removed": list(journal.done)}
            if not problems:
                self._mark_clean(journal, stored, doomed, fence, history, about)
            elif history is None or before.keys() == problems.keys():
                self._write(journal, stored, fence)
            else:
                left = "; ".join(f"{name} is left: {why}" for name, why in journal.problems.items())
                with history.recorded(
                    job_id, HistoryKind.CLEANUP, left, about=about, repeatable=True
                ) as event:
                    self._write(journal, stored, fence, event)
            self._tries.forget(job_id)  # Not before: what has succeeded is not done again.
            return journal

    def release(self, job_id: str) -> None:
        """Release what this master holds of a job that continues on another master."""
        for resource in self._resources:
            resource.release(job_id)

    def describe(self, job_id: str) -> dict[str, list[str]]:
        """Return what a pass would remove, by resource; removes nothing."""
        return {resource.name: resource.describe(job_id) for resource in self._resources}

    def retry(self, job_id: str) -> bool:
        """Have the leader retry a cleanup that was given up; return whether one was."""
        key = keys.CLEANUP + job_id
        stored = self._backend.get(key)
        if stored is None:
            return False
        try:
            journal = journal_in(stored)
            again: Op = Update(
                key,
                encode(attrs.evolve(journal, exhausted=False, tries=0, waits=0, failed={})),
                stored.version,
            )
        except CorruptRecord:
            again = Delete(key, stored.version)  # Every step may be repeated: begin again.
        historian, said = Historian.of(self._backend, None), "a retry of the cleanup was requested"
        with historian.recorded(job_id, HistoryKind.CLEANUP, said) as event:
            self._backend.commit(again, *event)
        return True

    def left(self, job_id: str) -> dict[str, list[str]]:
        """Return what is left, by resource: what is found here, and what the journal records of
        resources that only the masters know. Removes nothing."""
        left = {name: found for name, found in self.describe(job_id).items() if found}
        stored = self._backend.get(keys.CLEANUP + job_id)
        if stored is not None:
            try:
                journal = journal_in(stored)
            except CorruptRecord as error:
                return {**left, "journal": [str(error)]}
            for name, problem in journal.problems.items():
                left.setdefault(name, [problem])
        return left

    def force(self, job_id: str) -> dict[str, list[str]]:
        """Mark the result clean whatever is left, and return what is left: the last resort."""
        left = self.left(job_id)
        stored = self._backend.get(keys.CLEANUP + job_id)
        also: tuple[Op, ...] = () if stored is None else (Delete(stored.key, stored.version),)
        said = with_reason("marked clean by force", "; ".join(left))
        historian = Historian.of(self._backend, None)
        with historian.recorded(job_id, HistoryKind.CLEAN, said, repeatable=True) as event:
            self._store.mark_clean(job_id, None, also=(*also, *event))
        return left

    # -- inside ----------------------------------------------------------------------------

    @contextmanager
    def _one_pass(self, job_id: str, fence: Fence | None) -> Iterator[None]:
        """While a pass is under way, only it writes the journal."""
        with self._lock:
            self._passes[job_id] += 1
        try:
            yield
        except Fenced:
            self._tries.forget(job_id, untaken=True)
            raise
        finally:
            with self._lock:
                self._passes[job_id] -= 1
                self._passes += Counter[str]()  # Without those that have none.
        if self._tries.has_outcome(job_id):
            self._outlasted(job_id, fence)

    def _outlasted(self, job_id: str, fence: Fence | None) -> None:
        """Have the leader take the outcome of a try that has outlasted its pass, unless a pass is
        under way."""
        with self._lock:
            if self._passes[job_id]:
                return
        try:
            stored = self._backend.get(keys.CLEANUP + job_id)
            if stored is None or not self._store.has_dirty(job_id):
                self._tries.forget(job_id, untaken=True)
                return
            journal = journal_in(stored)
            if journal.waits:
                tries = journal.tries - journal.waits
                self._write(attrs.evolve(journal, tries=tries, waits=0), stored, fence)
        except JrsError:
            pass  # The next pass takes it when it is due.

    def _pass(
        self,
        journal: CleanupJournal,
        failed: dict[str, int],
        fence: Fence | None,
        deadline: Deadline,
        give_up: Callable[[str, str], None],
    ) -> tuple[set[str], dict[str, Problem], list[str]]:
        """Return the names of what is done, the problems of what is left, and the keys of the
        records that are to go with the result's marker; count failed tries.

        `give_up` is called for what the cleanup continues without, and makes that durable: what
        comes afterwards may remove what another try would need.
        """
        job_id, done = journal.job_id, set(journal.done)
        problems: dict[str, Problem] = {}

        def note(found: Iterable[Tried]) -> None:
            for resource, problem in found:
                if problem is None:
                    done.add(resource.name)
                elif problem.is_final or (problem.is_failure and _is_last_try(resource, failed)):
                    give_up(resource.name, problem.text)
                else:
                    problems[resource.name] = problem
                    if problem.is_failure and resource.most_tries is not None:
                        failed[resource.name] = failed.get(resource.name, 0) + 1

        # A journalled prioritised resource runs again: the others are safe only once it is gone.
        wanted = [r for r in self._resources if r.name not in journal.given_up]
        first = [resource for resource in wanted if resource.prioritised]
        while first and not problems:
            found = self._tries.in_turn(first, job_id, fence, deadline)
            note(found)
            first = first[len(found) :]
        if problems:
            return done, problems, []
        rest = [r for r in wanted if not r.prioritised and r.name not in done]
        records = [one for one in rest if isinstance(one, JobRecords)]
        others = [one for one in rest if not isinstance(one, JobRecords)]
        doomed: list[str] = []
        for last in (False, True):
            if not problems:
                step = [one for one in others if bool(one.last) is last]
                note(self._tries.side_by_side(step, job_id, fence, deadline))
        if problems:
            goes = (one for one in records if not one.last)
            note(self._tries.clean(one, job_id, fence, deadline) for one in goes)
        else:
            listed = [(one, _listed(one, doomed, job_id, fence)) for one in records]
            unreadable = [(one, problem) for one, problem in listed if problem is not None]
            note(unreadable or listed)  # All of them go with the marker, or none does.
        return done, problems, doomed

    def _ordered(self, done: set[str]) -> tuple[str, ...]:
        """Return names in the order of the resources; those that another version knows come
        first, for they say what has been removed."""
        ours = [resource.name for resource in self._resources]
        return (*sorted(done.difference(ours)), *(name for name in ours if name in done))

    def _mark_clean(
        self,
        journal: CleanupJournal,
        stored: Record | None,
        doomed: Sequence[str],
        fence: Fence | None,
        history: CleanupHistory | None,
        about: Mapping[str, Json],
    ) -> None:
        """Delete the job's last records in the commit that marks the result clean; what does not
        fit into it goes before."""
        job_id = journal.job_id
        also: tuple[Op, ...] = () if stored is None else (Delete(stored.key, stored.version),)
        if journal.given_up and is_at_least(self._backend, _SINCE_FORMAT):
            also = (*also, Create(keys.LEFT + job_id, encode(journal)))
        if history is not None:
            left = "; ".join(f"{name}: {why}" for name, why in journal.given_up.items())
            text = with_reason("clean", f"the cleanup continued without {left}" if left else "")
            also = (*also, *history.folding(job_id, HistoryKind.CLEAN, text, about=about))
        room = max(0, self._backend.capabilities.max_ops - len(also) - 1)
        before = max(0, len(doomed) - room)
        delete_records(self._backend, doomed[:before], fence)
        last = [*doomed[before:]]
        while True:
            try:
                if not self._store.mark_clean(job_id, fence, also=(*map(Delete, last), *also)):
                    # An operator has done it, who removes no records.
                    delete_records(self._backend, last, fence)
                return
            except Conflict as conflict:
                if conflict.op.key not in last:
                    raise
                last.remove(conflict.op.key)  # It is gone already.

    def _write(
        self,
        journal: CleanupJournal,
        stored: Record | None,
        fence: Fence | None,
        event: tuple[Op, ...] = (),
    ) -> None:
        job_id, value = journal.job_id, encode(journal)
        key = keys.CLEANUP + job_id
        marker = self._backend.get(keys.DIRTY + job_id)
        if marker is None:
            return  # An operator marked it clean meanwhile; no journal may outlive that.
        op = create_or_update(key, value, stored and stored.version)
        try:
            self._backend.commit(op, Check(marker.key, marker.version), *event, fence=fence)
        except OutcomeUnknown:
            pass  # Every step may be repeated: a lost journal costs only time.
        except Conflict:
            if self._store.has_dirty(job_id):
                raise


def _is_last_try(resource: Resource, failed: Mapping[str, int]) -> bool:
    most = resource.most_tries
    return most is not None and failed.get(resource.name, 0) + 1 >= most


def _listed(
    records: JobRecords, doomed: list[str], job_id: str, fence: Fence | None
) -> Problem | None:
    """Add the keys of records of the job to those that go with its result's marker."""
    return problem_of(lambda: doomed.extend(records.keys(job_id, fence)))
