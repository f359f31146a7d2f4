"""Death at every step of what changes snapshots: none is lost, a repeat is harmless, and `fsck`
names every orphan.

A step is a call that changes the disk or the backend. A child process makes the calls up to one of
them and is gone, without a handler run; then another process looks and repeats.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, DuplicateJob, InvalidInput, NoSuchSnapshot
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog, find_orphans, folders
from jrs.recovery.snapshots.for_forks import PATIENCE
from jrs.store.opening import open_backend
from tests.recovery.snapshots.fabricate import FakeJob, tree
from tests.recovery.support import CLUSTER

DEAD = 77
FROM_FAR = ("delete far", "claim far", "back")
"""What is done to a snapshot that was moved to another storage."""
MAKES_A_JOB = ("claim", "fork")
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
STEPS = (
    *((os, name) for name in ("rename", "replace", "link", "mkdir", "unlink", "rmdir", "fsync")),
    (shutil, "rmtree"),
    (Backend, "commit"),
)


CHANGES = ("create", "delete", "move", "restore", "claim", "convert", *FROM_FAR, "fork")
DIFFERS = {
    "link": CHANGES,
    "full": ("create", "restore", "convert"),
    "cas": ("create", "delete", "move", "restore", "claim", "convert", "delete far", "back"),
}
"""The changes that take steps of their own in a format."""


CASES = [
    pytest.param(what, how, marks=() if what in differ else pytest.mark.soak)
    for how, differ in DIFFERS.items()
    for what in CHANGES
]
"""Every change in every format; the short form leaves out what takes no steps of its own."""


class Deadly:
    """Counts the steps, and dies before one of them, or behind it."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0
        self.seen: Counter[tuple[str, ...]] = Counter()

    def wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **how: Any) -> Any:
            # Three times around a loop over files, or down into folders, tell as much as all.
            frame: FrameType | None = sys._getframe(1)
            place = [method.__qualname__]
            while frame is not None and frame.f_code.co_name != "do":
                if not frame.f_code.co_filename.startswith(STANDARD_LIBRARY):
                    place.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                frame = frame.f_back
            self.seen[tuple(place)] += 1
            if self.seen[tuple(place)] <= 3:
                self.count += 1
                if self.count == self.last:
                    os._exit(DEAD)
            return method(*args, **how)

        return step


Begin = Callable[..., None]
"""Begins to count the steps; given more of them, those as well."""


def in_a_child(last: int, work: Callable[[Begin], None]) -> int:
    """Run `work` in a child that dies at a step of its function `do`; return its exit code."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        deadly = Deadly(last)

        def begin(*more: tuple[Any, str]) -> None:
            for owner, name in (*STEPS, *more):
                setattr(owner, name, deadly.wrap(getattr(owner, name)))

        work(begin)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class Site:
    """A job with two snapshots, and what is done to them."""

    def __init__(self, root: Path, how: SnapshotFormat) -> None:
        self.root, self.how = root, how
        forms = (SnapshotFormat.LINK, SnapshotFormat.FULL, SnapshotFormat.CAS)
        self.other = forms[(forms.index(how) + 1) % 3]
        self.url = (root / "store").as_uri()
        self.storage = JobStorage(root / "jobs", CLUSTER)

    def make(self) -> None:
        with open_backend(self.url, cluster=CLUSTER) as backend:
            job = FakeJob(backend, self.storage)
            job.query.partitions = 1
            job.run(2)
            catalog = SnapshotCatalog(backend, self.storage)
            catalog.create("job", format=self.how)
            job.run(1)
            catalog.create("job", format=self.how)

    def send_far(self) -> None:
        with open_backend(self.url, cluster=CLUSTER) as backend:
            self.do("move", SnapshotCatalog(backend, self.storage))

    def do(self, what: str, catalog: SnapshotCatalog) -> None:
        if what == "create":
            catalog.create("job", format=self.how)
        elif what in ("delete", "delete far"):
            catalog.delete("job", 1)
        elif what == "convert":
            catalog.convert("job", 1, self.other)
        elif what == "move":
            catalog.move("job", 1, self.root / "far")
        elif what == "restore":
            catalog.restore(catalog.get("job", 1))
        elif what in ("claim", "claim far"):
            catalog.restore(catalog.get("job", 1), as_job="new", claim=True)
        elif what == "fork":
            catalog.fork("job", "new")
        elif what == "back":
            catalog.move("job", 1, self.root / "jobs")

    def run(self, what: str, last: int) -> int:
        """Do it in a child that dies at a step; return its exit code."""

        def work(begin: Begin) -> None:
            with open_backend(self.url, cluster=CLUSTER) as backend:
                begin()
                self.do(what, SnapshotCatalog(backend, self.storage))

        return in_a_child(last, work)

    def files(self) -> dict[str, bytes]:
        """Return all but what is in the trash, which its owners empty, and notes of deletions."""
        trees = {**tree(self.root / "jobs"), **tree(self.root / "far")}
        passing = (f"{CLUSTER}/.trash/", f"{CLUSTER}/.doomed/")
        return {name: data for name, data in trees.items() if not name.startswith(passing)}


def can_start(backend: Backend, job_id: str) -> bool:
    """Return whether a master would start the job."""
    spec = backend.get(keys.JOBS + job_id)
    try:
        return spec is not None and bool(decode(JobSpec, spec.value, spec.key))
    except CorruptRecord:
        return False


@pytest.mark.parametrize(("what", "how"), CASES)
def test_death_at_every_step(tmp_path: Path, what: str, how: str) -> None:
    """Whatever the step: all that was listed is whole, and the repeat does what was asked (N3)."""
    place = Site(tmp_path / "place", SnapshotFormat(how))
    place.make()
    if what in FROM_FAR:
        place.send_far()
    saved = tmp_path / "saved"
    place.root.rename(saved)
    step = 0
    while True:
        step += 1
        shutil.copytree(saved, place.root)
        code = place.run(what, step)
        assert code in (0, DEAD)
        with open_backend(place.url, cluster=CLUSTER) as backend:
            catalog = SnapshotCatalog(backend, place.storage)
            check_nothing_is_lost(place, catalog, what, step)
            if code == 0:
                break
            repeat(place, catalog, what)
            check_done(place, catalog, what)
        shutil.rmtree(place.root)
    assert step > 4


def check_nothing_is_lost(place: Site, catalog: SnapshotCatalog, what: str, step: int) -> None:
    orphans = "\n".join(find_orphans(catalog.backend, place.storage))
    gone = 1 if what.startswith(("delete", "claim")) else None
    for number in (1, 2):
        try:
            catalog.verify("job", number)
        except (CorruptRecord, NoSuchSnapshot):
            assert number == gone, f"step {step}"
    restored = "new" if what.startswith(MAKES_A_JOB) else "job"
    begun = catalog.backend.get(keys.JOBS + restored) is not None
    if begun and not can_start(catalog.backend, restored):
        assert f"jobs/{restored}: a restore was interrupted" in orphans, f"step {step}"
    for record in catalog.list("job"):
        assert record.number != gone or record.copy is None
    listed = {
        str(folders.listed(place.storage, record).relative_to(place.storage.root))
        for record in catalog.list("job")
    }
    known = (*listed, "job/e3", "job/out", "job/in", ".blobs")
    for path in place.files():
        top = "/".join(path.split("/")[1:4]) if path.startswith(CLUSTER) else path
        if top.startswith((*known, "new/e", "new/out", "new/in")):
            continue
        where = path.removeprefix(f"{CLUSTER}/")
        folder = "/".join(where.split("/")[: 3 if "snapshots" in where else 2])
        assert folder in orphans or place.root.name in orphans, f"step {step}: {path}\n{orphans}"


def repeat(place: Site, catalog: SnapshotCatalog, what: str) -> None:
    try:
        place.do(what, catalog)
    except NoSuchSnapshot:
        assert what.startswith(("delete", "claim"))
    except DuplicateJob:
        assert what == "fork"
    except InvalidInput as error:
        # Done already: the last step was behind what counts.
        if "already" not in str(error):
            raise


def check_done(place: Site, catalog: SnapshotCatalog, what: str) -> None:
    for line in list(find_orphans(catalog.backend, place.storage)):
        if "a snapshot that is not listed" in line:
            unlisted = line.partition("jrs snapshot delete job ")[2].split(",")[0]
            catalog.delete("job", int(unlisted))
    numbers = {record.number for record in catalog.list("job")}
    assert ({2} if what.startswith(("delete", "claim")) else {1, 2}) <= numbers
    if what.startswith(("delete", "claim")):
        assert 1 not in numbers
    if what.startswith(MAKES_A_JOB):
        assert catalog.pending_restore("new") is None
        assert can_start(catalog.backend, "new")
        catalog.create("new")
    assert can_start(catalog.backend, "job")
    for number in numbers:
        catalog.verify("job", number)
    if what == "convert":
        assert catalog.get("job", 1).format is place.other
    if what == "move":
        assert catalog.get("job", 1).storage == str(place.root / "far")
    if what == "back":
        assert catalog.get("job", 1).storage is None
    if what in (*FROM_FAR, "fork"):
        later = SnapshotCatalog(
            catalog.backend, catalog.storage, now=lambda: time.time() + 2 * PATIENCE
        )
        collect_garbage(later, 0.0, dry_run=False)
    if what == "fork":
        assert {record.number for record in catalog.list("job")} == {1, 2}
    if what in FROM_FAR:
        assert not [path for path in (place.root / "far").rglob("*") if path.is_file()]
        assert not list(place.storage.root.glob(".doomed/*"))
    if place.how is SnapshotFormat.CAS:
        # What a cut-off deletion left of the blobs goes with the next.
        spare = catalog.create("job", format=SnapshotFormat.CAS)
        catalog.create("job")
        catalog.delete("job", spare.number)
    assert not list(find_orphans(catalog.backend, place.storage))
