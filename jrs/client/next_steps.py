"""The commands that a person would run next for a job; jrs would refuse none of them."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.records.model import JobStatus, ResultState, RunnerKind, StopMode
from jrs.recovery.inspect.explain import Explanation, can_be_retried
from jrs.recovery.rules.decision import Action
from jrs.store.job_views import JobView
from jrs.store.stop_transitions import STOP, StopEvent, step_after, step_of


@attrs.frozen
class Step:
    """A command, and what it is for."""

    command: str
    said: str


def next_steps(
    view: JobView, explained: Explanation | None, cluster: str, *, paused: bool, needs_master: bool
) -> list[Step]:
    """Return the commands for a job in that state, the likeliest first.

    Args:
        explained: what a leader does with it; None once it has ended.
        needs_master: see `LeaderView`.
    """
    named = "" if cluster == "default" else f" --cluster {cluster}"
    found = list(_of_ended(view))
    if explained is not None:
        found = [
            *_of_cluster(paused=paused, needs_master=needs_master),
            *_of_unfinished(view, explained),
        ]
    return [Step(f"{command.format(job=view.job_id)}{named}", said) for command, said in found]


_Found = Iterator[tuple[str, str]]

_SHOW = ("jrs show {job}", "everything that is known of it")
_FSCK = ("jrs fsck", "what is damaged or left over")
_LOG = ("jrs logs {job} --err --tail 100", "the end of what it printed")
_CANCEL = ("jrs cancel {job}", "end it for good")


def _of_ended(view: JobView) -> _Found:
    if view.entry is not None and view.entry.state is ResultState.DIRTY:
        yield "jrs cleanup dry-run {job}", "what is left to remove"
        yield "jrs cleanup retry {job}", "try the cleanup again at once"
    if view.status in (JobStatus.FAILED, JobStatus.CANCELED) and _has_log(view):
        yield _LOG
    if can_be_retried(view):
        yield "jrs retry {job}", "run again what has not finished, as a new job"
    yield _SHOW


def _of_cluster(*, paused: bool, needs_master: bool) -> _Found:
    if needs_master:
        yield "jrs master", "start a master: none leads"
    if paused:
        yield "jrs unpause", "end the pause of the cluster"


def _of_unfinished(view: JobView, explained: Explanation) -> _Found:
    if view.entry is not None or explained.action is Action.NOTHING:
        yield from (_FSCK, _SHOW)  # Its result cannot be read, or no spec: there is nothing to end.
        return
    if explained.action is Action.RESTORE:
        yield "jrs snapshot restore --finish {job}", "complete the restore, if it was interrupted"
    elif explained.action is Action.CANCEL:
        yield "jrs explain {job}", "how it ends"
    elif view.application is not None:
        yield "jrs explain {job}", "where its main runs"
    elif explained.action is Action.HOLD or _is_held(view):
        yield "jrs explain {job}", _why_held(view)
        yield from [_LOG] if _has_log(view) else []
        if _is_held(view) and _may(view, StopEvent.RESUME):
            yield "jrs resume {job}", "try it again once that is mended"
    elif view.status is JobStatus.SUSPENDED:
        if _may(view, StopEvent.RESUME):
            yield "jrs resume {job}", "continue from its newest committed batch"
        if _may(view, StopEvent.RECONFIGURE):
            yield "jrs rescale {job} --partitions N", "first change the partitions of its state"
    elif view.status is JobStatus.RUNNING:
        if not _in_its_master(view):
            yield "jrs logs -f {job}", "follow what it prints"
        if _may(view, StopEvent.SUSPEND):
            yield "jrs suspend {job}", "stop at a batch boundary, to be resumed"
    else:
        yield "jrs explain {job}", "what it waits for"
    yield _CANCEL


def _why_held(view: JobView) -> str:
    if _is_held(view) or view.attempt is None or not view.attempt.obstacles:
        return "why it is held"
    return "why no master can start it; once one can, it starts by itself"


def _is_held(view: JobView) -> bool:
    return view.stop is not None and view.stop.mode is StopMode.HOLD


def _may(view: JobView, event: StopEvent) -> bool:
    """Return whether a request about the job's stop is possible, and would change something."""
    before = step_of(view.stop)
    after = step_after(STOP, before, event)
    changes = after is not before or event is StopEvent.RECONFIGURE
    return view.spec is not None and after is not None and changes


def _has_log(view: JobView) -> bool:
    return bool(view.attempts or view.attempts_left_out) and not _in_its_master(view)


def _in_its_master(view: JobView) -> bool:
    """Return whether the job has no process of its own, whose output would be kept."""
    return view.submitted is not None and view.submitted.runner is RunnerKind.THREAD
