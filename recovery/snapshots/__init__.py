"""Snapshots of jobs: taking, keeping, moving and restoring them. No Spark, no JVM."""

from ..cleanup.snapshots import Snapshots
from .catalog import SnapshotCatalog, Usable
from .orphans import find_orphans
from .restore import Restored
from .retention import retain

__all__ = [
    "Restored",
    "SnapshotCatalog",
    "Snapshots",
    "Usable",
    "find_orphans",
    "retain",
]
