"""The queue for a leader's slots, computed from the stored records."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.codec import T, decode
from jrs.records.model import AttemptRecord, JobSpec, RunnerKind
from jrs.store.masters import Registry


def place_in_queue(backend: Backend, spec: JobSpec, epoch: int) -> int:
    """Return a job's place among those that wait for a slot of the leader of `epoch`, from 1.

    0 if it does not wait: slots are free, it runs, it needs none, or no leader is known. Advisory:
    the leader decides, and knows of attempts that have just ended. Reads the specs and attempts of
    all unfinished jobs.

    Raises:
        Unavailable: the backend could not be asked.
    """
    slots = [info.max_attempts for info in Registry(backend).running() if info.leading == epoch]
    if spec.runner is not RunnerKind.PROCESS or not slots or not slots[0]:
        return 0
    ended = {keys.job_of(record.key) for record in backend.scan(keys.DIRTY)}
    begun = {
        attempt.job_id
        for attempt in _all(backend, keys.ATTEMPTS, AttemptRecord)
        if attempt.epoch == epoch and attempt.job_id not in ended
    }
    if spec.job_id in begun:
        return 0
    resting = (keys.STOPS, keys.RESTORES)
    out = ended.union(keys.job_of(each.key) for prefix in resting for each in backend.scan(prefix))
    in_processes, ahead = 0, 0
    for other in _all(backend, keys.JOBS, JobSpec):
        if other.runner is not RunnerKind.PROCESS:
            continue
        if other.job_id in begun:
            in_processes += 1
        elif other.job_id not in out:
            ahead += (other.submitted_at, other.job_id) < (spec.submitted_at, spec.job_id)
    return ahead + 1 if in_processes >= slots[0] else 0


def _all(backend: Backend, prefix: str, kind: type[T]) -> Iterator[T]:
    for record in backend.scan(prefix):
        try:
            yield decode(kind, record.value, record.key)
        except CorruptRecord:
            continue  # It is held: it waits for no slot.
