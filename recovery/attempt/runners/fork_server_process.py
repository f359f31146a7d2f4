"""A fork server as its master sees it: asked for watchdogs, started and ended as needed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Self

from jrs.contract.runtime import RUNTIME, Runtime
from jrs.host.fork import forget_in_children

from ...processes import marks
from ..fork_server import MODULE, ROOM
from ..launch_socket import Kind, LaunchSocket, in_memory
from .watchdog_process import Process, WatchdogProcess, environment

_PATIENCE = 30.0
"""Seconds in which a fork server has to load its modules, and to fork a process."""
_BREAK = 60.0
"""Seconds without a fork server after one that has failed."""
_END = 1.0
"""Seconds in which it has to end by itself."""


class ForkServer:
    """Starts watchdogs, by a fork server of its own, while it is entered. Safe for many threads.

    The fork server is started when it is first needed, and once more if this process has changed
    its environment or its folder: what is forked has those of the fork server.

    Args:
        program: the module that takes a `Launch` and runs the attempt.
        url: the backend's, whose modules are loaded, too.
    """

    def __init__(self, program: str, url: str, runtime: Runtime = RUNTIME) -> None:
        # Not the rest of the URL: other users can read arguments, and it may have secrets.
        self._command = [program, url.partition("//")[0].rstrip(":")]
        self._runtime = runtime
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._entered = False
        self._not_before = runtime.clock()

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered = False
            self._stop()

    def start(self, mark: str, old_mark: str) -> WatchdogProcess | None:
        """Return a new watchdog with these marks; None if it has to be started in another way."""
        if len(mark) > ROOM[marks.MARK] or len(old_mark.encode()) > ROOM[marks.OLD_MARK]:
            return None
        with suppress(OSError, _Failed):
            return WatchdogProcess(mark, lambda end: self._fork(mark, old_mark, end))
        return None

    def _fork(self, mark: str, old_mark: str, end: int) -> Process:
        with self._lock:
            if not self._entered or self._runtime.clock() < self._not_before:
                raise _Failed
            surroundings = environment(), os.getcwd()
            if self._server is not None and self._server.surroundings != surroundings:
                self._stop()
            if self._server is None:
                self._server = _Server(self._command, surroundings)
            try:
                return self._server.fork(json.dumps([mark, old_mark]).encode(), end)
            except Exception as error:  # It is never needed: whatever ails it fails no attempt.
                self._stop()
                self._not_before = self._runtime.clock() + _BREAK
                raise _Failed from error

    def _stop(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None


class _Failed(Exception):
    """The fork server has not forked what it was asked for."""


class _Server:
    def __init__(self, command: list[str], surroundings: tuple[dict[str, str], str]) -> None:
        self.surroundings = surroundings
        given, folder = surroundings
        self._socket, self._process = LaunchSocket.to(
            lambda stdin: subprocess.Popen(
                # The last argument makes room for those of the processes that it forks.
                [sys.executable, "-m", MODULE, *command, "-" * ROOM[marks.OLD_MARK]],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**given, **{name: "-" * size for name, size in ROOM.items()}},
                cwd=folder,
            )
        )
        forget_in_children(self)

    def fork(self, line: bytes, end: int) -> Process:
        request = in_memory(line)
        word, writing = os.pipe2(os.O_CLOEXEC)
        try:
            self._socket.send(Kind.FORK, request, end, writing)
            look = select.poll()  # `select` takes no descriptor from 1024 on.
            look.register(self._socket.fileno(), select.POLLIN)
            message = self._socket.receive() if look.poll(_PATIENCE * 1000) else None
            if message is None or not message.descriptors:
                raise _Failed
            return _Forked(message.descriptors[0], word)
        except BaseException:
            os.close(word)
            raise
        finally:
            os.close(request)
            os.close(writing)

    def end(self) -> None:
        """End it, and nothing that it has forked."""
        self._socket.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()  # It was stopped, or hangs.
            self._process.wait()

    def forget(self) -> Iterable[int]:
        """Have a forked child close the socket: it must not hold it open for its parent."""
        descriptor = self._socket.fileno()
        return () if descriptor < 0 else (descriptor,)


class _Forked:
    """A process that is no child of this one. One thread waits for it, and then no other."""

    def __init__(self, process: int, word: int) -> None:
        self.stdout: IO[bytes] | None = os.fdopen(word, "rb")
        self._process: int | None = process

    def wait(self, timeout: float | None = None) -> int:
        if self._process is not None:
            look = select.poll()
            look.register(self._process, select.POLLIN)
            if not look.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(MODULE, timeout or 0)
            os.close(self._process)
            self._process = None
        # Its exit code is its parent's. A watchdog that leaves no last word was killed.
        return -signal.SIGKILL
