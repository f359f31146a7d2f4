"""LastWords: what a leader that runs attempts in its own process records about its end.

A process that dies of a fatal error, exits by `os._exit`, or is ended because a thread held the
interpreter's lock for too long leaves a trace in a file of its leadership. A leader that resigned
or was replaced leaves a farewell. A leader that was killed from outside leaves nothing, so no job
is blamed for that.

::

    <storage>/<cluster>/.leaders/e<epoch>    lines of JSON, and faulthandler's output

A process keeps a lock on its file until it has ended, so that a later leader can tell whether
further words may come.

Two cases cannot be distinguished from a kill from outside: a process that kills itself by SIGKILL,
and a process that the kernel kills because memory ran out, if the next leader is on another host.
If the dead process's cgroup is gone, as with a container, any memory shortage of its host counts.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.runtime import JrsThread
from jrs.host.boot import boot_id
from jrs.host.fork import forget_in_children

from .cpu_timer import ENDED_BY, CpuTimer

HELD = "a thread held the interpreter's lock so long that its master could not send heartbeats"
STARVED = "the kernel killed a process because memory ran out"

_KEPT = 16
"""The number of leaderships whose files are kept; older files are not needed any more."""
_LONG = 128 * 1024
"""Bytes from which on a file is written again, without the attempts that have ended. Older versions
read 256 KiB of it, and count a line that is cut off there as a traceback."""
_DETAIL = 4096
_FILE = re.compile(r"e([0-9]+)")


def folder_of(root: Path) -> Path:
    """Return the folder of the last words in a cluster's folder."""
    return root / ".leaders"


@attrs.frozen
class LeaderEnd:
    """How a leadership ended, as far as is known."""

    orderly: bool = False
    """The leader resigned or lost the leadership; its attempts were asked to end."""
    fatal: str = ""
    """The evidence that its process was not killed from outside, in one line."""
    detail: str = ""
    """The traceback of its threads."""
    at: float = 0.0
    """When it wrote the last of that; 0 if it left no words."""
    hangs: bool = False
    """Its process has not ended: its last words may still come, or be incomplete."""


@attrs.frozen
class Memory:
    """How often the kernel has killed a process because memory ran out."""

    boot: str
    kills: int
    """On this host, since it booted: any process, in any container."""
    counter: str = ""
    """The file with the count of one cgroup; empty if there is none."""
    inode: int = 0
    """Of that file: a cgroup that was created again begins at 0."""
    own: int = 0
    """The count of that cgroup."""

    @classmethod
    def now(cls, counter: str = "") -> Memory:
        """Return the current counts.

        Args:
            counter: the counter file of a cgroup; by default that of this process.
        """
        boot, kills = boot_id(), 0
        with suppress(OSError, ValueError):
            kills = _oom_kills("/proc/vmstat")
        for each in [counter] if counter else _own_counters():
            with suppress(OSError, ValueError):
                return cls(boot, kills, each, os.stat(each).st_ino, _oom_kills(each))
        return cls(boot, kills)

    def ran_out_since(self, began: Memory) -> bool:
        """Return whether the kernel may have killed the process that counted before.

        Kills of other processes on the host do not count, as long as its cgroup exists.
        """
        if self.boot != began.boot:
            return False
        if began.inode and (self.counter, self.inode) == (began.counter, began.inode):
            return self.own > began.own
        return self.kills > began.kills


def _oom_kills(counter: str) -> int:
    for line in Path(counter).read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    raise ValueError(f"{counter} has no count of kills")


def _own_counters() -> Iterator[str]:
    """Yield the files that may count for the cgroup of this process."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                yield f"/sys/fs/cgroup/memory{path}/memory.oom_control"
            elif number == "0":
                yield f"/sys/fs/cgroup{path}/memory.events"


_MEMORY = tuple(each.name for each in attrs.fields(Memory))


class LastWords:
    """The last words of one leadership, while attempts run in this process.

    Nothing in the process changes before the first attempt begins. From then until the farewell,
    faulthandler writes here and not to stderr.

    Args:
        folder: of all leaderships of the cluster, shared by its masters.
    """

    def __init__(
        self, folder: Path, epoch: int, *, memory: Callable[[str], Memory] = Memory.now
    ) -> None:
        self._path = folder / f"e{epoch}"
        self._memory = memory
        self._turn = threading.Lock()  # Never held while the storage is asked: it may hang.
        self._writing = threading.Lock()
        self._over = threading.Event()
        self._file: int | None = None
        self._size = 0
        """Of the lines of JSON in the file."""
        self._long = _LONG
        """The size from which on the file is written again."""
        self._began: dict[CpuTimer, bytes] = {}
        """The lines of the attempts that run."""
        self._timers: set[CpuTimer] = set()
        self._restore: list[Callable[[], None]] = []
        self._beat: threading.Thread | None = None

    @contextmanager
    def attempt(self, job_id: str, lock_limit: float) -> Iterator[None]:
        """Have the process leave its last words while the calling thread runs an attempt.

        Args:
            lock_limit: seconds of its own processor time for which that thread may keep the
                interpreter's lock; then the process ends itself, because its leadership is as good
                as lost.

        Raises:
            OSError, RuntimeError: the file cannot be written, or there is no thread for it.
        """
        line = _line({"began": job_id, **attrs.asdict(self._memory(""))})
        timer = CpuTimer(lock_limit)
        try:
            with self._writing:
                if not self._over.is_set():
                    self._open(lock_limit)
                    self._begin(timer, line)
            with self._turn:
                if not self._over.is_set():
                    timer.arm()
                    self._timers.add(timer)
            yield
        finally:
            with self._turn:
                self._began.pop(timer, None)
                self._timers.discard(timer)
                timer.delete()

    def farewell(self, deadline: Deadline | None = None) -> None:
        """Record that this leadership has ended in an orderly way. Idempotent.

        Args:
            deadline: until which to wait for a storage that hangs; by default forever.
        """
        with self._turn:
            self._over.set()
            for timer in self._timers:
                timer.disarm()
        # By a thread that exists: the storage may hang, and the host lack threads.
        if self._beat is not None:
            self._beat.join(None if deadline is None else deadline.bounded())

    def forget(self) -> Iterable[int]:
        """Have a forked child close the file: its end is no news of this process."""
        return () if self._file is None else (self._file,)

    # -- inside ----------------------------------------------------------------------------

    def _open(self, lock_limit: float) -> None:
        if self._file is not None:
            return
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(_epochs(folder))[:-_KEPT]:
            (folder / f"e{old}").unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)  # The file of an earlier life of the backend.
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            with suppress(OSError):  # On a filesystem without locks, a hanging process looks dead.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._beat is None:
                # Before the timers that it re-arms: without it they would end a harmless process.
                beat = JrsThread(
                    target=self._rearm, args=(lock_limit / 8,), name="jrs-last-words", daemon=True
                )
                beat.start()
                self._beat = beat
            self._listen(file)
        except BaseException:
            while self._restore:
                self._restore.pop()()
            os.close(file)
            raise
        self._file = file
        forget_in_children(self)

    def _begin(self, attempt: CpuTimer, line: bytes) -> None:
        """Write the line of an attempt; leave out those that have ended, once they are many."""
        assert self._file is not None
        if self._size + len(line) > self._long:
            with self._turn:
                running = b"".join(self._began.values())
            os.ftruncate(self._file, 0)
            self._size, self._long = 0, 0  # If the next write fails, the next attempt repeats it.
            self._append(running)
            self._long = max(_LONG, 2 * self._size)
        self._append(line)
        with self._turn:
            self._began[attempt] = line

    def _append(self, lines: bytes) -> None:
        """Append whole lines, or none of them.

        Raises:
            OSError: there is no room for them.
        """
        assert self._file is not None
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(lines)

    def _listen(self, file: int) -> None:
        was_enabled = faulthandler.is_enabled()
        exits, owner = os._exit, os.getpid()

        def exit_at_once(status: int) -> Any:
            if os.getpid() == owner:
                with suppress(OSError, ValueError):
                    os.write(file, b"os._exit(%d) was called\n" % status)
                    faulthandler.dump_traceback(file, all_threads=False)
            exits(status)

        def restore() -> None:
            if os._exit is exit_at_once:
                os._exit = exits
            faulthandler.unregister(ENDED_BY)
            faulthandler.disable()
            with suppress(OSError, ValueError):  # Closed, or without a descriptor.
                if was_enabled and sys.__stderr__ is not None:
                    faulthandler.enable(sys.__stderr__)

        self._restore.append(restore)
        faulthandler.enable(file, all_threads=True)
        faulthandler.register(ENDED_BY, file, all_threads=True, chain=True)
        os._exit = exit_at_once

    def _rearm(self, interval: float) -> None:
        """Re-arm the timers: this thread gets the interpreter's lock. Then write the farewell."""
        while not self._over.wait(interval):
            with self._turn:
                if not self._over.is_set():
                    for timer in self._timers:
                        timer.arm()
        with self._writing:
            if self._file is None:
                return
            with suppress(OSError):  # Its jobs become suspects: that only costs time.
                self._append(_line({"farewell": True}))
            for restore in self._restore:
                restore()
            os.close(self._file)
            self._file = None


def read(
    folder: Path, epoch: int, job_id: str, *, memory: Callable[[str], Memory] = Memory.now
) -> LeaderEnd:
    """Return how the leadership of `epoch` ended, in whose process an attempt of the job ran.

    Raises:
        OSError: the storage cannot be read.
    """
    began: dict[str, Any] = {}
    trace: list[str] = []
    try:
        with (folder / f"e{epoch}").open(errors="replace") as file:
            hangs = _is_locked(file.fileno())  # Check first: a dead process's words are complete.
            at = os.fstat(file.fileno()).st_mtime
            for line in file:
                said = _ours(line)
                if said is None:
                    trace.append(line.rstrip("\n"))
                elif "farewell" in said:
                    return LeaderEnd(orderly=True)
                elif said.get("began") == job_id:
                    began = said
    except FileNotFoundError:
        return LeaderEnd()
    if trace:
        known = trace[0].startswith(("Fatal Python error", "os._exit"))
        detail = "\n".join(trace)[-_DETAIL:]
        return LeaderEnd(fatal=trace[0] if known else HELD, detail=detail, at=at, hangs=hangs)
    if hangs:
        return LeaderEnd(hangs=True)
    before = Memory(**{each: began[each] for each in _MEMORY if each in began}) if began else None
    if before is not None and memory(before.counter).ran_out_since(before):
        return LeaderEnd(fatal=STARVED)
    return LeaderEnd()


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _line(words: dict[str, Any]) -> bytes:
    return json.dumps(words).encode() + b"\n"


def _ours(line: str) -> dict[str, Any] | None:
    """Return what a line of JSON says; None for a line of a traceback.

    A line that is torn, by a full disk or a power cut, says nothing. It is no traceback.
    """
    if not line.startswith(("{", "\0")):
        return None
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _epochs(folder: Path) -> Iterator[int]:
    for name in os.listdir(folder):
        if match := _FILE.fullmatch(name):
            yield int(match.group(1))
