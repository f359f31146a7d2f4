"""Recording why a master could not start a job: in the record of its newest attempt, and in the
history once for each host and reason."""

from __future__ import annotations

import socket

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict
from jrs.contract.masks import masked
from jrs.contract.operations import Fence, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import AttemptRecord
from jrs.records.obstacles import Obstacle, with_obstacle
from jrs.store.historian import Historian


def record(
    backend: Backend,
    job_id: str,
    reason: str,
    fence: Fence,
    historian: Historian,
    *,
    was_called: bool = False,
) -> None:
    """Record that the job's newest attempt could not be started on this host, and why.

    Durable, idempotent.

    Args:
        historian: of the attempt, or of its leader.
        was_called: whether the attempt has called the job's function. Then it has ended as an
            attempt; otherwise the next one has its number.

    Raises:
        Fenced: the attempt or its leader was replaced.
        CorruptRecord: the attempt's record cannot be read.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    while True:
        stored = backend.get(keys.ATTEMPTS + job_id)
        if stored is None:
            return  # It was never recorded, or the job has ended.
        attempt = decode(AttemptRecord, stored.value, stored.key)
        at = historian.now()
        obstacle = Obstacle(
            attempt.master, socket.gethostname(), masked(reason), attempt.attempt, at
        )
        is_known = str(obstacle) in map(str, attempt.obstacles)
        obstacles = with_obstacle(attempt.obstacles, obstacle)
        said = f"it cannot be started by {obstacle}"
        now = attrs.evolve(attempt, obstacles=obstacles)
        if was_called:
            now = attrs.evolve(now, ended_at=at, ended=said)
        update = Update(stored.key, encode(now), stored.version)
        try:
            if is_known:
                commit_and_read_back(backend, update, fence=fence)
            else:
                with historian.recorded(job_id, HistoryKind.HELD, said) as event:
                    commit_and_read_back(backend, update, *event, fence=fence)
            return
        except Conflict:
            continue  # The leader has just changed it.
