"""A suspended job with state, and operations on its snapshots that are killed -9 at any moment.

After each kill every listed snapshot is whole and none is missing. The operation is repeated, and
then everything is as if it had not been killed, but for what `jrs gc` removes.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from jrs.client.client import Client
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord
from jrs.recovery.checkpoint_format import relocation
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import folders, in_objects
from jrs.recovery.snapshots.catalog import SnapshotCatalog

from .clients import Call, Clients, Outcome

Contents = dict[str, str]
"""The digests of the files of a job's state, by their path."""

FORMATS = tuple(each for each in SnapshotFormat if each.is_restorable)
EVERYWHERE = ("create", "restore", "restore as", "fork", "fork now", "claim", "delete")
IN_FOLDERS = (*EVERYWHERE, "convert", "move")
"""The operations, where the storage has objects and where it has none."""


@attrs.define
class Figures:
    """What was done, by operation."""

    kills: Counter[str] = attrs.field(factory=Counter)
    """Those that hit inside of the operation."""
    repeats: Counter[str] = attrs.field(factory=Counter)
    """Calls that were made again."""
    restarts: Counter[str] = attrs.field(factory=Counter)
    """Attempts that were started again, or sessions that continued from the state."""
    seconds: defaultdict[str, float] = attrs.field(factory=lambda: defaultdict(float))

    def __str__(self) -> str:
        lines = [
            f"{name}: {self.kills[name]} kills, {self.repeats[name]} repeats, "
            f"{self.restarts[name]} restarts, {self.seconds[name]:.0f} s"
            for name in self.seconds
        ]
        return "; ".join([*lines, f"in all: {self.kills.total()} kills"])


@attrs.frozen
class Operation:
    """A call to kill, and what holds once it has returned."""

    name: str
    call: Call
    settled: Callable[[], object]
    """Checks the outcome."""
    done: str = ""
    """How the error of a repeat may begin: it was done before the kill."""
    gone: int | None = None
    """The snapshot that it deletes."""
    restores: str = ""
    """The job that it restores."""


class SnapshotTrial:
    """A suspended job, its snapshots, and the jobs that are made of it.

    Args:
        far: a folder to move snapshots to.
        figures: are added to.
    """

    def __init__(
        self,
        client: Client,
        storage: JobStorage,
        job_id: str,
        far: Path,
        clients: Clients,
        chance: random.Random,
        figures: Figures,
    ) -> None:
        self._client, self._storage = client, storage
        self._catalog = SnapshotCatalog(client.backend, storage)
        self._job_id, self._far = job_id, far
        self._clients, self._chance, self._figures = clients, chance, figures
        self._usual: dict[str, float] = {}
        self.made: list[str] = []
        """The jobs that were made of it, which have not begun."""
        self._known = {one.number: self._contents(one) for one in self._catalog.list(job_id)}
        self._here = self._take_another()

    @property
    def operations(self) -> tuple[str, ...]:
        return IN_FOLDERS if self._storage.objects is None else EVERYWHERE

    def kill(self, name: str) -> bool:
        """Begin an operation and kill it; return whether it was still at it. Then complete it, and
        check all that there is. The first of its name is not killed, to see how long it takes."""
        began = time.monotonic()
        operation: Operation = getattr(self, f"_{name.replace(' ', '_')}")()
        if name in self._usual:
            moment = self._chance.uniform(0, self._usual[name])
            outcome = self._clients.kill(operation.call, moment)
        else:
            outcome = self._clients.make(operation.call)
        try:
            self._complete(operation, outcome)
        except AssertionError as error:
            error.add_note(f"{operation}, {outcome}")
            raise
        self._figures.seconds[name] += time.monotonic() - began
        return outcome.killed

    def _complete(self, operation: Operation, outcome: Outcome) -> None:
        """Check what a kill has left, make the call again, and check the outcome."""
        self._check_whole(but=operation.gone)
        if outcome.killed:
            self._figures.kills[operation.name] += 1
            if self._chance.random() < 0.5:
                self._client.gc(older_than=0)
                self._check_whole(but=operation.gone)
            self._repeat(operation)
        else:
            assert not outcome.error, (operation.call, outcome)
            self._usual[operation.name] = outcome.seconds
        operation.settled()
        self._check_whole()
        self._check_tidy()

    def _repeat(self, operation: Operation) -> None:
        """Make a call again, or have jrs finish what it has begun."""
        self._figures.repeats[operation.name] += 1
        call, done = operation.call, operation.done
        begun = operation.restores and self._catalog.pending_restore(operation.restores)
        if begun and self._chance.random() < 0.5:
            call, done = Call("finish", {"of": operation.restores}), ""
        error = self._clients.make(call).error
        assert not error or (done and error.startswith(done)), (call, error)

    # -- operations ----------------------------------------------------------------------------

    def _create(self) -> Operation:
        name = f"s{self._chance.getrandbits(40):x}"
        format = self._chance.choice(FORMATS) if self._storage.objects is None else None

        def settled() -> None:
            record = self._catalog.get(self._job_id, name)
            assert record.number not in self._known
            self._known[record.number] = self._contents(record)
            assert self._known[record.number] == self._here

        return self._on("create", settled, "InvalidInput", name=name, format=format)

    def _delete(self) -> Operation:
        number = self._any(newest=False)
        found = self._on("delete", lambda: self._forget(number), "NoSuchSnapshot", which=number)
        return attrs.evolve(found, gone=number)

    def _convert(self) -> Operation:
        number = self._any()
        now = self._catalog.get(self._job_id, number).format
        other = self._chance.choice([each for each in FORMATS if each is not now])

        def settled() -> None:
            assert self._catalog.get(self._job_id, number).format is other

        return self._on("convert", settled, which=number, to=other)

    def _move(self) -> Operation:
        number = self._any()
        is_here = self._catalog.get(self._job_id, number).storage is None
        to = self._far if is_here else self._storage.root.parent

        def settled() -> None:
            record = self._catalog.get(self._job_id, number)
            assert record.copy is None
            assert (record.storage is None) is not is_here

        return self._on("move", settled, "InvalidInput", which=number, to=str(to))

    def _restore(self) -> Operation:
        number = self._any()

        def settled() -> None:
            self._here = self._state_of(self._job_id)
            assert self._here == self._known[number]

        found = self._on("restore", settled, which=number)
        return attrs.evolve(found, restores=self._job_id)

    def _restore_as(self) -> Operation:
        number = self._any()
        return self._making("restore as", self._known[number], "restore", which=number)

    def _claim(self) -> Operation:
        number = self._any(newest=False)
        made = self._making("claim", self._known[number], "restore", which=number, claim=True)

        def settled() -> None:
            made.settled()
            self._forget(number)

        return attrs.evolve(made, settled=settled, done="NoSuchSnapshot", gone=number)

    def _fork(self) -> Operation:
        number = self._any()
        return self._making("fork", self._known[number], "fork", which=number)

    def _fork_now(self) -> Operation:
        return self._making("fork now", self._here, "fork now")

    def _making(self, name: str, wanted: Contents, call: str, **arguments: Any) -> Operation:
        """Return an operation that makes another job with this state."""
        new = f"{name.replace(' ', '-')}-{self._chance.getrandbits(40):x}"
        self.made.append(new)

        def settled() -> None:
            assert self._catalog.pending_restore(new) is None
            assert _of_any_job(self._state_of(new)) == _of_any_job(wanted)

        made = Call(call, {**arguments, "as_id": new})
        return Operation(name, made, settled, "DuplicateJob", restores=new)

    def _on(
        self, call: str, settled: Callable[[], object], done: str = "", **arguments: Any
    ) -> Operation:
        return Operation(call, Call(call, arguments), settled, done)

    # -- what there is -------------------------------------------------------------------------

    def _any(self, *, newest: bool = True) -> int:
        """Return a known snapshot; by default it may be the newest."""
        if len(self._known) < 2 and not newest:
            self._take_another()
        numbers = sorted(self._known)
        return self._chance.choice(numbers if newest else numbers[:-1])

    def _take_another(self) -> Contents:
        record = self._catalog.create(self._job_id)
        self._known[record.number] = self._contents(record)
        return self._known[record.number]

    def _forget(self, number: int) -> None:
        assert all(one.number != number for one in self._catalog.list(self._job_id))
        del self._known[number]

    def _contents(self, record: SnapshotRecord) -> Contents:
        found = self._catalog.manifest(record.job_id, record.number)
        objects = self._storage.objects
        if objects is None:
            return {one.path: one.sha256 for one in found.files}
        return {one.path: one.sha256 for one in in_objects.files_in(objects, found)}

    def _state_of(self, job_id: str) -> Contents:
        """Return the state that a job has now: what a snapshot of it consists of."""
        record = self._catalog.create(job_id)
        found = self._contents(record)
        self._catalog.remove(record)
        return found

    # -- checks --------------------------------------------------------------------------------

    def _check_whole(self, but: int | None = None) -> None:
        """Check every byte of all that is listed, and that no snapshot is missing."""
        for job_id in (self._job_id, *self.made):
            for record in self._catalog.list(job_id):
                self._catalog.verify(job_id, record.number)
        for number, contents in self._known.items():
            if number != but:
                assert self._contents(self._catalog.get(self._job_id, number)) == contents

    def _check_tidy(self) -> None:
        """Check that a collection of garbage leaves nothing that is not needed."""
        left = self._client.gc(older_than=0).left
        again = self._client.gc(older_than=0, dry_run=True).removed
        report = self._client.fsck()
        problems = [*left, *again, *report.damaged, *report.left_over, *report.held]
        assert not problems, problems
        far = JobStorage(self._far, self._storage.root.name)
        there = [one for one in self._catalog.list(self._job_id) if one.storage is not None]
        paths = {
            path for number in folders.whole(far, self._job_id)
            for path in folders.of_number(far, self._job_id, number)
        }  # fmt: skip
        assert paths == {folders.listed(far, one) for one in there}
        assert not list(far.root.glob(".trash/*"))


def _of_any_job(contents: Contents) -> Contents:
    """Return a job's state without what depends on its folder, and on the ids of its queries."""
    own = ("metadata", "/metadata")
    return {
        path: "" if path.endswith(own) or relocation.has_paths(path) else digest
        for path, digest in contents.items()
    }
