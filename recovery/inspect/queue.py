"""The queue for a leader's slots, computed from the stored records."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.codec import T, decode
from jrs.records.model import AttemptRecord, JobSpec, RunnerKind
from jrs.store.masters import Registry, newest_epoch

from ..rules.queue import Turn


def queue(backend: Backend) -> tuple[str, ...]:
    """Return the ids of the jobs that wait for slots of the leader, next one first.

    Empty if slots are free for all, or no leader is known. Advisory: the leader decides, and knows
    of attempts that have just ended. Reads the specs and attempts of all unfinished jobs.

    Raises:
        Unavailable: the backend could not be asked.
    """
    newest = newest_epoch(backend)
    epoch = None if newest is None else newest.epoch
    leaders = [info for info in Registry(backend).running() if info.leading == epoch]
    if epoch is None or not leaders or not leaders[0].max_attempts:
        return ()
    slots = leaders[0].max_attempts
    out = {keys.job_of(record.key) for record in backend.scan(keys.DIRTY)}
    attempts = [
        attempt
        for attempt in _all(backend, keys.ATTEMPTS, AttemptRecord)
        if attempt.epoch == epoch and attempt.job_id not in out
    ]
    held = {attempt.job_id for attempt in attempts if attempt.could_not_start}
    begun = {attempt.job_id for attempt in attempts} - held
    out |= held
    resting = (keys.STOPS, keys.RESTORES)
    out.update(keys.job_of(each.key) for prefix in resting for each in backend.scan(prefix))
    used, waiting = 0, []
    for spec in _all(backend, keys.JOBS, JobSpec):
        if spec.runner is not RunnerKind.PROCESS:
            continue
        turn = Turn.of(spec)
        if spec.job_id in begun:
            used += turn.needed(slots)
        elif spec.job_id not in out:
            waiting.append(turn)
    waiting.sort()
    for number, turn in enumerate(waiting):
        used += turn.needed(slots)
        if used > slots:
            return tuple(each.job_id for each in waiting[number:])
    return ()


def places(backend: Backend) -> dict[str, int]:
    """Return the place of each job in the `queue`, from 1; those that do not wait are missing."""
    return {job_id: place for place, job_id in enumerate(queue(backend), 1)}


def _all(backend: Backend, prefix: str, kind: type[T]) -> Iterator[T]:
    for record in backend.scan(prefix):
        try:
            yield decode(kind, record.value, record.key)
        except CorruptRecord:
            continue  # It is held: it waits for no slot.
