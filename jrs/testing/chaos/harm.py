"""Harm that faults do at the same time: the state of a thing follows from all that hurt it now.

A fault does not set a state and reset it, since another fault may have come meanwhile: it is added
to those that are active on one dimension of one thing, such as the clock of a host, and leaves
them. The last one to go restores what the first one found.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import attrs

from jrs.testing.chaos.meddling import Meddler, Meddling
from jrs.testing.servers import Member, Proxies

T = TypeVar("T")
Apply = Callable[[Sequence[T]], None]
"""Gives a thing the state that follows from all that hurts it; from nothing, the usual one."""


@attrs.define
class _Active:
    """What hurts one dimension of one thing, by a token for each fault."""

    apply: Apply[Any]
    by_token: dict[object, Any] = attrs.field(factory=dict)

    def show(self) -> None:
        self.apply(list(self.by_token.values()))


class Harms:
    """All that is active in a run. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: dict[Hashable, _Active] = {}

    @contextmanager
    def add(self, what: Hashable, value: T, first: Callable[[], Apply[T]]) -> Iterator[None]:
        """Let a fault be active while the block runs.

        Args:
            what: one dimension of one thing.
            value: how the fault hurts it.
            first: called if nothing is active on it yet; returns what gives it its state.
        """
        token = object()
        with self._lock:
            active = self._active.get(what) or _Active(first())
            self._active[what] = active
            active.by_token[token] = value
        try:
            with self._lock:
                active.show()
            yield
        finally:
            with self._lock:
                del active.by_token[token]
                if not active.by_token:
                    del self._active[what]
                active.show()


def stopped(harms: Harms, pid: int) -> AbstractContextManager[None]:
    """Have a process stopped while the block runs."""

    def apply(pauses: Sequence[None]) -> None:
        os.kill(pid, signal.SIGSTOP if pauses else signal.SIGCONT)

    return harms.add(("stopped", pid), None, lambda: apply)


def limited(harms: Harms, pid: int, limit: int, most: int) -> AbstractContextManager[None]:
    """Have a process limited to `most` of a resource, one of `resource.RLIMIT_…`, while the block
    runs."""

    def first() -> Apply[int]:
        soft, hard = resource.prlimit(pid, limit)

        def apply(limits: Sequence[int]) -> None:
            resource.prlimit(pid, limit, (min(limits, default=soft), hard))

        return apply

    return harms.add(("limited", pid, limit), most, first)


def meddled(
    harms: Harms, host: str, meddler: Meddler, meddling: Meddling
) -> AbstractContextManager[None]:
    """Have the disk or the clock of a host meddled with while the block runs."""
    return harms.add(("meddled", host), meddling, lambda: meddler.show)


def cut_off(harms: Harms, host: str, network: Proxies, *ways: str) -> AbstractContextManager[None]:
    """Have a host cut off from the servers while the block runs.

    Args:
        ways: ``requests`` or ``replies``: no byte of these passes. ``connections``: there are none.
    """

    def apply(all_ways: Sequence[Sequence[str]]) -> None:
        lost = {way for some in all_ways for way in some}
        network.shape(
            requests="requests" not in lost,
            replies="replies" not in lost,
            connections="connections" not in lost,
        )

    return harms.add(("cut off", host), ways, lambda: apply)


def down(harms: Harms, member: Member) -> AbstractContextManager[None]:
    """Have a member of the servers killed (-9) while the block runs; then it starts again."""

    def apply(kills: Sequence[None]) -> None:
        if kills:
            member.kill()
        else:
            member.start(wait=False)

    return harms.add(("down", member.name), None, lambda: apply)


def hung(harms: Harms, member: Member) -> AbstractContextManager[None]:
    """Have a member of the servers stopped while the block runs."""

    def apply(pauses: Sequence[None]) -> None:
        if pauses:
            member.pause()
        else:
            member.resume()

    return harms.add(("hung", member.name), None, lambda: apply)


def full(harms: Harms, disk: Path) -> AbstractContextManager[None]:
    """Have a filesystem full while the block runs."""
    ballast = disk / "ballast"

    def apply(fills: Sequence[None]) -> None:
        if not fills:
            ballast.unlink(missing_ok=True)
            return
        with suppress(OSError), ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    return harms.add(("full", disk), None, lambda: apply)
