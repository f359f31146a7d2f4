"""SinkServer: commits batches for the sink, which Spark runs in processes of its own.

Such a process has no access to the backend, and must not get any: it is Spark's, and its options
are shown in plans and logs. So it asks the attempt, over a socket without a file. The attempt
answers only to processes of its own user that descend from it, or from the JVM that started it.

A request and its answer are a line of JSON each. While a commit takes long, the attempt sends a
`wait` line every 30 s before the answer::

    {"stage": "sums", "run": "4f1c…", "batch": 7, "files": ["part-….parquet"]}
    {"wait": "the batch is being committed"}
    {"error": null}
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.runtime import Runtime
from jrs.contract.texts import error_text

from ..processes import marks
from .commits import Commits
from .pool import RejectingPool

_PATIENCE = 30.0
"""Seconds for a process that has connected to send its request."""
_LONGEST = 16 * 1024 * 1024
"""Bytes of a request: some 300,000 files."""
_MOST = 1024
"""Requests that are answered at once, one of each stage."""
_AGAIN = 0.1
"""Seconds until a step is tried again that no descriptor or no thread was there for."""
_WORD = 30.0
"""Seconds between two lines that tell a sink to wait; see `sink._PATIENCE`."""
_GENERATIONS = 64
"""Processes between the attempt and one that asks, at most."""


class Committer(Protocol):
    """Commits the batches of one stage; see `BatchCommitter`."""

    def commit(self, batch: int, files: Sequence[str], run: str = "") -> None:
        """Commit a batch of a run, whose rows are in these staged files."""


class _Asking:
    """A process that has sent a request. Used by the thread that answers it and the thread that
    sends `wait` lines."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_answered = False

    def tell_to_wait(self) -> None:
        """Tell it that the attempt is there, unless it has its answer."""
        with self._lock, suppress(OSError):  # The commit continues, whether or not it waits.
            if not self._is_answered:
                _send(self._connection, {"wait": "the batch is being committed"})

    def answer(self, error: str | None) -> None:
        with self._lock:
            self._is_answered = True
            _send(self._connection, {"error": error})


class SinkServer:
    """Serves the sinks of one attempt's streaming stages.

    Args:
        commits: carries out the commits; closed with the server.

    Attributes:
        address: the address for the sink's option.
    """

    def __init__(self, runtime: Runtime, commits: Commits) -> None:
        self.address = f"@jrs-{runtime.token()}"
        self._commits = commits
        self._asking: set[_Asking] = set()
        self._lock = threading.Lock()
        self._committers: dict[str, Committer] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.address[1:])
        self._listener.listen(128)
        self._pool = RejectingPool(_MOST, "jrs-sink", runtime)
        self._closed = threading.Event()
        self._threads = [
            runtime.thread(self._tell_to_wait, "jrs-sinks-wait"),
            runtime.thread(self._serve, "jrs-sinks"),
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            self._closed.set()  # The thread that was started, if any, ends by itself.
            self._listener.close()
            raise Unavailable(f"the sink of a stream cannot be served now: {error}") from error

    def add(self, stage: str, committer: Committer) -> None:
        """Serve the sink of a stage."""
        self._committers[stage] = committer

    def close(self) -> None:
        """End every thread, once the commits under way are done. Idempotent."""
        self._closed.set()
        self._commits.close()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if threading.current_thread() is not thread:
                thread.join()
        self._listener.close()
        self._pool.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed.is_set():
                    return
                self._closed.wait(_AGAIN)  # The process has no descriptor left: try again.
                continue
            while self._pool.submit(partial(self._answer, connection)) is None:
                if self._closed.wait(_AGAIN):
                    connection.close()
                    return

    def _tell_to_wait(self) -> None:
        while not self._closed.wait(_WORD):
            with self._lock:
                asking = list(self._asking)
            for one in asking:
                one.tell_to_wait()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # A process that has gone needs no answer.
            connection.settimeout(_PATIENCE)
            pid = _peer(connection)
            if pid is None:
                return
            asking = _Asking(connection)
            with self._lock:
                self._asking.add(asking)
            try:
                if self._is_ours(pid) and (line := _line(connection)):
                    asking.answer(self._commit(line))
            finally:
                with self._lock:
                    self._asking.discard(asking)

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process is one of this attempt, once that can be found out."""
        while True:
            try:
                return _descends(pid)
            except Unavailable:  # No descriptor is left to look with, say.
                if self._closed.wait(_AGAIN):
                    return False

    def _commit(self, line: bytes) -> str | None:
        """Carry a request out; return the error, or None."""
        try:
            request = json.loads(line)
            committer = self._committers[request["stage"]]
            self._commits.carry_out(
                lambda: committer.commit(request["batch"], request["files"], request["run"])
            )
            return None
        except JrsError as error:
            return str(error)
        except Exception as error:
            return error_text(error)


def _send(connection: socket.socket, answer: dict[str, str | None]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _line(connection: socket.socket) -> bytes:
    """Return a request; empty if the process has gone, or sends too much."""
    found = bytearray()
    while not found.endswith(b"\n"):
        part = connection.recv(65536)
        if not part or len(found) > _LONGEST:
            return b""
        found += part
    return bytes(found)


def _peer(connection: socket.socket) -> int | None:
    """Return the process that asks; None if it is another user's."""
    size = struct.calcsize("3i")
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, user, _ = struct.unpack("3i", peer)
    return pid if user == os.getuid() else None


def _descends(pid: int) -> bool:
    """Return whether a process is one of this attempt or of its JVM.

    Raises:
        Unavailable: as `marks.parent`.
    """
    ours = {os.getpid()}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        ours.add(os.getppid())  # By spark-submit: the JVM has started this process.
    above: int | None = pid
    for _ in range(_GENERATIONS):
        if above is None or above in ours:
            return above is not None
        above = marks.parent(above)
    return False
