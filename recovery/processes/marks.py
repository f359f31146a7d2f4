"""The processes of attempts: found by a mark in their environment, killed as a whole.

A process group is not enough: PySpark's worker daemon leaves it, and so may any process that a job
starts. Every descendant inherits the mark, whatever session it moves to, and a recycled pid does
not have it. The mark is random and only the attempt's record names it: no other process carries it
by chance or on purpose.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.host.fork import forget_in_children

MARK = "JRS_MARK"
"""The variable that holds the mark of an attempt."""

OLD_MARK = "JRS_JOB"
"""The variable by which masters of earlier versions find attempts: cluster, job, epoch, attempt. It
is not secret, so it counts only for attempts that have no other mark."""

_NO_PROC = (
    "{}, so the attempts of jobs could not be found and ended; mount it in this PID namespace: "
    "mount -t proc proc /proc"
)


@attrs.frozen
class Marks:
    """A selection of processes by one variable of their environment."""

    entries: frozenset[bytes] = frozenset()
    """Whole entries; a selected process has one of them."""
    old: re.Pattern[bytes] | None = None
    """The pattern of a whole entry of an earlier version."""
    up_to_epoch: int | None = None
    """Excludes processes of later epochs, for entries of an earlier version."""

    def fit(self, entry: bytes) -> bool:
        """Return whether a process that has this entry is selected."""
        if entry in self.entries:
            return True
        match = self.old.fullmatch(entry) if self.old else None
        return match is not None and (
            self.up_to_epoch is None or int(match["epoch"]) <= self.up_to_epoch
        )


def marks_of(*marks: str) -> Marks:
    """Return the selection of the processes of attempts that were started with these marks."""
    return Marks(frozenset(f"{MARK}={mark}".encode() for mark in marks))


def mark_of_cluster(url: str, cluster: str) -> Marks:
    """Return the selection of all attempts of a cluster that do not hide, for tools and tests."""
    return _old_marks(_cluster(url, cluster), r"[^:;]*:")


def mark_of_job(url: str, cluster: str, job_id: str, *, up_to_epoch: int | None = None) -> Marks:
    """Return the selection of a job's attempts that do not hide, of masters of any version."""
    return attrs.evolve(
        _old_marks(_cluster(url, cluster), re.escape(f"{job_id}:")), up_to_epoch=up_to_epoch
    )


def old_mark(url: str, cluster: str, job_id: str, epoch: int, attempt: int) -> str:
    """Return the mark by which masters of earlier versions find the attempt."""
    return f"{_cluster(url, cluster)}{job_id}:{epoch}.{attempt};"


def _cluster(url: str, cluster: str) -> str:
    where = hashlib.sha256(f"{url}\0{cluster}".encode()).hexdigest()[:16]
    return f"{where}:"


def _old_marks(beginning: str, job: str) -> Marks:
    entry = rf"{OLD_MARK}={re.escape(beginning)}{job}(?P<epoch>\d{{1,18}})\.\d{{1,18}};"
    return Marks(old=re.compile(entry.encode()))


# -- scanning -----------------------------------------------------------------------------------


@attrs.frozen
class _Seen:
    """A process with a mark of jrs, as one scan found it."""

    born: bytes
    entries: tuple[bytes, ...]


def check_visible() -> None:
    """Check that this process finds itself in /proc.

    Raises:
        Unavailable: it does not, or descriptors or memory ran out.
    """
    pid = str(os.getpid())
    try:
        shown = os.readlink("/proc/self")
    except FileNotFoundError:
        shown = ""
    except OSError as error:
        raise _short(error) from error
    if not shown:
        raise Unavailable(_NO_PROC.format("/proc is empty or not mounted"))
    if shown != pid:
        raise Unavailable(
            _NO_PROC.format(f"/proc is of another PID namespace ({shown}, not {pid})")
        )
    if pid not in _listed() or not _read(f"/proc/{pid}/stat"):
        raise Unavailable(_NO_PROC.format("/proc hides this process (hidepid?)"))


def marked(marks: Marks) -> list[int]:
    """Return the pids of all living processes that are selected, except this one.

    Raises:
        Unavailable: /proc cannot be read: it is hidden, or descriptors or memory ran out.
    """
    return sorted(_find(marks))


def descendants() -> list[int]:
    """Return the pids of all children of this process, their children, and so on.

    Raises:
        Unavailable: as `marked`.
    """
    children: dict[int, list[int]] = {}
    for pid in _listed():
        fields = _stat(int(pid))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(pid))
    found: list[int] = []
    parents = [os.getpid()]
    while parents:
        born = children.get(parents.pop(), [])
        found += born
        parents += born
    return found


def parent(pid: int) -> int | None:
    """Return the pid of a process's parent; None if the process is gone.

    Raises:
        Unavailable: as `marked`.
    """
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _find(marks: Marks) -> dict[int, bytes]:
    """Return the living processes that are selected, and when they were born."""
    if not marks.entries and marks.old is None:
        return {}
    return {
        pid: seen.born
        for pid, seen in _looks.look().items()
        if any(map(marks.fit, seen.entries)) and not _is_over(pid, seen.born)
    }


class _Looks:
    """Scans of /proc. Each scan serves all callers that asked before it began: ending many attempts
    at once takes as many scans as ending one."""

    def __init__(self) -> None:
        self.forget()
        forget_in_children(self)

    def forget(self) -> Iterable[int]:
        """Reset in a forked child: a scan in progress ends in the parent only."""
        self._changed = threading.Condition()
        self._begun = self._ended = 0
        self._found: Mapping[int, _Seen] | BaseException = {}
        return ()

    def look(self) -> Mapping[int, _Seen]:
        """Return every process with a mark of jrs, except this one, as of now or later."""
        with self._changed:
            wanted = self._begun + 1
            self._changed.wait_for(lambda: self._ended >= wanted or self._ended == self._begun)
            if self._ended >= wanted:
                if isinstance(self._found, BaseException):
                    raise Unavailable(str(self._found)) from self._found
                return self._found
            self._begun += 1
        found: Mapping[int, _Seen] | BaseException = Unavailable("a scan of /proc was interrupted")
        try:
            found = _look()
        except BaseException as error:
            found = error
            raise
        finally:
            with self._changed:
                self._found = found
                self._ended = self._begun
                self._changed.notify_all()
        return found


_looks = _Looks()


def _look() -> dict[int, _Seen]:
    """Read the environment of every process."""
    check_visible()
    found = {}
    for name in _listed():
        if int(name) == os.getpid():
            continue
        # Its time of birth first: a pid that is recycled meanwhile is then recognised as another.
        fields = _stat(int(name))
        if not fields:
            continue
        environment = _environment(int(name), fields).split(b"\0")
        entries = tuple(entry for entry in environment if entry.startswith(_PREFIXES))
        if entries:
            found[int(name)] = _Seen(fields[19], entries)
    return found


_PREFIXES = (f"{MARK}=".encode(), f"{OLD_MARK}=".encode())


def _environment(pid: int, fields: list[bytes]) -> bytes:
    """Return the environment of a process; empty if it has none, has ended or is another user's.

    A process in the middle of exec shows none for a moment: it is read again until exec has put it
    in its place. One that hangs there runs no program, and is left out.

    Args:
        fields: what `_stat` has just returned of it.
    """
    deadline = Deadline.after(_EXEC)
    place, fields = _running(pid, fields)
    while fields:
        environment = _contents(f"{place}/environ")
        if environment is None and _fields(place):
            break  # It is another user's.
        if environment:
            return environment
        before = fields
        place, fields = _running(pid, _stat(pid))
        had_none = bool(fields) and b"0" != fields[_ENV_END] == before[_ENV_END]
        if had_none or deadline.expired:
            break
        time.sleep(0.001)  # No event reports the end of another process's exec.
    return b""


_EXEC = 5.0
"""Seconds after which a process in the middle of exec is taken to hang there: a busy host may not
let it run for a second."""


def _running(pid: int, first: list[bytes]) -> tuple[str, list[bytes]]:
    """Return the folder in /proc of a thread that runs a program, and the thread's fields; nothing
    if the process has ended, or is a thread of the kernel.

    Args:
        first: the fields of its first thread, which may have ended before the others.
    """
    if not first or first[_VSIZE] != b"0":
        return f"/proc/{pid}", first
    for thread in _threads(pid):
        place = f"/proc/{pid}/task/{thread}"
        if (fields := _fields(place)) and fields[_VSIZE] != b"0":
            return place, fields
    return "", []


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []
    except OSError as error:
        raise _short(error) from error


_VSIZE, _ENV_END = 20, 48
"""Places in what `_stat` returns: proc(5) counts from 1, and the pid and the name precede it."""


def _listed() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError as error:
        raise _short(error) from error


def _stat(pid: int) -> list[bytes]:
    """Return the fields of a process in /proc from its state on; empty if it does not exist."""
    return _fields(f"/proc/{pid}")


def _fields(place: str) -> list[bytes]:
    """Return the same of a process or a thread by its folder."""
    return _read(f"{place}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    """Return a file of /proc; empty if its process has ended or belongs to another user.

    Raises:
        Unavailable: as `_contents`.
    """
    return _contents(path) or b""


def _contents(path: str) -> bytes | None:
    """Return a file of /proc; None if its process has ended or belongs to another user.

    Raises:
        Unavailable: it could not be read for any other reason, so nothing is known of the process.
    """
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    except (OSError, MemoryError) as error:
        raise _short(error) from error


def _short(error: OSError | MemoryError) -> Unavailable:
    why = error.strerror if isinstance(error, OSError) else "out of memory"
    return Unavailable(f"/proc cannot be read ({why}): it is unknown which processes run")


def _is_over(pid: int, born: bytes) -> bool:
    """Return whether a process has ended, with all of its threads.

    Its environment is gone a little earlier, and its first thread may be dead before the others.
    """
    fields = _stat(pid)
    if not fields or fields[19] != born:
        return True
    return fields[0] in (b"Z", b"X") and len(_threads(pid)) <= 1


# -- ending -------------------------------------------------------------------------------------


def end(marks: Marks, deadline: Deadline) -> list[int]:
    """Kill every selected process, stopped ones included; return once none is left.

    Idempotent. Returns the pids that were killed.

    Raises:
        Unavailable: some processes do not die (a hung disk keeps a process in the kernel), or it is
            unknown whether any is left, because /proc cannot be read.
    """
    killed: dict[int, bytes] = {}
    sure = False
    while True:
        found = _find(marks)
        if not found and (sure or not killed):
            return sorted(killed)
        # One that was just being forked was in no list yet: scan once more.
        sure = not found
        for pid, born in found.items():
            if not _is_over(pid, born):
                _kill(pid)
            killed[pid] = born
        left = list(found)
        while left:
            if deadline.expired:
                raise Unavailable(f"processes {left} do not die; the job is not started again")
            left = [pid for pid, born in killed.items() if not _is_over(pid, born)]
            if left:
                time.sleep(0.005)  # No event reports the end of another process's child.


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # It has ended; or it is another user's, and is waited for.
