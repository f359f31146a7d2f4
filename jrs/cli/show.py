"""``jrs show``: everything that is known of one job, also long after its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click

from jrs.cli.common import (
    ClusterRef,
    echo,
    echo_json,
    json_option,
    storage_option,
    took,
    when,
    with_cluster,
)
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.client import plain
from jrs.client.job import JobHandle
from jrs.client.stream_texts import StreamTexts
from jrs.contract.errors import Unavailable
from jrs.contract.texts import one_line
from jrs.records.applications import ApplicationRecord
from jrs.records.lineage import LineageKind
from jrs.records.model import AttemptSummary, JobResult, JobSpec, StopMode
from jrs.records.stages import TAKEN_OVER, StageSummary
from jrs.recovery.inspect.explain import Explanation
from jrs.store.job_views import JobView

_MADE = {
    LineageKind.RETRY: "retried as",
    LineageKind.FORK: "forked as",
    LineageKind.RESTORE: "restored as",
}

Fact = tuple[str, str]
"""A name and a value; the name is empty on a further line of the same value."""


@click.command("show")
@job_argument
@storage_option
@json_option
@with_cluster
def show_command(ref: ClusterRef, job_id: str, storage: str | Path | None, as_json: bool) -> int:
    """Show a job: what was submitted, its attempts, its stages and its result.

    It shows what ran, who submitted it, and where its attempts ran, as long as the cluster keeps
    the result; for an expired result, only the status and the times.

    \b
    Example:  jrs show nightly-2026-11-20
    """
    with connect(ref, storage=storage) as client:
        job = client.job(job_id)
        if as_json:
            echo_json(plain.of_job(job))
            return 0
        view, made, logs = job.view(), tuple(job.descendants()), _logs_of(job)
        explained = None if view.has_ended else job.explain()
        streams = job.streams()
    facts = list(_facts_of(view, explained))
    facts += [fact for one in streams for fact in _stream(StreamTexts.of(one, time.time()))]
    facts += [(_MADE[one.how], f"{one.descendant}, {when(one.at)}") for one in made]
    if logs:
        facts.append(("logs", logs))
    for name, value in facts:
        echo(f"{name + ':' if name else '':12} {value}")
    return 0


# -- inside --------------------------------------------------------------------------------


def _logs_of(job: JobHandle) -> str:
    """Return where a job's logs are, or why that cannot be told; empty if it has none."""
    try:
        folder = job.log_folder()
    except Unavailable as error:
        return f"cannot be looked for: {error}"
    return "" if folder is None else str(folder)


def _facts_of(view: JobView, explained: Explanation | None) -> Iterator[Fact]:
    result = view.entry.result if view.entry else None
    yield "job", view.job_id
    yield "status", view.status.value if view.status else "unknown"
    if explained is not None:
        yield "now", str(explained)
    if view.application is not None:
        yield from _main(view.application)
    if view.submitted is not None:
        cut = result is not None and result.arguments_left_out and view.spec is None
        yield from _submitted(view.submitted, arguments_left_out=cut)
    yield from _attempts(view)
    for stage in view.stages if result is None else ():
        yield f"stage {stage.name}", stage_text(stage.summary(), last=stage.attempt)
    if view.entry is not None:
        yield "result", view.entry.state.value
    if result is not None:
        yield from _ended(result, tell_start=view.application is None)
    if view.entry is not None and view.entry.tombstone is not None:
        tombstone = view.entry.tombstone
        if tombstone.submitted_at:
            yield "submitted", when(tombstone.submitted_at)
        if tombstone.started_at:
            yield "started", when(tombstone.started_at)
        yield "finished", when(tombstone.finished_at)
        yield "expired", f"{when(tombstone.expired_at)}; the rest of the result is gone"
    if view.stop is not None and view.entry is None:
        if view.stop.mode is not StopMode.HOLD:  # "now" tells its reason.
            yield "stop", str(view.stop)
        yield from ((f"stage {name}", step) for name, step in view.stop.stages.items())
    if view.cleanup is not None:
        yield from (("given up", f"{name}: {why}") for name, why in view.cleanup.given_up.items())
    yield from (("problem", problem) for problem in view.problems)


def _submitted(spec: JobSpec, *, arguments_left_out: bool) -> Iterator[Fact]:
    yield "entry point", spec.entry_point
    if arguments_left_out:
        yield "arguments", "left out of the result because of their size"
    else:
        yield "arguments", json.dumps(spec.arguments, ensure_ascii=False)
    by = f" by {spec.submitted_by}" if spec.submitted_by else ""
    yield "submitted", f"{when(spec.submitted_at)}{by}"
    policy = spec.restart
    runs = f"{spec.runner.value}, {policy.attempts} attempts"
    yield "runs as", runs + (", also after exceptions" if policy.on_exception else "")
    if spec.application:
        yield "application", spec.application
    if spec.lineage is not None:
        yield "made as", str(spec.lineage)
    yield from _options(spec)


def _options(spec: JobSpec) -> Iterator[Fact]:
    if spec.partitions is not None:
        yield "partitions", str(spec.partitions)
    if spec.priority:
        yield "priority", str(spec.priority)
    if spec.slots > 1:
        yield "slots", str(spec.slots)
    if spec.tags:
        yield "tags", ", ".join(spec.tags)
    limits = spec.timeout
    for name, seconds in (("time limit", limits.job), ("per attempt", limits.attempt)):
        if seconds is not None:
            yield name, f"{took(seconds)}, then {limits.then.value}"
    for name in spec.settings.given:
        setting = getattr(spec.settings, name)
        yield name, setting if isinstance(setting, str) else json.dumps(setting)
    if spec.on_result is not None:
        yield "on result", spec.on_result.run


def _main(main: ApplicationRecord) -> Iterator[Fact]:
    yield "kind", "application"
    yield "entry point", main.entry_point
    yield "arguments", json.dumps(main.arguments, ensure_ascii=False)
    yield "started", f"{when(main.started_at)}, by {main.started_by}"
    begun = f"{main.attempts}, on {main.host}, pid {main.pid}, in epoch {main.epoch}"
    yield "attempt", f"{begun}, {when(main.begun_at)}"
    if main.error:
        raised = f"{when(main.error_at)}, on {main.error_host}: {main.error}"
        yield "raised", f"{main.errors} times, last {raised}"


def _attempts(view: JobView) -> Iterator[Fact]:
    if view.attempts_left_out:
        yield "attempts", f"{view.attempts_left_out} earlier ones are not listed"
    for one in view.attempts:
        yield f"attempt {one.attempt}", attempt_text(one)


def attempt_text(one: AttemptSummary) -> str:
    """Return an attempt in one line: when and where it ran, under which master, how it ended."""
    where = f" on {one.host}" if one.host else ""
    pid = f", pid {one.pid}" if one.pid else ""
    until = f" to {when(one.ended_at)}" if one.ended_at else ""
    how = f": {one_line(one.ended)}" if one.ended else ""
    by = f"by {one.master} in epoch {one.epoch}" if one.master else f"in epoch {one.epoch}"
    spark = f", {one.spark}" if one.spark else ""
    return f"{when(one.started_at)}{until}{where}{pid}, {by}{spark}{how}"


def stage_text(done: StageSummary, *, last: int) -> str:
    """Return a finished stage in one line; `last`: the newest attempt of its job."""
    if done.attempt == TAKEN_OVER:
        return f"taken over, {took(done.seconds)}"
    skipped = ", skipped by the last attempt" if done.attempt < last else ""
    return f"attempt {done.attempt}, {took(done.seconds)}{skipped}"


def _stream(texts: StreamTexts) -> Iterator[Fact]:
    for at, line in enumerate(texts.lines()):
        yield (f"stream {texts.stage}" if not at else "", line)


def _ended(result: JobResult, *, tell_start: bool) -> Iterator[Fact]:
    """Yield the facts of a result. Without times, it was recorded by a program that gave none."""
    if result.stages_left_out:
        yield "stages", f"{result.stages_left_out} earlier ones are not listed"
    for done in result.stages:
        yield f"stage {done.name}", stage_text(done, last=result.attempt)
    yield "attempts", str(result.attempt)
    if result.started_at and tell_start:
        yield "started", when(result.started_at)
    at = f"{when(result.finished_at)}, " if result.finished_at else ""
    yield "finished", f"{at}in epoch {result.epoch}"
    if result.code:
        yield "code", result.code
    if result.failure is not None:
        yield from _lines("failure", result.failure.message)
        yield from _lines("", result.failure.detail)
    else:
        yield from _lines("payload", json.dumps(result.payload, indent=2, ensure_ascii=False))


def _lines(name: str, text: str) -> Iterator[Fact]:
    """Yield a text of several lines as one fact, with its name on the first line."""
    for at, line in enumerate(text.splitlines()):
        yield (name if not at else "", line.expandtabs(4))
