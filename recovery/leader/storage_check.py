"""Checking that a storage can be used, before a master uses it."""

from __future__ import annotations

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, Unavailable
from jrs.store import heads

from ..files import epoch_folders
from ..storage.objects import Objects
from ..storage.probe import probe


def check_objects(backend: Backend, objects: Objects) -> None:
    """Raise `InvalidInput` unless jobs can keep their files in these objects."""
    if not heads.are_kept(backend):
        raise InvalidInput(
            f"a storage of objects needs format {heads.SINCE_FORMAT} of cluster "
            f"{backend.cluster!r}: jrs cluster-format --raise"
        )
    try:
        probe(objects)
    except Unavailable as error:
        raise InvalidInput(str(error)) from None


def are_folders_renewed(backend: Backend) -> bool:
    """Return whether a new leader has folders of its own; False while that cannot be read: the
    master then waits for an operator."""
    try:
        return epoch_folders.are_renewed(backend)
    except CorruptRecord:
        return False
