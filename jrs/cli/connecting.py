"""How commands connect to the cluster that they were given."""

from __future__ import annotations

from pathlib import Path

from jrs.cli.common import ClusterRef, echo, note_commit, when
from jrs.client import client
from jrs.client.client import Client
from jrs.contract.errors import CorruptRecord
from jrs.records.signing import SpecKey


def connect(
    ref: ClusterRef,
    *,
    create: bool = False,
    storage: str | Path | None = None,
    spec_key: SpecKey | None = None,
) -> Client:
    """Connect to the cluster; without `create`, a cluster that does not exist is refused.

    What is committed by the client counts as a change that the command has made. That a cluster was
    created does not: it is empty.
    """
    connected = client.connect(
        ref.url, cluster=ref.cluster, storage=storage, create=create, spec_key=spec_key
    )
    connected.backend.commit_ended = note_commit
    return connected


def tell_pause(client: Client) -> None:
    """Print on stderr that the cluster is paused, if it is."""
    try:
        pause = client.paused()
    except CorruptRecord as error:
        echo(f"the cluster is paused; {error}; jrs unpause ends the pause", err=True)
        return
    if pause is not None:
        echo(f"{pause}, since {when(pause.since)}; end it with: jrs unpause", err=True)
