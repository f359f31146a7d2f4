"""Tries to clean resources, in threads: each of them may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced
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
_NOT_BEGUN = "not begun: what comes before it took all the time of the pass"


@attrs.frozen
class Problem:
    """Why a resource is left."""

    text: str
    is_final: bool = False
    """Whether no further try can succeed."""
    ended: bool = False
    """Whether the try has ended: another one of the resource may begin, or what follows it."""


Tried = tuple[Resource, Problem | None]
"""A resource, and the problem of its try, if there is one."""


class Tries:
    """The tries of one master. Safe for use by many threads.

    Each method raises `Fenced` if it finds that a newer leader exists.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._under_way: set[tuple[str, str]] = set()
        """The cleanups, by job and resource, that have not ended, awaited or not."""
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
                ends.append(self.clean(resource, job_id, fence, checks=True))

        [end] = side_by_side(f"jrs-cleanup-{job_id}", [all_of_them], deadline)
        if end.error is not None:
            raise end.error
        ended = [*ends]
        if len(ended) < len(resources) and not any(ended):
            ended.append(Problem(_HANGS if end.hangs else _NOT_BEGUN))
        return list(zip(resources, ended, strict=False))

    def side_by_side(
        self, resources: Sequence[Resource], job_id: str, fence: Fence | None, deadline: Deadline
    ) -> Iterator[Tried]:
        """Clean resources, each in a thread of its own."""
        if resources:
            self._check(job_id, fence)
        calls = [partial(self.clean, resource, job_id, fence) for resource in resources]
        ends = side_by_side(f"jrs-cleanup-{job_id}", calls, deadline)
        for resource, end in zip(resources, ends, strict=True):
            if end.error is not None:
                raise end.error
            yield resource, Problem(_HANGS) if end.hangs else end.value

    def clean(
        self, resource: Resource, job_id: str, fence: Fence | None, *, checks: bool = False
    ) -> Problem | None:
        """Clean one resource; return its problem, if there is one.

        Args:
            checks: whether to check the fence first. The try is under way meanwhile: what has to
                wait for its end waits for the check, too.
        """
        step = job_id, resource.name
        with self._lock:
            if step in self._under_way:
                return Problem("an earlier try has not ended yet")
            if sum(name == resource.name for _, name in self._under_way) >= _MOST:
                return Problem(f"not begun: it hangs for {_MOST} other jobs")
            self._under_way.add(step)
        try:
            if checks:
                self._check(job_id, fence)
            return problem_of(lambda: resource.clean_fenced(job_id, fence))
        finally:
            with self._lock:
                self._under_way.discard(step)

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
    except (Exception, SystemExit) as error:
        # Any error belongs to this resource: it is reported, kept and tried again.
        return Problem(_said(error_text(error)), ended=True)
    return None


def _said(text: str) -> str:
    return one_line(masked(text))
