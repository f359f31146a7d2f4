"""Where a process listens: a socket in a folder, which only its user can open, or a TCP port."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown

_TCP = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]*):(?P<port>[0-9]{1,5})")
_LONGEST_PATH = 107
"""Bytes of a socket's path; the kernel takes no more."""
_BACKLOG = 2048
"""Clients that wait until they are accepted; the kernel has a limit of its own."""
_SILENT = 30
"""Seconds after which a silent client is asked whether it is still there."""
_ASKED_EVERY = 10
_UNANSWERED = 3
"""How often it is asked before it counts as gone. Its host may have lost its power, or its network;
then nothing ends its connection, and a client that only listens would stay forever. One that
answers stays, however slowly it reads."""
_LONGEST_WAIT = 1.0
"""Seconds to wait for the lock of a socket's folder."""
_RETRY = 0.02


@attrs.frozen
class Address:
    """A socket in a folder, or a host and a port.

    Attributes:
        path: of the socket; None for TCP.
        host: without brackets; empty for all interfaces.
        port: 0 for any free one.
    """

    path: Path | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the address that a text names: ``unix:/run/jrs.sock`` or ``HOST:PORT``.

        Raises:
            InvalidInput: it names none.
        """
        if text.startswith("unix:"):
            path = Path(text.removeprefix("unix:"))
            if not path.is_absolute() or len(os.fsencode(path)) > _LONGEST_PATH:
                raise InvalidInput(
                    f"not the path of a socket: {shown(text)}; write unix:/run/jrs/master.sock, "
                    f"with at most {_LONGEST_PATH} bytes"
                )
            return cls(path=path)
        match = _TCP.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise InvalidInput(
                f"not an address: {shown(text)}; write unix:/run/jrs/master.sock or 127.0.0.1:8080"
            )
        return cls(host=match["host"].strip("[]"), port=int(match["port"]))

    def bind(self) -> Listening:
        """Begin to listen. Only this user can open a socket in a folder.

        Raises:
            InvalidInput: another process listens there, or it cannot be used.
        """
        try:
            return self._tcp() if self.path is None else self._unix(self.path)
        except OSError as error:
            why = error.strerror or str(error)
            raise InvalidInput(f"cannot listen at {self}: {why}") from None

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def _unix(self, path: Path) -> Listening:
        with _alone_in(path.parent):
            self._remove_stale(path)
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                made.bind(str(path))
                # Nobody can connect before `listen`, so that nobody could while it had other bits.
                path.chmod(0o600)
                made.listen(_BACKLOG)
                place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
                return Listening(made, self, place)
            except BaseException:
                made.close()
                raise

    def _tcp(self) -> Listening:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # What it accepts has these as well, on Linux.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASKED_EVERY)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _UNANSWERED)
            made.bind((self.host, self.port))
            made.listen(_BACKLOG)
            return Listening(made, attrs.evolve(self, port=made.getsockname()[1]))
        except BaseException:
            made.close()
            raise

    def _remove_stale(self, path: Path) -> None:
        """Remove the socket of a process that was killed; refuse anything else."""
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise InvalidInput(f"cannot listen at {self}: something else is there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asks:
            asks.settimeout(1.0)
            try:
                asks.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                return
        raise InvalidInput(f"cannot listen at {self}: another process listens there")


@attrs.frozen(eq=False)
class Listening:
    """What `Address.bind` has begun.

    Attributes:
        socket: accepts the connections.
        address: where it listens: with its port, also if any free one was asked for.
        place: a descriptor of the socket's entry in its folder; None for TCP. While it is open, no
            other entry gets the same inode.
    """

    socket: socket.socket
    address: Address
    place: int | None = None

    def leave(self) -> None:
        """Remove the socket from its folder, unless another process listens at that path by now.
        Call it before the socket is closed: a process that starts at that moment would take a
        closed one for that of a dead process. A folder that stays locked keeps the socket: the next
        process removes it. Waits up to a second. Idempotent."""
        path = self.address.path
        if path is not None and self.place is not None:
            with suppress(OSError), _alone_in(path.parent):
                if os.path.samestat(path.lstat(), os.fstat(self.place)):
                    path.unlink()

    def close(self) -> None:
        """Leave, and close the socket. Call it once."""
        self.leave()
        self.socket.close()
        if self.place is not None:
            os.close(self.place)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time look at a socket of the folder, and replace or remove it.

    Each process that can read the folder can lock it, and keep the lock: no one waits for long.

    Raises:
        TimeoutError: another process has kept the lock for `_LONGEST_WAIT` seconds.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _LONGEST_WAIT
        while not _locked(opened):
            if time.monotonic() >= until:
                raise TimeoutError(f"another process keeps {folder} locked")
            time.sleep(_RETRY)
        yield
    finally:
        os.close(opened)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
