"""What a client and the handles that it hands out share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, WrongState
from jrs.contract.storage_place import place_of
from jrs.records import keys
from jrs.records.checks import check_entry_point
from jrs.records.cluster import StorageRecord
from jrs.records.signing import SpecKey
from jrs.recovery.attempt import entry_point as entry_points
from jrs.recovery.files.disk_errors import reading
from jrs.recovery.files.job_folders import JobStorage, storage_place
from jrs.recovery.files.known_storage import known_storage, needed_storage
from jrs.recovery.files.safe_listing import is_folder
from jrs.recovery.files.storage_identity import StorageIdentity, recorded_storage, storage_of
from jrs.recovery.inspect.holds import Holds
from jrs.recovery.snapshot_catalog import SnapshotCatalog
from jrs.store.historian import submitter
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops


@attrs.frozen
class Connection:
    """An open backend, and the catalogues of what is stored in it."""

    backend: Backend
    results: JobResultStore
    jobs: JobCatalog
    stops: JobStops
    holds: Holds
    named_storage: str | Path | None
    spec_key: SpecKey | None

    @classmethod
    def to(
        cls, backend: Backend, storage: str | Path | None, spec_key: SpecKey | None
    ) -> Connection:
        """Return the connection over an open backend.

        Raises:
            InvalidInput: `spec_key` is not a key.
        """
        if spec_key is not None and not isinstance(spec_key, SpecKey):
            raise InvalidInput(
                f"spec_key must be a SpecKey, as SpecKey.read(path) returns one, not a "
                f"{type(spec_key).__name__}"
            )
        return cls(
            backend=backend,
            results=JobResultStore(backend),
            jobs=JobCatalog(backend, spec_key=spec_key),
            stops=JobStops(backend, spec_key=spec_key),
            holds=Holds(backend),
            named_storage=storage,
            spec_key=spec_key,
        )

    def known_storage(self) -> JobStorage | None:
        """Return where jobs keep their files; None if that is not known.

        Raises:
            InvalidInput: the storage that was named is not the cluster's.
            Unavailable: the storage cannot be looked at now.
        """
        return known_storage(self.backend, self.named_storage)

    def storage_to_check(self) -> JobStorage | None:
        """Return what `known_storage` does, also where the record of the storage, or its marker,
        is damaged."""
        try:
            return self.known_storage()
        except CorruptRecord:
            pass
        try:
            return known_storage(self.backend, self.named_storage, check=False)
        except CorruptRecord:  # The record: nothing tells any more which one the cluster used.
            place = storage_place(self.backend, self.named_storage)
            return None if place is None else JobStorage(place, self.backend.cluster)

    def storage(self) -> JobStorage:
        """Return where jobs keep their files.

        Raises:
            InvalidInput: that is not known, or what was named is another cluster's.
        """
        return needed_storage(self.backend, self.named_storage)

    def adopt_storage(self) -> StorageRecord:
        """Make the named storage the cluster's; see `Client.adopt_storage`."""
        place = storage_place(self.backend, self.named_storage)
        if place is None:
            raise InvalidInput("no storage: name the folder to adopt, with --storage DIR")
        if not place.url and not is_folder(place.root):
            raise InvalidInput(f"{place.root} is not a folder on this host")
        running = Registry(self.backend).heard()
        if running:
            raise WrongState(
                f"master {running[0].name!r} runs on {running[0].host}: stop all masters first; a "
                "killed master counts as running for a while"
            )
        recorded = recorded_storage(self.backend)
        if recorded is not None and bool(place_of(recorded.path).url) != bool(place.url):
            self._check_no_jobs(recorded.path)
        identity = StorageIdentity(self.backend, storage_of(self.backend, place))
        with reading(f"looking at {place}"):
            return identity.adopt(submitter(), time.time())

    def _check_no_jobs(self, before: str) -> None:
        """Raise `WrongState` if a job has not ended: its files are of the other kind."""
        left = next(self.backend.scan(keys.JOBS, limit=1), None)
        if left is not None:
            raise WrongState(
                f"job {keys.job_of(left.key)!r} has not ended, and its files are in {before}: "
                "folders and objects are not converted into each other; let all jobs end first"
            )

    def snapshots(self) -> SnapshotCatalog:
        """Return the catalogue of snapshots.

        Raises:
            InvalidInput: where jobs keep their files is not known.
        """
        return SnapshotCatalog(self.backend, self.storage(), spec_key=self.spec_key)

    def snapshots_to_change(self) -> SnapshotCatalog:
        """Return the catalogue of snapshots for a call that writes or removes files.

        Raises:
            WrongState: the store is older than the storage, as one that was restored from a backup
                is: it does not know what jobs have left there since. Or the storage is older.
            As `snapshots`, and as `known_storage`.
        """
        catalog = self.snapshots()
        with reading(f"looking at {catalog.storage.place}"):
            StorageIdentity(self.backend, catalog.storage).check_epoch()
        return catalog


def entry_point_of(entry: str | Callable[..., Any]) -> str:
    """Return the entry point that a name or a function stands for, as another process finds it.

    Raises:
        InvalidInput: a name without the form of one; or another process could not import the
            function, or would find another one; or this thread imports its module for an attempt.
    """
    found = _found(entry)
    entry_points.check_guarded("submit or retry", found)
    return found


def _found(entry: str | Callable[..., Any]) -> str:
    """Return what `entry_point_of` does, without a look at who asks."""
    if isinstance(entry, str):
        return entry_points.absolute(check_entry_point(entry))
    module = getattr(entry, "__module__", None)
    name = getattr(entry, "__qualname__", "")
    if not module or not name or "<" in name:
        raise InvalidInput(
            f"{entry!r} cannot be found by name: define it at the top level of a module"
        )
    defined_in = sys.modules.get(module)
    # Equal and not the same: each access makes a new object of a class method.
    if (found := entry_points.attribute(defined_in, name)) != entry:
        there = "nothing" if found is None else "something else"
        raise InvalidInput(
            f"{entry!r} cannot be found by name: there is {there} under {module}:{name}; define "
            "it at the top level of a module, by def and under a name of its own"
        )
    program = sys.modules["__main__"]
    if defined_in is not program:
        return f"{module}:{name}"
    spec = getattr(program, "__spec__", None)
    if spec is not None and "." in spec.name:  # By python -m of a package: it imports relatively.
        return f"{spec.name}:{name}"
    path = getattr(program, "__file__", None)
    if path is None:
        raise InvalidInput(f"{name} was typed in: save it in a file, which masters can import")
    return entry_points.absolute(f"{path}:{name}")
