"""Ports: finds free ports, and reserves them while no server listens on them.

Another process may take a port that is merely free; then a killed server cannot return to its port.
So these ports are below the range from which the kernel serves outgoing connections and `bind(0)`,
and a lock on a file per port keeps other test runs away. The locks end with the process.
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
    """Reserved ports of this machine; each port has one holder."""

    def __init__(self) -> None:
        self._locks: list[int] = []

    def take(self, host: str = "127.0.0.1") -> int:
        """Return a free TCP port.

        Raises:
            ServerMissing: no free port was found.
        """
        folder = Path(tempfile.gettempdir()) / f"jrs-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        for _ in range(_TRIES):
            # Not the seeded generator, which gives two test runs the same ports.
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
        """Release all ports. Idempotent."""
        while self._locks:
            os.close(self._locks.pop())


def _bind(host: str, port: int) -> None:
    with socket.socket() as probe:
        # As servers do: they can listen on a port in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
