"""Deaths at every call of the backend and of the store, in every operation on snapshots in objects:
none is lost or half there, and a repeat is harmless."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import Space
from jrs.contract.errors import DuplicateJob, JrsError, NoSuchSnapshot
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord, JobSpec, StopMode, StopRecord, StopState
from jrs.records.objects import BatchManifest
from jrs.recovery.cleanup.object_garbage import ObjectGarbage
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.storage.batches import files_of
from jrs.recovery.storage.packed_copies import contents, read_record
from jrs.recovery.storage.roots import Named
from jrs.store import attempt_fence, heads
from tests.recovery.attempt.objects_attempt import begin, lead_on
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Store
from tests.recovery.support import CLUSTER, FaultyMemory

WRITES = ("put", "copy", "delete")


class Died(BaseException):
    """The process died here."""


class World:
    """A job with nine batches and a snapshot of its third one, suspended."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store()
        self.memory = FaultyMemory(Space(), url=f"memory://{root.name}", cluster=CLUSTER)
        self.lead = lead_on(self.memory, root, self.store)
        self.memory.commit(Create(keys.JOBS + "job", encode(JobSpec("job", "m:f"))))
        self.catalog = SnapshotCatalog(
            self.lead.backend, self.lead.storage, sleep=lambda seconds: None
        )
        stream = begin(self.lead)
        for _ in range(3):
            stream.batch()
        self.catalog.create("job", name="third")
        for _ in range(6):
            stream.batch()
        fence = self.lead.leadership.fence
        attempt_fence.shut_out(self.memory, "job", fence)
        self.memory.commit(Create(keys.ATTEMPTS + "job", encode(AttemptRecord("job"))))
        stop = StopRecord("job", StopMode.SUSPEND, StopState.DONE)
        self.memory.commit(Create(keys.STOPS + "job", encode(stop)))
        self.left = -1
        commit = self.memory.commit

        def counted(*ops: Any, **options: Any) -> Any:
            self.count()
            found = commit(*ops, **options)
            self.count()
            return found

        monkeypatch.setattr(self.memory, "commit", counted)

        def refuse(method: str, arguments: tuple[Any, ...]) -> None:
            if method in WRITES:
                self.count()

        self.store.refuse = refuse

    def count(self) -> None:
        """Die if it is time."""
        if self.left == 0:
            self.left = -1
            raise Died
        self.left -= self.left > 0

    def rows(self, job_id: str) -> dict[int, str]:
        objects = self.lead.storage.objects
        found = heads.stored(self.memory, job_id, "sums")
        assert objects is not None
        assert found is not None
        assert found[0].manifest is not None
        newest = read_record(objects, BatchManifest, found[0].manifest)
        named = files_of(objects, newest)
        return {batch: contents(objects, [one])[0].decode() for batch, one in named}

    def is_whole(self) -> None:
        """Check that all that is named is there: of both jobs, and of each snapshot."""
        objects = self.lead.storage.objects
        assert objects is not None
        for job_id in ("job", "copy"):
            named = Named.by_records(self.memory, objects, job_id)
            assert set(named.objects(objects, checkpoints=True)) <= set(self.store.names())
            for record in self.catalog.list(job_id):
                self.catalog.verify(job_id, record.number)


def create(world: World) -> None:
    if not any(one.name == "new" for one in world.catalog.list("job")):
        world.catalog.create("job", name="new")


def restore(world: World) -> None:
    if world.catalog.pending_restore("job") is not None:
        world.catalog.finish_restore("job")
    else:
        world.catalog.restore(world.catalog.get("job", "third"))


def fork(world: World) -> None:
    if world.catalog.pending_restore("copy") is not None:
        world.catalog.finish_restore("copy")
    else:
        with suppress(DuplicateJob):  # It was done.
            world.catalog.restore(world.catalog.get("job", "third"), as_job="copy", fork=True)


def delete(world: World) -> None:
    with suppress(NoSuchSnapshot):
        world.catalog.remove(world.catalog.get("job", "third"))


def sweep(world: World) -> None:
    assert world.lead.storage.objects is not None
    garbage = ObjectGarbage(world.memory, world.lead.storage.objects)
    garbage.sweep_unnamed("job", float("inf"), ended=False, dry_run=False)


ALL = {batch: f"rows {batch}" for batch in range(9)}
THREE = {batch: f"rows {batch}" for batch in range(3)}
AFTERWARDS: dict[Callable[[World], None], dict[str, dict[int, str]]] = {
    create: {"job": ALL},
    restore: {"job": THREE},
    fork: {"job": ALL, "copy": THREE},
    delete: {"job": ALL},
    sweep: {"job": ALL},
}


@pytest.mark.parametrize("operation", AFTERWARDS, ids=lambda one: one.__name__)
def test_deaths_at_every_step(
    operation: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S8, N3: whenever the process dies, all that is listed is whole, and a repeat completes it."""
    deaths = 0
    for step in range(1000):
        with monkeypatch.context() as patch:
            world = World(tmp_path / str(step), patch)
            world.left = step
            try:
                operation(world)
                survived = world.left >= 0
            except Died:
                survived = False
            world.left = -1
            world.is_whole()
            deaths += not survived
            for _ in range(2):
                operation(world)
            world.is_whole()
            for job_id, expected in AFTERWARDS[operation].items():
                assert world.rows(job_id) == expected, step
            Lead.current.pop().leadership.resign()
        if survived:
            break
    print(f"{operation.__name__}: {deaths} deaths")
    assert deaths >= 2


def test_a_death_and_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A7: what a death has left unnamed goes with the next sweep, and nothing else does."""
    for step in range(1000):
        with monkeypatch.context() as patch:
            world = World(tmp_path / str(step), patch)
            world.left = step
            try:
                create(world)
                done = world.left >= 0
            except (Died, JrsError):
                done = False
            world.left = -1
            sweep(world)
            world.is_whole()
            assert world.rows("job") == ALL
            assert not any("/s2." in name for name in world.store.names()) or any(
                one.name == "new" for one in world.catalog.list("job")
            )
            Lead.current.pop().leadership.resign()
        if done:
            return
