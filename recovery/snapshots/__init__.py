"""Snapshots of jobs: creating, keeping, moving and restoring them. No Spark, no JVM."""

from .catalog import SnapshotCatalog, Usable
from .orphans import find_orphans
from .restore import Restored
from .retention import retain

__all__ = [
    "Restored",
    "SnapshotCatalog",
    "Usable",
    "find_orphans",
    "retain",
]
