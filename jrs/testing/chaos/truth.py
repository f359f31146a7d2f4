"""The truth: a store of the file backend as bytes, and its map after each commit.

This module knows neither the names nor the format of the files. The log is the file that grows with
a commit.
"""

from __future__ import annotations

import enum
import itertools
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.compaction import Compaction
from jrs.contract.backend import Backend
from jrs.contract.operations import Create, Delete, Record, Update
from jrs.records import keys
from jrs.records.model import Failure, JobResult, JobSpec, JobStatus
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos.forms import raise_form
from jrs.testing.chaos.late import LateCompaction

CLUSTER = "default"

State = dict[str, Record]
"""Every record of the map, by key."""


class Role(enum.Enum):
    """The role of a file, derived from its place and its changes."""

    LOG = "log"
    """Grows with every commit."""
    OTHER = "other"
    """Lies next to the log: a base, an index, an older segment."""
    MARKER = "marker"
    """Is in the root of the store."""
    LOCK = "lock"
    """Belongs to a leadership."""


@attrs.frozen
class Truth:
    """The files of a store, and its history.

    Attributes:
        name: of the kind of store: ``young`` has one segment and nothing compacted; ``grown`` was
            compacted several times; ``levelled`` has several runs; ``unswept`` is a grown one that
            still has its older files; ``going`` has a segment that continues another one, whose
            base is not written yet.
        files: the content by path in the store's folder.
        roles: the role of each file.
        older: earlier contents of files of each role, the newest last.
        states: the map after each acknowledged commit; the last one is the truth.
        synced: bytes of the log before the last commit began.
        jobs: the ids of all jobs that were ever submitted.
        alive, once: the keys that exist, and the keys that exist or existed.
    """

    name: str
    files: dict[str, bytes]
    roles: dict[str, Role]
    older: dict[Role, list[bytes]]
    states: list[State]
    synced: int
    jobs: list[str]
    alive: list[str]
    once: list[str]

    @property
    def records(self) -> State:
        return self.states[-1]

    @property
    def log(self) -> str:
        """The path of the log."""
        return next(path for path, role in self.roles.items() if role is Role.LOG)

    def as_json(self) -> dict[str, Any]:
        """Return the truth as JSON; the inverse of `from_json`."""
        return {
            "name": self.name,
            "files": {path: _text(data) for path, data in self.files.items()},
            "roles": {path: role.value for path, role in self.roles.items()},
            "older": {role.value: list(map(_text, found)) for role, found in self.older.items()},
            "changes": [_changes(*pair) for pair in itertools.pairwise([{}, *self.states])],
            "synced": self.synced,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Truth:
        states: list[State] = []
        state: State = {}
        for changes in data["changes"]:
            state = dict(state)
            for key, change in changes.items():
                if change is None:
                    del state[key]
                else:
                    state[key] = Record(key, _bytes(change[0]), change[1])
            states.append(state)
        return cls.of(
            data["name"],
            {path: _bytes(text) for path, text in data["files"].items()},
            {path: Role(role) for path, role in data["roles"].items()},
            {Role(role): list(map(_bytes, found)) for role, found in data["older"].items()},
            states,
            data["synced"],
        )

    @classmethod
    def of(
        cls,
        name: str,
        files: dict[str, bytes],
        roles: dict[str, Role],
        older: dict[Role, list[bytes]],
        states: list[State],
        synced: int,
    ) -> Truth:
        """Return the truth, with the values that follow from its history."""
        once = sorted({key for state in states for key in state})
        jobs = [key.split("/")[1] for key in once if key.startswith(keys.JOBS)]
        return cls(name, files, roles, older, states, synced, jobs, sorted(states[-1]), once)

    def write(self, root: Path) -> None:
        """Write the store into the empty folder `root`."""
        for path, data in self.files.items():
            file = root / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_bytes(data)


KINDS = ("young", "grown", "levelled", "unswept", "going")
"""The kinds of stores."""


def make_truth(kind: str, seed: int, *, jobs: int) -> Truth:
    """Make a store of a kind; a young one has fewer jobs."""
    rng = random.Random(f"{kind}:{seed}")
    return _make(kind, rng, jobs if kind != "young" else jobs // 3)


def contents_of(root: Path) -> dict[str, bytes]:
    """Return every file below `root` by its path there."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# -- inside --------------------------------------------------------------------------------

_COMPACTED: dict[str, tuple[int, ...]] = {
    "young": (), "grown": (120, 260, 420), "levelled": (110, 122, 300, 310),
    "unswept": (120, 260, 420), "going": (40,),
}  # fmt: skip
"""The steps at which each kind of store is compacted."""


def _make(name: str, rng: random.Random, jobs: int) -> Truth:
    seal_at = {"grown": 40_000, "unswept": 40_000, "going": 2_000}.get(name, 1 << 40)
    with tempfile.TemporaryDirectory() as temporary:
        root, compacted = Path(temporary), threading.Event()
        backend = FileBackend(
            root, CLUSTER, seal_at=seal_at,
            compaction=Compaction if name != "going"
            else lambda log: LateCompaction(log, lambda: not compacted.is_set()),
        )  # fmt: skip
        with backend:
            leads = backend.campaign("truth", ttl=3600.0, stop=threading.Event())
            assert leads is not None
            raise_form(backend)
            history = _History(backend, root, _COMPACTED[name])
            for step in _steps(backend, rng, jobs):
                if history.note(step):
                    compacted.set()
            truth = history.end(name)
            going = len([path for path in truth.files if path.endswith(".segment")]) > 1
            levelled = len(backend.replica.segment.base.runs) > 1
            if going is not (name == "going") and name != "unswept":
                raise RuntimeError(f"the store {name!r} is not what it is called")
            if name == "levelled" and not levelled:
                raise RuntimeError("the store 'levelled' has one run")
            leads.resign()
    return truth


def _changes(before: State, after: State) -> dict[str, tuple[str, int] | None]:
    gone: dict[str, tuple[str, int] | None] = dict.fromkeys(before.keys() - after.keys())
    return gone | {
        key: (_text(record.value), record.version)
        for key, record in after.items()
        if before.get(key) != record
    }


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


class _History:
    """Records the map after each step, and the changes of the files."""

    def __init__(self, backend: FileBackend, root: Path, compacted: tuple[int, ...]) -> None:
        self._backend = backend
        self._root = root
        self._compacted = compacted
        self._states = [_state(backend)]
        self._kept: dict[str, list[bytes]] = {}
        self._older: dict[Role, list[bytes]] = {role: [] for role in Role}

    def note(self, step: int) -> bool:
        """Record the state after a step; return whether a compaction followed."""
        self._states.append(_state(self._backend))
        if step in self._compacted:
            self._keep()
            self._backend.compact()
        elif step % 97 == 50:
            self._keep()
        return step in self._compacted

    def end(self, name: str) -> Truth:
        before = contents_of(self._root)
        self._backend.commit(Create("last", b"the newest commit"))
        self._states.append(_state(self._backend))
        files = contents_of(self._root)
        roles = {path: self._role(path, before, files) for path in files}
        log = next(path for path, role in roles.items() if role is Role.LOG)
        for path, versions in self._kept.items():
            role = roles.get(path, Role.OTHER)
            self._older[role] += [data for data in versions if data != files.get(path)]
            if name == "unswept" and path not in files:
                files[path] = versions[-1]
                roles[path] = Role.OTHER
        # The log of an earlier segment counts as an older log, too.
        self._older[Role.LOG] += self._older[Role.OTHER][:2]
        return Truth.of(name, files, roles, self._older, self._states, len(before[log]))

    def _keep(self) -> None:
        for path, data in contents_of(self._root).items():
            self._kept.setdefault(path, []).append(data)

    def _role(self, path: str, before: dict[str, bytes], after: dict[str, bytes]) -> Role:
        parts = Path(path).parts
        if len(parts) == 1:
            return Role.MARKER
        if len(after[path]) > len(before.get(path, b"")) and path in before:
            return Role.LOG
        lock = "leader" in parts
        return Role.LOCK if lock else Role.OTHER


def _state(backend: Backend) -> State:
    return {record.key: record for record in backend.scan("")}


def _steps(backend: Backend, rng: random.Random, jobs: int) -> Iterator[int]:
    """Commit like masters and clients, and commit plain records; yield after each commit."""
    catalog, store = JobCatalog(backend, now=lambda: 1e9), JobResultStore(backend, now=lambda: 2e9)
    number = 0
    for job in range(jobs):
        name = f"job-{job:04}"
        for action in _life(catalog, store, rng, name):
            action()
            number += 1
            yield number
        if job % 3 == 0:
            key = f"plain/{rng.randrange(jobs):04}"
            _churn(backend, rng, key)
            number += 1
            yield number


def _life(
    catalog: JobCatalog, store: JobResultStore, rng: random.Random, name: str
) -> Iterator[Callable[[], object]]:
    yield lambda: catalog.submit(JobSpec(name, "jobs:work", {"n": rng.randrange(10**6)}))
    if rng.random() < 0.15:
        return
    status = rng.choice([JobStatus.FINISHED, JobStatus.FAILED])
    failure = Failure("exception", "ValueError: no rows") if status is JobStatus.FAILED else None
    result = JobResult(
        name, status, failure=failure, payload={"rows": rng.randrange(10**6), "text": "ab~\n\t\0"}
    )
    yield lambda: store.create_dirty(result, None)
    if rng.random() < 0.2:
        return
    yield lambda: store.mark_clean(name, None)
    if rng.random() < 0.15:
        yield lambda: store.delete(name)


def _churn(backend: Backend, rng: random.Random, key: str) -> None:
    """Create, change or delete a plain record."""
    found = backend.get(key)
    value = rng.randbytes(rng.randrange(60)) + b"\n~~\n"
    if found is None:
        backend.commit(Create(key, value))
    elif rng.random() < 0.5:
        backend.commit(Update(key, value, found.version))
    else:
        backend.commit(Delete(key, found.version))
