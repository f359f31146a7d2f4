"""Nemeses: what breaks during a chaos run, as values that are joined by ``|``.

Each nemesis is one function. Its inner function does the harm, yields whom it hit, and undoes the
harm behind the ``yield``; what was killed stays dead, and is started again by the run. Harm that
lasts is that of `jrs.testing.chaos.harm`, since other faults may do the same harm meanwhile.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Protocol

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.testing.chaos.arguments import check_name, check_seconds
from jrs.testing.chaos.harm import Harms, cut_off, down, full, hung, limited, meddled, stopped
from jrs.testing.chaos.meddling import Meddler, Meddling
from jrs.testing.servers import FINDERS, Proxies, Server

_LEAST = 0.05
"""Seconds between two strikes, on average, at least."""
SERVERS = tuple(FINDERS)
SCHEMES = ("file", *SERVERS)
"""The backends that a run can have."""
EVERY = 5.0
"""Seconds between two strikes of a nemesis, on average."""


class Arena(Protocol):
    """What nemeses can reach of a run."""

    disk: Path | None
    """A small filesystem with the store and the files, if the run has one."""
    harms: Harms
    """What hurts the run now."""

    @property
    def server(self) -> Server | None:
        """The servers of the backend, if the run has started them."""

    def hosts(self) -> list[str]:
        """Return the hosts: each master is on one of its own, with what it has started."""

    def leading(self) -> str | None:
        """Return the host of the leader."""

    def pids(self, who: str) -> list[int]:
        """Return the living processes of a kind."""

    def starve(self, pid: int) -> None:
        """Note that a process is denied a resource: libraries in C abort where they need it."""

    def network(self, host: str) -> Proxies | None:
        """Return the network between a host and the servers; None with the file backend."""

    def meddler(self, host: str) -> Meddler:
        """Return what meddles with a host's disk and clock."""


Strike = Callable[[Arena, Random], Iterator[str]]


@attrs.frozen
class Fault:
    """One nemesis of a run.

    Attributes:
        name: what it does, in words.
        every: seconds between two strikes, on average.
        lasting: seconds until its harm is undone.
        until: seconds after which it strikes no more; None: as long as the run has faults.
        backends: the schemes for which it has a meaning.
        small_disk: whether the run needs a filesystem that can be filled.
    """

    name: str
    strike: Strike = attrs.field(repr=False)
    every: float = EVERY
    lasting: float = 0.0
    until: float | None = None
    backends: tuple[str, ...] = SCHEMES
    small_disk: bool = False

    def unsuited(self, scheme: str, disk: Path | None) -> str:
        """Return why it cannot strike on that backend and disk; empty if it can."""
        if scheme not in self.backends:
            return f"it has no meaning on {scheme}"
        return "" if disk or not self.small_disk else "no small filesystem is mounted"


@attrs.frozen
class Nemesis:
    """Some faults: ``kill("leader", every=2) | pause(3)``."""

    faults: tuple[Fault, ...] = ()

    def __or__(self, other: object) -> Nemesis:
        if not isinstance(other, Nemesis):
            return NotImplemented
        return Nemesis(self.faults + other.faults)

    def __str__(self) -> str:
        return " | ".join(fault.name for fault in self.faults) or "no faults"


WHO = (
    *("leader", "master", "attempt", "jvm", "worker", "watchdog", "guardian", "driver", "child"),
)  # fmt: skip
"""What nemeses of processes can hit."""
WHOM = ("leader", "one", "halves", "one way")
"""What `partition` can cut off."""


def _nemesis(
    name: str,
    strike: Strike,
    every: float,
    until: float | None,
    *,
    lasting: float = 0.0,
    backends: tuple[str, ...] = SCHEMES,
    small_disk: bool = False,
) -> Nemesis:
    for what, number in (("every", every), ("until", until), ("seconds", lasting)):
        if number is not None:
            check_seconds(name, what, number)
    if every < _LEAST:
        raise InvalidInput(f"{name}: every is at least {_LEAST:g} seconds, not {shown(every)}")
    return Nemesis((Fault(name, strike, every, lasting, until, backends, small_disk),))


# -- processes ---------------------------------------------------------------------------------


def kill(who: str = "master", *, every: float = EVERY, until: float | None = None) -> Nemesis:
    """Kill (-9) a process.

    Args:
        who: ``leader``, ``master``, ``attempt``, ``jvm``, ``worker`` (of PySpark), ``watchdog``,
            ``guardian``, ``driver`` or ``child``: anything that a master has started.
        every: seconds between two strikes, on average.
        until: seconds after which it strikes no more.
    """
    check_name("the process", who, WHO)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        for pid in _one(arena.pids(who), rng):
            os.kill(pid, signal.SIGKILL)
            yield f"{who} {pid}"

    return _nemesis(f"kill {who}", strike, every, until)


def terminate(who: str = "master", *, every: float = EVERY, until: float | None = None) -> Nemesis:
    """Ask a process to end (SIGTERM). The arguments are those of `kill`."""
    check_name("the process", who, WHO)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        for pid in _one(arena.pids(who), rng):
            os.kill(pid, signal.SIGTERM)
            yield f"{who} {pid}"

    return _nemesis(f"terminate {who}", strike, every, until)


def pause(
    seconds: float, who: str = "master", *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Stop a process (SIGSTOP) for some seconds, as a long collection of garbage or a virtual
    machine that is moved would. The other arguments are those of `kill`."""
    check_name("the process", who, WHO)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        for pid in _one(arena.pids(who), rng):
            with stopped(arena.harms, pid):
                yield f"{who} {pid}"

    return _nemesis(f"pause {who}", strike, every, until, lasting=seconds)


def blackout(*, every: float = 20.0, until: float | None = None) -> Nemesis:
    """Kill (-9) all masters with all that they have started, and all servers, at once."""

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        with ExitStack() as stack:
            for member in arena.server or ():
                stack.enter_context(down(arena.harms, member))
            for pid in [*arena.pids("master"), *arena.pids("child"), *arena.pids("driver")]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            yield "everything"

    return _nemesis("blackout", strike, every, until, lasting=0.5)


# -- the network -------------------------------------------------------------------------------


def partition(
    whom: str = "leader", seconds: float = 4.0, *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Cut hosts off from the servers, for some seconds: no byte passes, and no connection ends.

    Args:
        whom: ``leader``: its host. ``one``: any host. ``halves``: every other host. ``one way``:
            the answers of the servers come late, and what is asked is carried out.
        seconds: until the network is whole again.
    """
    check_name("the part of the network", whom, WHOM)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        hit = _host(arena, rng)
        if whom == "halves":
            hit = arena.hosts()[rng.randrange(2) :: 2]
        elif whom == "leader":
            hit = [host for host in [arena.leading()] if host is not None]
        ways = ["replies"] if whom == "one way" else ["requests", "replies"]
        with ExitStack() as stack:
            cut = [host for host in hit if _cut(stack, arena, host, *ways)]
            if cut:
                yield f"{whom}: {', '.join(cut)}"

    return _nemesis(f"partition {whom}", strike, every, until, lasting=seconds, backends=SERVERS)


def disconnect(*, every: float = EVERY, until: float | None = None) -> Nemesis:
    """Reset all connections of a host to the servers."""

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        for host in _host(arena, rng):
            with ExitStack() as stack:
                if _cut(stack, arena, host, "connections"):
                    yield host

    return _nemesis("disconnect", strike, every, until, lasting=0.2, backends=SERVERS)


# -- the servers -------------------------------------------------------------------------------


def kill_server(*, every: float = EVERY, until: float | None = None) -> Nemesis:
    """Kill (-9) a member of the servers, and start it again after a second."""

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        if arena.server is not None:
            member = rng.choice(list(arena.server))
            with down(arena.harms, member):
                yield member.name

    return _nemesis("kill a server", strike, every, until, lasting=1.0, backends=SERVERS)


def pause_server(
    seconds: float = 3.0, *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Stop a member of the servers for some seconds."""

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        if arena.server is not None:
            member = rng.choice(list(arena.server))
            if member.running:
                with hung(arena.harms, member):
                    yield member.name

    return _nemesis("pause a server", strike, every, until, lasting=seconds, backends=SERVERS)


# -- disk, clock, limits -----------------------------------------------------------------------


def slow_disk(
    delay: float, seconds: float = 5.0, *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Let each sync of a host's Python processes take longer, by `delay` seconds."""
    check_seconds("slow disk", "delay", delay)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        yield from _meddle(arena, rng, Meddling(delay=delay))

    return _nemesis(f"slow disk {delay:g} s", strike, every, until, lasting=seconds)


def failing_disk(
    seconds: float = 2.0, *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Let each sync of a host's Python processes fail (EIO)."""

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        yield from _meddle(arena, rng, Meddling(fails=True))

    return _nemesis("failing disk", strike, every, until, lasting=seconds)


def full_disk(seconds: float = 3.0, *, every: float = EVERY, until: float | None = None) -> Nemesis:
    """Fill the filesystem of the store and of the jobs' files. It is a small one in memory, which
    only root can mount."""

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        if arena.disk is not None:
            with full(arena.harms, arena.disk):
                yield str(arena.disk)

    return _nemesis("full disk", strike, every, until, lasting=seconds, backends=("file",),
                    small_disk=True)  # fmt: skip


def skew(seconds: float, *, every: float = EVERY, until: float | None = None) -> Nemesis:
    """Let the wall clock of a host jump, by up to so many seconds, forward or back."""
    check_seconds("skew", "seconds", seconds)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        yield from _meddle(arena, rng, Meddling(skew=rng.uniform(-seconds, seconds)))

    return _nemesis(f"skew {seconds:g} s", strike, every, until, lasting=4.0)


def no_descriptors(
    seconds: float = 3.0, who: str = "master", *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Let a process open no more descriptors."""
    check_name("the process", who, WHO)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        for pid in _one(arena.pids(who), rng):
            held = {int(number) for number in os.listdir(f"/proc/{pid}/fd")}
            # The next one would have the lowest free number; those above it stay usable.
            most = next(number for number in itertools.count() if number not in held)
            arena.starve(pid)
            with limited(arena.harms, pid, resource.RLIMIT_NOFILE, most):
                yield f"{who} {pid}"

    return _nemesis(f"no descriptors for {who}", strike, every, until, lasting=seconds)


def no_memory(
    seconds: float = 2.0, who: str = "attempt", *, every: float = EVERY, until: float | None = None
) -> Nemesis:
    """Let a process get no more memory."""
    check_name("the process", who, WHO)

    def strike(arena: Arena, rng: Random) -> Iterator[str]:
        for pid in _one(arena.pids(who), rng):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            arena.starve(pid)
            size = pages * resource.getpagesize()
            with limited(arena.harms, pid, resource.RLIMIT_AS, size):
                yield f"{who} {pid}"

    return _nemesis(f"no memory for {who}", strike, every, until, lasting=seconds)


def _host(arena: Arena, rng: Random) -> list[str]:
    """Return one of the hosts, if there is any."""
    hosts = arena.hosts()
    return [rng.choice(hosts)] if hosts else []


def _meddle(arena: Arena, rng: Random, meddling: Meddling) -> Iterator[str]:
    """Meddle with the disk or the clock of a host."""
    for host in _host(arena, rng):
        with meddled(arena.harms, host, arena.meddler(host), meddling):
            yield f"{host} {meddling}"


def _cut(stack: ExitStack, arena: Arena, host: str, *ways: str) -> bool:
    """Cut a host off from the servers until the stack is closed, if there are servers."""
    network = arena.network(host)
    if network is not None:
        stack.enter_context(cut_off(arena.harms, host, network, *ways))
    return network is not None


def _one(pids: list[int], rng: Random) -> list[int]:
    """Return one of the processes, if there is any."""
    return [rng.choice(pids)] if pids else []


ALL: dict[str, Callable[..., Nemesis]] = {
    made.__name__: made
    for made in (
        *(kill, terminate, pause, blackout, partition, disconnect, kill_server, pause_server),
        *(slow_disk, failing_disk, full_disk, skew, no_descriptors, no_memory),
    )
}
"""Every nemesis, by its name."""
