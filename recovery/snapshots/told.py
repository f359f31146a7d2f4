"""What the history of a job says of its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jrs.contract.operations import Op
from jrs.records import keys
from jrs.records.history import HistoryKind
from jrs.store.historian import Historian


@contextmanager
def told(historian: Historian, job_id: str, text: str) -> Iterator[tuple[Op, ...]]:
    """Yield the operations that record what happens to a snapshot, for the commit in the block.

    None if the result of the job was expired: its history is gone with it.
    """
    if not any(historian.backend.get(prefix + job_id) for prefix in (keys.JOBS, keys.RESULTS)):
        yield ()
        return
    # In a chain of its own: the result may be expired at this moment.
    with historian.recorded(job_id, HistoryKind.SNAPSHOT, text, repeatable=True) as event:
        yield event
