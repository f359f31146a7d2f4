"""A load for the check `list_append`: clients that append to a few lists of a backend.

``python -m jrs.testing.chaos.appending UNTIL`` is a few clients, until a moment of the monotonic
clock; `World.append` starts it. A client reads some lists, and then commits under the condition
that they are as it has read them: new elements for some of them, and nothing for others. Now and
then it reads all of them at one moment, or sends two commits at once of which each appends to the
list that the other one requires to be unchanged: only one of them may be accepted. Clients use the
same lists, and change to others twice a second, so that no list grows long.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Refused, Unavailable
from jrs.contract.operations import Create, Op, Record, Update, create_or_update, unchanged
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
_FIRST = 30.0
"""Seconds in which a client has to append something once its time is over."""
_EXPECTED = (Refused, Unavailable, OutcomeUnknown, CorruptRecord, TimeoutError)


def append_to_lists(backend: Backend, until: float, name: str) -> None:
    """Be a client until a moment of the monotonic clock, and until it has appended something.

    Raises:
        TimeoutError: it could append nothing, nor in the next 30 seconds; with the last error.
    """
    client = _Client(backend, name)
    # A busy machine may start the program when its time is over.
    give_up = max(until, time.monotonic()) + _FIRST
    while time.monotonic() < until or not client.has_appended:
        with client.noting_errors():
            client.act()
        if not client.has_appended and time.monotonic() >= give_up:
            error = client.error
            raise TimeoutError(f"{name} could append nothing; the last error: {error}") from error
        time.sleep(_PAUSE)


class _Client:
    def __init__(self, backend: Backend, name: str) -> None:
        self.has_appended = False
        self.error: BaseException | None = None
        """The last one."""
        self._backend = backend
        self._name = unique_name(name)
        self._random = Random(self._name)
        self._count = 0

    @contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Keep an error that faults explain in place of raising it."""
        try:
            yield
        except _EXPECTED as error:
            self.error = error

    def act(self) -> None:
        """Read all lists at one moment; or read some, and commit."""
        lists = f"{LISTS}{int(time.monotonic() / _LIFE)}/"
        doing = self._random.choices((self._read_all, self._skew, self._commit), (2, 2, 6))[0]
        doing(lists)

    def _read_all(self, lists: str) -> None:
        for _ in self._backend.scan(lists, deadline=Deadline.after(_PATIENCE)):
            pass

    def _commit(self, lists: str) -> None:
        """Append to some lists if others are unchanged."""
        read = self._read(lists, self._random.choice((1, 2, 2, 3)))
        ops = [self._op(key, record) for key, record in read]
        self._backend.commit(*ops, deadline=Deadline.after(_PATIENCE))
        self._note_accepted(ops)

    def _skew(self, lists: str) -> None:
        """Append to each of two lists if the other one is unchanged, at once."""
        one, other = self._read(lists, 2)
        commits = [
            (self._append(*mine), unchanged(*others))
            for mine, others in ((one, other), (other, one))
        ]
        sent = [self._backend.commit_async(*ops) for ops in commits]
        for ops, future in zip(commits, sent, strict=True):
            with self.noting_errors():
                future.result(_PATIENCE)
                self._note_accepted(ops)

    def _note_accepted(self, ops: Sequence[Op]) -> None:
        if any(isinstance(op, (Create, Update)) for op in ops):
            self.has_appended = True

    def _read(self, lists: str, count: int) -> list[tuple[str, Record | None]]:
        """Read some lists.

        Raises:
            CorruptRecord: one of them is unreadable.
        """
        keys = self._random.sample([f"{lists}{number}" for number in range(_KEYS)], count)
        read = list[tuple[str, Record | None]]()
        found = self._backend.get_many(keys, deadline=Deadline.after(_PATIENCE))
        for key, record in zip(keys, found, strict=True):
            if isinstance(record, CorruptRecord):
                raise record
            read.append((key, record))
        return read

    def _op(self, key: str, record: Record | None) -> Op:
        """Return the part of a commit that appends to a list, or requires that it is unchanged."""
        return unchanged(key, record) if self._random.random() < 0.3 else self._append(key, record)

    def _append(self, key: str, record: Record | None) -> Op:
        """Return the part of a commit that appends to a list, unless this is long."""
        elements = [] if record is None else record.value.decode().split()
        if len(elements) >= _LONGEST:
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
