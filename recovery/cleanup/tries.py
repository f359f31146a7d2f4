"""Tries to clean resources, in threads: each of them may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, SnapshotInUse
from jrs.contract.masks import masked
from jrs.contract.operations import Fence
from jrs.contract.texts import error_text, one_line

from ..processes.pools import side_by_side
from ..rules.resource import GivenUp, Resource

_MOST = 256
"""How many cleanups of one resource may be in progress at once, each in a thread. Passes are fewer:
only cleanups that hang, and that no pass waits for any more, reach this number. Beyond it no
further cleanup of the resource begins, although it might not hang for every job."""
_HANGS = "it has not ended in time and continues"
_CONTINUES = "an earlier try has not ended yet"
_NOT_BEGUN = "not begun: what comes before it took all the time of the pass"


@attrs.frozen
class Problem:
    """Why a resource is left."""

    text: str
    is_final: bool = False
    """Whether no further try can succeed."""
    ended: bool = False
    """Whether the try has ended: another one of the resource may begin, or what follows it."""
    in_use: bool = False
    """Whether others use the resource now, and nothing has failed."""

    @property
    def is_failure(self) -> bool:
        """Whether the try counts as a failed one."""
        return self.ended and not self.in_use


Tried = tuple[Resource, Problem | None]
"""A resource, and the problem of its try, if there is one."""


@attrs.define(eq=False)
class _Try:
    """One cleanup of a resource of a job."""

    has_ended: bool = False
    problem: Problem | None = None
    """Once it has ended."""
    taken: bool = False
    """Whether a pass has got its outcome."""


class Tries:
    """The tries of one master. Safe for use by many threads.

    A try may outlast the pass that has begun it. Its outcome is kept for the next pass, which takes
    it instead of a try of its own. It is kept until `forget`: what has succeeded is not done again
    because the journal could not be written.

    Each method that cleans raises `Fenced` if it finds that a newer leader exists.

    Args:
        outlasted: called with the job of a try that has outlasted its pass, when it has ended, in
            its thread.
    """

    def __init__(self, backend: Backend, outlasted: Callable[[str, Fence | None], None]) -> None:
        self._backend = backend
        self._outlasted = outlasted
        self._tries: dict[str, dict[str, _Try]] = {}
        """By job and resource: those under way, awaited or not, and those with an outcome."""
        self._lock = threading.Lock()

    def in_turn(
        self, resources: Sequence[Resource], job_id: str, fence: Fence | None, deadline: Deadline
    ) -> list[Tried]:
        """Clean resources one after the other, in one thread, up to the first that is left."""
        ends: list[Problem | None] = []

        def all_of_them() -> None:
            for resource in resources:
                if ends and (ends[-1] is not None or deadline.expired):
                    return
                ends.append(self._try(resource, job_id, fence, deadline, checks=True))

        [end] = side_by_side(f"jrs-cleanup-{job_id}", [all_of_them], deadline)
        if end.error is not None:
            raise end.error
        ended = [*ends]
        if len(ended) < len(resources) and not any(ended):
            ended.append(Problem(_HANGS if end.hangs else _NOT_BEGUN))
        return [self._take(*one, job_id) for one in zip(resources, ended, strict=False)]

    def side_by_side(
        self, resources: Sequence[Resource], job_id: str, fence: Fence | None, deadline: Deadline
    ) -> Iterator[Tried]:
        """Clean resources, each in a thread of its own."""
        if resources:
            self._check(job_id, fence)
        calls = [partial(self._try, resource, job_id, fence, deadline) for resource in resources]
        ends = side_by_side(f"jrs-cleanup-{job_id}", calls, deadline)
        for resource, end in zip(resources, ends, strict=True):
            if end.error is not None:
                raise end.error
            yield self._take(resource, Problem(_HANGS) if end.hangs else end.value, job_id)

    def clean(
        self, resource: Resource, job_id: str, fence: Fence | None, deadline: Deadline
    ) -> Tried:
        """Clean one resource in this thread, whatever time that takes."""
        return self._take(resource, self._try(resource, job_id, fence, deadline), job_id)

    def forget(self, job_id: str, *, untaken: bool = False) -> None:
        """Forget the outcomes that passes of the job have taken, or also those that none has."""
        with self._lock:
            of_job = self._tries.pop(job_id, {})
            left = {
                name: one
                for name, one in of_job.items()
                if not (one.has_ended if untaken else one.taken)
            }
            if left:
                self._tries[job_id] = left

    def has_outcome(self, job_id: str) -> bool:
        """Return whether the next pass of the job finds an outcome."""
        with self._lock:
            return any(one.has_ended for one in self._tries.get(job_id, {}).values())

    # -- inside ----------------------------------------------------------------------------

    def _try(
        self,
        resource: Resource,
        job_id: str,
        fence: Fence | None,
        deadline: Deadline,
        *,
        checks: bool = False,
    ) -> Problem | None:
        """Clean one resource; return its problem, if there is one.

        Args:
            deadline: when its pass ends.
            checks: whether to check the fence first. The try is under way meanwhile: what has to
                wait for its end waits for the check, too.
        """
        with self._lock:
            earlier = self._tries.get(job_id, {}).get(resource.name)
            if earlier is not None:
                return earlier.problem if earlier.has_ended else Problem(_CONTINUES)
            if self._under_way(resource.name) >= _MOST:
                return Problem(f"not begun: it hangs for {_MOST} other jobs")
            this = self._tries.setdefault(job_id, {})[resource.name] = _Try()
        try:
            if checks:
                self._check(job_id, fence)
            problem = problem_of(lambda: resource.clean_fenced(job_id, fence))
        except BaseException:
            with self._lock:
                del self._tries[job_id][resource.name]
            raise
        with self._lock:
            this.problem, this.has_ended = problem, True
        if deadline.expired:
            self._outlasted(job_id, fence)
        return problem

    def _under_way(self, name: str) -> int:
        """Return how many tries of a resource have not ended."""
        of_all = (of_job.get(name) for of_job in self._tries.values())
        return sum(one is not None and not one.has_ended for one in of_all)

    def _take(self, resource: Resource, problem: Problem | None, job_id: str) -> Tried:
        if problem is None or problem.ended:
            with self._lock:
                this = self._tries.get(job_id, {}).get(resource.name)
                if this is not None:
                    this.taken = True
        return resource, problem

    def _check(self, job_id: str, fence: Fence | None) -> None:
        self._backend.check_current(fence, f"cleanup of {job_id!r} stops here")


def problem_of(work: Callable[[], None]) -> Problem | None:
    """Do some of the work on a resource; return its problem, if there is one."""
    try:
        work()
    except Fenced:
        raise
    except GivenUp as error:
        return Problem(_said(str(error)), is_final=True, ended=True)
    except SnapshotInUse as error:
        return Problem(_said(error_text(error)), ended=True, in_use=True)
    except (Exception, SystemExit) as error:
        # Any error belongs to this resource: it is reported, kept and tried again.
        return Problem(_said(error_text(error)), ended=True)
    return None


def _said(text: str) -> str:
    return one_line(masked(text))
