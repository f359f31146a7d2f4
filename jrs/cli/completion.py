"""Completing job ids, snapshots and masters in a shell, from the cluster.

An answer that takes long, or fails, is no answer: the shell then completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import click

from jrs.cli.common import ClusterRef
from jrs.cli.connecting import connect
from jrs.client.client import Client
from jrs.contract.runtime import JrsThread

_SECONDS = 2.0
"""Most seconds that a completion takes."""
_MOST = 100
"""Most suggestions."""

Found = Callable[[Client, click.Context, str], Iterable[str]]


def _completing(found: Found) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what click asks for suggestions."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        answer: list[str] = []

        def ask() -> None:
            try:
                with connect(_cluster_of(ctx)) as client:
                    answer.extend(islice(found(client, ctx, incomplete), _MOST))
            except Exception:  # Nothing may be printed into the user's command line.
                answer.clear()

        asking = JrsThread(target=ask, name="jrs-complete", daemon=True)
        asking.start()
        asking.join(_SECONDS)
        return [] if asking.is_alive() else answer

    return complete


def _cluster_of(ctx: click.Context) -> ClusterRef:
    """Return the cluster that the command line names so far; no command has run yet."""
    given = [ctx.params, ctx.find_root().params]
    backend = next((each["backend"] for each in given if each.get("backend")), None)
    cluster = next((each["cluster"] for each in given if each.get("cluster")), "default")
    return ClusterRef(backend, cluster)


def _jobs(client: Client, ctx: click.Context, incomplete: str) -> Iterable[str]:
    return (job.id for job in client.jobs(prefix=incomplete))


def _snapshots(client: Client, ctx: click.Context, incomplete: str) -> Iterable[str]:
    names = (
        str(name)
        for record in client.job(ctx.params["job_id"]).snapshots.list()
        for name in (record.number, record.name)
        if name is not None
    )
    return (name for name in names if name.startswith(incomplete))


def _masters(client: Client, ctx: click.Context, incomplete: str) -> Iterable[str]:
    names = (view.info.name for view in client.masters())
    return (name for name in names if name.startswith(incomplete))


complete_job = _completing(_jobs)
complete_snapshot = _completing(_snapshots)
complete_master = _completing(_masters)

job_argument = click.argument("job_id", shell_complete=complete_job)
optional_job_argument = click.argument("job_id", required=False, shell_complete=complete_job)
