"""Ports: free ones, and kept free for their holder while no server listens there.

A port that is merely free is taken by the next process that asks for one, and a server that is to
come back on its port after a kill then cannot. So ports are chosen below the range from which the
kernel serves outgoing connections and `bind(0)`, and a lock on a file per port keeps other test
runs away from it. The locks go with the process, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from jrs.testing.servers.errors import ServerMissing

_LOWEST, _BEYOND = 20_000, 32_000
_TRIES = 200


class Ports:
    """Ports of this machine, reserved among all callers."""

    def __init__(self) -> None:
        self._locks: list[int] = []

    def take(self, host: str = "127.0.0.1") -> int:
        """Return a free TCP port.

        Raises:
            ServerMissing: hardly any is free.
        """
        folder = Path(tempfile.gettempdir()) / f"jrs-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        for _ in range(_TRIES):
            # Not the seeded generator: it gives two test runs the same ports.
            port = random.SystemRandom().randrange(_LOWEST, _BEYOND)
            lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _bind(host, port)
            except OSError as error:
                os.close(lock)
                if error.errno not in (errno.EAGAIN, errno.EADDRINUSE, errno.EACCES):
                    raise
                continue
            self._locks.append(lock)
            return port
        raise ServerMissing(f"no free port between {_LOWEST} and {_BEYOND} after {_TRIES} tries")

    def close(self) -> None:
        """Let go of all of them. Idempotent."""
        while self._locks:
            os.close(self._locks.pop())


def _bind(host: str, port: int) -> None:
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT is free to listen on.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
