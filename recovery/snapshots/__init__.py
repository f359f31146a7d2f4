"""Snapshots of jobs: creating, keeping, moving and restoring them. No Spark, no JVM."""

from .catalog import RecoverySource as RecoverySource
from .catalog import SnapshotCatalog
from .orphans import find_orphans
from .prune import prune
from .restore import Restored

__all__ = [
    "RecoverySource",
    "Restored",
    "SnapshotCatalog",
    "find_orphans",
    "prune",
]
