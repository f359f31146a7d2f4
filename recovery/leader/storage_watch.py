"""Whether a master may lead with its storage: checked before it campaigns, and while it does.

A campaign may last for weeks. A storage that goes away meanwhile must not be noticed only after the
election: then no master leads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from jrs.contract.errors import (
    CorruptRecord,
    Fenced,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
    WrongState,
)
from jrs.contract.leadership import Leadership
from jrs.contract.runtime import Runtime, start_thread

from ..files.storage_identity import StorageIdentity
from .storage_calls import Held, StorageCalls

_LOOK = 5.0
"""Seconds between two checks during a campaign."""


class StorageWatch:
    """The storage of one master, as the cluster knows it.

    Args:
        ttl: of the master, in seconds.
    """

    def __init__(
        self, identity: StorageIdentity, master: str, ttl: float, runtime: Runtime
    ) -> None:
        self._identity = identity
        self._calls = StorageCalls(ttl, runtime)
        self._master = master
        self._runtime = runtime

    def check(self) -> None:
        """Raise `Held` if this master must not lead with its storage.

        Raises:
            Held, Unavailable, OutcomeUnknown: the call may be repeated.
        """
        try:
            self._calls.run(self._check)
        except CorruptRecord as error:
            raise Held(f"{error}; restore the record with 'jrs fsck --repair'") from error
        except (InvalidInput, WrongState) as error:
            raise Held(str(error)) from error
        except OSError as error:  # A disk that fails now may be well again, or is mended.
            raise Held(f"the storage's marker cannot be read: {error}") from error

    def _check(self) -> None:
        self._identity.check(to_lead=True)
        self._identity.check_epoch()

    @contextmanager
    def watched(self) -> Iterator[threading.Event]:
        """Check the storage now and then while the block runs. Yield an event that is set once this
        master must not lead any more.

        Raises:
            Unavailable: this host has no thread left for it.
        """
        over, held = threading.Event(), threading.Event()
        thread = self._runtime.thread(lambda: self._watch(over, held), "jrs-storage-watch")
        start_thread(thread)
        try:
            yield held
        finally:
            over.set()  # Not joined: a check may be under way, and a failover waits.

    def _watch(self, over: threading.Event, held: threading.Event) -> None:
        while not (over.wait(_LOOK) or held.is_set()):
            try:
                self.check()
            except Held:
                held.set()
            except (Unavailable, OutcomeUnknown):
                continue  # Whether this master can be elected is for the backend to say.

    def record(self, leadership: Leadership) -> str:
        """Record the storage as the cluster's; return why its marker cannot be written, if so.

        Raises:
            Held: this master must not lead with it.
            Fenced: another master leads.
            Unavailable, OutcomeUnknown: the call may be repeated.
        """
        try:
            now = self._runtime.now()
            use = partial(self._identity.record_use, leadership.fence, self._master, now)
            self._calls.run(use)
        except Fenced:
            raise
        except (InvalidInput, WrongState) as error:
            raise Held(str(error)) from error
        except (OSError, CorruptRecord) as error:
            # It was checked before; the next leader tries again. A full disk, or a record of the
            # cluster that is damaged, must not keep the cluster from being led.
            why = error.strerror if isinstance(error, OSError) else str(error)
            return f"the storage's marker cannot be written: {why}"
        return ""
