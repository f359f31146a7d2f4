"""A load for the check `list_append`: clients that append to a few lists of a backend.

``python -m jrs.testing.chaos.appending UNTIL`` is a few clients, until a moment of the monotonic
clock; `World.append` starts it. A client reads some lists, and then commits under the condition
that they are as it has read them: new elements for some of them, and nothing for others. Now and
then it reads all of them at one moment. Clients use the same lists, and change to others twice a
second, so that no list grows long.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Refused, Unavailable
from jrs.contract.operations import Op, Record, create_or_update, unchanged
from jrs.store.opening import open_backend
from jrs.testing.chaos.recorded import LISTS
from jrs.testing.chaos.recorder import NAME, unique_name

_KEYS = 3
"""How many lists there are at a time."""
_LIFE = 0.5
"""Seconds in which clients use the same lists."""
_LONGEST = 60
"""How many elements a list gets, about."""
_PATIENCE = 3.0
"""Seconds that a client waits for one answer."""
_THREADS = 3
"""How many clients one program is."""
_PAUSE = 0.002
"""Seconds between two steps of a client, so that others have a turn."""


def append_to_lists(backend: Backend, until: float, name: str) -> int:
    """Be a client until a moment of the monotonic clock; return how many commits were accepted."""
    client = _Client(backend, name)
    while time.monotonic() < until:
        with suppress(Refused, Unavailable, OutcomeUnknown, CorruptRecord, TimeoutError):
            client.act()
        time.sleep(_PAUSE)
    return client.accepted


class _Client:
    def __init__(self, backend: Backend, name: str) -> None:
        self.accepted = 0
        self._backend = backend
        self._name = unique_name(name)
        self._random = Random(self._name)
        self._count = 0

    def act(self) -> None:
        """Read all lists at one moment; or read some, and commit."""
        prefix = f"{LISTS}{int(time.monotonic() / _LIFE)}/"
        if self._random.random() < 0.2:
            for _ in self._backend.scan(prefix, deadline=Deadline.after(_PATIENCE)):
                pass
            return
        keys = [f"{prefix}{number}" for number in range(_KEYS)]
        some = self._random.sample(keys, self._random.choice((1, 2, 2, 3)))
        found = self._backend.get_many(some, deadline=Deadline.after(_PATIENCE))
        read = [record for record in found if not isinstance(record, CorruptRecord)]
        if len(read) == len(some):
            ops = [self._op(key, record) for key, record in zip(some, read, strict=True)]
            self._backend.commit(*ops, deadline=Deadline.after(_PATIENCE))
            self.accepted += 1

    def _op(self, key: str, record: Record | None) -> Op:
        """Return the part of a commit that appends to a list, or requires that it is unchanged."""
        elements = [] if record is None else record.value.decode().split()
        if self._random.random() < 0.3 or len(elements) >= _LONGEST:
            return unchanged(key, record)
        elements += [self._element() for _ in range(self._random.choice((1, 1, 2)))]
        version = None if record is None else record.version
        return create_or_update(key, " ".join(elements).encode(), version)

    def _element(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"


def _main(until: float) -> None:
    """Be some clients with one handle, so that their commits may share a request."""
    name = os.environ[NAME]
    with (
        open_backend(os.environ["JRS_BACKEND"], cluster=os.environ["JRS_CLUSTER"]) as backend,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        clients = [
            pool.submit(append_to_lists, backend, until, f"{name}-{number}")
            for number in range(_THREADS)
        ]
        for client in clients:
            client.result()


if __name__ == "__main__":
    _main(float(sys.argv[1]))
