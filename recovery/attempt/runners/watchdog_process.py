"""A watchdog as its master sees it: its process, and the socket that ties it to the master."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Protocol

from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.host import credentials
from jrs.host.fork import forget_in_children

from ...processes import marks
from .. import scratch
from ..launch_socket import Kind, LaunchSocket, in_memory
from ..watchdog import MODULE, Word

_ENDS = 60.0
"""Seconds to end the processes that a killed watchdog has left."""


class Process(Protocol):
    """The process of a watchdog: a child of this one, or of a fork server."""

    stdout: IO[bytes] | None
    """The pipe that has its last word."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, or minus the signal's number.

        Raises:
            subprocess.TimeoutExpired: it lives.
        """


Start = Callable[[int], Process]
"""Starts a watchdog whose standard input is a descriptor of its end of the socket. May raise
OSError: the system has no room for it."""


class WatchdogProcess:
    """A watchdog that was started, and has no attempt yet.

    Args:
        mark: the mark of the watchdog and of everything that it starts.
        start: starts it with that mark.
    """

    def __init__(self, mark: str, start: Start) -> None:
        self.mark = mark
        self._closing = threading.Lock()
        self._was_sent = False
        self._socket, self.process = LaunchSocket.to(start)
        forget_in_children(self)

    @property
    def lives(self) -> bool:
        """Whether the watchdog has not ended yet."""
        try:
            self.process.wait(0)
        except subprocess.TimeoutExpired:
            return True
        return False

    def fileno(self) -> int:
        """Return the descriptor of the socket, to wait for."""
        return self._socket.fileno()

    def send(self, kind: Kind, line: bytes, *descriptors: int) -> None:
        """Send a message whose first descriptor is a file in memory with `line`."""
        file = in_memory(line)
        try:
            self._was_sent = self._socket.send(kind, file, *descriptors)
        finally:
            os.close(file)

    def hears_ready(self) -> bool:
        """Wait for a message; return whether its process has prepared itself: else it has ended."""
        return self._socket.receive() is not None

    def close(self) -> None:
        """Have the watchdog end all that it has started, and itself. Idempotent."""
        with self._closing:
            self._socket.close()

    def end(self, deadline: Deadline) -> Word | None:
        """End the watchdog and all that it has started; return its last word, or None if some of
        it does not end."""
        self.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(deadline.sooner(0.5).bounded())
        # Not left to the watchdog alone: it may have been stopped.
        return self.wait() if self.end_all(deadline) else None

    def wait(self) -> Word:
        """Wait for the watchdog's end, and return its last word.

        A watchdog that was killed left none: its attempt was launched unless the watchdog died
        before it had read the launch. One that has exited before that cannot run here, or is of a
        version of jrs that does not know what it was started with.
        """
        code = self.process.wait()
        launched = self._was_sent and self._socket.was_read()
        refused = code > 0 and not launched
        return self._word() or Word(code, False, False, launched=launched, refused=refused)

    def _word(self) -> Word | None:
        """Return the watchdog's last word, or None if it was killed before."""
        assert self.process.stdout is not None
        with self.process.stdout as pipe:
            # A child that was just forked may hold the other end: do not wait for an end of file.
            os.set_blocking(pipe.fileno(), False)
            said = pipe.read()
        return Word.from_line(said) if said else None

    def end_all(self, deadline: Deadline | None = None) -> bool:
        """End what a killed or stopped watchdog has left, and itself; return whether none is left.

        Args:
            deadline: by default in a minute.
        """
        try:
            marks.end(marks.marks_of(self.mark), deadline or Deadline.after(_ENDS))
        except Unavailable:
            return False  # The next attempt checks again before it starts.
        return True

    def forget(self) -> Iterable[int]:
        """Have a forked child close the socket: it must not hold it open for its parent."""
        return () if self.fileno() < 0 else (self.fileno(),)


def by_exec(program: str, mark: str, old_mark: str = "") -> Start:
    """Return what starts the watchdog as a program.

    Args:
        program: the module that takes a `Launch` and runs the attempt.
        mark: the mark of the watchdog.
        old_mark: the mark by which masters of earlier versions find the attempt; empty if there
            is no attempt yet. Then temporary files cannot be in a job's staging, either.
    """
    arguments = [old_mark] if old_mark else []
    scratch_place = {} if old_mark else scratch.place_without_job()

    def start(stdin: int) -> Process:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, program, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**environment(), **scratch_place, marks.MARK: mark},
        )

    return start


def environment() -> dict[str, str]:
    """Return the environment of the watchdog, the attempt and its children: no secrets."""
    return {**credentials.without_secrets(os.environ), "PYTHONPATH": _python_path()}


def _python_path() -> str:
    """Let the attempt import what its master can: the script's folder, and PYTHONPATH."""
    # An import ignores what else a program has put into it, such as a `Path`.
    first = next((part for part in sys.path if isinstance(part, str)), "")
    parts = [first or os.getcwd(), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(part for part in parts if part)
