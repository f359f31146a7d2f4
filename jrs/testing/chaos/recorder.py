"""The recorder: a backend that passes every call on to another one, and writes a history.

Its URL is the other one's behind ``recorded:``, for example ``recorded:file:///tmp/store``, so that
masters, attempts and drivers are recorded without any change in them. `JRS_CHAOS_HISTORY` names a
folder, in which the history of each cluster has a folder of its own; `JRS_CHAOS_NAME` names the
process.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from jrs.contract.backend import Backend, Capabilities, Diagnostic
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Create, Delete, Fence, Op, Record, Update
from jrs.contract.operations import Check as CheckOp
from jrs.contract.watch import Watch
from jrs.records import keys
from jrs.recovery.attempt.runners.thread import IN_THREADS
from jrs.recovery.processes.marks import MARK
from jrs.store.backend_schemes import opener_of
from jrs.testing.chaos.recorded import INCOMPLETE, Event, Kind, Verb, as_recorded
from jrs.testing.chaos.recorded_watch import QUIET, Asked, RecordedWatch

HISTORY = "JRS_CHAOS_HISTORY"
"""The environment variable with the folder of the history."""
NAME = "JRS_CHAOS_NAME"
"""The environment variable with the name of the process; its children have it, too."""
SCHEME = "recorded"

_SIGN = 0.05
"""Seconds between two signs of life of an attempt."""
_CHUNK = 1000
"""Records of a scan that are one operation of the history."""

T = TypeVar("T")


def unique_name(name: str) -> str:
    """Return a name for this process, ``NAME.PID-RANDOM``. The pid alone is not unique: a long run
    has it twice, and each container has its own pid 1."""
    return f"{name}.{os.getpid()}-{secrets.token_hex(4)}"


def files_of(history: Path, name: str, pid: int) -> list[Path]:
    """Return the files of a process in the folders of some histories."""
    return list(history.glob(f"*/{name}.{pid}-*.jsonl"))


def recorded(url: str) -> str:
    """Return the URL under which a backend is recorded."""
    return f"{SCHEME}:{url}"


def open_recorded(url: str, cluster: str, create: bool = True) -> Backend:
    """Open ``recorded:URL``. The entry point of the scheme.

    Raises:
        InvalidInput: no folder of a history is named.
    """
    folder = os.environ.get(HISTORY)
    if not folder:
        raise InvalidInput(f"{SCHEME}: name the folder of the history in {HISTORY}")
    inner = url.removeprefix(f"{SCHEME}:")
    return RecordedBackend(
        opener_of(inner)(inner, cluster, create), recording_in(Path(folder, cluster))
    )


class Recording:
    """The file of one process. Safe for use by many threads.

    Each event is one write to a file that is only appended to: what a process that is killed has
    written, stays.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.process = unique_name(name)
        self._numbers = itertools.count(1)
        path = self._path = folder / f"{self.process}.jsonl"
        self._is_whole = True
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._signs: threading.Thread | None = None
        self.asked: dict[int, Asked] = {}
        """The open calls of watches, by the numbers of these."""

    def begin(self, f: Verb, key: str = "", value: Any = None, **more: Any) -> int:
        """Record that an operation begins; return its number."""
        number = next(self._numbers)
        self.write(number, Kind.INVOKE, f, key, value, **more)
        return number

    def note(self, f: Verb, key: str = "", value: Any = None, **more: Any) -> None:
        """Record what is no operation."""
        self.write(next(self._numbers), Kind.INFO, f, key, value, **more)

    def write(
        self, number: int, kind: Kind, f: Verb, key: str = "", value: Any = None, **more: Any
    ) -> None:
        """Record an event of the operation with that number. If the folder cannot take it, the
        operation continues; the history says that it is incomplete, and gets nothing more.

        Raises:
            OSError: nor can the history say that. Its process can call its backend no more.
        """
        now = more.pop("t", None) or time.monotonic_ns()
        event = Event(self.process, number, kind, f, now, key, value, **more)
        line = event.to_line()
        try:
            if self._is_whole and os.write(self._file, line) == len(line):
                return
        except OSError as error:
            if error.errno == errno.EBADF:  # It was closed.
                raise
        self._is_whole = False
        with suppress(FileNotFoundError):  # It has that name. A full disk has room for it.
            self._path.rename(self._path.with_suffix(INCOMPLETE))

    def fail(self, number: int, f: Verb, key: str, error: BaseException) -> None:
        """Record the error that an operation ended with."""
        unchanged = isinstance(error, (Refused, Unavailable, InvalidInput))
        of = f" {error.op.key}" if isinstance(error, Conflict) else ""
        # A read changes nothing, whatever became of it.
        kind = Kind.FAIL if unchanged or f is not Verb.COMMIT else Kind.INFO
        self.write(number, kind, f, key, error=f"{type(error).__name__}{of}")

    def give_signs(self) -> None:
        """Give a sign of life now, and from now on: of the whole process if it is an attempt, or
        else of each attempt that runs in a thread of it. From now on, note which calls of watches
        are overdue, too. Idempotent."""
        with self._lock:
            self._give_sign()
            if self._signs is None:
                self._signs = threading.Thread(target=self._give, name="jrs-alive", daemon=True)
                self._signs.start()

    def _give(self) -> None:
        while not self._stop.wait(_SIGN):
            with self._lock:
                if not self._stop.is_set():
                    self._give_sign()
                    self._note_overdue()

    def _give_sign(self) -> None:
        if MARK in os.environ:
            self.note(Verb.ALIVE)
            return
        for context in IN_THREADS.copy().values():
            if (fence := context.fence).attempt is not None:
                self.note(Verb.ALIVE, context.job_id, version=fence.attempt.version,
                          epoch=fence.epoch)  # fmt: skip

    def _note_overdue(self) -> None:
        """Note, each second, which calls of watches have not returned when their time was over."""
        now = time.monotonic_ns()
        for number, asked in self.asked.copy().items():
            if now > asked.noted + QUIET:
                asked.noted = now
                self.write(number, Kind.INFO, Verb.OVERDUE, asked.prefix, t=now,
                           version=now - asked.until)  # fmt: skip

    def close(self) -> None:
        """Close the file. Nothing of this process may be recorded any more."""
        with self._lock:
            self._stop.set()
            os.close(self._file)


_lock = threading.Lock()
_recordings: dict[tuple[Path, int], Recording] = {}
"""The recordings of this process. A forked child has one of its own."""


def recording_in(folder: Path) -> Recording:
    """Return the recording of this process in a folder; the first time, an attempt begins to give
    signs of life."""
    with _lock:
        here = folder, os.getpid()
        if here not in _recordings:
            made = _recordings[here] = Recording(folder, os.environ.get(NAME, "process"))
            if MARK in os.environ:
                made.give_signs()
        return _recordings[here]


def end_recording(folder: Path) -> None:
    """Close this process's file in a folder. Nothing of this process may be recorded any more."""
    with _lock:
        recording = _recordings.pop((folder, os.getpid()), None)
    if recording is not None:
        recording.close()


def parts_of(ops: Sequence[Op], fence: Fence | None) -> list[list[Any]]:
    """Return the parts of a commit as a history has them; the fence is a condition like others."""
    parts: list[list[Any]] = []
    for op in ops:
        if isinstance(op, Create):
            parts.append(["create", op.key, as_recorded(op.key, op.value)])
        elif isinstance(op, Update):
            parts.append(["update", op.key, as_recorded(op.key, op.value), op.version])
        elif isinstance(op, Delete):
            parts.append(["delete", op.key, op.version])
        elif isinstance(op, CheckOp):
            parts.append(["check", op.key, op.version])
        else:
            parts.append(["absent", op.key])
    named = {op.key for op in ops}
    if fence is not None and EPOCH_KEY not in named:
        parts.append(["check", EPOCH_KEY, fence.version])
    if fence is not None and fence.attempt is not None and fence.attempt.key not in named:
        parts.append(["check", fence.attempt.key, fence.attempt.version])
    return parts


class RecordedBackend(Backend):
    """A backend whose calls are recorded."""

    capabilities: Capabilities

    def __init__(self, inner: Backend, recording: Recording) -> None:
        self.url = recorded(inner.url)
        self.cluster = inner.cluster
        self.capabilities = inner.capabilities
        self.timeout = inner.timeout
        self.default_storage = inner.default_storage
        self.marked_format = inner.marked_format
        self._inner = inner
        self._recording = recording

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        number = self._recording.begin(Verb.GET, key)
        found = self._watched(number, Verb.GET, key, lambda: self._inner._get(key, deadline))
        version, value = _read(found)
        self._recording.write(number, Kind.OK, Verb.GET, key, value, version=version)
        return found

    def _get_many(
        self, keys: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        number = self._recording.begin(Verb.GET_MANY)
        found = self._watched(
            number, Verb.GET_MANY, "", lambda: self._inner._get_many(keys, deadline)
        )
        read = [
            [key, *_read(record)]
            for key, record in zip(keys, found, strict=True)
            if not isinstance(record, CorruptRecord)
        ]
        self._recording.write(number, Kind.OK, Verb.GET_MANY, "", read)
        return found

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        # `_scan` records: the other backend may page otherwise.
        return self._inner._page(prefix, after, limit, deadline)

    def _created_since(self, prefix: str, version: int, deadline: Deadline) -> list[Record]:
        number = self._recording.begin(Verb.GET_MANY)
        found = self._watched(
            number, Verb.GET_MANY, "", lambda: self._inner._created_since(prefix, version, deadline)
        )
        read = [[record.key, *_read(record)] for record in found]
        self._recording.write(number, Kind.OK, Verb.GET_MANY, "", read)
        return found

    def damaged_under(self, prefix: str, *, deadline: Deadline | None = None) -> str:
        return self._inner.damaged_under(prefix, deadline=deadline)

    def _scan(
        self, prefix: str, after: str | None, limit: int | None, deadline: Deadline | None
    ) -> Iterator[Record]:
        """Scan as the other backend does; each thousand records are an operation that began with
        the scan."""
        if limit == 0:
            return
        begun = time.monotonic_ns()
        records = self._inner._scan(prefix, after, limit, deadline)
        left = limit
        while True:
            size = _CHUNK if left is None else min(_CHUNK, left)
            number = self._recording.begin(Verb.SCAN, prefix, t=begun)
            chunk = self._watched(
                number,
                Verb.SCAN,
                prefix,
                lambda size=size: list(islice(records, size)),  # type: ignore[misc]
            )
            # How far the chunk reaches: what lies before that, and is not in it, was absent.
            until = chunk[-1].key if len(chunk) == size else None
            read = [[record.key, *_read(record)] for record in chunk]
            self._recording.write(number, Kind.OK, Verb.SCAN, prefix, [after, until, read])
            yield from chunk
            if until is None or (left is not None and left <= size):
                return
            after, left = until, None if left is None else left - size

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        number = self._begin_commit(ops, fence)
        self._watched(number, Verb.COMMIT, "", lambda: self._inner._commit(ops, fence, deadline))
        self._recording.write(number, Kind.OK, Verb.COMMIT)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        number = self._begin_commit(ops, fence)
        future = self._watched(
            number, Verb.COMMIT, "", lambda: self._inner._commit_async(ops, fence)
        )

        def ended(future: Future[None]) -> None:
            error = OutcomeUnknown("cancelled") if future.cancelled() else future.exception()
            if error is None:
                self._recording.write(number, Kind.OK, Verb.COMMIT)
            else:
                self._recording.fail(number, Verb.COMMIT, "", error)

        future.add_done_callback(ended)
        return future

    def _begin_commit(self, ops: tuple[Op, ...], fence: Fence | None) -> int:
        # Where an attempt is let in, it may begin; and a short one gives its sign with its commit.
        if any(op.key.startswith(keys.FENCES) for op in ops) or (fence and fence.attempt):
            self._recording.give_signs()
        epoch, version = (None, None) if fence is None else (fence.epoch, fence.version)
        parts = parts_of(ops, fence)
        return self._recording.begin(Verb.COMMIT, "", parts, version=version, epoch=epoch)

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        number = self._recording.begin(Verb.CAMPAIGN, candidate)
        leads = self._watched(
            number,
            Verb.CAMPAIGN,
            candidate,
            lambda: self._inner._campaign(candidate, ttl=ttl, stop=stop),
        )
        if leads is None:
            self._recording.write(number, Kind.FAIL, Verb.CAMPAIGN, candidate)
        else:
            fence = leads.fence
            self._recording.write(number, Kind.OK, Verb.CAMPAIGN, candidate,
                                  version=fence.version, epoch=fence.epoch)  # fmt: skip
        return leads

    def watch(self, prefix: str) -> Watch:
        return RecordedWatch(self._inner.watch(prefix), prefix, self._recording)

    def close(self) -> None:
        self._inner.close()

    def check(self) -> Iterator[str]:
        return self._inner.check()

    def diagnostics(self, ttl: float) -> Iterator[Diagnostic]:
        return self._inner.diagnostics(ttl)

    def mark_format(self, version: int) -> None:
        self._inner.mark_format(version)
        self.marked_format = self._inner.marked_format

    def accept_damage(self) -> list[str]:
        return self._inner.accept_damage()

    def epochs(self) -> Iterator[int]:
        return self._inner.epochs()

    def _watched(self, number: int, f: Verb, key: str, call: Callable[[], T]) -> T:
        """Make a call; record the error that it ends with."""
        try:
            return call()
        except BaseException as error:
            self._recording.fail(number, f, key, error)
            raise


def _read(record: Record | CorruptRecord | None) -> tuple[int | None, str | None]:
    if not isinstance(record, Record):
        return None, None
    return record.version, as_recorded(record.key, record.value)
