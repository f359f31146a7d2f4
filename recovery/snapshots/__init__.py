"""Snapshots of jobs: creating, keeping, moving and restoring them. No Spark, no JVM."""

from .catalog import RecoverySource as RecoverySource
from .catalog import SnapshotCatalog
from .orphans import find_orphans
from .restore import Restored
from .retention import retain

__all__ = [
    "RecoverySource",
    "Restored",
    "SnapshotCatalog",
    "find_orphans",
    "retain",
]
