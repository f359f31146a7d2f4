"""``jrs submit``, ``wait``, ``cancel`` and ``sign``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from jrs.cli.common import (
    EXIT_DIFFERS,
    EXIT_TIMEOUT,
    ClusterRef,
    echo,
    echo_json,
    json_option,
    spec_key_option,
    with_cluster,
)
from jrs.cli.connecting import connect
from jrs.client.connection import entry_point_of
from jrs.client.job import JobHandle
from jrs.contract.errors import DuplicateJob, InvalidInput, NoSuchJob
from jrs.contract.texts import shown
from jrs.records.checks import check_job_id
from jrs.records.model import JobResult, JobSpec, JobStatus, RunnerKind
from jrs.records.policies import Keep, RestartPolicy, SnapshotPolicy
from jrs.records.signing import SpecKey
from jrs.recovery.attempt.entry_point import check_entry


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
              default=RunnerKind.PROCESS.value, show_default=True)  # fmt: skip
@click.option("--attempts", type=int, default=3, show_default=True,
              help="Total attempts before a job that dies is FAILED.")  # fmt: skip
@click.option("--delay", type=float, default=1.0, show_default=True,
              help="Seconds before the second attempt; doubled each time after.")  # fmt: skip
@click.option("--partitions", type=int, metavar="N",
              help="The number of partitions of its streams' state.")  # fmt: skip
@click.option("--snapshot-every", type=float, metavar="SECONDS",
              help="Take a snapshot of its streams at this interval.")  # fmt: skip
@click.option("--keep-snapshots", type=int, default=3, show_default=True, metavar="N",
              help="Most unnamed snapshots to keep until the job ends.")  # fmt: skip
@click.option("--snapshot-max-age", type=float, metavar="SECONDS",
              help="Delete older snapshots when another one is taken.")  # fmt: skip
@click.option("--snapshots-at-end", multiple=True, metavar="STATUS=keep|delete",
              help="Keep or delete the snapshots of a job that ended finished (default: delete), "
              "failed (keep) or canceled (keep). Repeatable.")  # fmt: skip
@click.option("--on-exception", is_flag=True,
              help="Also restart the job if its function raises.")  # fmt: skip
@click.option("--no-check", is_flag=True,
              help="Do not import the entry point on this host.")  # fmt: skip
@click.option("--existing", is_flag=True,
              help="Accept an id that was submitted before; with --wait, return its "
              "result.")  # fmt: skip
@click.option("--wait", "waits", is_flag=True, help="Wait for the result and print it.")
@spec_key_option
@with_cluster
def submit_command(
    place: ClusterRef,
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
    snapshots_at_end: tuple[str, ...],
    on_exception: bool,
    no_check: bool,
    existing: bool,
    waits: bool,
    spec_key: SpecKey | None,
) -> int:
    """Submit a job, durably. Needs no leader: the next leader starts the job.

    \b
    Examples:
      jrs submit nightly-2026-11-20 etl.jobs:nightly --arg day=2026-11-20
      jrs submit report-7 ./report.py:main --args '{"top": 10}' --wait
    """
    spec = JobSpec(
        job_id=job_id,
        entry_point=entry_point_of(entry_point),
        arguments=_arguments(pairs, arguments),
        runner=RunnerKind(runner),
        restart=RestartPolicy(attempts=attempts, delay=delay, on_exception=on_exception),
        partitions=partitions,
        snapshots=SnapshotPolicy(
            every=snapshot_every,
            keep=keep_snapshots,
            max_age=snapshot_max_age,
            **dict[str, Any](map(_at_end, snapshots_at_end)),
        ),
    )
    if not no_check:
        sys.path.insert(0, "")
        check_entry(entry_point, spec.arguments)
    with connect(place, create=True, spec_key=spec_key) as client:
        try:
            client.submit_spec(spec)
        except DuplicateJob as error:
            if not existing:
                raise
            echo(f"{job_id} was submitted before ({error.state})", err=True)
        else:
            echo(f"submitted {job_id}", err=True)
        return _wait(client.job(job_id), None, as_json=False) if waits else 0


@click.command("wait")
@click.argument("job_id")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Give up after this time and exit 3.",
)
@json_option
@with_cluster
def wait_command(place: ClusterRef, job_id: str, timeout: float | None, as_json: bool) -> int:
    """Wait for a job's result and print its payload as JSON; exit 1 unless it FINISHED.

    Returns as soon as the result is durable; cleanup may still run.

    \b
    Example:  jrs wait nightly-2026-11-20 --timeout 3600
    """
    check_job_id(job_id)
    if timeout != timeout:
        raise InvalidInput("--timeout must be a number of seconds")
    with connect(place) as client:
        job = client.job(job_id)
        try:
            job.view()
        except NoSuchJob as error:
            echo(f"jrs: {error} yet; waiting", err=True)
        return _wait(job, timeout, as_json=as_json)


@click.command("cancel")
@click.argument("job_id")
@click.option("--reason", default="", help="A text that is stored with the request.")
@click.option("--wait", "waits", is_flag=True, help="Wait until the job has ended.")
@with_cluster
def cancel_command(place: ClusterRef, job_id: str, reason: str, waits: bool) -> int:
    """Cancel a job: the leader kills all processes of its attempt.

    \b
    Example:  jrs cancel nightly-2026-11-20 --wait
    """
    with connect(place) as client:
        job = client.job(job_id)
        job.cancel(reason)
        echo(f"requested to cancel {job_id}", err=True)
        if waits:
            result = job.result()
            echo(f"{job_id} ended {result.status.name}", err=True)
    return 0


def _at_end(text: str) -> tuple[str, Keep]:
    status, _, what = text.partition("=")
    if status not in ("finished", "failed", "canceled") or what not in ("keep", "delete"):
        raise InvalidInput(
            f"invalid --snapshots-at-end: {text!r}; write finished=keep or failed=delete"
        )
    return f"on_{status}", Keep(what)


def _arguments(pairs: tuple[str, ...], text: str | None) -> dict[str, Any]:
    found: Any = {}
    if text is not None:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"--args is not JSON: {error}") from None
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


def _wait(job: JobHandle, timeout: float | None, *, as_json: bool) -> int:
    try:
        result = job.result(timeout)
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
        why = result.failure.message if result.failure else "no reason was recorded"
        echo(f"jrs: job {result.job_id!r} ended {result.status.name}: {why}", err=True)


@click.command("sign")
@click.argument("job_id")
@spec_key_option
@with_cluster
def sign_command(place: ClusterRef, job_id: str, spec_key: SpecKey | None) -> int:
    """Sign a job's stored spec, so that masters with the same key run the job.

    Check the spec first with jrs show JOB_ID. If the job was held for its signature, resume it
    afterwards with jrs resume.

    \b
    Example:  jrs sign nightly-2026-11-20 --spec-key /etc/jrs/spec.key
    """
    with connect(place, spec_key=spec_key) as client:
        client.job(job_id).sign()
    echo(f"{job_id} is signed", err=True)
    return 0
