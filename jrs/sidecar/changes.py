"""Changes: one watch of the backend for all readers, however many and however slow they are.

A thread waits for the backend's watch, and notes in each reader what may have changed. A note is
level-triggered and bounded: it names jobs to read again, or says that any may have changed. A
reader that does not keep up finds one note, and reads the newest state.

Time changes something as well: a master that is killed commits nothing, and does not lead once its
heartbeat is old. So the thread also looks who leads, once for all readers, and at most once an
interval of heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import FolderReplaced
from jrs.contract.runtime import RUNTIME, Runtime, call_until
from jrs.records import keys
from jrs.store import applications
from jrs.store.masters import INTERVAL, MasterRole, Registry

_log = logging.getLogger("jrs.sidecar")
_POLL = 0.25
_PAUSE = 1.0
"""Seconds before a watch, or a read, that has failed is made again."""
_MOST_NAMED = 1000
"""Jobs that a note names; beyond that it says that any may have changed."""

_DECIDE = keys.EPOCH, keys.PAUSE
"""The keys that change the state of every job at once."""


@attrs.frozen
class Note:
    """What may have changed since the last note."""

    jobs: frozenset[str] | None = frozenset()
    """The ids of the jobs; None: any."""
    cluster: bool = False
    """Whether masters, the epoch, a pause or the format may have changed."""

    def __or__(self, other: Note) -> Note:
        jobs = None if self.jobs is None or other.jobs is None else self.jobs | other.jobs
        if jobs is not None and len(jobs) > _MOST_NAMED:
            jobs = None
        return Note(jobs, self.cluster or other.cluster)

    def of(self, job_id: str) -> bool:
        """Return whether it is about a job."""
        return self.jobs is None or job_id in self.jobs


EVERYTHING = Note(None, True)
NOTHING = Note()


class Reader:
    """One reader of changes. Its methods are for the event loop's thread."""

    def __init__(self, job_id: str | None) -> None:
        self.job_id = job_id
        self._note = EVERYTHING
        self._awake = asyncio.Event()
        self._awake.set()
        self._has_failed = False

    def take_note(self, note: Note) -> None:
        """Note what may have changed."""
        self._note |= note
        self._awake.set()

    def try_again(self) -> None:
        """Have the next wait end soon, as if everything had changed: what the last note was about
        could not be read, and perhaps nothing changes any more."""
        self._has_failed = True

    async def wait(self, timeout: float) -> Note:
        """Wait up to `timeout` seconds for a change; return what may have changed. The first call
        returns at once."""
        failed, self._has_failed = self._has_failed, False
        try:
            async with asyncio.timeout(min(timeout, _PAUSE) if failed else timeout):
                await self._awake.wait()
        except TimeoutError:
            return EVERYTHING if failed else NOTHING
        self._awake.clear()
        note, self._note = self._note, NOTHING
        return EVERYTHING if failed else note


class Changes:
    """The one watch, and its readers. Start and stop it in the event loop's thread."""

    def __init__(self, backend: Backend, runtime: Runtime = RUNTIME) -> None:
        self._backend = backend
        self._over = threading.Event()
        self._readers: dict[str | None, set[Reader]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._order: object = None
        self.generation = 0
        """Grows with each change that was heard."""
        self.replaced: FolderReplaced | None = None
        """Why the backend can neither be read nor changed any more, once that is so; it is over
        then."""
        self._thread = runtime.thread(self._run, "jrs-changes")

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return sum(map(len, self._readers.values()))

    def start(self) -> None:
        """Begin to watch."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def end(self) -> None:
        """Have every stream and every long poll end. Idempotent."""
        self._over.set()
        self._heard(EVERYTHING)

    async def stop(self) -> None:
        """Stop watching."""
        self.end()
        await asyncio.to_thread(self._thread.join, 10.0)

    @property
    def over(self) -> bool:
        """Whether the server ends."""
        return self._over.is_set()

    @contextmanager
    def reading(self, job_id: str | None = None) -> Iterator[Reader]:
        """Have a reader of one job, or of everything."""
        reader = Reader(job_id)
        self._readers.setdefault(job_id, set()).add(reader)
        try:
            yield reader
        finally:
            left = self._readers[job_id]
            left.discard(reader)
            if not left:
                del self._readers[job_id]

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        call_until(
            self._over.is_set,
            self._watch_until_replaced,
            pause=self._pause,
            report=_log.warning,
            failing="changes are not heard",
        )

    def _watch_until_replaced(self) -> None:
        try:
            self._watch()
        except FolderReplaced as error:
            self.replaced = error
            self._over.set()
            self._tell(EVERYTHING)

    def _watch(self) -> None:
        looked = -math.inf
        with self._backend.watch("") as watch:
            while not self._over.is_set():
                names = watch.changes(_POLL)
                note = EVERYTHING if names is None else note_of(names)
                # Not at each note: every heartbeat of every master is one.
                if time.monotonic() - looked >= INTERVAL:
                    looked = time.monotonic()
                    if (order := self._look()) != self._order:
                        self._order = order
                        note = EVERYTHING
                if names or note is EVERYTHING:
                    self._tell(note)

    def _look(self) -> object:
        """Return what the state of every job depends on: who leads, or will, and a pause."""
        roles = [(view.info.name, view.role) for view in Registry(self._backend).views()]
        led = any(role is MasterRole.LEADER for _, role in roles)
        waiting = [] if led else applications.waiting(self._backend)
        records = [self._backend.get(key) for key in _DECIDE]
        return roles, waiting, [record and record.version for record in records]

    def _pause(self) -> None:
        self._tell(EVERYTHING)
        self._over.wait(_PAUSE)

    def _tell(self, note: Note) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._heard, note)
        except RuntimeError:
            self._over.set()  # The loop has ended.

    def _heard(self, note: Note) -> None:
        self.generation += 1
        for reader in self._readers.get(None, ()):
            reader.take_note(note)
        named = self._readers if note.jobs is None else note.jobs
        for job_id in list(named):
            for reader in self._readers.get(job_id, ()) if job_id is not None else ():
                reader.take_note(note)


def note_of(names: Iterable[str]) -> Note:
    """Return what changes of those keys are about."""
    jobs: set[str] = set()
    cluster = False
    for name in names:
        first, _, rest = name.partition("/")
        if f"{first}/" in (*keys.PER_JOB, *keys.TOLD):
            job_id = rest.partition("/")[0]
            if not job_id:
                return EVERYTHING  # The backend knows no more.
            jobs.add(job_id)
        elif name in _DECIDE:
            return EVERYTHING
        elif f"{first}/" in (keys.MASTERS, keys.CLUSTER):
            cluster = True
    return Note(frozenset(jobs), cluster) | NOTHING
