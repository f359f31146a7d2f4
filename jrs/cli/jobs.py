"""``jrs submit``, ``wait``, ``cancel`` and ``sign``."""

from __future__ import annotations

import json
from typing import Any

import click

from jrs.cli.common import (
    EXIT_DIFFERS,
    EXIT_TIMEOUT,
    ClusterRef,
    because_option,
    echo,
    echo_json,
    import_from_here,
    json_option,
    reason_option,
    shortened,
    spec_key_option,
    with_cluster,
)
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.cli.durations import DURATION
from jrs.cli.job_options import job_options
from jrs.cli.suspend import telling_unled
from jrs.client.connection import entry_point_of
from jrs.client.job import JobHandle
from jrs.contract.errors import DuplicateJob, InvalidInput
from jrs.contract.texts import one_line, shown
from jrs.records.checks import check_job_id
from jrs.records.model import JobResult, JobSpec, JobStatus, RunnerKind
from jrs.records.policies import Keep, RestartPolicy, SnapshotPolicy
from jrs.records.signing import SpecKey
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.attempt.entry_check import check_entry
from jrs.recovery.inspect.explain import Explanation
from jrs.store.job_views import JobView

_LONGEST = 1000
"""Characters of a failure that `jrs wait` prints; `jrs show` prints the whole text."""


@click.command(
    "submit",
    epilog="The job id is the idempotency key: a used id is refused forever, even after its result "
    "has expired.",
)
@click.argument("job_id")
@click.argument("entry_point", metavar="MODULE:FUNCTION")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE",
              help="An argument; VALUE is JSON if it parses, else text. Repeatable.")  # fmt: skip
@click.option("--args", "arguments", metavar="JSON", help="All arguments, as a JSON object.")
@click.option("--runner", type=click.Choice([kind.value for kind in RunnerKind]),
              default=RunnerKind.PROCESS.value, show_default=True,
              help="Run each attempt in a process of its own, or in a thread of the "
                   "master.")  # fmt: skip
@click.option("--attempts", type=int, default=3, show_default=True,
              help="The job becomes FAILED when this many attempts have died.")  # fmt: skip
@click.option("--delay", type=DURATION, metavar="DURATION", default="1s", show_default=True,
              help="Time before the second attempt; it doubles for each "
                   "further attempt.")  # fmt: skip
@click.option("--partitions", type=int, metavar="N",
              help="The number of partitions of its streams' state.")  # fmt: skip
@click.option("--snapshot-every", type=DURATION, metavar="DURATION",
              help="Take a snapshot of its streams at this interval.")  # fmt: skip
@click.option("--keep-snapshots", type=int, default=3, show_default=True, metavar="N",
              help="Keep at most this many of them until the job ends.")  # fmt: skip
@click.option("--snapshot-max-age", type=DURATION, metavar="DURATION",
              help="Delete older snapshots when another one is taken: 12h, 30d.")  # fmt: skip
@click.option("--snapshot-format", default=SnapshotFormat.LINK.value, show_default=True,
              type=click.Choice([each.value for each in SnapshotFormat if each.is_restorable]),
              help="The format of its snapshots.")  # fmt: skip
@click.option("--snapshots-at-end", multiple=True, metavar="STATUS=keep|delete",
              help="Keep or delete the snapshots that jrs took when the job has finished "
                   "(default: delete), failed or was canceled (default: keep). With keep, jrs also "
                   "takes one of the job's end, for jrs retry. Repeatable.")  # fmt: skip
@click.option("--on-exception", is_flag=True,
              help="Also restart the job if its function raises.")  # fmt: skip
@job_options
@click.option("--no-check", is_flag=True,
              help="Do not import the entry point on this host.")  # fmt: skip
@click.option("--existing", is_flag=True,
              help="Accept an id that was submitted before; with --wait, return its "
              "result.")  # fmt: skip
@click.option("--wait", "waits", is_flag=True,
              help="Wait for the result, however long that takes, and print it. To limit the "
                   "wait, use jrs wait --timeout instead.")  # fmt: skip
@spec_key_option
@because_option
@with_cluster
def submit_command(
    ref: ClusterRef,
    job_id: str,
    entry_point: str,
    pairs: tuple[str, ...],
    arguments: str | None,
    runner: str,
    attempts: int,
    delay: float,
    partitions: int | None,
    snapshot_every: float | None,
    keep_snapshots: int,
    snapshot_max_age: float | None,
    snapshot_format: str,
    snapshots_at_end: tuple[str, ...],
    on_exception: bool,
    no_check: bool,
    existing: bool,
    waits: bool,
    spec_key: SpecKey | None,
    given: dict[str, Any],
) -> int:
    """Submit a job, durably. Needs no leader: the next leader starts the job.

    \b
    Examples:
      jrs submit nightly-2026-11-20 etl.jobs:nightly --arg day=2026-11-20
      jrs submit report-7 ./report.py:main --args '{"top": 10}' --wait
      jrs submit big-1 etl:big --priority 5 --slots 2 --timeout 2h --conf spark.driver.memory=8g
      jrs submit load-1 etl:load --secret DB_PASSWORD=file:/run/secrets/db --tag team=sales
    """
    spec = JobSpec(
        job_id=job_id,
        entry_point=entry_point_of(entry_point),
        arguments=arguments_of(pairs, arguments),
        runner=RunnerKind(runner),
        restart=RestartPolicy(attempts=attempts, delay=delay, on_exception=on_exception),
        partitions=partitions,
        snapshots=SnapshotPolicy(
            every=snapshot_every,
            keep=keep_snapshots,
            max_age=snapshot_max_age,
            format=SnapshotFormat(snapshot_format),
            **dict[str, Any](map(_at_end, snapshots_at_end)),
        ),
        **given,
    )
    if not no_check:
        import_from_here()
        check_entry(entry_point, spec.arguments)
    with connect(ref, create=True, spec_key=spec_key) as client:
        try:
            client.submit_spec(spec)
        except DuplicateJob:
            if not existing:
                raise
            echo(_submitted_before(client.job(job_id).view(), spec), err=True)
        else:
            echo(f"submitted {job_id}", err=True)
        return wait_for(client.job(job_id), None, as_json=False) if waits else 0


def _submitted_before(view: JobView, spec: JobSpec) -> str:
    """Return what became of the job that has the id of `spec`, and how that job differs."""
    said = f"{view.job_id} was submitted before"
    if view.status is not None:
        said += f" ({view.status.name})"
    if (before := view.submitted) is not None:
        differs = {
            "another entry point": before.entry_point != spec.entry_point,
            "other arguments": before.arguments != spec.arguments,
        }
        if other := " and ".join(what for what, there in differs.items() if there):
            said += f", with {other}"
    if view.status in (JobStatus.FAILED, JobStatus.CANCELED):
        said += f"; to run it again: jrs retry {view.job_id}"
    return said


@click.command("wait")
@job_argument
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Give up after this time and exit 3.",
)
@click.option("--allow-missing", is_flag=True,
              help="Also wait for a job that is not submitted yet.")  # fmt: skip
@json_option
@with_cluster
def wait_command(
    ref: ClusterRef, job_id: str, timeout: float | None, allow_missing: bool, as_json: bool
) -> int:
    """Wait for a job's result and print its payload as JSON; exit 1 unless it FINISHED.

    Returns as soon as the result is durable; cleanup may still run. While it waits, it prints on
    stderr what the job waits for. If the job failed, it prints the reason; jrs show has the whole
    traceback.

    \b
    Example:  jrs wait nightly-2026-11-20 --timeout 3600
    """
    check_job_id(job_id)
    with connect(ref) as client:
        return wait_for(client.job(job_id), timeout, as_json=as_json, allow_missing=allow_missing)


@click.command("cancel")
@job_argument
@reason_option
@click.option("--wait", "waits", is_flag=True, help="Wait until the job has ended.")
@with_cluster
def cancel_command(ref: ClusterRef, job_id: str, reason: str, waits: bool) -> int:
    """Cancel a job, or an application with its jobs: the leader kills all processes of an attempt.

    \b
    Example:  jrs cancel nightly-2026-11-20 --wait
    """
    with connect(ref) as client:
        job = client.job(job_id)
        requested = job.cancel(reason=reason)
        if requested:
            echo(f"requested to cancel {job_id}", err=True)
        else:
            echo(f"{job_id} is CANCELED already", err=True)
        if waits:
            result = job.result(notify=telling_unled())
            echo(f"{job_id} ended {result.status.name}", err=True)
    return 0


def _at_end(text: str) -> tuple[str, Keep]:
    status, _, what = text.partition("=")
    if status not in ("finished", "failed", "canceled") or what not in ("keep", "delete"):
        raise InvalidInput(
            f"invalid --snapshots-at-end: {text!r}; write finished=keep or failed=delete"
        )
    return f"on_{status}", Keep(what)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, of which Python would take the last of two values for one name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ValueError(f"it has {shown(name)} twice")
    return found


def arguments_of(pairs: tuple[str, ...], text: str | None) -> dict[str, Any]:
    found: Any = {}
    if text is not None:
        try:
            found = json.loads(text, object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"--args is not valid JSON: {error}") from None
        if not isinstance(found, dict):
            raise InvalidInput('--args must be a JSON object, like \'{"day": "2026-11-20"}\'')
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name in found:
            raise InvalidInput(f"the argument {name!r} is given twice")
        if not equals or not name:
            raise InvalidInput(f"not an argument: {pair!r}; write --arg name=value")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
        except (ValueError, RecursionError) as error:  # JSON over the limits of Python's parser.
            raise InvalidInput(f"--arg {shown(name)}: {error}") from None
    return dict(found)


def wait_for(
    job: JobHandle, timeout: float | None, *, as_json: bool, allow_missing: bool = False
) -> int:
    def tell(explained: Explanation) -> None:
        echo(f"jrs: job {job.id!r}: {explained}", err=True)

    try:
        result = job.result(timeout, allow_missing=allow_missing, notify=tell)
    except TimeoutError as error:
        echo(f"jrs: {error}", err=True)
        return EXIT_TIMEOUT
    _print(result, as_json=as_json)
    return 0 if result.status is JobStatus.FINISHED else EXIT_DIFFERS


def _print(result: JobResult, *, as_json: bool) -> None:
    if as_json:
        echo_json(result)
    elif result.status is JobStatus.FINISHED:
        echo_json(result.payload)
    else:
        failure, job_id = result.failure, result.job_id
        why = shortened(failure.message, _LONGEST) if failure else "no reason was recorded"
        echo(f"jrs: job {job_id!r} ended {result.status.name}: {why}", err=True)
        if failure is not None and failure.detail:
            last = one_line(failure.detail.strip().rpartition("\n")[2])
            if last not in failure.message:  # As the last words of a process that died.
                echo(f"  | {shortened(last, _LONGEST)}", err=True)
            echo(f"  the whole failure: jrs show {job_id}; its logs: jrs logs {job_id}", err=True)


@click.command("sign")
@job_argument
@spec_key_option
@because_option
@with_cluster
def sign_command(ref: ClusterRef, job_id: str, spec_key: SpecKey | None) -> int:
    """Sign a job's stored spec, so that masters with the same key run the job.

    Check the spec first with jrs show JOB_ID. If the job was held for its signature, resume it
    afterwards with jrs resume.

    \b
    Example:  jrs sign nightly-2026-11-20 --spec-key /etc/jrs/spec.key
    """
    with connect(ref, spec_key=spec_key) as client:
        client.job(job_id).sign()
    echo(f"{job_id} is signed", err=True)
    return 0
