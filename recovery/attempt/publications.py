"""Where a stage publishes: at a path, by a rename, or at a URL in the bucket, by a pointer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from jrs.contract.errors import InvalidInput, WrongState
from jrs.contract.operations import Update
from jrs.contract.storage_place import is_url
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import Json, StageRecord
from jrs.records.objects import OutputManifest, StoredFile, StoredObject
from jrs.records.stages import TAKEN_OVER

from ..files import publish_at_path
from ..storage import publication
from . import collect_output
from .context import AttemptContext
from .held import held_if_unreadable
from .job import FinishedStage, Stream
from .stage_outputs import OutputsInObjects

Handles = Mapping[str, Stream | FinishedStage[Any]]
"""The finished stages that are published, by their names."""


class Publication(Protocol):
    """A place of the user's own, where output of finished stages is published."""

    target: str

    def check(self) -> None:
        """Raise `InvalidInput` unless output can be published there."""

    def collect(self, stages: Handles, staging: Path) -> Json:
        """Collect the output of stages; return how many files and bytes it has."""

    def keep(self, name: str) -> StoredObject | None:
        """Keep what was collected, before the record exists; return what the record names."""

    def complete(self, record: StageRecord) -> None:
        """Make what a record publishes visible, if that has not happened. Idempotent."""

    def folder(self) -> Path:
        """Return the folder that it is in."""


class ToFolder:
    """Publishes at a path, from the job's folders."""

    def __init__(self, context: AttemptContext, target: str) -> None:
        self.target = target
        self._context = context
        self._path = Path(target)

    def check(self) -> None:
        if self._context.storage.objects is not None:
            raise InvalidInput(
                f"nothing can be published at {self.target}: the storage has objects; name a URL "
                "in its bucket"
            )
        publish_at_path.check(self._path, self._context.storage)

    def collect(self, stages: Handles, staging: Path) -> Json:
        self.check()
        outputs = [(name, stage.output) for name, stage in stages.items()]
        return collect_output.collect(outputs, staging)

    def keep(self, name: str) -> StoredObject | None:
        return None

    def complete(self, record: StageRecord) -> None:
        publish_at_path.publish(self._context.storage, record, self._context.epoch)

    def folder(self) -> Path:
        return self._path


class ToObjects:
    """Publishes at a URL, from objects."""

    def __init__(self, context: AttemptContext, target: str) -> None:
        self.target = target
        self._context = context
        self._files: list[StoredFile] = []

    def check(self) -> None:
        objects, context = self._context.storage.objects, self._context
        if objects is None:
            raise InvalidInput(
                f"nothing can be published at {self.target}: the storage is a folder; name an "
                "absolute path"
            )
        context.until_stored(lambda: publication.check(objects, context.job_id, self.target))

    def collect(self, stages: Handles, staging: Path) -> Json:
        self.check()
        outputs, self._files = OutputsInObjects(self._context), []
        for name in stages:
            files = outputs.files(name)
            if files is None:
                raise InvalidInput(f"stage {name!r} has no output to publish")
            for one in files:
                path = f"{name}/{one.path}" if len(stages) > 1 else one.path
                self._files.append(attrs.evolve(one, path=path))
        publication.check_files(self.target, (one.path for one in self._files))
        return {"files": len(self._files), "bytes": sum(one.size for one in self._files)}

    def keep(self, name: str) -> StoredObject | None:
        context = self._context
        manifest = OutputManifest(context.job_id, name, tuple(self._files))
        return context.until_stored(
            lambda: context.uploads.writer.put_record(f"{name}/out", manifest)
        )

    def complete(self, record: StageRecord) -> None:
        context = self._context
        # What a job took over, the other job has published.
        if record.is_published or record.attempt == TAKEN_OVER:
            return
        with held_if_unreadable():
            context.until_stored(
                lambda: publication.complete(context.uploads.objects, record, context.check)
            )
        key = keys.stage(record.job_id, record.name)
        stored = context.backend.get(key)
        if stored is not None:
            done = attrs.evolve(decode(StageRecord, stored.value, key), is_published=True)
            context.commit(Update(key, encode(done), stored.version))
        context.reporter.published(record.name, self.target)

    def folder(self) -> Path:
        raise WrongState(
            f"{self.target} is no folder: it is an object that names the published ones"
        )


def publication_at(context: AttemptContext, place: str | Path) -> Publication:
    """Return where an attempt publishes."""
    return ToObjects(context, str(place)) if is_url(place) else ToFolder(context, str(Path(place)))
