"""JobCleanup: the only code that removes anything of a job, as one idempotent unit.

Running it twice, on two masters, or again after an interruption at any point ends in the same
state. Finished steps are journalled, so that a new leader continues and `jrs explain` names what is
left. Prioritised resources come first, one after the other, each only once those before it are
gone. All others follow; none of them can block another. Only when every resource is gone is the
result marked clean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
)
from jrs.contract.masks import masked
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
from jrs.contract.texts import error_text, is_printable, one_line, shown, with_reason
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.field_types import Json
from jrs.records.history import HistoryKind
from jrs.records.model import CleanupJournal
from jrs.store.cluster_format import is_at_least
from jrs.store.historian import Historian
from jrs.store.result_store import JobResultStore

from ..processes.pools import side_by_side
from ..rules.resource import GivenUp, Resource

_MOST = 256
"""How many cleanups of one resource may be in progress at once, each in a thread. Passes are fewer:
only cleanups that hang, and that no pass waits for any more, reach this number. Beyond it no
further cleanup of the resource begins, although it might not hang for every job."""
_SINCE_FORMAT = 5
"""The first cluster format in which a clean job keeps the journal of what was given up."""
_LONGEST_NAME = 128
"""Characters of a resource's name; journals store it."""
_HANGS = "it has not ended in time and continues"


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


@attrs.frozen
class _Problem:
    """Why a resource is left."""

    text: str
    is_final: bool = False
    """Whether no further try can succeed."""
    ended: bool = False
    """Whether the try has ended: another one of the resource may begin, or what follows it."""


def _is_last_try(resource: Resource, failed: Mapping[str, int]) -> bool:
    most = resource.most_tries
    return most is not None and failed.get(resource.name, 0) + 1 >= most


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
        self._under_way: set[tuple[str, str]] = set()
        """The cleanups, by job and resource, that have not ended, awaited or not."""
        self._lock = threading.Lock()

    def run(
        self,
        job_id: str,
        fence: Fence | None,
        *,
        last_try: bool = False,
        timeout: float = threading.TIMEOUT_MAX,
        history: CleanupHistory | None = None,
    ) -> CleanupJournal:
        """Do one pass over the remaining resources; mark the result clean if nothing remains.

        Return the journal: `problems` names what is left. The caller decides when to try again;
        after `last_try` the journal records that no retry follows. `given_up` names what the
        cleanup continued without. A resource that has not finished after `timeout` seconds counts
        as left; it continues in a thread of its own. `history` records what comes of it.

        Raises:
            Fenced: a newer leader exists; it continues from the journal.
            CorruptRecord: the journal cannot be read.
            Unavailable, OutcomeUnknown: from the backend; the pass can be repeated.
        """
        key = keys.CLEANUP + job_id
        stored = self._backend.get(key)
        journal = (
            CleanupJournal(job_id) if stored is None else decode(CleanupJournal, stored.value, key)
        )

        before = journal.problems

        def give_up(name: str, why: str) -> None:
            nonlocal journal, stored
            journal = attrs.evolve(journal, given_up={**journal.given_up, name: why})
            self._write(journal, stored, fence)
            stored = self._backend.get(key)
            if stored is None or stored.value != encode(journal):
                raise Unavailable(f"the journal of {job_id!r} could not be written")

        failed = dict(journal.failed)
        done, problems = self._pass(journal, failed, fence, Deadline.after(timeout), give_up)
        journal = attrs.evolve(
            journal,
            done=self._ordered(done),
            tries=journal.tries + 1,
            failed=failed,
            problems=problems,
            exhausted=bool(problems) and last_try,
        )
        about: dict[str, Json] = {"tries": journal.tries, "removed": list(journal.done)}
        if problems:
            said = "; ".join(f"{name} is left: {why}" for name, why in problems.items())
            if history is None or before.keys() == problems.keys():
                self._write(journal, stored, fence)
            else:
                with history.recorded(
                    job_id, HistoryKind.CLEANUP, said, about=about, repeatable=True
                ) as event:
                    self._write(journal, stored, fence, event)
            return journal
        also: tuple[Op, ...] = () if stored is None else (Delete(key, stored.version),)
        if journal.given_up and is_at_least(self._backend, _SINCE_FORMAT):
            also = (*also, Create(keys.LEFT + job_id, encode(journal)))
        if history is not None:
            left = "; ".join(f"{name}: {why}" for name, why in journal.given_up.items())
            said = with_reason("clean", f"the cleanup continued without {left}" if left else "")
            also = (*also, *history.folding(job_id, HistoryKind.CLEAN, said, about=about))
        self._store.mark_clean(job_id, fence, also=also)
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
            journal = decode(CleanupJournal, stored.value, key)
            again: Op = Update(
                key,
                encode(attrs.evolve(journal, exhausted=False, tries=0, failed={})),
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
                journal = decode(CleanupJournal, stored.value, stored.key)
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

    def _pass(
        self,
        journal: CleanupJournal,
        failed: dict[str, int],
        fence: Fence | None,
        deadline: Deadline,
        give_up: Callable[[str, str], None],
    ) -> tuple[set[str], dict[str, str]]:
        """Return the names of what is done, and the problems of what is left; count failed tries.

        `give_up` is called for what the cleanup continues without, and makes that durable: what
        comes afterwards may remove what another try would need.
        """
        job_id, done = journal.job_id, set(journal.done)
        # A journalled prioritised resource runs again: the others are safe only once it is gone.
        wanted = [r for r in self._resources if r.name not in journal.given_up]
        steps = [[resource] for resource in wanted if resource.prioritised]
        rest = [r for r in wanted if not r.prioritised and r.name not in done]
        steps += [[r for r in rest if r.last is last] for last in (False, True)]
        for resources in steps:
            problems: dict[str, str] = {}
            for resource, problem in self._clean_all(resources, job_id, fence, deadline):
                if problem is None:
                    done.add(resource.name)
                elif problem.is_final or (problem.ended and _is_last_try(resource, failed)):
                    give_up(resource.name, problem.text)
                else:
                    problems[resource.name] = problem.text
                    if problem.ended and resource.most_tries is not None:
                        failed[resource.name] = failed.get(resource.name, 0) + 1
            if problems:
                break
        return done, problems

    def _ordered(self, done: set[str]) -> tuple[str, ...]:
        """Return names in the order of the resources; those that another version knows come
        first, for they say what has been removed."""
        ours = [resource.name for resource in self._resources]
        return (*sorted(done.difference(ours)), *(name for name in ours if name in done))

    def _clean_all(
        self, resources: Sequence[Resource], job_id: str, fence: Fence | None, deadline: Deadline
    ) -> Iterator[tuple[Resource, _Problem | None]]:
        """Clean resources, those that may hang side by side; yield the problem of each."""
        records = [one for one in resources if one.records_only]
        others = [one for one in resources if not one.records_only]
        check = partial(self._backend.check_current, fence, f"cleanup of {job_id!r} stops here")
        if records:
            check()
        for resource in records:
            yield resource, self._clean(resource, job_id, fence)
        if others:
            check()
        calls = [partial(self._clean, resource, job_id, fence) for resource in others]
        ends = side_by_side(f"jrs-cleanup-{job_id}", calls, deadline)
        for resource, end in zip(others, ends, strict=True):
            if end.error is not None:
                raise end.error
            yield resource, _Problem(_HANGS) if end.hangs else end.value

    def _clean(self, resource: Resource, job_id: str, fence: Fence | None) -> _Problem | None:
        """Clean one resource; return its problem, if there is one."""
        step = job_id, resource.name
        with self._lock:
            if step in self._under_way:
                return _Problem("an earlier try has not ended yet")
            if sum(name == resource.name for _, name in self._under_way) >= _MOST:
                return _Problem(f"not begun: it hangs for {_MOST} other jobs")
            self._under_way.add(step)
        try:
            resource.clean_fenced(job_id, fence)
        except Fenced:
            raise
        except GivenUp as error:
            return _Problem(_said(str(error)), is_final=True, ended=True)
        except (Exception, SystemExit) as error:
            # Any error belongs to this resource: it is reported, kept and tried again.
            return _Problem(_said(error_text(error)), ended=True)
        finally:
            with self._lock:
                self._under_way.discard(step)
        return None

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


def _said(text: str) -> str:
    return one_line(masked(text))
