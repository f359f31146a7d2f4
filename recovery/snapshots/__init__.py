"""Snapshots of jobs: taking, keeping, moving and restoring them. No Spark, no JVM."""

from jrs.recovery.snapshots.catalog import SnapshotCatalog, Usable
from jrs.recovery.snapshots.left_over import left_over
from jrs.recovery.snapshots.restoring import Restored
from jrs.recovery.snapshots.retention import Snapshots, retain

__all__ = [
    "Restored",
    "SnapshotCatalog",
    "Snapshots",
    "Usable",
    "left_over",
    "retain",
]
