"""HalfPublished: unfinished copies next to the folders where a job publishes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import Unavailable
from jrs.store.jobs import readable_stages

from ..files import removal
from ..files.publish_at_path import resolved, unfinished_copies
from ..rules.resource import Resource


class HalfPublished(Resource):
    """Unfinished copies next to the folders where the job publishes."""

    name = "half-published copies"
    prioritised = True
    """The stages' records name the folders to check; they are removed afterwards."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def clean(self, job_id: str) -> None:
        places = []
        for target in self._targets(job_id):
            for path in unfinished_copies(target, job_id):
                removal.remove(path)
            places.append(target.parent)
        # A filesystem may be away, and only the records name the copies on it.
        if away := [place for place in places if not place.is_dir()]:
            raise Unavailable(
                f"unfinished copies in {away[0]} cannot be found: the folder does not exist; "
                "mount it, or create an empty one if it is gone for good"
            )

    def describe(self, job_id: str) -> list[str]:
        return [
            str(path)
            for target in self._targets(job_id)
            for path in unfinished_copies(target, job_id)
        ]

    def away(self, job_id: str) -> list[str]:
        """Return the folders that may hold such copies and do not exist now."""
        parents = [target.parent for target in self._targets(job_id)]
        return [str(parent) for parent in parents if not parent.is_dir()]

    def _targets(self, job_id: str) -> Iterator[Path]:
        for record in readable_stages(self._backend, job_id):
            if record.target is not None and not record.at_url:
                yield resolved(Path(record.target))
