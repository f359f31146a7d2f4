"""The objects of a job that has ended: its output stays, all else goes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Fence
from jrs.records.codec import decode, encode
from jrs.records.objects import OutputIndex

from ..rules.resource import FencedResource, GivenUp
from ..storage.objects import Objects
from ..storage.roots import Named, index_of

_AT_ONCE = 1000


class JobObjects(FencedResource):
    """The job's objects, except those of its output. First, an object is written that lists its
    output, since the records that name it are removed later."""

    name = "objects"
    prioritised = True

    def __init__(self, backend: Backend, objects: Objects) -> None:
        self._backend = backend
        self._objects = objects

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        unreadable: list[CorruptRecord] = []
        named = Named.by_output(self._backend, job_id, unreadable)
        try:
            # It lists what can be read even if nothing may be deleted: the records go all the same.
            index = self._index(job_id, named, whole=not unreadable)
            _check_whole(index, unreadable)
            doomed = self._doomed(job_id, index)
            while some := list(islice(doomed, _AT_ONCE)):
                self._backend.check_current(fence, "nothing more is deleted")
                self._objects.delete(some)
        except CorruptRecord as error:
            raise GivenUp(f"all objects of the job are kept: {error}") from error

    def describe(self, job_id: str) -> list[str]:
        try:
            named = Named.by_output(self._backend, job_id)
            index = _with(index_in(self._objects, job_id), named, job_id, whole=True)
            _check_whole(index, [])
            return [f"{self._objects.url}/{name}" for name in self._doomed(job_id, index)]
        except CorruptRecord as error:
            return [str(error)]

    # -- inside ----------------------------------------------------------------------------

    def _index(self, job_id: str, named: Named, *, whole: bool) -> OutputIndex:
        """Return the list of the job's output; write it unless it has all that the records name, or
        the job has no objects. Without the list nobody can tell later what the output was, so that
        all objects are kept.

        `named` was read before: if another leader has removed some of the records by then, its
        list is found here.
        """
        found = index_in(self._objects, job_id)
        index = _with(found, named, job_id, whole=whole)
        is_empty = not index.stages and not index.streams
        if index != found and not (is_empty and next(self._objects.under(job_id), None) is None):
            self._objects.put(index_of(job_id), encode(index))
        return index

    def _doomed(self, job_id: str, index: OutputIndex) -> Iterator[str]:
        kept = {index_of(job_id)}
        kept.update(Named.by_index(index).objects(self._objects, checkpoints=False))
        snapshots = Named.by_snapshots(self._backend, self._objects, job_id)
        kept.update(snapshots.objects(self._objects, checkpoints=True))
        for one in self._objects.under(job_id):
            if one.name not in kept:
                yield one.name


def _check_whole(index: OutputIndex, unreadable: list[CorruptRecord]) -> None:
    """Raise `CorruptRecord` if there may be output that the list does not name."""
    if not index.whole:
        raise next(iter(unreadable), CorruptRecord("the list of its output is not whole"))


def _with(index: OutputIndex | None, named: Named, job_id: str, *, whole: bool) -> OutputIndex:
    """Return a list of output together with what the records name that are left."""
    index = index or OutputIndex(job_id)
    return attrs.evolve(
        index,
        stages={**index.stages, **named.outputs},
        streams={**index.streams, **named.streams},
        # What could not be read then may have been removed since.
        whole=index.whole and whole,
    )


def index_in(objects: Objects, job_id: str) -> OutputIndex | None:
    """Return the list of the output of a job that has ended; None if there is none.

    Raises:
        CorruptRecord: it cannot be read.
        Unavailable: from the store.
    """
    name = index_of(job_id)
    content = objects.get(name)
    return None if content is None else decode(OutputIndex, content, f"{objects.url}/{name}")
