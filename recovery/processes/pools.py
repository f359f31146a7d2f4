"""Pools: threads for work that may hang. No such thread keeps the process alive.

The interpreter joins the threads of `concurrent.futures` at its end, so a single hanging call would
keep a process alive. The threads here are daemons: their owner stops them with a deadline.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.pool import Pool
from jrs.contract.runtime import JrsThread, Runtime

T = TypeVar("T")


@attrs.frozen
class Pools:
    """The pools of actions: one for each kind, so that a kind that hangs delays no other.

    Small pools are for what only asks the backend. What may wait for the storage, for a process or
    for a server has many threads: it takes no processor meanwhile.
    """

    records: Pool
    """Only records are read and written there."""
    deaths: Pool
    """Counts of attempts that have ended."""
    starts: Pool
    """First starts of jobs, for which there is nothing to take over or to fetch."""
    starts_with_files: Pool
    """Starts of jobs that name files of the host, which may hang."""
    restarts: Pool
    """What first takes over or fetches files of a job."""
    kills: Pool
    """Ends of running attempts, and nothing else."""
    ends: Pool
    """Results of jobs that a leader ends, once their files were taken over."""
    suspends: Pool
    """Suspends, which take a snapshot."""
    completed: Pool
    """Ends of attempts that have recorded their job's result, and may take their time."""
    cleanups: Pool
    snapshots: Pool

    @classmethod
    def of(cls, runtime: Runtime) -> Pools:
        return cls(
            records=Pool("jrs-record", 4, runtime),
            deaths=Pool("jrs-death", 16, runtime),
            starts=Pool("jrs-start", 4, runtime),
            starts_with_files=Pool("jrs-start-files", 16, runtime),
            restarts=Pool("jrs-restart", 32, runtime),
            kills=Pool("jrs-kill", 32, runtime),
            ends=Pool("jrs-end", 32, runtime),
            suspends=Pool("jrs-suspend", 32, runtime),
            completed=Pool("jrs-completed", 32, runtime),
            cleanups=Pool("jrs-clean-up", 16, runtime),
            snapshots=Pool("jrs-snapshot", 8, runtime),
        )

    def all(self) -> tuple[Pool, ...]:
        return tuple(getattr(self, field.name) for field in attrs.fields(Pools))


@attrs.frozen
class Outcome(Generic[T]):
    """How a call ended."""

    value: T | None = None
    error: BaseException | None = None
    hangs: bool = False
    """It had not ended by the deadline; its thread is abandoned."""


def side_by_side(
    name: str, calls: Sequence[Callable[[], T]], deadline: Deadline
) -> list[Outcome[T]]:
    """Run the calls at once, each in a thread of its own, and wait for their ends.

    A call for which the system has no thread is not made: its error is that of the thread.
    """
    ends: queue.SimpleQueue[tuple[int, Outcome[T]]] = queue.SimpleQueue()

    def run(number: int) -> None:
        try:
            end = Outcome(calls[number]())
        except BaseException as error:  # An unreported end would look like a hang.
            end = Outcome(error=error)
        ends.put((number, end))

    for number in range(len(calls)):
        thread = JrsThread(target=run, args=(number,), name=f"{name}-{number}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            ends.put((number, Outcome(error=error)))
    found = [Outcome[T](hangs=True)] * len(calls)
    for _ in calls:
        try:
            number, end = ends.get(timeout=deadline.bounded())
        except queue.Empty:
            break
        found[number] = end
    return found
