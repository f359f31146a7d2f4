"""Faults of lists to plant in histories that have none: each is an anomaly that Elle names.

Each function writes transactions of clients on two lists of their own, as `anomalies` does with
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from jrs.testing.chaos.checking.planted import Amid, Anomaly
from jrs.testing.chaos.recorded import LISTS, Event, Kind, Verb

LIST_FAULTS: dict[str, Anomaly] = {}
"""All faults of lists, by their names."""


@attrs.define
class _Clients:
    """Clients of two lists, `x` and `y`; each transaction is that of another one."""

    amid: Amid
    versions: dict[tuple[str, str], int] = attrs.field(factory=dict)
    count: int = 0

    def transact(self, answer: Kind | None = Kind.OK, **lists: tuple[str, str | None]) -> None:
        """Read lists, and commit what each then is; None, if it is only to be unchanged."""
        process = self._process()
        read = {name: before for name, (before, _) in lists.items()}
        self._add(process, Verb.GET_MANY, None, self._rows(read))
        parts = [self._part(name, before, after) for name, (before, after) in lists.items()]
        self._add(process, Verb.COMMIT, parts, None, answer)

    def page(self, **lists: str) -> None:
        """Read lists at one moment."""
        value = [None, None, self._rows(lists)]
        self._add(self._process(), Verb.SCAN, None, value)

    def _part(self, name: str, before: str, after: str | None) -> list[Any]:
        key, version = self._key(name), self._version(name, before)
        if after is None:
            return ["absent", key] if version is None else ["check", key, version]
        return ["create", key, after] if version is None else ["update", key, after, version]

    def _rows(self, lists: Mapping[str, str]) -> list[list[Any]]:
        return [
            [self._key(name), self._version(name, text), text or None]
            for name, text in sorted(lists.items())
        ]

    def _key(self, name: str) -> str:
        return f"{LISTS}{self.amid.key}/{name}"

    def _version(self, name: str, text: str) -> int | None:
        if text and (name, text) not in self.versions:
            self.versions[name, text] = self.amid.next()
        return self.versions.get((name, text))

    def _process(self) -> str:
        self.count += 1
        return f"{self.amid.key}.{self.count}"

    def _add(
        self, process: str, f: Verb, asked: Any, answered: Any, answer: Kind | None = Kind.OK
    ) -> None:
        begun = self.amid.now + 1
        seq = 2 if f is Verb.COMMIT else 1
        key = self._key("") if f is Verb.SCAN else ""
        self.amid.events.append(Event(process, seq, Kind.INVOKE, f, begun, key, asked))
        if answer is not None:
            self.amid.events.append(Event(process, seq, answer, f, begun + 1, key, answered))
        self.amid.now = begun + 1


def _fault(plant: Callable[[_Clients], None]) -> Callable[[_Clients], None]:
    def planted(amid: Amid) -> None:
        plant(_Clients(amid))

    LIST_FAULTS[plant.__name__] = Anomaly(plant.__name__, "list_append", planted)
    return plant


# -- of one list -----------------------------------------------------------------------------


@_fault
def list_lost_update(clients: _Clients) -> None:
    """Two commits extend the same list, and one of them is never seen."""
    clients.transact(x=("", "1"))
    clients.transact(x=("1", "1 2"))
    clients.transact(x=("1", "1 3"))
    clients.page(x="1 3")


@_fault
def incompatible_orders(clients: _Clients) -> None:
    """Two reads show two elements in two orders."""
    clients.transact(x=("", "1"))
    clients.transact(x=("1", "1 2"))
    clients.transact(x=("1 2", "1 2 3"))
    clients.page(x="1 2 3")
    clients.page(x="1 3 2")


@_fault
def element_twice(clients: _Clients) -> None:
    """A commit was applied twice."""
    clients.transact(x=("", "1"))
    clients.page(x="1 1")


@_fault
def element_of_nobody(clients: _Clients) -> None:
    """An element is read that nobody has appended."""
    clients.transact(x=("", "1"))
    clients.page(x="1 2")


@_fault
def two_lists_of_a_version(clients: _Clients) -> None:
    """A client extends another list than the one that it had read at this version."""
    clients.transact(x=("", "1"))
    clients.transact(x=("1", "2 3"))


@_fault
def list_g1a(clients: _Clients) -> None:
    """An element is read whose commit has failed."""
    clients.transact(x=("", "1"))
    clients.transact(x=("1", "1 2"), answer=Kind.FAIL)
    clients.page(x="1 2")


@_fault
def list_g1b(clients: _Clients) -> None:
    """A list is read amid what one commit appends to it."""
    clients.transact(x=("", "1 2"))
    clients.page(x="1")


# -- of two lists ----------------------------------------------------------------------------


@_fault
def list_g0(clients: _Clients) -> None:
    """Of two commits, each appends behind what the other one has appended."""
    clients.transact(x=("", "1"), y=("4", "4 3"))
    clients.transact(x=("1", "1 2"), y=("", "4"))
    clients.page(x="1 2", y="4 3")


@_fault
def list_g1c(clients: _Clients) -> None:
    """Of two commits, each has seen what the other one has appended."""
    clients.transact(x=("", "1"), y=("2", None))
    clients.transact(y=("", "2"), x=("1", None))


@_fault
def list_g_single(clients: _Clients) -> None:
    """A page shows what a commit has appended to one list, and lacks what it did to another."""
    clients.transact(y=("", "1"))
    clients.transact(x=("", "2"), y=("1", "1 3"))
    clients.page(x="2", y="1")
    clients.page(x="2", y="1 3")


@_fault
def list_g_single_unseen(clients: _Clients) -> None:
    """Such a page, and nobody has read the other list afterwards."""
    clients.transact(y=("", "1"))
    clients.transact(x=("", "2"), y=("1", "1 3"))
    clients.page(x="2", y="1")


@_fault
def list_half_commit(clients: _Clients) -> None:
    """Such a page, of a commit of unknown outcome: it has happened by half."""
    clients.transact(y=("", "1"))
    clients.transact(x=("", "2"), y=("1", "1 3"), answer=None)
    clients.page(x="2", y="1")


@_fault
def list_write_skew(clients: _Clients) -> None:
    """Of two commits, each appends to the list that the other one requires unchanged (G2)."""
    clients.transact(x=("", "1"), y=("", None))
    clients.transact(x=("", None), y=("", "2"))


@_fault
def list_long_fork(clients: _Clients) -> None:
    """Two pages show two commits in two orders (G2)."""
    clients.transact(x=("", "1"))
    clients.transact(y=("", "1"))
    clients.transact(x=("1", "1 2"))
    clients.transact(y=("1", "1 2"))
    clients.page(x="1 2", y="1")
    clients.page(x="1", y="1 2")
