"""The socket over which a launch travels: from a master to a watchdog, and on to the attempt. A
fork server is asked for watchdogs over one, too.

A message is one byte that says what it is, and descriptors. What may be long or secret is in a file
in memory, whose descriptor travels: so a writer never waits for its reader, and no argument or file
of a process shows it. The end of the socket tells each side that the other one has died.
"""

from __future__ import annotations

import enum
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

import attrs

T = TypeVar("T")

_MOST = 8
"""The most descriptors of a message."""


class NotUnderstood(Exception):
    """A message has another form than this version of jrs knows: another one was installed below
    its sender after that had started, or for the interpreter of a job."""


@contextmanager
def understood() -> Iterator[None]:
    """Raise `NotUnderstood` where the block finds a message in another form."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood(f"a message of another version of jrs: {error}") from error


class Kind(enum.Enum):
    """What a message is."""

    PLAN = b"P"
    """What to prepare before the launch comes: a plan."""
    READY = b"R"
    """The attempt has prepared itself, and waits for its launch."""
    LAUNCH = b"L"
    """The launch, the pipe for reports, and the lifeline's two descriptors if there is one."""
    FORK = b"F"
    """The marks of a watchdog that is asked for, its end of a socket, and the pipe for its last
    word."""
    STARTED = b"S"
    """The descriptor of its process; none if it could not be forked."""


@attrs.frozen
class Message:
    """A message and its descriptors, which belong to the receiver."""

    kind: Kind
    descriptors: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class LaunchSocket:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Return the two ends of a new socket.

        Raises:
            OSError: the system gives this process no more descriptors.
        """
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(first), cls(second)

    @classmethod
    def to(cls, start: Callable[[int], T]) -> tuple[Self, T]:
        """Return a new socket and the process at its other end.

        Args:
            start: starts the process with a descriptor as its standard input.

        Raises:
            OSError: the system gives this process no more descriptors; or as `start`.
        """
        own, inherited = cls.pair()
        try:
            return own, start(inherited.fileno())
        except BaseException:
            own.close()
            raise
        finally:
            inherited.close()

    @classmethod
    def inherited(cls) -> Self:
        """Return the end that this process was started with as its standard input, and give its
        children nothing to read there."""
        end = socket.socket(fileno=os.dup(0))
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, 0)
        os.close(null)
        return cls(end)

    def fileno(self) -> int:
        """Return the descriptor, to wait for; -1 once it is closed."""
        return self._end.fileno()

    def send(self, kind: Kind, *descriptors: int) -> bool:
        """Send a message; return False if the other side has died. The descriptors stay open."""
        try:
            socket.send_fds(self._end, [kind.value], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def was_read(self) -> bool:
        """Return whether the other side, which has died, had read all that was sent. Ask once; True
        if this end is closed."""
        try:
            self._end.recv(1, socket.MSG_DONTWAIT)
        except ConnectionResetError:
            return False  # Linux tells a sender of messages that nobody has read.
        except OSError:
            return True
        return True

    def receive(self) -> Message | None:
        """Wait for a message; return None if the other side has died.

        Raises:
            NotUnderstood: it is none of these kinds.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self._end, 1, _MOST, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return None
        with understood():
            return Message(Kind(data), tuple(descriptors)) if data else None

    def close(self) -> None:
        """Close this end. Idempotent."""
        self._end.close()


def in_memory(line: bytes) -> int:
    """Return the descriptor of a new file in memory that holds `line`."""
    file = os.memfd_create("launch", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(file), "wb") as writing:
        writing.write(line)
    return file


def read(file: int) -> bytes:
    """Return what a file in memory holds; other processes may read it again."""
    return os.pread(file, os.fstat(file).st_size, 0)
