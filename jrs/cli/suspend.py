"""``jrs suspend``, ``drain`` and ``resume``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from jrs.cli.common import (
    EXIT_DIFFERS,
    EXIT_TIMEOUT,
    ClusterRef,
    because_option,
    echo,
    no_wait_option,
    reason_option,
    with_cluster,
)
from jrs.cli.completion import job_argument
from jrs.cli.connecting import connect
from jrs.cli.durations import DURATION
from jrs.contract.errors import WrongState
from jrs.records.model import JobStatus, StopMode, StopRecord
from jrs.recovery.inspect.explain import Explanation

_DURABLE = (
    "The request is durable at once, and a new leader continues it after a failover. 'jrs cancel' "
    "overrides it at any time."
)
_timeout = click.option("--timeout", type=DURATION, metavar="DURATION",
                        help="Give up after this time and exit 3; the request stays.")  # fmt: skip


def _grace(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept ``--grace``, and ``--patience``, its former name."""

    @click.option("--grace", type=DURATION, default="30s", show_default=True, metavar="DURATION",
                  help="Kill an attempt that has not stopped after this time; the job can resume "
                  "from its newest committed batch.")  # fmt: skip
    @click.option("--patience", "former", type=DURATION, hidden=True, deprecated="use '--grace'")
    @functools.wraps(command)
    def wrapper(*args: Any, grace: float, former: float | None, **options: Any) -> Any:
        return command(*args, grace=grace if former is None else former, **options)

    return wrapper


@click.command("suspend", epilog=_DURABLE)
@job_argument
@reason_option
@_grace
@no_wait_option
@_timeout
@with_cluster
def suspend_command(
    ref: ClusterRef,
    job_id: str,
    reason: str,
    grace: float,
    no_wait: bool,
    timeout: float | None,
) -> int:
    """Suspend a job at a batch boundary; wait for it, and print the progress of its stages.

    \b
    Example:  jrs suspend hourly-delays      # and later: jrs resume hourly-delays
    """
    return _stop(ref, job_id, StopMode.SUSPEND, reason, grace, no_wait, timeout)


@click.command("drain", epilog=_DURABLE)
@job_argument
@reason_option
@no_wait_option
@_timeout
@with_cluster
def drain_command(
    ref: ClusterRef, job_id: str, reason: str, no_wait: bool, timeout: float | None
) -> int:
    """Have a job process the available input, flush every window, and finish; wait for it.

    \b
    Example:  jrs drain hourly-delays --timeout 600
    """
    return _stop(ref, job_id, StopMode.DRAIN, reason, 30.0, no_wait, timeout)


@click.command(
    "stop",
    # click writes the notice behind the last line of the text, which an example must not be.
    epilog=f"{_DURABLE}\n\nExample:  jrs suspend hourly-delays",
    deprecated="use 'jrs suspend' or 'jrs drain'",
)
@job_argument
@click.option("--suspend", "mode", flag_value=StopMode.SUSPEND.value, default=True,
              help="As 'jrs suspend'. The default.")  # fmt: skip
@click.option("--drain", "mode", flag_value=StopMode.DRAIN.value, help="As 'jrs drain'.")
@reason_option
@_grace
@no_wait_option
@_timeout
@with_cluster
def stop_command(
    ref: ClusterRef,
    job_id: str,
    mode: str,
    reason: str,
    grace: float,
    no_wait: bool,
    timeout: float | None,
) -> int:
    """Suspend or drain a job."""
    return _stop(ref, job_id, StopMode(mode), reason, grace, no_wait, timeout)


@click.command("resume")
@job_argument
@because_option
@with_cluster
def resume_command(ref: ClusterRef, job_id: str) -> int:
    """Resume a suspended job, or retry a held job; the leader starts it.

    \b
    Example:  jrs resume hourly-delays
    """
    with connect(ref) as client:
        resumes = client.job(job_id).resume()
    echo(f"{job_id} resumes" if resumes else f"{job_id} is not suspended", err=True)
    return 0


def telling_unled() -> Callable[[Explanation], None]:
    """Return what says that no master leads, if none does, to who waits for what a leader does with
    a job; the same again only once one has led meanwhile."""
    said = ""

    def tell(explained: Explanation) -> None:
        nonlocal said
        if explained.nobody_leads and explained.nobody_leads != said:
            echo(f"jrs: {explained.nobody_leads}", err=True)
        said = explained.nobody_leads

    return tell


def echo_held(stop: StopRecord) -> None:
    """Say that a job is held, why, and what then."""
    then = "continues the drain" if stop.drain else "tries again"
    echo(f"{stop.job_id} is held: {stop.reason}; 'jrs resume {stop.job_id}' {then}", err=True)


# -- inside --------------------------------------------------------------------------------


def _stop(
    ref: ClusterRef,
    job_id: str,
    wanted: StopMode,
    reason: str,
    grace: float,
    no_wait: bool,
    timeout: float | None,
) -> int:
    with connect(ref) as client:
        job = client.job(job_id)
        if wanted is StopMode.DRAIN:
            job.drain(reason=reason, grace=grace)
        elif not job.suspend(reason=reason, grace=grace):
            echo(f"{job_id} is suspended already; resume it with 'jrs resume {job_id}'", err=True)
            return 0
        echo(f"requested to {wanted.value} {job_id}", err=True)
        if no_wait:
            return 0
        shown: dict[str, str] = {}

        def tell(stop: StopRecord) -> None:
            for name, step in stop.stages.items():
                if shown.get(name) != step:
                    shown[name] = step
                    echo(f"  {name}: {step}", err=True)

        try:
            stop = job.wait_stopped(timeout, tell, notify=telling_unled())
        except TimeoutError as error:
            echo(f"jrs: {error}", err=True)
            return EXIT_TIMEOUT
        except WrongState as refused:  # The answer to the request, which stays recorded.
            echo(f"jrs: {refused}", err=True)
            return EXIT_DIFFERS
        if stop is not None and stop.mode is StopMode.HOLD:
            echo_held(stop)
            return EXIT_DIFFERS
        if stop is not None:
            echo(f"{job_id} is suspended; resume it with 'jrs resume {job_id}'", err=True)
            return 0
        result = job.result(timeout=0)
        echo(f"{job_id} ended {result.status.name}", err=True)
        as_wanted = wanted is StopMode.DRAIN and result.status is JobStatus.FINISHED
        return 0 if as_wanted else EXIT_DIFFERS
