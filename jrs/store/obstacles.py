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


def record(backend: Backend, job_id: str, reason: str, fence: Fence, historian: Historian) -> None:
    """Record that the job's newest attempt could not be started on this host, and why.

    Durable, idempotent.

    Args:
        historian: of the attempt, or of its leader.

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
        update = Update(
            stored.key, encode(attrs.evolve(attempt, obstacles=obstacles)), stored.version
        )
        said = f"it cannot be started by {obstacle}"
        try:
            if is_known:
                commit_and_read_back(backend, update, fence=fence)
            else:
                with historian.recorded(job_id, HistoryKind.HELD, said) as event:
                    commit_and_read_back(backend, update, *event, fence=fence)
            return
        except Conflict:
            continue  # The leader has just changed it.
