"""The objects of a job that has ended: its output stays, all else goes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Fence
from jrs.records.codec import decode, encode
from jrs.records.objects import OutputIndex

from ..rules.resource import GivenUp, Resource
from ..storage.objects import Objects
from ..storage.roots import Named, index_of

_AT_ONCE = 1000


class JobObjects(Resource):
    """The job's objects, except those of its output. First, an object is written that lists its
    output, since the records that name it are removed later."""

    name = "objects"
    prioritised = True

    def __init__(self, backend: Backend, objects: Objects) -> None:
        self._backend = backend
        self._objects = objects

    def clean(self, job_id: str) -> None:
        self.clean_fenced(job_id, None)

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        try:
            doomed = self._doomed(job_id, self._index(job_id))
            while some := list(islice(doomed, _AT_ONCE)):
                self._backend.check_current(fence, "nothing more is deleted")
                self._objects.delete(some)
        except CorruptRecord as error:
            raise GivenUp(f"all objects of the job are kept: {error}") from error

    def describe(self, job_id: str) -> list[str]:
        try:
            index = index_in(self._objects, job_id) or self._of_records(job_id)
            return [f"{self._objects.url}/{name}" for name in self._doomed(job_id, index)]
        except CorruptRecord as error:
            return [str(error)]

    # -- inside ----------------------------------------------------------------------------

    def _index(self, job_id: str) -> OutputIndex:
        """Return the list of the job's output; write it at the first call, unless the job has no
        objects. Each leader writes the same: nothing of the job changes any more.

        Without the list nobody can tell later what the output was, so that all objects are kept.
        """
        found = index_in(self._objects, job_id)
        if found is None:
            found = self._of_records(job_id)
            is_empty = found == OutputIndex(job_id)
            if not is_empty or next(iter(self._objects.under(job_id)), None) is not None:
                self._objects.put(index_of(job_id), encode(found))
        return found

    def _of_records(self, job_id: str) -> OutputIndex:
        named = Named.by_records(self._backend, self._objects, job_id)
        return OutputIndex(job_id, named.outputs, named.streams)

    def _doomed(self, job_id: str, index: OutputIndex) -> Iterator[str]:
        kept = {index_of(job_id)}
        kept.update(Named.by_index(index).objects(self._objects, checkpoints=False))
        snapshots = Named.by_snapshots(self._backend, self._objects, job_id)
        kept.update(snapshots.objects(self._objects, checkpoints=True))
        for one in self._objects.under(job_id):
            if one.name not in kept:
                yield one.name


def index_in(objects: Objects, job_id: str) -> OutputIndex | None:
    """Return the list of the output of a job that has ended; None if there is none.

    Raises:
        CorruptRecord: it cannot be read.
        Unavailable: from the store.
    """
    name = index_of(job_id)
    content = objects.get(name)
    return None if content is None else decode(OutputIndex, content, f"{objects.url}/{name}")
