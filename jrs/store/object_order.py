"""The order of what names objects of a job, and what removes those that nothing names.

A snapshot names objects that a head has named, and a sweep removes what no record names. Each of
them first takes the operation of this module, then reads the records, and then commits the
operation: so of two that overlap, one fails with `Conflict`, and has to read again.
"""

from __future__ import annotations

from contextlib import suppress

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create, Update, create_or_update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.objects import JobReferences


def next_op(backend: Backend, job_id: str) -> Create | Update:
    """Return the operation that fails if another snapshot, restore or sweep of the job commits
    meanwhile. Take it before anything is read.

    Raises:
        Unavailable: the backend did not answer.
    """
    key = keys.REFERENCES + job_id
    stored = backend.get(key)
    changes = 0
    if stored is not None:
        with suppress(CorruptRecord):  # Only its version counts.
            changes = decode(JobReferences, stored.value, key).changes
    value = encode(JobReferences(job_id, changes + 1))
    return create_or_update(key, value, stored and stored.version)
