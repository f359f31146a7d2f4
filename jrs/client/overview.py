"""The overview of a cluster: what a person wants to know first, at night."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import attrs

from jrs.client.client import Client
from jrs.client.listing import JobOrder
from jrs.client.plain import Plain, of_cluster
from jrs.contract.clock import Clock
from jrs.contract.texts import counted, one_line
from jrs.records.model import JobStatus, ResultState, StopMode
from jrs.recovery.inspect.explain import Explanation
from jrs.recovery.rules.decision import Action
from jrs.store.job_views import JobView

T = TypeVar("T")

MOST = 500
"""Jobs at which the overview looks, by id: so many that were begun and have not ended, so many that
wait for their first attempt, that failed, and that are not cleaned up. More would take too long. Of
all others it has so many of those that are held."""
DAY = 86400.0
PARTS = ("running", "waiting", "held", "failed", "dirty")
"""The parts of an overview."""


@attrs.frozen
class JobLine:
    """One job in one line."""

    job_id: str
    status: str
    """As `JobStatus`, or HELD, or empty if it cannot be told."""
    state: str
    """Of the result: dirty, clean or expired; empty before."""
    decision: str
    reason: str
    """What happens to it, or why it failed, for people."""
    runs: bool
    """Whether an attempt of it, or the main of the application, runs in the leader."""
    attempt: int
    stages: int
    """How many have finished."""
    started_at: float
    finished_at: float
    tags: tuple[str, ...]

    def plain(self) -> Plain:
        """Return its plain form."""
        return {**attrs.asdict(self), "tags": list(self.tags)}


@attrs.frozen
class Overview:
    """The cluster at one moment."""

    at: float
    cluster: Plain
    running: tuple[JobLine, ...]
    waiting: tuple[JobLine, ...]
    """Jobs that do not run, and will by themselves or when they are resumed."""
    held: tuple[JobLine, ...]
    failed: tuple[JobLine, ...]
    """Jobs that failed in the last day, the newest first."""
    dirty: tuple[JobLine, ...]
    """Jobs that have ended and are not cleaned up."""
    cut: frozenset[str] = frozenset()
    """The names of the parts that may have more jobs than are here."""

    @property
    def is_clear(self) -> bool:
        """Whether nothing is held, nothing failed in the last day, and what ended is cleaned up."""
        parts = ("held", "failed", "dirty")
        return not any(getattr(self, part) or part in self.cut for part in parts)

    def count(self, part: str) -> str:
        """Return how many jobs a part has, for people."""
        return f"{len(getattr(self, part))}{'+' if part in self.cut else ''}"

    def plain(self) -> Plain:
        """Return its plain form."""
        lists: dict[str, Any] = {name: [one.plain() for one in getattr(self, name)]
                                 for name in PARTS}  # fmt: skip
        return {
            "at": self.at,
            "cluster": self.cluster,
            **lists,
            "left_out": bool(self.cut),
            "cut": [name for name in PARTS if name in self.cut],
        }


def overview(client: Client, *, now: Clock = time.time) -> Overview:
    """Return the overview of a cluster. However many jobs there are, no held one is left out for
    others that are not: where it does not look at all jobs, it looks for those.

    Raises:
        Unavailable: the backend could not be asked.
    """
    at = now()
    begun, more_begun = _taken(map(_looked_at, client.unfinished(begun=True)))
    rest, more_rest = _taken(
        map(_looked_at, client.unfinished(without={one.job_id for one in begun}))
    )
    ended = client.views(status=JobStatus.FAILED, since=at - DAY, order=JobOrder.ENDED)
    failed, more_failed = _taken(map(job_line, ended))
    dirty, more_dirty = _taken(map(_looked_at, client.views(state=ResultState.DIRTY)))
    # A job whose result cannot be read is held, and may have nothing left but that.
    views = {one.job_id: one for one in (*begun, *rest, *dirty) if isinstance(one, JobView)}
    held, more_held = list[JobView](), False
    if more_begun or more_rest or more_dirty:
        held, more_held = _taken(client.held(without=set(views)))
        views.update((view.job_id, view) for view in held)
    parts: dict[str, list[JobLine]] = {"held": [], "running": [], "waiting": []}
    for one in client.explanations(views.values()):
        part = "held" if one.action is Action.HOLD else "running" if one.runs else "waiting"
        parts[part].append(job_line(views[one.job_id], one))
    more = {
        "running": more_begun,
        "waiting": more_begun or more_rest,
        "held": more_held,
        "failed": more_failed,
        "dirty": more_dirty,
    }
    return Overview(
        at=at,
        cluster=of_cluster(client),
        running=tuple(parts["running"]),
        waiting=tuple(parts["waiting"]),
        held=tuple(parts["held"]),
        failed=tuple(failed),
        dirty=tuple(one for one in dirty if isinstance(one, JobLine)),
        cut=frozenset(name for name, is_cut in more.items() if is_cut),
    )


def job_lines(client: Client, views: Iterable[JobView]) -> list[JobLine]:
    """Return a line for each job, with what a leader does with those that have not ended. No view
    of a job that has ended is kept."""
    some = [job_line(view) if view.has_ended else view for view in views]
    unfinished = [one for one in some if isinstance(one, JobView)]
    explained = {one.job_id: one for one in client.explanations(unfinished)}
    return [
        job_line(one, explained[one.job_id]) if isinstance(one, JobView) else one for one in some
    ]


def job_line(view: JobView, explained: Explanation | None = None) -> JobLine:
    """Return a job in one line."""
    entry = view.entry
    result = entry.result if entry is not None else None
    held = explained is not None and explained.action is Action.HOLD
    started, attempt = _began(view)
    return JobLine(
        job_id=view.job_id,
        status=_status(view, held=held),
        state=entry.state.value if entry is not None else "",
        decision=explained.action.value if explained is not None else "",
        reason=one_line(_reason(view, explained)),
        runs=explained is not None and explained.runs,
        attempt=attempt,
        stages=len(result.stages) if result is not None else len(view.stages),
        started_at=started,
        finished_at=entry.finished_at if entry is not None else 0.0,
        tags=view.submitted.tags if view.submitted is not None else (),
    )


def _looked_at(view: JobView) -> JobView | JobLine:
    """Return a job that has ended and is not cleaned up in one line, which says what is left of it,
    and any other as it is. The results of many jobs take much memory."""
    if not view.has_ended:
        return view
    line = job_line(view)
    return attrs.evolve(line, reason=one_line(left_of(view)) or line.reason)


def _began(view: JobView) -> tuple[float, int]:
    """Return when a job was first started, and the number of its newest attempt; 0: never."""
    entry = view.entry
    if entry is not None and entry.result is not None:
        return entry.result.started_at, entry.result.attempt
    if view.application is not None:
        return view.application.started_at, view.application.attempts
    number = view.attempt.attempt if view.attempt is not None else 0
    if entry is not None and entry.tombstone is not None:
        return entry.tombstone.started_at, number
    return (view.attempt.first_started_at if view.attempt is not None else 0.0), number


def _status(view: JobView, *, held: bool) -> str:
    if held or (view.status is None and view.problems):
        return "HELD"
    return view.status.value if view.status is not None else ""


def _reason(view: JobView, explained: Explanation | None) -> str:
    if explained is not None:
        return "; ".join(_happening(view, explained))
    if view.problems:
        return view.problems[0]
    result = view.entry.result if view.entry is not None else None
    if result is not None and result.failure is not None:
        return result.failure.message
    return left_of(view)


def left_of(view: JobView) -> str:
    """Return what the cleanup has left, and why; empty if nothing is known of that."""
    if view.cleanup is not None and view.cleanup.problems:
        return "; ".join(f"left: {name}: {why}" for name, why in view.cleanup.problems.items())
    if view.cleanup is not None and view.cleanup.given_up:
        return f"given up: {', '.join(view.cleanup.given_up)}"
    return ""


def _happening(view: JobView, explained: Explanation) -> Iterator[str]:
    """Yield what happens to a job that has not ended, and what did."""
    yield from view.problems[:1]
    nobody = explained.nobody_leads
    if explained.action is Action.HOLD:
        said = explained.reason
        yield said  # No master that starts ends it.
        if nobody:
            yield nobody
    else:
        said = f"waiting: {nobody}" if nobody else explained.reason
        yield said
    stop = None if view.cancel is not None else view.stop
    # The reason of a hold has its text.
    if stop is not None and stop.mode is not StopMode.HOLD and said not in str(stop):
        yield str(stop)
    if view.application is not None and view.application.error:
        yield f"main raised {view.application.error}"
    if view.attempt is not None and view.attempt.failure is not None:
        times = counted(view.attempt.deaths, "time", "times")
        yield f"died {times}: {view.attempt.failure.message}"


def _taken(jobs: Iterator[T]) -> tuple[list[T], bool]:
    """Return the first of some jobs, and whether there are more."""
    return list(islice(jobs, MOST)), next(jobs, None) is not None
