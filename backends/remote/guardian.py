"""The guardian: a small process that outlives its master, only to end its session at once.

Without it the end of a master that was killed shows when its ttl has passed. The guardian is
started before the session is, learns over a pipe what it needs to end it, and waits. When the
pipe closes the master is dead, and so is every process that was given the pipe to hold (see
`Guardian.lifeline`): then the session is ended and the guardian with it. It also ends when it has
heard of no heartbeat for so long that the session must be gone. A master that ended its session
itself kills it.

    python -m jrs.backends.remote.guardian MODULE < pipe

MODULE has a function ``ender(config)``, called at once with the configuration, which connects or
imports whatever takes time and returns a function that ends the session of a given secret within a
deadline. Nothing secret is in the arguments, the environment or the output.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.fork import forget_in_children

Ender = Callable[[bytes, Deadline], None]
"""Ends the session of that secret. Raises a `JrsError` if it could not within the deadline."""

_TRIES_FOR = 30.0
"""Seconds for which the session of a dead master is tried to be ended; then its ttl will have."""

_LEFT = 1.0
"""Seconds in which it ends a session that could not be ended, for its master to wait."""

_left: list[subprocess.Popen[bytes]] = []
"""Those that go on trying, until they are found to have gone."""


class Guardian:
    """A guardian process, started again by `beat` if it died.

    Args:
        module: the module with the function ``ender``.
        config: what that function needs to connect, as JSON; may hold secrets.
        ttl: of the session, in seconds.

    Raises:
        Unavailable: this host is short of descriptors, processes or memory.
    """

    def __init__(self, module: str, config: Mapping[str, Any], ttl: float) -> None:
        self._module = module
        self._hello = {"config": dict(config), "ttl": ttl}
        self._secret: bytes | None = None
        self._turn = threading.Lock()
        self._over = False
        # Both ends are kept, so that a new guardian hears of the same holders as the old one.
        try:
            self._ears, self._mouth = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            raise _short(error) from error
        # A guardian that is stopped must not stop its master.
        os.set_blocking(self._mouth, False)
        try:
            self._process = self._start()
        except BaseException:
            os.close(self._ears)
            os.close(self._mouth)
            raise
        forget_in_children(self)

    @property
    def lifeline(self) -> int:
        """The pipe to the guardian: as long as any process holds it open, the session is not ended.

        Give it to those that end a master's attempts: a successor then finds them ended.
        """
        return self._mouth

    @property
    def pid(self) -> int:
        return self._process.pid

    def guard(self, secret: bytes) -> None:
        """Tell the guardian which session to end. Until then it would end none."""
        with self._turn:
            self._secret = secret
            self._tell_secret()

    def beat(self) -> None:
        """Say that the session is known to be alive; start the guardian again if it has died.

        Raises:
            Unavailable: it has died and cannot be started now; the next call tries again.
        """
        with self._turn:
            if self._over:
                return
            if self._process.poll() is not None:
                self._process = self._start()
                self._tell_secret()
            self._tell({"beat": True})

    def dismiss(self, *, ended: bool = True) -> None:
        """Let it go: the session was ended, or is lost. Idempotent.

        Args:
            ended: False if it could not be ended by us. The guardian then does what it does for a
                master that died, and goes on trying after this has returned.
        """
        with self._turn:
            if self._over:
                return
            self._over = True
            if ended:
                # It waits, or is still starting; neither has to be brought to an end.
                self._process.kill()
            os.close(self._ears)
            os.close(self._mouth)
        try:
            self._process.wait(None if ended else _LEFT)
        except subprocess.TimeoutExpired:
            _left.append(self._process)

    def forget(self) -> Iterable[int]:
        """A child must not hold the pipe open for its parent."""
        self._turn = threading.Lock()  # A thread that is not here may have held it.
        held = () if self._over else (self._ears, self._mouth)
        self._over = True
        return held

    def _start(self) -> subprocess.Popen[bytes]:
        _left[:] = [process for process in _left if process.poll() is None]
        # What it has to know comes over the pipe; secrets of its master's are not handed on.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("JRS_BACKEND_")
        }
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._module],
                stdin=self._ears,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise _short(error) from error
        self._tell(self._hello)
        return process

    def _tell_secret(self) -> None:
        if self._secret is not None:
            self._tell({"secret": base64.b64encode(self._secret).decode()})

    def _tell(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        assert len(line) <= select.PIPE_BUF, "longer than what is written as a whole or not at all"
        # A full pipe: the guardian is stopped, or its successor has yet to read. It costs the ttl.
        with contextlib.suppress(BlockingIOError):
            os.write(self._mouth, line)


def _short(error: OSError) -> Unavailable:
    return Unavailable(f"no guardian can be started: {error.strerror}; nobody can lead from here")


def main() -> int:
    """Read the pipe until it ends; see the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Meant for the master, which then lets it go.
    module = importlib.import_module(sys.argv[1])
    pipe = sys.stdin.fileno()
    os.set_blocking(pipe, True)
    end: Ender | None = None
    secret: bytes | None = None
    ttl = 60.0
    pending = b""
    while select.select([pipe], [], [], 2 * ttl)[0]:
        read = os.read(pipe, 65536)
        if not read:
            return 0 if secret is None or end is None else _end(end, secret)
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "config" in message:
                ttl = message["ttl"]
                end = module.ender(message["config"])
            elif "secret" in message:
                secret = base64.b64decode(message["secret"])
    return 0  # No heartbeat for two ttls: the session is gone.


def _end(end: Ender, secret: bytes) -> int:
    deadline = Deadline.after(_TRIES_FOR)
    pause = threading.Event()
    while not deadline.expired:
        try:
            end(secret, deadline)
        except JrsError:
            pause.wait(0.2)
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
