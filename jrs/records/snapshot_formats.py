"""The property matrix of the formats of snapshots: docs/snapshots.md shows this table."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.records.snapshots import SnapshotFormat


@attrs.frozen(kw_only=True)
class FormatProperties:
    """What a format is good for, in words for people."""

    time: str
    space: str
    incremental: str
    self_contained: str
    survives_job_folder: str
    """What is left if the job's folder is lost."""
    other_filesystem: str
    rescaling: str
    unified: str
    """Whether the form is the same for every state store, and can be read from outside."""


PROPERTIES: dict[SnapshotFormat, FormatProperties] = {
    SnapshotFormat.LINK: FormatProperties(
        time="milliseconds; the first reads every file once",
        space="none, until the job removes the files",
        incremental="yes: shared inodes",
        self_contained="yes",
        survives_job_folder="once moved, which copies",
        other_filesystem="by `move` and `export`",
        rescaling="RocksDB",
        unified="no",
    ),
    SnapshotFormat.FULL: FormatProperties(
        time="reads and writes every file",
        space="a copy of every file",
        incremental="no",
        self_contained="yes",
        survives_job_folder="once moved",
        other_filesystem="yes",
        rescaling="RocksDB",
        unified="no",
    ),
    SnapshotFormat.CAS: FormatProperties(
        time="reads and writes every new file",
        space="a copy of each different content",
        incremental="yes: shared blobs",
        self_contained="with the cluster's blobs; `export` makes it so alone",
        survives_job_folder="its blobs do; the manifest once moved",
        other_filesystem="yes",
        rescaling="RocksDB",
        unified="no",
    ),
    SnapshotFormat.LOGICAL: FormatProperties(
        time="a Spark session reads the whole state",
        space="the rows of the state",
        incremental="no",
        self_contained="yes",
        survives_job_folder="once moved",
        other_filesystem="yes",
        rescaling="yes",
        unified="yes: Parquet",
    ),
}

_TITLES = {
    "survives_job_folder": "survives the loss of the job's folder",
    "other_filesystem": "on another filesystem",
    "self_contained": "self-contained",
    "unified": "unified format",
}


def matrix() -> Iterator[str]:
    """Yield the matrix as the lines of a table in Markdown: a row for each property."""
    formats = list(SnapshotFormat)
    yield f"| | {' | '.join(f'`{each.value}`' for each in formats)} |"
    yield f"|---{'|---' * len(formats)}|"
    restorable = ["yes" if each.is_restorable else "**no**" for each in formats]
    yield f"| can be restored | {' | '.join(restorable)} |"
    for field in attrs.fields(FormatProperties):
        cells = [getattr(PROPERTIES[each], field.name) for each in formats]
        yield f"| {_TITLES.get(field.name, field.name)} | {' | '.join(cells)} |"
