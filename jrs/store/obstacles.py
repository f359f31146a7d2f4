"""Recording why a master could not start a job, in the record of its newest attempt."""

from __future__ import annotations

import socket

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict
from jrs.contract.operations import Fence, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord
from jrs.records.obstacles import Obstacle, with_obstacle


def record(backend: Backend, job_id: str, reason: str, fence: Fence, *, now: float) -> None:
    """Record that the job's newest attempt could not be started on this host, and why.

    Durable, idempotent.

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
        obstacle = Obstacle(attempt.master, socket.gethostname(), reason, attempt.attempt, now)
        obstacles = with_obstacle(attempt.obstacles, obstacle)
        value = encode(attrs.evolve(attempt, obstacles=obstacles))
        try:
            commit_and_read_back(backend, Update(stored.key, value, stored.version), fence=fence)
            return
        except Conflict:
            continue  # The leader has just changed it.
