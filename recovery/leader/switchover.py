"""Switchovers: the leader resigns on request, and the others let the named master go first.

Every master watches the request in a thread of its own. A master that is not named stays out of the
campaign until the leadership has changed, or for `HEAD_START` at most: a named master that does not
come must not leave the cluster without a leader. The leader resigns once all others have announced
that they stay out, or a moment later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.leadership import Leadership
from jrs.contract.runtime import RUNTIME, Runtime, call_until, start_thread
from jrs.records import keys
from jrs.records.cluster import SwitchoverRecord
from jrs.store.masters import MasterRole, Registration, Registry, newest_epoch
from jrs.store.steering import Steering

HEAD_START = 10.0
"""Seconds for which the others leave the campaign to the named master."""
_ANNOUNCED = 3.0
"""Seconds for which the leader waits until all others have announced that they stay out."""
_POLL = 0.1


class Switchovers:
    """What one master does about switchovers; a context manager, which runs its thread.

    Args:
        report: called with why requests cannot be read, unless the backend does not answer.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        registration: Registration,
        stop: threading.Event,
        runtime: Runtime = RUNTIME,
        report: Callable[[str], None] = lambda said: None,
    ) -> None:
        self._report = report
        self._backend = backend
        self._name = name
        self._registration = registration
        self._stop = stop
        self._clock = runtime.clock
        self._over = threading.Event()
        self._withdrawn = threading.Event()
        self._seen: tuple[SwitchoverRecord, float] | None = None
        self._leads: Leadership | None = None
        self._resigning = threading.Event()
        self._orderly = False
        """Whether `wait` ends the leadership. A driver's main has no such wait: for it, handing
        over is a loss."""
        self._thread = runtime.thread(self._run, "jrs-switchover")

    def __enter__(self) -> Switchovers:
        start_thread(self._thread)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(10.0)

    @contextmanager
    def leading(self, leadership: Leadership) -> Iterator[None]:
        """Know that this master leads meanwhile."""
        self._resigning.clear()
        self._leads = leadership
        try:
            yield
        finally:
            self._leads = None

    def wait(
        self, leadership: Leadership, handed_over: threading.Event, stop: threading.Event
    ) -> bool:
        """Wait until the leadership is over, by a stop, a loss or a switchover, or because the
        dispatcher has handed it over; return whether the master stops."""
        self._orderly = True
        ends = (leadership.lost, self._resigning, handed_over)
        while not any(end.is_set() for end in ends) and not stop.wait(0.05):
            pass
        return stop.is_set()

    @property
    def hands_over(self) -> bool:
        """Whether the leadership ends, or has ended, because a switchover was requested."""
        return self._resigning.is_set()

    def give_way(self) -> None:
        """Wait while another master has its head start."""
        while self._withdrawn.is_set() and not self._stop.wait(0.05):
            pass

    def stop_campaign(self) -> threading.Event:
        """Return the event that ends a campaign: the master stops, or gives way."""
        return Either(self._stop, self._withdrawn)

    # -- its thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            call_until(
                self._over.is_set,
                self._watch,
                pause=self._pause,
                report=self._report,
                failing="switchovers are not heard",
            )
        finally:
            self._withdrawn.clear()  # Or this master would never campaign again.

    def _watch(self) -> None:
        with self._backend.watch(keys.CLUSTER) as watch:
            while not self._over.is_set():
                self._look()
                # A moment that passes, as the end of a head start, has no hint.
                watch.wait(_POLL if self._withdrawn.is_set() else 0.5)

    def _pause(self) -> None:
        self._withdrawn.clear()
        self._over.wait(1.0)

    def _look(self) -> None:
        request = self._read()
        if request is None:
            self._withdrawn.clear()
            return
        if self._seen is None or self._seen[0] != request:
            self._seen = request, self._clock()
        leads = self._leads
        if leads is not None and leads.epoch == request.epoch:
            if request.to != self._name and not self._resigning.is_set():
                self._hand_over(request)
        elif request.to != self._name and self._clock() < self._seen[1] + HEAD_START:
            newest = newest_epoch(self._backend)
            if newest is not None and newest.epoch == request.epoch:
                if not self._withdrawn.is_set():
                    self._withdrawn.set()
                    self._registration.yielding(request.epoch)
            else:
                self._withdrawn.clear()
        else:
            self._withdrawn.clear()

    def _hand_over(self, request: SwitchoverRecord) -> None:
        deadline = self._clock() + _ANNOUNCED
        registry = Registry(self._backend)
        with self._backend.watch(keys.MASTERS) as watch:
            while self._clock() < deadline and not self._over.is_set():
                others = [
                    view.info
                    for view in registry.views()
                    if view.role is MasterRole.STANDBY
                    and view.info.name not in (self._name, request.to)
                ]
                if all(info.yields == request.epoch for info in others):
                    break
                watch.wait(_POLL)
        # Before it resigns: this master must not win at once what it gives up.
        self._withdrawn.set()
        self._resigning.set()
        leads = self._leads
        if not self._orderly and leads is not None and leads.epoch == request.epoch:
            leads.lost.set()

    def _read(self) -> SwitchoverRecord | None:
        try:
            return Steering(self._backend).switchover()
        except CorruptRecord:
            return None  # `jrs fsck` names it.


class Either(threading.Event):
    """An event that is set if one of two is."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        super().__init__()
        self._one = one
        self._other = other

    def is_set(self) -> bool:
        return self._one.is_set() or self._other.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the first one; callers poll `is_set`, so the other is noticed soon, too."""
        return self._one.wait(timeout) or self._other.is_set()
