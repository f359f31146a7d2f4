"""The guardian: a small process that outlives its master in order to end the master's session.

Without it, the session of a killed master ends only after its ttl. The guardian process starts
before the session, receives over a pipe how to end the session, and waits. When the pipe closes,
the master is dead, and so is every process that inherited the pipe (see `Guardian.lifeline`): the
guardian ends the session and exits. It also exits after so long without a heartbeat that the
session must be gone. A master that ended its session itself kills the guardian.

    python -m jrs.backends.remote.guardian MODULE DESCRIPTOR < pipe

DESCRIPTOR is that of an open file with the configuration and the ttl, as JSON. MODULE has a
function ``ender(config)``, which returns a function that ends the session of a given secret within
a deadline. All slow work, such as importing and connecting, is done when MODULE is imported and
``ender`` called: a moment after the start, when the master no longer needs the processor for its
own. The arguments, the environment and the output contain no secret.
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
from jrs.host import helper_process
from jrs.host.fork import forget_in_children

Ender = Callable[[bytes, Deadline], None]
"""Ends the session of that secret. Raises a `JrsError` if that fails within the deadline."""

_TRIES_FOR = 30.0
"""Seconds for which a guardian tries to end the session; afterwards the ttl will have ended it."""

_SETTLED = 1.0
"""Seconds after which a guardian prepares to end a session, unless it has to before."""

_LEFT = 1.0
"""Seconds for which a master waits for its guardian to end a session that it could not end."""

_left: list[subprocess.Popen[bytes]] = []
"""Guardians that were still trying when their masters stopped waiting; reaped later."""


class Guardian:
    """A guardian process; `beat` restarts it if it died.

    Args:
        module: the module with the function ``ender``.
        config: the configuration for that function, as JSON; may contain secrets.
        ttl: the ttl of the session, in seconds.

    Raises:
        Unavailable: this host is short of descriptors, processes or memory.
    """

    def __init__(self, module: str, config: Mapping[str, Any], ttl: float) -> None:
        self._module = module
        self._hello = json.dumps({"config": dict(config), "ttl": ttl}).encode()
        self._secret: bytes | None = None
        self._turn = threading.Lock()
        self._over = False
        # Keep both ends, so that a restarted guardian waits for the same holders of the pipe.
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
        """The pipe to the guardian, which ends no session while any process holds the pipe open.

        Pass it to the processes that end a master's attempts, so that all attempts have ended
        before a successor leads.
        """
        return self._mouth

    @property
    def pid(self) -> int:
        return self._process.pid

    def guard(self, secret: bytes) -> None:
        """Send the guardian the session to end. Before this call it ends no session."""
        with self._turn:
            self._secret = secret
            self._tell_secret()

    def beat(self) -> None:
        """Report that the session is alive; restart the guardian if it has died.

        Raises:
            Unavailable: it has died and cannot be restarted now; the next call tries again.
        """
        with self._turn:
            if self._over:
                return
            if self._process.poll() is not None:
                self._process = self._start()
                self._tell_secret()
            self._tell({"beat": True})

    def dismiss(self, *, ended: bool = True) -> None:
        """Dismiss the guardian, because the session was ended or is lost. Idempotent.

        Args:
            ended: False if the caller could not end the session. The guardian then ends it as for a
                dead master, and keeps trying after this call has returned.
        """
        with self._turn:
            if self._over:
                return
            self._over = True
            if ended:
                # It only waits or is still starting, so it can be killed.
                self._process.kill()
            os.close(self._ears)
            os.close(self._mouth)
        try:
            self._process.wait(None if ended else _LEFT)
        except subprocess.TimeoutExpired:
            _left.append(self._process)

    def forget(self) -> Iterable[int]:
        """Release the pipe in a child, which must not hold it open for its parent."""
        self._turn = threading.Lock()  # A thread of the parent may have held the old one.
        held = () if self._over else (self._ears, self._mouth)
        self._over = True
        return held

    def _start(self) -> subprocess.Popen[bytes]:
        _left[:] = [process for process in _left if process.poll() is None]
        # The configuration comes in a file without a name, since it may be longer than an atomic
        # write to a pipe; arguments and environment must not contain secrets.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("JRS_BACKEND_")
        }
        environment["PYTHONPATH"] = helper_process.search_path()
        try:
            with open(os.memfd_create("jrs-guardian"), "w+b") as hello:
                hello.write(self._hello)
                hello.seek(0)
                return subprocess.Popen(
                    helper_process.command(__name__, self._module, str(hello.fileno())),
                    stdin=self._ears,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(hello.fileno(),),
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise _short(error) from error

    def _tell_secret(self) -> None:
        if self._secret is not None:
            self._tell({"secret": base64.b64encode(self._secret).decode()})

    def _tell(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        assert len(line) <= select.PIPE_BUF, "longer than an atomic write to a pipe"
        # A full pipe: the guardian is stopped, or a restarted one has not read yet. At worst, the
        # session then ends after its ttl.
        with contextlib.suppress(BlockingIOError):
            os.write(self._mouth, line)


def _short(error: OSError) -> Unavailable:
    return Unavailable(f"no guardian can be started: {error.strerror}; this process cannot lead")


def main() -> int:
    """Read the pipe until it ends; see the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Meant for the master, which then dismisses us.
    pipe = sys.stdin.fileno()
    os.set_blocking(pipe, True)
    with open(int(sys.argv[2]), "rb") as file:
        hello = json.load(file)
    config, ttl = hello["config"], hello["ttl"]
    prepared: Ender | None = None
    secret: bytes | None = None
    pending = b""
    settled = Deadline.after(_SETTLED)
    while True:
        if prepared is None and settled.expired:
            prepared = _ender(config)
        wait = 2 * ttl if prepared is not None else settled.remaining()
        if not select.select([pipe], [], [], wait)[0]:
            if wait < 2 * ttl:
                continue
            return 0  # No heartbeat for two ttls: the session is gone.
        read = os.read(pipe, 65536)
        if not read:
            if secret is None:
                return 0
            return _end(prepared or _ender(config), secret)
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "secret" in message:
                secret = base64.b64decode(message["secret"])


def _ender(config: Mapping[str, Any]) -> Ender:
    end: Ender = importlib.import_module(sys.argv[1]).ender(config)
    return end


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
