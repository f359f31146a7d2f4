"""What a replica of an application does while another one leads."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError
from jrs.contract.watch import Watch
from jrs.records import keys
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore

from .cleanup.remaining import Remaining

_ASK = 0.5
"""Seconds between two questions: who leads, or, behind a result, whether this replica may leave."""
_RARELY = 5.0
"""Seconds between two questions for a result that the watch has not announced."""
_SLICE = 0.1
"""Seconds for which the watch is waited for: a campaign that is over waits as long."""

_log = logging.getLogger("jrs.application")


class Standby:
    """What a replica does while it campaigns, next to that.

    Args:
        name: the application's.
        master: the name of this replica's own master.

    Attributes:
        leads: set while this replica leads; nothing is asked then.
    """

    def __init__(self, backend: Backend, name: str, master: str) -> None:
        self._backend = backend
        self._name = name
        self._master = master
        self._results = JobResultStore(backend)
        self._registry = Registry(backend)
        self.leads = threading.Event()
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
            if self.leads.is_set():
                continue
            # The master reports that the backend is away.
            with suppress(JrsError), self._backend.watch(keys.RESULTS + self._name) as watch:
                if self._leaves(watch, over):
                    stop.set()
                    return

    def _leaves(self, watch: Watch, over: threading.Event) -> bool:
        """Return whether this replica may leave, as soon as it may or no longer stands by."""
        while self._stands_by(over):
            has_ended = self._results.get(self._name) is not None
            if (has_ended or not self._said) and self._may_leave(has_ended=has_ended):
                return True
            if has_ended or not self._said:
                over.wait(_ASK)
                continue
            again = Deadline.after(_RARELY)
            while self._stands_by(over) and not again.expired and not watch.wait(_SLICE):
                pass
        return False

    def _stands_by(self, over: threading.Event) -> bool:
        return not over.is_set() and not self.leads.is_set()

    def _may_leave(self, *, has_ended: bool) -> bool:
        view = self._registry.leading()
        if view.leader is None or view.leader.name == self._master:
            return False
        if has_ended:
            return not self._is_needed()
        never = "; it runs no application, and does not end by itself: stop it"
        also = never if view.leader.application == "" else ""
        _log.warning("application %r waits for its turn: %s%s", self._name, view, also)
        self._said = True
        return False

    def _is_needed(self) -> bool:
        """Return whether something of the application, which has ended, is left for a leader."""
        if self._remaining is None:
            self._remaining = Remaining(self._backend, self._name, of_others=False)
        return self._remaining.first() is not None
