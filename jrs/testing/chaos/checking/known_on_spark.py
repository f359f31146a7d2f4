"""Which commits of unknown outcome are known to have happened, in a table: as `known` has it.

The values that such commits were to write are few. So one pass over the files finds these, and a
second one who else was to write them, and when they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jrs.testing.chaos.checking.notes import files_of
from jrs.testing.chaos.recorded import FOREVER, Kind, Part, Verb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Name = tuple[str, str, int]
"""An operation: its history, its process and its number."""
_VALUE = ["history", "key", "digest"]
_COMMIT = ["history", "process", "seq"]
_LOST = "history string, key string, digest long, process string, seq long, begun long"
"""A value that a commit of unknown outcome was to write, and the commit."""
_EVIDENCE = "history string, key string, digest long, writers long, shown long"
"""How many commits that were not refused were to write a value; the end of its first read."""
_VALUES = pa.array([int(Part.CREATE), int(Part.UPDATE)], pa.int8())


def known_in(paths: Sequence[str], numbers: DataFrame) -> dict[Name, int]:
    """Return the commits that are known to have happened, and since when.

    Args:
        paths: of the files of a table.
        numbers: those of the files, a row each.
    """
    lost = numbers.mapInArrow(lambda batches: _lost_in(paths, batches), _LOST).toArrow()
    if not len(lost):
        return {}
    digests = numbers.sparkSession.sparkContext.broadcast(np.unique(np.array(lost["digest"])))
    evidence = numbers.mapInArrow(
        lambda batches: _evidence_in(paths, digests.value, batches), _EVIDENCE
    ).toArrow()
    digests.destroy()
    proven = _together(evidence).filter((pc.field("writers") == 1) & pc.field("shown").is_valid())
    found = lost.join(proven, _VALUE, join_type="inner")
    # One that is read before it was written is wrong by itself.
    moments = pc.max_element_wise(found["begun"], found["shown"])
    found = found.append_column("moment", moments).group_by(_COMMIT).aggregate([("moment", "min")])
    columns = (found[name].to_pylist() for name in [*_COMMIT, "moment_min"])
    return {(history, process, seq): moment
            for history, process, seq, moment in zip(*columns, strict=True)}  # fmt: skip


def settled_table(operations: pa.Table, known: Mapping[Name, int]) -> pa.Table:
    """Return the operations of a table; those that are known to have happened, as if they were
    answered when this was known, and `unanswered`."""
    unknown = np.flatnonzero(pc.equal(operations["type"], Kind.INFO.value))
    names = (
        operations[name].take(pa.array(unknown)).to_pylist() if known else [] for name in _COMMIT
    )
    found = [
        (row, known[name])
        for row, name in zip(unknown, zip(*names, strict=True), strict=False)
        if name in known
    ]
    rows = [row for row, _ in found]
    unanswered = np.zeros(len(operations), bool)
    unanswered[rows] = True
    ended = pc.fill_null(operations["ended"], FOREVER).to_numpy().copy()
    ended[rows] = [moment for _, moment in found]
    answers = pc.if_else(pa.array(unanswered), Kind.OK.value, operations["type"])
    columns = {name: operations[name] for name in operations.column_names}
    return pa.table({**columns, "type": answers, "ended": ended, "unanswered": unanswered})


def _together(evidence: pa.Table) -> pa.Table:
    """Return the evidence of each value in one row."""
    found = evidence.group_by(_VALUE).aggregate([("writers", "sum"), ("shown", "min")])
    return found.rename_columns([*_VALUE, "writers", "shown"])


def _lost_in(paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    some = (pc.field("f") == Verb.COMMIT.value) & (pc.field("type") == Kind.INFO.value)
    for path in files_of(paths, batches):
        commits = pq.read_table(path, columns=[*_COMMIT, "begun", "parts"], filters=some)
        parts = commits["parts"].combine_chunks()
        kind, key, digest, _ = parts.flatten().flatten()
        rows = np.flatnonzero(pc.is_in(kind, _VALUES))
        of = commits.take(pc.list_parent_indices(parts).take(pa.array(rows)))
        columns = {name: of[name] for name in ("history", "process", "seq", "begun")}
        columns |= {"key": key.take(pa.array(rows)), "digest": digest.take(pa.array(rows))}
        yield from (
            pa.table(columns).select([field.split()[0] for field in _LOST.split(", ")]).to_batches()
        )


def _evidence_in(
    paths: Sequence[str], digests: np.ndarray, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for path in files_of(paths, batches):
        table = pq.read_table(path, columns=["history", "type", "ended", "parts"])
        parts = table["parts"].combine_chunks()
        kind, key, digest, _ = parts.flatten().flatten()
        numbers = np.array(pc.fill_null(digest, 0))
        place = np.searchsorted(digests, numbers) % len(digests)
        rows = pa.array(np.flatnonzero((digests[place] == numbers) & np.array(digest.is_valid())))
        of = table.select(["history", "type", "ended"])
        of = of.take(pc.list_parent_indices(parts).take(rows))
        kind = kind.take(rows)
        writes = pc.and_(pc.is_in(kind, _VALUES), pc.not_equal(of["type"], Kind.FAIL.value))
        read = pc.equal(kind, int(Part.READ))
        yield from _together(
            pa.table(
                {
                    "history": of["history"],
                    "key": key.take(rows),
                    "digest": digest.take(rows),
                    "writers": pc.cast(writes, pa.int64()),
                    "shown": pc.if_else(read, of["ended"], None),
                }
            )
        ).to_batches()
