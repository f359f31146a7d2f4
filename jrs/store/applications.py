"""Applications: drivers with several replicas, each one unit with its jobs.

The leading replica writes the record of its application, under the fence. In a cluster of an older
format an application has no record: it cannot be canceled, and its jobs are on their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, WrongState
from jrs.contract.operations import Delete, Op, Record
from jrs.records import keys
from jrs.records.applications import ApplicationRecord, shown_call
from jrs.records.codec import decode
from jrs.records.model import JobResult

SINCE_FORMAT = 5
"""The first cluster format in which applications have a record."""


def stored(backend: Backend, name: str) -> Record | None:
    """Return the record of an application that has not ended; None if there is none."""
    return backend.get(keys.APPLICATIONS + name)


def waiting(backend: Backend) -> list[str]:
    """Return the names of the applications that have begun and not ended: only a replica of their
    own continues them. One that is being canceled is left out, since any master ends it."""
    prefix = keys.APPLICATIONS
    names = [record.key.removeprefix(prefix) for record in backend.scan(prefix)]
    return [name for name in names if backend.get(keys.CANCEL + name) is None]


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


def end_ops(backend: Backend, name: str) -> tuple[Op, ...]:
    """Return the operations that remove the record, for the commit of the application's result."""
    record = stored(backend, name)
    return () if record is None else (Delete(record.key),)


def has_ended(backend: Backend, name: str) -> bool:
    """Return whether the application has a result, or had one that was expired."""
    return any(backend.get(prefix + name) for prefix in (keys.RESULTS, keys.TOMBSTONES))


def running(backend: Backend) -> Callable[[str], bool]:
    """Return a function that tells whether an application has not ended: its main may ask for the
    results of its jobs again. So it may if the records that would tell cannot be read. Each
    application is read once."""

    @functools.cache
    def runs(name: str) -> bool:
        try:
            return not has_ended(backend, name)
        except CorruptRecord:
            return True

    return runs


def check_unneeded(backend: Backend, result: JobResult) -> None:
    """Raise `WrongState` if a result is of a job whose application has not ended."""
    if result.application and not has_ended(backend, result.application):
        raise WrongState(
            f"the application {result.application!r} has not ended, and may need the result "
            f"of its job {result.job_id!r}; to end it: jrs cancel {result.application}"
        )


def _shown(record: ApplicationRecord) -> str:
    return shown_call(record.entry_point, record.arguments)
