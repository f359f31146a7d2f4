"""Nemeses: each does one kind of harm, and can undo it.

`strike` does the harm once and returns its target, or None if no target exists; `heal` undoes all
of it. One thread calls both.
"""

from __future__ import annotations

import abc
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from jrs.testing.chaos.marks import marked, send
from jrs.testing.masters import MasterProcess
from jrs.testing.servers import Server

Pids = Callable[[], Sequence[int]]


class Nemesis(abc.ABC):
    """One kind of harm."""

    name: str

    @abc.abstractmethod
    def strike(self, rng: random.Random) -> str | None:
        """Do the harm once; return its target, or None."""

    def heal(self) -> None:  # noqa: B027 - what was killed stays dead
        """Undo all harm that can be undone. Idempotent."""

    def tick(self) -> None:  # noqa: B027 - most harm does not last
        """End the harm whose time is up; called about every second."""


class Kill(Nemesis):
    """Kills (-9) one of the processes that `pids` returns."""

    def __init__(self, name: str, pids: Pids) -> None:
        self.name = f"kill {name}"
        self._pids = pids

    def strike(self, rng: random.Random) -> str | None:
        pids = self._pids()
        pid = rng.choice(pids) if pids else 0
        return str(pid) if pid and send(pid, signal.SIGKILL) else None


class Lasting(Nemesis):
    """Harm to a process that lasts for some seconds."""

    def __init__(self, name: str, pids: Pids, longest: float) -> None:
        self.name = name
        self._pids = pids
        self._longest = longest
        self._hurt: dict[int, float] = {}

    def strike(self, rng: random.Random) -> str | None:
        pids = [pid for pid in self._pids() if pid not in self._hurt]
        if not pids:
            return None
        pid = rng.choice(pids)
        try:
            self._hurt_one(pid)
        except ProcessLookupError:
            return None
        self._hurt[pid] = time.monotonic() + rng.uniform(0.1, self._longest)
        return str(pid)

    def tick(self) -> None:
        now = time.monotonic()
        for pid in [pid for pid, until in self._hurt.items() if until <= now]:
            del self._hurt[pid]
            with suppress(ProcessLookupError):
                self._heal_one(pid)

    def heal(self) -> None:
        self._hurt = dict.fromkeys(self._hurt, 0.0)
        self.tick()

    @abc.abstractmethod
    def _hurt_one(self, pid: int) -> None: ...

    @abc.abstractmethod
    def _heal_one(self, pid: int) -> None: ...


class Pause(Lasting):
    """Stops (SIGSTOP) one of the processes, and continues it some seconds later."""

    def __init__(self, name: str, pids: Pids, longest: float = 4.0) -> None:
        super().__init__(f"pause {name}", pids, longest)

    def _hurt_one(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)

    def _heal_one(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)


class NoDescriptors(Lasting):
    """For some seconds, lets a process open no more descriptors."""

    def __init__(self, name: str, pids: Pids, longest: float = 4.0) -> None:
        super().__init__(f"no descriptors for {name}", pids, longest)
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)

    def _hurt_one(self, pid: int) -> None:
        try:
            count = max(map(int, os.listdir(f"/proc/{pid}/fd")), default=2) + 1
        except OSError:
            raise ProcessLookupError from None
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, self._limit[1]))

    def _heal_one(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, self._limit)


class FullDisk(Nemesis):
    """Fills the filesystem of a folder with one file, for some seconds. It must be a small
    filesystem that no other process uses."""

    name = "full disk"

    def __init__(self, folder: Path, longest: float = 5.0) -> None:
        self._ballast = folder / "ballast"
        self._longest = longest
        self._until = 0.0

    def strike(self, rng: random.Random) -> str | None:
        if self._until:
            return None
        self._until = time.monotonic() + rng.uniform(0.5, self._longest)
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        return str(self._ballast.parent)

    def tick(self) -> None:
        if self._until and time.monotonic() >= self._until:
            self.heal()

    def heal(self) -> None:
        self._ballast.unlink(missing_ok=True)
        self._until = 0.0


class PauseServer(Nemesis):
    """Pauses a member of the servers, and continues it some seconds later."""

    name = "pause a server"

    def __init__(self, server: Server, longest: float = 3.0) -> None:
        self._server = server
        self._longest = longest
        self._until = 0.0

    def strike(self, rng: random.Random) -> str | None:
        member = rng.choice(list(self._server))
        if self._until or not member.running:
            return None
        member.pause()
        self._until = time.monotonic() + rng.uniform(0.2, self._longest)
        return member.name

    def tick(self) -> None:
        if self._until and time.monotonic() >= self._until:
            self._until = 0.0
            for member in self._server:
                if member.paused:
                    member.resume()

    def heal(self) -> None:
        self._until = 0.0
        self._server.heal()


class KillServer(Nemesis):
    """Kills (-9) a member of the servers, and starts it again."""

    name = "kill a server"

    def __init__(self, server: Server) -> None:
        self._server = server

    def strike(self, rng: random.Random) -> str | None:
        member = rng.choice(list(self._server))
        if member.paused or not member.running:
            return None
        member.kill()
        member.start(wait=False)
        return member.name

    def heal(self) -> None:
        self._server.heal()


def masters_of(masters: Callable[[], Sequence[MasterProcess]]) -> Pids:
    """Return a function that returns the living masters."""
    return lambda: [master.process.pid for master in masters() if master.alive]


def others_of(mark: str, masters: Pids) -> Pids:
    """Return a function that returns the living descendants of masters."""

    def found() -> Sequence[int]:
        own = set(masters())
        return [pid for pid in marked(mark) if pid not in own]

    return found
