"""Clients in processes of their own, and kill -9 at a moment inside of a call."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

import attrs

import jrs
from jrs.client.client import Client
from jrs.contract.errors import JrsError
from jrs.records.snapshots import SnapshotFormat

BOUND = 120.0


@attrs.frozen
class Call:
    """A call of a job's handle."""

    name: str
    arguments: dict[str, Any]


@attrs.frozen
class Outcome:
    """How a call ended."""

    killed: bool
    """Whether it was killed while it was still at it."""
    error: str
    """What it raised; empty if it returned."""
    seconds: float


@attrs.frozen
class Site:
    """A job, and where it is."""

    url: str
    cluster: str
    storage: str | Path | None
    """None: the one that the cluster has recorded."""
    job_id: str


class Clients:
    """Makes calls, each in another process, which has connected before."""

    def __init__(self, place: Site) -> None:
        self._place = place
        # Forks of a process that has imported jrs, and has neither connected nor started threads.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([__name__])
        self._next = self._start()

    def make(self, call: Call) -> Outcome:
        """Make a call to its end."""
        outcome = self.kill(call, BOUND)
        assert not outcome.killed, (call, outcome)
        return outcome

    def kill(self, call: Call, after: float) -> Outcome:
        """Begin a call, and kill -9 its process `after` so many seconds unless it has ended."""
        process, connection = self._next
        connection.send((call.name, call.arguments))
        assert connection.poll(BOUND)
        assert connection.recv() == "begun"
        began = time.monotonic()
        if not connection.poll(after):
            process.kill()
        try:
            error, killed = connection.recv(), False
        except EOFError:
            error, killed = "", True
        seconds = time.monotonic() - began
        _end(process, connection)
        self._next = self._start()
        return Outcome(killed, error, seconds)

    def _start(self) -> tuple[ForkServerProcess, Connection]:
        mine, its = self._processes.Pipe()
        process = self._processes.Process(target=work, args=(its, self._place, {**os.environ}))
        process.start()
        its.close()
        assert mine.poll(BOUND)
        assert mine.recv() == "ready"
        return process, mine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        process, connection = self._next
        process.kill()
        _end(process, connection)


def _end(process: ForkServerProcess, connection: Connection) -> None:
    process.join(BOUND)
    process.close()
    connection.close()


# -- in the other process ----------------------------------------------------------------------


def work(connection: Connection, place: Site, environment: Mapping[str, str]) -> None:
    """Connect, receive a call, make it, and send that it began and what it raised."""
    os.environ.update(environment)
    with jrs.connect(place.url, cluster=place.cluster, storage=place.storage) as client:
        calls = _calls(client, place.job_id)
        client.fsck()  # What is loaded at the first use is loaded now: a kill is to hit the call.
        connection.send("ready")
        name, arguments = connection.recv()
        connection.send("begun")
        try:
            calls[name](**arguments)
        except JrsError as error:
            connection.send(f"{type(error).__name__}: {error}")
        else:
            connection.send("")


def _calls(client: Client, job_id: str) -> dict[str, Callable[..., object]]:
    """Return the calls that can be made."""
    job = client.job(job_id)

    def create(name: str, format: str | None) -> object:
        how = None if format is None else SnapshotFormat(format)
        return job.snapshots.create(name, format=how)

    return {
        "create": create,
        "delete": job.snapshots.delete,
        "convert": lambda which, to: job.snapshots.convert(which, SnapshotFormat(to)),
        "move": lambda which, to: job.snapshots.move(which, Path(to)),
        "restore": job.snapshots.restore,
        "fork": job.snapshots.fork,
        "fork now": job.fork,
        "finish": lambda of: client.job(of).snapshots.finish_restore(),
    }
