"""Applications: drivers with several replicas, each one unit with its jobs.

The leading replica writes the record of its application, under the fence. In a cluster of an older
format an application has no record: it cannot be canceled, and its jobs are on their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Canceled, Conflict, InvalidInput, WrongState
from jrs.contract.operations import Absent, Create, Delete, Fence, Op, Record, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import JobResult, JobStatus
from jrs.store import cluster_format
from jrs.store.historian import Historian

SINCE_FORMAT = 5
"""The first cluster format in which applications have a record."""


def stored(backend: Backend, name: str) -> Record | None:
    """Return the record of an application that has not ended; None if there is none."""
    return backend.get(keys.APPLICATIONS + name)


def of_name(backend: Backend, name: str) -> ApplicationRecord | None:
    """Return an application that has begun and has not ended; None if there is none.

    Raises:
        CorruptRecord: its record cannot be read.
    """
    record = stored(backend, name)
    return None if record is None else decode(ApplicationRecord, record.value, record.key)


def check_call(wanted: ApplicationRecord, backend: Backend) -> None:
    """Check that no unfinished job or other application has the name.

    Raises:
        InvalidInput: the name stands for something else.
        CorruptRecord: the application's record cannot be read.
    """
    if backend.get(keys.JOBS + wanted.name) is not None:
        raise InvalidInput(
            f"{wanted.name!r} is the id of a submitted job: choose another name for the application"
        )
    found = of_name(backend, wanted.name)
    if found is not None and found.call != wanted.call:
        raise InvalidInput(
            f"application {wanted.name!r} runs {_shown(found)}, and this is {_shown(wanted)}: a "
            'name stands for one run; choose another, as name=f"nightly-{date}", or end that '
            f"application: jrs cancel {wanted.name}"
        )


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
    if not cluster_format.is_at_least(backend, SINCE_FORMAT):
        return None
    while True:
        check_call(wanted, backend)
        record = stored(backend, wanted.name)
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
            if has_ended(backend, wanted.name):
                raise Canceled(f"the application {wanted.name!r} has ended") from None
            continue  # A job of that name was submitted, or a lost answer arrived late.
        return begun


def raised(backend: Backend, name: str, error: str, fence: Fence, *, at: float) -> None:
    """Record that `main` has raised; nothing if the application has no record.

    Raises:
        Fenced, CorruptRecord, Conflict, Unavailable, OutcomeUnknown: it is not recorded.
    """
    record = stored(backend, name)
    if record is None:
        return
    before = decode(ApplicationRecord, record.value, record.key)
    after = attrs.evolve(
        before, error=error, error_host=before.host, error_at=at, errors=before.errors + 1
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
        yield *end_ops(backend, record.name), *event


def end_ops(backend: Backend, name: str) -> tuple[Op, ...]:
    """Return the operations that remove the record, for the commit of the application's result."""
    record = stored(backend, name)
    return () if record is None else (Delete(record.key),)


def has_ended(backend: Backend, name: str) -> bool:
    """Return whether the application has a result, or had one that was expired."""
    return any(backend.get(prefix + name) for prefix in (keys.RESULTS, keys.TOMBSTONES))


def need(backend: Backend) -> Callable[[JobResult], bool]:
    """Return a function that tells whether a result is of a job whose application has not ended:
    its main may ask for the result again. Each application is read once."""

    @functools.cache
    def runs(name: str) -> bool:
        return not has_ended(backend, name)

    return lambda result: bool(result.application) and runs(result.application)


def check_unneeded(backend: Backend, result: JobResult) -> None:
    """Raise `WrongState` if a result is of a job whose application has not ended."""
    if need(backend)(result):
        raise WrongState(
            f"the application {result.application!r} has not ended, and may need the result "
            f"of its job {result.job_id!r}; to end it: jrs cancel {result.application}"
        )


def _historian(backend: Backend, record: ApplicationRecord) -> Historian:
    """Return that of the replica that runs `main`."""
    return Historian(backend, record.master, record.epoch, record.attempts)


def _shown(record: ApplicationRecord) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in record.arguments.items())
    return f"{record.entry_point}({arguments[:200]})"
