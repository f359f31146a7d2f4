"""Masters as real processes: to watch, to kill -9, to stop and continue.

For chaos tests of your own jobs::

    with Masters("file:///tmp/x", cluster="chaos", storage=folder) as masters:
        masters.start("m1")
        masters.start("m2")
        JobCatalog(masters.backend).submit(JobSpec("nightly", "etl.jobs:nightly"))
        masters.until(lambda: …, "its second stage has begun")
        masters.leader().kill()
        assert JobResultStore(masters.backend).wait("nightly", 60).payload == expected
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.storage_place import place_of
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import EpochRecord
from jrs.recovery.inspect.fsck import wrong_histories
from jrs.recovery.processes import marks
from jrs.store.opening import open_backend
from jrs.testing.polling import Poll

_PATIENCE = 60.0
_TAIL = 2048
"""Bytes of the end of a process's output that are shown."""
_EVENTS = 30
"""Events of the masters that are shown."""


@attrs.frozen
class MasterEvent:
    """An event that a master printed; `kind` is one of ``jrs master --json``."""

    kind: str
    job_id: str
    message: str
    epoch: int
    at: float
    master: str
    stage: str = ""


class LoggedProcess:
    """A process whose stderr is kept.

    Args:
        environment: variables besides those of this process.
        piped: whether its stdout is a pipe to this process; else it is kept with its stderr.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], *, piped: bool
    ) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as it lives
        self._said = ""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else self._errors,
            stderr=self._errors,
            env={**os.environ, **environment},
            # Not in the terminal's process group: Ctrl-C is for the process that started it.
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> float:
        """Kill -9 it; return the moment, in seconds since 1970."""
        at = time.time()
        self.process.kill()
        self.process.wait()
        return at

    def errors(self) -> str:
        """Return the end of its stderr."""
        return self._said if self._errors.closed else _tail(self._errors.fileno())

    def release(self) -> None:
        """Keep the end of its stderr, and close the file. For one that has ended. Idempotent."""
        self._said = self.errors()
        self._errors.close()

    def close(self) -> None:
        """Kill it and close its pipes. Idempotent."""
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.release()


class MasterProcess(LoggedProcess):
    """One ``jrs master``."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        command = [*prefix, sys.executable, "-m", "jrs", *arguments]
        super().__init__(name, command, environment, piped=True)

    def pause(self) -> None:
        """SIGSTOP it: it hangs and keeps its locks and connections."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT it: a zombie, if it was replaced."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it gracefully, or by force if that takes too long."""
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.kill()


class Masters:
    """The masters of one cluster, each a process of its own. Closing ends them and their attempts.

    Args:
        on_event: called with every event, from one thread for each master.
        resources: for ``--resource``.
        options: further arguments of ``jrs master``.
        environment: variables of the masters besides those of this process.
    """

    def __init__(
        self,
        url: str,
        *,
        cluster: str = "default",
        storage: str | Path | None = None,
        ttl: float = 5.0,
        resources: Sequence[str] = (),
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[MasterEvent], None] = lambda event: None,
    ) -> None:
        self.url = url
        self.cluster = cluster
        self.backend = open_backend(url, cluster=cluster)
        self.all: list[MasterProcess] = []
        self.events: list[MasterEvent] = []
        named = storage or self.backend.default_storage
        self._storage = None if named is None else place_of(named).root
        self._marks = {url: marks.mark_of_cluster(self.backend.url, cluster)}
        self._arguments = ["--cluster", cluster, "master", "--ttl", str(ttl)]
        if storage is not None:
            self._arguments += ["--storage", str(storage)]
        for resource in resources:
            self._arguments += ["--resource", resource]
        self._arguments += options
        self._environment = dict(environment or {})
        self._on_event = on_event
        self._readers: list[threading.Thread] = []

    def start(
        self,
        name: str,
        *,
        url: str | None = None,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> MasterProcess:
        """Start one more.

        Args:
            url: the backend's URL for this master alone, for example through a proxy. It is opened
                here the first time.
            prefix: a command that runs the following command in place of itself, for example on
                another host.
            options: further arguments of ``jrs master``, for this master alone.
            environment: further variables, for this master alone.
        """
        if url is not None and url not in self._marks:
            with open_backend(url, cluster=self.cluster) as backend:
                self._marks[url] = marks.mark_of_cluster(backend.url, self.cluster)
        arguments = ["--backend", url or self.url, *self._arguments, "--name", name, "--json"]
        arguments += options
        variables = {**self._environment, **(environment or {})}
        master = MasterProcess(name, arguments, variables, prefix)
        reader = threading.Thread(
            target=self._read, args=(master,), name=f"read-{name}", daemon=True
        )
        reader.start()
        self.all.append(master)
        self._readers.append(reader)
        return master

    def leader(self, timeout: float = _PATIENCE) -> MasterProcess:
        """Wait until a living master holds the newest epoch, and return that master."""
        found: list[MasterProcess] = []

        def leads() -> bool:
            record = self.backend.get(keys.EPOCH)
            if record is not None:
                name = decode(EpochRecord, record.value, record.key).candidate
                found.extend(m for m in self.all if m.name == name and m.alive)
            return bool(found)

        self.until(leads, "a master leads", timeout)
        return found[0]

    def event(
        self, wanted: Callable[[MasterEvent], bool], what: str, timeout: float = _PATIENCE
    ) -> MasterEvent:
        """Wait for the first event that is `wanted`, and return it."""
        self.until(lambda: any(map(wanted, self.events)), what, timeout)
        return next(filter(wanted, self.events))

    def until(
        self,
        condition: Callable[[], object],
        what: str,
        timeout: float = _PATIENCE,
        *,
        poll: float | None = None,
    ) -> None:
        """Wait until `condition` holds; look again every `poll` seconds, or ever more seldom.

        Raises:
            TimeoutError: it does not hold within `timeout` seconds, or no master is alive; the
                message has `what`, the last events, and the last output of masters and attempts.
        """
        deadline, pause = Deadline.after(timeout), Poll()
        while not condition():
            dead = bool(self.all) and not any(master.alive for master in self.all)
            if deadline.expired or dead:
                why = "no master lives any more" if dead else f"not within {timeout:g} s"
                said = "".join(f"\n{line}" for line in self._last_words())
                raise TimeoutError(f"waited until {what}: {why}{said}")
            pause.sleep() if poll is None else time.sleep(poll)

    def wrong_histories(self) -> list[str]:
        """Return what `jrs fsck` finds wrong with the histories of the cluster and of its jobs,
        such as a decision that does not follow from its recorded facts."""
        return list(wrong_histories(self.backend))

    def close(self) -> None:
        """End all masters and attempts. Idempotent."""
        for master in self.all:
            if master.alive:
                master.kill()
        for mark in self._marks.values():
            marks.end(mark, Deadline.after(30.0))
        for reader in self._readers:
            reader.join(10.0)
        for master in self.all:
            master.close()
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _last_words(self) -> Iterator[str]:
        for event in self.events[-_EVENTS:]:
            of = f"{event.job_id}: " if event.job_id else ""
            yield f"{event.at:.3f} {event.master} e{event.epoch} {event.kind}: {of}{event.message}"
        for master in self.all:
            if said := master.errors():
                yield f"{master.name} printed: {said}"
        logs = self._storage.glob(f"{self.cluster}/*/logs/*.err") if self._storage else ()
        for log in sorted(logs):
            with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
                if said := _tail(file.fileno()):
                    yield f"{log} ends with: {said}"

    def _read(self, master: MasterProcess) -> None:
        assert master.process.stdout is not None
        with master.process.stdout as printed:
            for line in printed:
                try:
                    event = MasterEvent(**json.loads(line))
                except (ValueError, TypeError):
                    continue  # The last output of a killed master.
                self.events.append(event)
                self._on_event(event)


def _tail(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()
