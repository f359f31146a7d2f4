"""What a replica of an application does while another one leads."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from jrs.contract.backend import Backend
from jrs.contract.errors import JrsError
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore

from .cleanup.remaining import Remaining

_ASK = 0.5
"""Seconds between two questions of a replica that waits for its turn."""

_log = logging.getLogger("jrs.application")


class Standby:
    """What a replica does while it campaigns, next to that.

    Args:
        name: the application's.
        master: the name of this replica's own master.
    """

    def __init__(self, backend: Backend, name: str, master: str) -> None:
        self._backend = backend
        self._name = name
        self._master = master
        self._results = JobResultStore(backend)
        self._registry = Registry(backend)
        self._said = False
        self._remaining: Remaining | None = None

    def run(self, stop: threading.Event, over: threading.Event) -> None:
        """Say once who leads, and end the campaign by `stop` once the application has a result and
        another master leads, which cleans up.

        As long as something of the application is to be cleaned up, the campaign continues: that
        master may die, and there may be no other replica. Like a leader, it does not wait longer
        than waiting helps.

        Args:
            over: set once the campaign has ended.
        """
        while not over.wait(_ASK):
            with suppress(JrsError):  # The master reports that the backend is away.
                if self._may_leave():
                    stop.set()
                    return

    def _may_leave(self) -> bool:
        view = self._registry.leading()
        if view.leader is None or view.leader.name == self._master:
            return False
        if self._results.get(self._name) is not None:
            return not self._is_needed()
        if not self._said:
            _log.warning("application %r waits for its turn: %s", self._name, view)
            self._said = True
        return False

    def _is_needed(self) -> bool:
        """Return whether something of the application, which has ended, is left for a leader."""
        if self._remaining is None:
            self._remaining = Remaining(self._backend, self._name, of_others=False)
        return self._remaining.is_any()
