"""What a person would do next about a job: the exact commands."""

from __future__ import annotations

import attrs

from jrs.client.overview import JobLine
from jrs.records.model import JobStatus


@attrs.frozen
class Step:
    """A command, and what it is for."""

    command: str
    said: str


def next_steps(
    line: JobLine, cluster: str, *, paused: bool, led: bool, stopping: bool = False
) -> list[Step]:
    """Return the commands for a job in that state, the likeliest first.

    Args:
        led: whether a master leads, or one is there that will.
        stopping: whether the job is being suspended or drained: another stop is refused then.
    """
    job = line.job_id
    steps = _of_ended(line) if line.state else _of_unfinished(line, paused=paused, led=led)
    if stopping:
        steps = [one for one in steps if one is not _SUSPEND]
    named = "" if cluster == "default" else f" --cluster {cluster}"
    return [Step(f"{command.format(job=job)}{named}", said) for command, said in steps]


_SUSPEND = ("jrs suspend {job}", "stop at a batch boundary, to be resumed")
_LOG = ("jrs logs {job} --err --tail 100", "the end of what it printed")


def _of_ended(line: JobLine) -> list[tuple[str, str]]:
    steps = []
    if line.state == "dirty":
        steps += [
            ("jrs cleanup dry-run {job}", "what is left to remove"),
            ("jrs cleanup retry {job}", "try the cleanup again at once"),
        ]
    if line.status in (JobStatus.FAILED, JobStatus.CANCELED):
        steps += [_LOG, ("jrs retry {job}", "run again what has not finished, as a new job")]
    return [*steps, ("jrs show {job}", "everything that is known of it")]


def _of_unfinished(line: JobLine, *, paused: bool, led: bool) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    if not led:
        steps.append(("jrs master", "start a master: none leads"))
    if paused:
        steps.append(("jrs unpause", "end the pause of the cluster"))
    if line.status == "HELD":
        steps += [
            ("jrs explain {job}", "why it is held"),
            _LOG,
            ("jrs resume {job}", "try it again once that is mended"),
        ]
    elif line.status == JobStatus.SUSPENDED:
        steps += [
            ("jrs resume {job}", "continue from its newest committed batch"),
            ("jrs rescale {job} --partitions N", "first change the partitions of its state"),
        ]
    elif line.status == JobStatus.RUNNING:
        steps += [
            ("jrs logs -f {job}", "follow what it prints"),
            _SUSPEND,
        ]
    else:
        steps.append(("jrs explain {job}", "what it waits for"))
    return [*steps, ("jrs cancel {job}", "end it for good")]
