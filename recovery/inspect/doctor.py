"""Doctor: whether a backend, reached from here, provides what masters rely on.

It works on the map of a real cluster, next to its masters: below one key of its own, which it
removes afterwards, and without ever campaigning.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from jrs.contract.backend import Backend, Diagnostic
from jrs.contract.errors import Conflict, Fenced, InvalidInput, JrsError, Unavailable
from jrs.contract.operations import EPOCH_KEY, Check, Create, Delete, Fence, Update
from jrs.contract.storage_place import StoragePlace
from jrs.host.filesystems import filesystem_of, storage_problem
from jrs.records import keys
from jrs.records.cluster import StorageRecord
from jrs.records.codec import decode
from jrs.records.model import EpochRecord
from jrs.records.policies import check_seconds

from ..files import epoch_folders
from ..files.job_folders import JobStorage
from ..files.known_storage import is_recorded, known_storage
from ..files.storage_identity import StorageIdentity, recorded_storage
from ..processes import memory
from ..storage.objects import Objects
from ..storage.probe import probe

COMMITS = 100
"""Commits whose latency is measured."""

_WATCHES = 5
_SLOW = 0.05
"""The share of a ttl that a commit may take: several heartbeats have to succeed within a ttl."""


def examine(
    backend: Backend,
    other: Backend,
    *,
    ttl: float,
    storage: str | Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Diagnostic]:
    """Yield the diagnostics of a cluster, by two handles on it. A check that fails yields one, too.

    Args:
        ttl: of the leaderships that the cluster has to support, in seconds.
        storage: where the jobs keep their files; by default what `known_storage` finds.
    """
    check_seconds("ttl", ttl)
    mine = f"{keys.DOCTOR}{uuid.uuid4().hex}"
    looks: tuple[Callable[[], Iterator[Diagnostic]], ...] = (
        lambda: _ttl(backend, ttl),
        lambda: backend.diagnostics(ttl),
        lambda: _round_trip(backend, mine),
        lambda: _fence(backend, mine),
        lambda: _latency(backend, mine, ttl, clock),
        lambda: _watch(backend, other, mine, ttl, clock),
        _memory,
        lambda: _storage(backend, storage),
    )
    for look in looks:
        try:
            yield from look()
        except JrsError as error:
            yield Diagnostic(
                "error", str(error), "see above; nothing further of this kind was tried"
            )
    with suppress(JrsError):
        backend.commit(Delete(mine))


def _ttl(backend: Backend, ttl: float) -> Iterator[Diagnostic]:
    try:
        backend.check_ttl(ttl)
    except InvalidInput as error:
        yield Diagnostic("ttl", str(error), "choose a ttl in that range for every master")


def _round_trip(backend: Backend, key: str) -> Iterator[Diagnostic]:
    """Write a key, read it back, and have a second creation refused."""
    backend.commit(Create(key, b"here"))
    record = backend.get(key)
    if record is None or record.value != b"here":
        yield Diagnostic(
            "write", "the value read is not the value written", "do not use this backend"
        )
        return
    try:
        backend.commit(Create(key, b"again"))
    except Conflict:
        yield Diagnostic("write", "written, read back, and a second creation refused")
    else:
        yield Diagnostic("write", "a key was created twice", "do not use this backend")


def _fence(backend: Backend, key: str) -> Iterator[Diagnostic]:
    """Check that the current epoch's fence passes, and that any other is refused."""
    epoch = backend.get(EPOCH_KEY)
    old = Fence(0, 0 if epoch is None else epoch.version - 1)
    record = backend.get(key)
    if record is None:
        return
    try:
        backend.commit(Update(key, b"late", record.version), fence=old)
    except Fenced:
        refused = "a deposed leader's write is refused"
    else:
        yield Diagnostic(
            "fence", "a deposed leader's write was accepted", "do not use this backend"
        )
        return
    if epoch is None:
        yield Diagnostic("fence", f"{refused}; no master has led yet")
        return
    leader = decode(EpochRecord, epoch.value, EPOCH_KEY)
    try:
        backend.commit(Check(key, record.version), fence=Fence(leader.epoch, epoch.version))
    except Fenced:
        yield Diagnostic("fence", f"{refused}; the leader changed meanwhile")
    else:
        yield Diagnostic("fence", f"{refused}; that of epoch {leader.epoch} passes")


def _latency(
    backend: Backend, key: str, ttl: float, clock: Callable[[], float]
) -> Iterator[Diagnostic]:
    taken = []
    for number in range(COMMITS):
        record = backend.get(key)
        if record is None:
            return
        began = clock()
        backend.commit(Update(key, b"%d" % number, record.version))
        taken.append(clock() - began)
    taken.sort()
    p50, p99 = taken[len(taken) // 2], taken[-max(1, len(taken) // 100)]
    detail = f"p50 {_ms(p50)}, p99 {_ms(p99)} over {len(taken)} commits"
    slow = p99 > ttl * _SLOW
    yield Diagnostic(
        "commits",
        detail,
        f"too slow for a ttl of {ttl:g} s: check the disk and the network of its servers, or "
        f"choose a ttl of at least {p99 / _SLOW:.0f} s" if slow else None,
    )  # fmt: skip


def _watch(
    backend: Backend, other: Backend, key: str, ttl: float, clock: Callable[[], float]
) -> Iterator[Diagnostic]:
    """Let one handle watch what the other commits."""
    taken = []
    with backend.watch(key) as watch:
        while watch.wait(0.0):
            pass
        for number in range(_WATCHES):
            record = other.get(key)
            if record is None:
                return
            began = clock()
            commit = other.commit_async(Update(key, b"watched %d" % number, record.version))
            seen = watch.wait(ttl)
            taken.append(clock() - began)
            commit.result(other.timeout)
            if not seen:
                yield Diagnostic(
                    "watch",
                    f"a commit was not noticed within {ttl:g} s",
                    "masters will be slow to see new jobs: check the network and the servers",
                )
                return
    yield Diagnostic("watch", f"commits are noticed within {_ms(max(taken))}, commit included")


def _memory() -> Iterator[Diagnostic]:
    """Check whether an attempt that runs out of memory takes its master with it."""
    if not memory.ends_all_at_once():
        yield Diagnostic("memory", "an attempt that runs out of it dies alone")
        return
    yield Diagnostic(
        "memory",
        "if one attempt here runs out of it, the kernel ends its master and all other attempts "
        "with it (memory.oom.group is 1)",
        "set singleProcessOOMKill: true for the kubelets of the nodes, or, for a unit of systemd, "
        "OOMPolicy=continue",
    )


def examine_storage(
    place: StoragePlace | None, cluster: str, *, renewed: bool = True
) -> Iterator[Diagnostic]:
    """Check whether jobs can keep their files in a place: whether a new leader takes an older
    attempt's files away on its filesystem, or whether its objects can be read once written.

    Args:
        place: None checks nothing.
        renewed: as in `storage_problem`.
    """
    if place is None:
        return
    if place.url:
        yield _objects(Objects(place.url, cluster))
        return
    root = place.root
    problem = storage_problem(root, renewed=renewed)
    if problem is None:
        kind = filesystem_of(root) or "an unknown filesystem"
        yield Diagnostic("storage", f"{root}, on {kind}")
    else:
        why, remedy = problem
        yield Diagnostic("storage", f"{root}: {why}", remedy)


def _storage(backend: Backend, named: str | Path | None) -> Iterator[Diagnostic]:
    """Check whether a master could lead with the storage: also that it is the cluster's, and as old
    as the records."""
    storage, record = known_storage(backend, named, check=False), recorded_storage(backend)
    if named is None and record is not None and _is_elsewhere(backend, storage, record):
        yield Diagnostic(
            "storage",
            f"the cluster's storage is {record.path}, which is not on this host",
            "mount it, if masters or clients of its files run here",
        )
        return
    if storage is None:
        return
    renewed = epoch_folders.are_renewed(backend)
    yield from examine_storage(storage.place, backend.cluster, renewed=renewed)
    for problem in StorageIdentity(backend, storage).problems():
        yield Diagnostic("storage", problem, "see above; until then no master leads")


def _is_elsewhere(backend: Backend, storage: JobStorage | None, record: StorageRecord) -> bool:
    """Return whether what a client finds on this host is not the storage that is recorded."""
    if storage is None:
        return True
    place = storage.place
    if place.root != backend.default_storage or str(place) == record.path:
        return False
    return not is_recorded(backend, place, record)


def _objects(objects: Objects) -> Diagnostic:
    try:
        probe(objects)
    except (InvalidInput, Unavailable) as error:
        return Diagnostic("storage", str(error), "see above")
    return Diagnostic("storage", f"{objects.url}: written, read, listed and deleted")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
