"""How commands connect to the cluster that they were given."""

from __future__ import annotations

from pathlib import Path

from jrs.cli.common import ClusterRef
from jrs.client import client
from jrs.client.client import Client
from jrs.records.signing import SpecKey


def connect(
    place: ClusterRef,
    *,
    create: bool = False,
    storage: Path | None = None,
    spec_key: SpecKey | None = None,
) -> Client:
    """Connect to the cluster; without `create`, a cluster that does not exist is refused."""
    return client.connect(
        place.url, cluster=place.cluster, storage=storage, create=create, spec_key=spec_key
    )
