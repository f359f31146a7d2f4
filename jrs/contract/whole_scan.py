"""A scan that is known to be whole, for callers that remove what no record names."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record


def scan_whole(
    backend: Backend, prefix: str, *, deadline: Deadline | None = None
) -> Iterator[Record]:
    """Yield the records whose key starts with `prefix`, as `Backend.scan` does, and be sure that
    they are all. Act on it when it has ended.

    Raises:
        CorruptRecord: damage may have hit a record under the prefix, which `Backend.scan` leaves
            out. Raised at the end.
        Unavailable: the backend did not answer within the deadline.
    """
    yield from backend.scan(prefix, deadline=deadline)
    damaged = backend.damaged_under(prefix, deadline=deadline)
    if damaged:
        raise CorruptRecord(
            f"{prefix}: a record may be missing, because damage in {damaged} may have hit it; "
            "restore the file from a copy"
        )
