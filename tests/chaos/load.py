"""Load: writers that note the reported outcome of each of their commits, and the check of these.

Every commit has an operation of its own id, so that it shows whether it was applied; those of a
chain also step a counter that is guarded by its version, so that it shows how often.

A commit of unknown outcome that is read back as absent may still be under way: a server that is
stopped may have it in its sockets, and carry it out later. What decides is the next write
with a guard that contradicts it: the next step of a chain, or to take the operation's id oneself.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, JrsError, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Record, Update
from jrs.testing.contract import present
from tests.support import BOUND, until

WINDOW = 16
TAKEN = b"taken"


@attrs.define
class Commit:
    """One commit, what was answered, and what reading it back said where that was needed."""

    key: str
    answer: str = "?"
    at: float = 0.0
    seen: bool | None = None
    taken: bool = False
    """Whether its id was taken, so that it cannot happen any more."""


class Writer(threading.Thread):
    """A thread that commits on and on."""

    def __init__(self, backend: Backend, name: str) -> None:
        super().__init__(name=name)
        self.backend = backend
        self.commits: list[Commit] = []
        self.over = threading.Event()
        self.lame = False
        """Whether not even to wait for an answer any more."""
        self.failure: BaseException | None = None

    @property
    def acknowledged(self) -> int:
        return sum(commit.answer == "done" for commit in list(self.commits))

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:
            self.failure = error

    def write(self) -> None:
        raise NotImplementedError

    def begin(self) -> Commit:
        self.commits.append(Commit(f"op/{self.name}/{len(self.commits)}"))
        return self.commits[-1]

    def end(self, commit: Commit, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, JrsError):
            raise error
        commit.at = time.monotonic()
        commit.answer = "done" if error is None else type(error).__name__

    def decide(self, commit: Commit) -> None:
        """Take its id until that is done, or it is known to be there."""
        while not self.lame:
            try:
                self.backend.commit(Create(commit.key, TAKEN))
            except Conflict:
                commit.taken = present(self.backend, commit.key).value == TAKEN
                return
            except (Unavailable, OutcomeUnknown):
                time.sleep(0.02)
            else:
                commit.taken = True
                return

    def read_back(self, commit: Commit) -> None:
        """Read until there is an answer: is it there?"""
        while not self.lame:
            try:
                commit.seen = self.backend.get(commit.key) is not None
                return
            except Unavailable:
                time.sleep(0.02)


class Chain(Writer):
    """Steps a counter of its own, one commit after the other; continues from where it really is."""

    def write(self) -> None:
        counter = f"chain/{self.name}"
        self.until_done(lambda: self.backend.commit(Create(counter, b"0")), counter)
        record = None
        while not self.over.is_set():
            record = record or self.read(counter)
            step = Update(counter, b"%d" % (int(record.value) + 1), record.version)
            commit = self.begin()
            try:
                self.backend.commit(Create(commit.key, b""), step)
            except (Unavailable, OutcomeUnknown) as error:
                self.end(commit, error)
                if isinstance(error, OutcomeUnknown):
                    self.read_back(commit)
                time.sleep(0.01)
            except Conflict as error:
                self.end(commit, error)
            else:
                self.end(commit, None)
            record = None

    def read(self, key: str) -> Record:
        while not self.lame:
            try:
                return present(self.backend, key)
            except Unavailable:
                time.sleep(0.02)
        raise Unavailable("told to stop")

    def until_done(self, call: Callable[[], None], key: str) -> None:
        while True:
            try:
                return call()
            except (Unavailable, OutcomeUnknown):
                time.sleep(0.02)
            except Conflict:
                return None


class Stream(Writer):
    """Has many commits in flight at a time, none of which depends on another."""

    def write(self) -> None:
        flying: list[tuple[Commit, Future[None]]] = []
        while flying or not self.over.is_set():
            while len(flying) < WINDOW and not self.over.is_set():
                commit = self.begin()
                flying.append((commit, self.backend.commit_async(Create(commit.key, b""))))
            commit, future = flying.pop(0)
            error = future.exception(BOUND)
            self.end(commit, error)
            if isinstance(error, OutcomeUnknown):
                self.read_back(commit)
                self.decide(commit)
            elif error is not None:
                time.sleep(0.01)


class Load:
    """Writers of both kinds on a few handles.

    Args:
        handles: shared by the writers, in turn.
        chains, streams: how many of each.
    """

    def __init__(self, handles: Sequence[Backend], *, chains: int, streams: int) -> None:
        kinds = [Chain] * chains + [Stream] * streams
        self.writers = [
            kind(handles[number % len(handles)], f"{kind.__name__.lower()}-{number}")
            for number, kind in enumerate(kinds)
        ]

    def continues(self, each: int = 3, timeout: float = BOUND) -> None:
        """Wait until every writer has had some more commits acknowledged."""
        wanted = {writer: writer.acknowledged + each for writer in self.writers}
        until(
            lambda: all(
                writer.failure is not None or writer.acknowledged >= count
                for writer, count in wanted.items()
            ),
            "every writer continues",
            timeout,
        )
        self.check()

    def has_unknown(self, count: int) -> bool:
        """Return whether so many commits were answered by something else than "done"."""
        return count <= sum(c.answer not in ("?", "done") for c in self.commits)

    @property
    def commits(self) -> list[Commit]:
        return [commit for writer in self.writers for commit in list(writer.commits)]

    def check(self) -> None:
        """Raise what a writer died of."""
        for writer in self.writers:
            if writer.failure is not None:
                raise writer.failure

    def stop(self, *, lame: bool = False) -> None:
        for writer in self.writers:
            writer.lame = lame
            writer.over.set()
        for writer in self.writers:
            if writer.ident is not None:
                writer.join(BOUND)
                assert not writer.is_alive(), f"{writer.name} hangs"

    def __enter__(self) -> Self:
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(lame=error is not None)

    # -- the judgement ---------------------------------------------------------------------

    def evaluate(self, backend: Backend) -> str:
        """Assert that every answer was true; return the figures."""
        self.check()
        found = backend.scan("op/", deadline=Deadline.after(BOUND))
        there = {record.key for record in found if record.value != TAKEN}
        chains = backend.scan("chain/", deadline=Deadline.after(BOUND))
        steps = {record.key: int(record.value) for record in chains}
        lost = [c for c in self.commits if c.answer == "done" and c.key not in there]
        denied = [c for c in self.commits if c.answer not in ("done", "OutcomeUnknown") and
                  c.key in there]  # fmt: skip
        unknown = [c for c in self.commits if c.answer == "OutcomeUnknown"]
        vanished = [c for c in unknown if c.seen and c.key not in there]
        late = [c for c in unknown if not c.seen and c.key in there]

        assert lost == []
        assert denied == []
        assert vanished == []
        assert [c for c in late if c.taken] == []

        for writer in self.writers:
            if isinstance(writer, Chain):
                applied = sum(commit.key in there for commit in writer.commits)

                assert steps[f"chain/{writer.name}"] == applied

            for before, commit in itertools.pairwise(writer.commits):
                if commit.answer == "Conflict":
                    assert before in late, "nobody else has this counter"
                if isinstance(writer, Chain) and before in late:
                    assert commit.answer != "done", "its guard contradicts the one before"

        happened = sum(commit.key in there for commit in unknown)
        unavailable = sum(commit.answer == "Unavailable" for commit in self.commits)
        done = sum(commit.answer == "done" for commit in self.commits)
        return (
            f"{done} done, {unavailable} Unavailable, {len(unknown)} OutcomeUnknown of which "
            f"{happened} had happened, {len(late)} of them after they were read back as absent; "
            f"the longest gap {self.longest_gap():.2f} s"
        )

    def longest_gap(self) -> float:
        """Return the longest time in which nobody's commit was acknowledged."""
        times = sorted(commit.at for commit in self.commits if commit.answer == "done")
        return max((after - before for before, after in itertools.pairwise(times)),
                   default=0.0)  # fmt: skip
