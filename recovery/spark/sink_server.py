"""SinkServer: commits batches for the sink, which Spark runs in processes of its own.

Such a process has no access to the backend, and must not get any: it is Spark's, and its options
are shown in plans and logs. So it asks the attempt, over a socket without a file. The attempt
answers only to processes of its own user that descend from it, or from the JVM that started it.

A request and its answer are a line of JSON each. While the commit waits for the backend or the
storage, the attempt sends a line now and then that says so, ahead of the answer::

    {"stage": "sums", "run": "4f1c…", "batch": 7, "files": ["part-….parquet"]}
    {"wait": "the backend does not answer"}
    {"error": null}
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.runtime import Runtime

from ..processes import marks
from .commits import Commits
from .pool import Pool
from .waiting import Waiting

_PATIENCE = 30.0
"""Seconds for a process that has connected to send its request."""
_LONGEST = 16 * 1024 * 1024
"""Bytes of a request: some 300,000 files."""
_MOST = 1024
"""Requests that are answered at once, one of each stage."""
_AGAIN = 0.1
"""Seconds until a step is tried again that no descriptor or no thread was there for."""
_GENERATIONS = 64
"""Processes between the attempt and one that asks, at most."""


class Committer(Protocol):
    """Commits the batches of one stage; see `BatchCommitter`."""

    def commit(self, batch: int, files: Sequence[str], run: str = "") -> None:
        """Commit a batch of a run, whose rows are in these staged files."""


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
        self._clock = runtime.clock
        self._committers: dict[str, Committer] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.address[1:])
        self._listener.listen(128)
        self._pool = Pool(_MOST, "jrs-sink", runtime)
        self._closed = threading.Event()
        self._thread = runtime.thread(self._serve, "jrs-sinks")
        try:
            self._thread.start()
        except RuntimeError as error:
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
        if threading.current_thread() is not self._thread:
            self._thread.join()
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

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # A process that has gone needs no answer.
            connection.settimeout(_PATIENCE)
            if not self._is_ours(connection):
                return
            line = _line(connection)
            if line:
                error = self._commit(line, lambda why: _say_wait(connection, why))
                _send(connection, {"error": error})

    def _is_ours(self, connection: socket.socket) -> bool:
        """Return whether a process of this attempt asks, once that can be found out."""
        says = Waiting(lambda why: _say_wait(connection, why), self._clock)
        while True:
            try:
                return _is_ours(connection)
            except Unavailable as error:  # No descriptor is left to look with, say.
                says.say(str(error))
                if self._closed.wait(_AGAIN):
                    return False

    def _commit(self, line: bytes, waiting: Callable[[str], None]) -> str | None:
        """Carry a request out; return the error, or None."""
        try:
            request = json.loads(line)
            committer = self._committers[request["stage"]]
            self._commits.carry_out(
                lambda: committer.commit(request["batch"], request["files"], request["run"]),
                waiting,
            )
            return None
        except JrsError as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def _say_wait(connection: socket.socket, why: str) -> None:
    with suppress(OSError):  # The commit continues, whether or not its process waits for it.
        _send(connection, {"wait": why})


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


def _is_ours(connection: socket.socket) -> bool:
    """Return whether a process of this user asks, one of this attempt or of its JVM.

    Raises:
        Unavailable: as `marks.parent`.
    """
    size = struct.calcsize("3i")
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, user, _ = struct.unpack("3i", peer)
    return user == os.getuid() and _descends(pid)


def _descends(pid: int) -> bool:
    ours = {os.getpid()}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        ours.add(os.getppid())  # By spark-submit: the JVM has started this process.
    above: int | None = pid
    for _ in range(_GENERATIONS):
        if above is None or above in ours:
            return above is not None
        above = marks.parent(above)
    return False
