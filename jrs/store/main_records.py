"""What the leading replica of an application records of its `main`, each with its event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Canceled, Conflict
from jrs.contract.masks import masked
from jrs.contract.operations import Absent, Create, Fence, Op, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import JobStatus
from jrs.store import applications, cluster_format
from jrs.store.historian import Historian


def begin(backend: Backend, wanted: ApplicationRecord, fence: Fence) -> ApplicationRecord | None:
    """Record that `main` begins, again or for the first time; return the record.

    None in a cluster whose format has no such records.

    Raises:
        InvalidInput: the name stands for something else.
        Canceled: the application has just been canceled.
        Fenced: a newer epoch exists.
        CorruptRecord: the application's record cannot be read.
        Unavailable, OutcomeUnknown: from the backend.
    """
    if not cluster_format.is_at_least(backend, applications.SINCE_FORMAT):
        return None
    while True:
        applications.check_call(wanted, backend)
        record = applications.stored(backend, wanted.name)
        if record is None:
            begun = wanted
            op: Create | Update = Create(keys.APPLICATIONS + wanted.name, encode(begun))
        else:
            before = decode(ApplicationRecord, record.value, record.key)
            begun = attrs.evolve(
                before,
                attempts=before.attempts + 1,
                master=wanted.master,
                host=wanted.host,
                pid=wanted.pid,
                epoch=wanted.epoch,
                begun_at=wanted.begun_at,
            )
            op = Update(record.key, encode(begun), record.version)
        try:
            guards = [Absent(prefix + wanted.name) for prefix in (keys.JOBS, keys.RESULTS)]
            said = f"main began on {begun.host}, pid {begun.pid}"
            with _historian(backend, begun).recorded(
                begun.name, HistoryKind.ATTEMPT, said, repeatable=True
            ) as event:
                commit_and_read_back(backend, op, *guards, *event, fence=fence)
        except Conflict:
            if applications.has_ended(backend, wanted.name):
                raise Canceled(f"the application {wanted.name!r} has ended") from None
            continue  # A job of that name was submitted, or a lost answer arrived late.
        return begun


def raised(backend: Backend, name: str, error: str, fence: Fence, *, at: float) -> None:
    """Record that `main` has raised; nothing if the application has no record.

    Raises:
        Fenced, CorruptRecord, Conflict, Unavailable, OutcomeUnknown: it is not recorded.
    """
    record = applications.stored(backend, name)
    if record is None:
        return
    before = decode(ApplicationRecord, record.value, record.key)
    after = attrs.evolve(
        before, error=masked(error), error_host=before.host, error_at=at, errors=before.errors + 1
    )
    own = Update(record.key, encode(after), record.version)
    said = f"main raised {error}"
    with _historian(backend, before).recorded(name, HistoryKind.DIED, said) as event:
        commit_and_read_back(backend, own, *event, fence=fence)


@contextmanager
def finished(backend: Backend, record: ApplicationRecord) -> Iterator[tuple[Op, ...]]:
    """Yield the operations that remove the record of an application whose `main` has returned, and
    record that in its history; for the commit of its result in the block."""
    with _historian(backend, record).recorded(
        record.name, HistoryKind.ENDED, JobStatus.FINISHED.value, repeatable=True
    ) as event:
        yield *applications.end_ops(backend, record.name), *event


def _historian(backend: Backend, record: ApplicationRecord) -> Historian:
    """Return that of the replica that runs `main`."""
    return Historian(backend, record.master, record.epoch, record.attempts)
