"""``jrs pause``, ``unpause`` and ``switchover``."""

from __future__ import annotations

import click

from jrs.cli.common import (
    EXIT_TIMEOUT,
    ClusterRef,
    because_option,
    echo,
    reason_option,
    when,
    with_cluster,
)
from jrs.cli.completion import complete_master
from jrs.cli.connecting import connect
from jrs.cli.durations import DURATION


@click.command("pause")
@reason_option
@with_cluster
def pause_command(ref: ClusterRef, reason: str) -> int:
    """Pause the cluster: no attempt begins, and running attempts continue.

    Retries wait as well, and so do jobs whose leader dies meanwhile. Cleanups continue, and you can
    submit, cancel and suspend jobs. The pause lasts until jrs unpause, whichever master leads.

    \b
    Example:  jrs pause --because 'maintenance of the data lake'
    """
    with connect(ref) as client:
        before = client.paused()
        pause = client.pause(reason=reason)
    said = "is paused" if before is None else f"was paused already, {when(pause.since)}"
    echo(f"cluster {ref.cluster} {said} by {pause.by}; end it with: jrs unpause", err=True)
    return 0


@click.command("unpause")
@because_option
@with_cluster
def unpause_command(ref: ClusterRef) -> int:
    """End a pause: jobs start again.

    \b
    Example:  jrs unpause
    """
    with connect(ref) as client:
        was = client.unpause()
    echo(f"cluster {ref.cluster} {'is no longer' if was else 'was not'} paused", err=True)
    return 0


@click.command("switchover")
@click.option("--to", metavar="NAME", shell_complete=complete_master,
              help="The master that leads next.  [default: the one that has waited "
              "longest]")  # fmt: skip
@reason_option
@click.option("--timeout", type=DURATION, default="60s", show_default=True,
              metavar="DURATION", help="Wait this long for the next leader, then exit 3; the "
              "request stays.")  # fmt: skip
@with_cluster
def switchover_command(ref: ClusterRef, to: str | None, reason: str, timeout: float) -> int:
    """Have the leader hand over to another master; wait until it leads.

    The running attempts end, as at any failover, and the next leader recovers their jobs. Suspend a
    job first if its attempt should end at a batch boundary. The other masters wait 10 seconds for
    the named master.

    \b
    Example:  jrs switchover --to m2 --because 'host 1 is rebooted'
    """
    with connect(ref) as client:
        request = client.switchover(to, reason=reason)
        if request is None:
            echo(f"{to} leads already", err=True)
            return 0
        echo(f"requested a switchover to {request.to}", err=True)
        try:
            leader = client.wait_for_leader(request.epoch, timeout)
        except TimeoutError as error:
            echo(f"jrs: {error}", err=True)
            return EXIT_TIMEOUT
    echo(f"{leader.name} leads, epoch {leader.leading}", err=True)
    return 0
