"""The progress of a query, as Spark reports it: JSON in, a `StreamProgress` of bounded numbers out.

Every part of it may be missing: sources differ, and so do versions of Spark. What is missing, or is
no number that makes sense, is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jrs.records.heads import StreamProgress
from jrs.records.model import Json

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_MOST = 2**63 - 1
"""Spark's counts are longs; what is larger is no count."""


class ProgressWatch:
    """Keeps the newest progress of one stage's queries.

    The supervisor looks once a second at most, and only while a committed batch is missing here. So
    no commit waits for Spark's answer. It must look while the query runs: an idle query soon
    replaces what it has reported by reports without rows.
    """

    def __init__(self) -> None:
        self._newest: StreamProgress | None = None

    def newest(self) -> StreamProgress | None:
        """Return the newest progress; None if none is known. Asks nobody."""
        return self._newest

    def look(self, query: StreamingQuery, committed: int) -> None:
        """Ask a query for its progress, unless that of the newest committed batch is known. It
        never raises: progress is for people alone."""
        if self._newest is not None and self._newest.batch >= committed:
            return
        try:
            # Not `query.lastProgress`, which asks the JVM for each field.
            reported = query._jsq.lastProgress()
            found = None if reported is None else parsed(str(reported.json()))
        except Exception:
            return  # Its JVM is gone, or it has ended.
        # An idle query reports the batch that it waits for.
        if found is not None and found.batch <= committed:
            self._newest = found


def summary(query: StreamingQuery) -> Json:
    """Return what a stage's record keeps of the newest progress."""
    newest: Any = query.lastProgress
    if newest is None:
        return None
    return {"batch": newest.batchId, "timestamp": newest.timestamp, "rows": newest.numInputRows}


def parsed(text: str) -> StreamProgress | None:
    """Return the progress that Spark's JSON holds; None if it names no batch."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    batch = _count(_get(found, "batchId"))
    if batch is None:
        return None
    stateful = list(_dicts(found, "stateOperators"))
    milliseconds = _number(_get(found, "durationMs", "triggerExecution"))
    return StreamProgress(
        batch,
        _moment(_get(found, "timestamp")) or 0.0,
        _count(_get(found, "numInputRows")),
        _number(_get(found, "inputRowsPerSecond")),
        _number(_get(found, "processedRowsPerSecond")),
        None if milliseconds is None else milliseconds / 1000,
        _moment(_get(found, "eventTime", "watermark")),
        _most(_metrics(found, "maxOffsetsBehindLatest")),
        _sum(_metrics(found, "numFilesOutstanding")),
        _sum(one.get("numRowsTotal") for one in stateful),
        _sum(one.get("memoryUsedBytes") for one in stateful),
    )


# -- inside --------------------------------------------------------------------------------


def _get(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _dicts(found: Any, name: str) -> Iterator[dict[str, Any]]:
    listed = _get(found, name)
    yield from (
        one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict)
    )


def _metrics(found: Any, name: str) -> Iterator[Any]:
    """Yield a metric of each source that has it. Spark writes metrics of sources as texts."""
    for source in _dicts(found, "sources"):
        value = _get(source, "metrics", name)
        if isinstance(value, str):
            with suppress(ValueError):
                value = int(value) if len(value) < 20 else None
        if value is not None:
            yield value


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST else None


def _number(value: Any) -> float | None:
    if type(value) not in (int, float) or not 0 <= value <= _MOST:
        return None
    return float(value) if math.isfinite(value) else None


def _moment(value: Any) -> float | None:
    """Return a time of Spark's in seconds since 1970. Before any event the watermark is 0."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        at = datetime.fromisoformat(value)
        found = at.timestamp() if at.tzinfo is not None else 0.0
    except (ValueError, OverflowError):
        return None
    return found if found > 0 else None


def _sum(values: Any) -> int | None:
    """Return the sum of what is known; None if nothing is."""
    known = [one for one in map(_count, values) if one is not None]
    return min(sum(known), _MOST) if known else None


def _most(values: Any) -> int | None:
    return max((one for one in map(_count, values) if one is not None), default=None)
