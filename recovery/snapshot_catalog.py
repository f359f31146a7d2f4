"""The catalogue of snapshots for users: with Spark, which exports state."""

from __future__ import annotations

from .snapshots import catalog
from .spark.state_export import export_state


class SnapshotCatalog(catalog.SnapshotCatalog):
    __doc__ = catalog.SnapshotCatalog.__doc__

    export_state = staticmethod(export_state)
