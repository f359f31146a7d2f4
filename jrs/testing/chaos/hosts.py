"""The hosts of a chaos run: a master or a driver each, with its own disk, clock and network."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from jrs.recovery.leader.process_end import EXIT_DEPOSED
from jrs.testing.chaos.marks import MARK, end, marked
from jrs.testing.chaos.meddling import Meddler
from jrs.testing.chaos.recorded import Verb
from jrs.testing.chaos.recorder import HISTORY, NAME, files_of
from jrs.testing.chaos.trials import Trials
from jrs.testing.masters import LoggedProcess, MasterProcess, Masters
from jrs.testing.processes import command_lines
from jrs.testing.servers import Proxies, Server

_PROGRAMS = {
    "attempt": "-m jrs.recovery.attempt_main",
    "watchdog": "-m jrs.recovery.attempt.watchdog",
    "guardian": "-m jrs.backends.remote.guardian",
    "jvm": "org.apache.spark",
    "worker": "-m pyspark.daemon",
}
"""What the command lines of the processes have that a master starts. The program of an attempt is
also an argument of its watchdog and of the fork server."""
_CANNOT_START = re.compile(
    r"^jrs:|Too many open files|<no Python frame>$|: error while loading shared libraries: "
)
"""The last words of a master, of its modules and its interpreter, if one of them cannot start: for
lack of descriptors, for example."""


@attrs.define
class Host:
    """One host: a master or a driver, which is started again whenever it ends.

    Attributes:
        start: starts its process.
        network: between it and the servers; None with the file backend.
        lives: every process that it has had, the newest last.
        is_done: whether its process has ended for good.
    """

    name: str
    start: Callable[[], LoggedProcess]
    meddler: Meddler
    network: Proxies | None
    is_driver: bool = False
    lives: list[LoggedProcess] = attrs.field(factory=list)
    is_done: bool = False

    @property
    def process(self) -> LoggedProcess | None:
        """Its living process."""
        return self.lives[-1] if self.lives and self.lives[-1].alive else None


class Hosts:
    """All hosts of a run. Its methods may be called by many threads.

    Args:
        url: the backend's URL, recorded; as it is reached without a proxy.
        mark: of every process of the run.
        trials: is told of each try of a driver.
        variables: of every process, in its environment.
    """

    def __init__(
        self,
        url: Callable[[Proxies | None], str],
        server: Server | None,
        folder: Path,
        mark: str,
        trials: Trials,
        variables: Mapping[str, str],
    ) -> None:
        self._url = url
        self._variables = variables
        self._trials = trials
        self._server = server
        self._folder = folder
        self._mark = mark
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self.all: dict[str, Host] = {}
        self.broken: list[str] = []
        """What ended by itself, and why."""
        self.starved: set[int] = set()
        """The processes that were denied a resource."""

    def add_master(self, name: str, masters: Masters) -> None:
        """Add a host with a master."""
        network, meddler, environment = self._equip(name)
        url = None if network is None else self._url(network)
        self._add(Host(name, lambda: masters.start(name, url=url, environment=environment),
                       meddler, network))  # fmt: skip

    def add_driver(self, name: str, command: Sequence[str], cluster: str, storage: Path) -> None:
        """Add a host with a replica of a driver."""
        network, meddler, environment = self._equip(name)
        environment |= {"JRS_BACKEND": self._url(network), "JRS_CLUSTER": cluster,
                        "JRS_STORAGE": str(storage)}  # fmt: skip

        def start() -> LoggedProcess:
            return LoggedProcess(name, command, environment, piped=False)

        self._add(Host(name, start, meddler, network, is_driver=True))

    def _equip(self, name: str) -> tuple[Proxies | None, Meddler, dict[str, str]]:
        network = None
        if self._server is not None:
            network = self._stack.enter_context(Proxies(self._server.endpoints))
        meddler = Meddler(self._folder / f"page-{name}")
        environment = {**meddler.environment(self._variables), MARK: self._mark, NAME: name,
                       HISTORY: str(self._folder / "history")}  # fmt: skip
        return network, meddler, environment

    def _add(self, host: Host) -> None:
        with self._lock:
            self.all[host.name] = host
        self.supervise()

    def supervise(self) -> None:
        """Start what has ended again, and evaluate how it ended."""
        with self._lock:
            for host in self.all.values():
                if host.is_done or host.process is not None:
                    continue
                if host.lives and self._judge(host):
                    host.is_done = True
                    continue
                if host.is_driver:
                    self._end_rest(host)
                    self._trials.begins(host.name)
                host.lives.append(host.start())

    def _judge(self, host: Host) -> bool:
        """Evaluate an end: no fault that passes may end a master that has opened its store. Return
        whether it ended for good."""
        ended = host.lives[-1]
        status = ended.process.returncode
        ended.release()
        if host.is_driver:
            if status:
                self._trials.fails(host.name)
            return not status
        said = ended.errors()
        last = said.rpartition("\n")[2]
        # One that cannot start, and says so, is started again, as by any supervisor.
        refused = bool(_CANNOT_START.search(last)) and not self._had_opened(ended)
        # A library in C may abort where it is denied a resource, and say nothing: a master on
        # etcd did.
        aborted = status == -signal.SIGABRT and not said and ended.process.pid in self.starved
        if status not in (0, -9, -15, EXIT_DEPOSED) and not refused and not aborted:
            self.broken.append(f"{host.name} ended with status {status}: {last}")
        return False

    def _had_opened(self, master: LoggedProcess) -> bool:
        """Return whether a master had opened its store: then it has campaigned."""
        paths = files_of(self._folder / "history", master.name, master.process.pid)
        return any(f'"{Verb.CAMPAIGN}"'.encode() in path.read_bytes() for path in paths)

    def unfinished(self) -> list[str]:
        """Return the replicas of drivers that have not ended with status 0."""
        return [host.name for host in self._hosts() if host.is_driver and not host.is_done]

    def last_output(self) -> dict[str, str]:
        """Return the end of what each of these replicas printed when it ended last, with the last
        line in front."""
        found = {}
        for host in self._hosts():
            ended = [one for one in host.lives if not one.alive]
            if host.is_driver and not host.is_done and ended:
                said = ended[-1].errors()
                last = said.rpartition("\n")[2]
                status = ended[-1].process.returncode
                found[host.name] = f"status {status}: {last}\n{said}"
        return found

    def _hosts(self) -> list[Host]:
        with self._lock:
            return list(self.all.values())

    def pids(self, who: str) -> list[int]:
        """Return the living processes of a kind; for the names, see `faults.kill`."""
        alive = [host for host in self._hosts() if host.process is not None]
        if who in ("master", "driver"):
            mine = [host for host in alive if host.is_driver == (who == "driver")]
            return [pid for host in mine for pid in self._acting(host)]
        own = {pid for host in alive for pid in (*self._acting(host), *_started(host))}
        others = [pid for pid in marked(self._mark) if pid not in own]
        if who == "child":
            return others
        lines = command_lines(others)
        return [pid for pid in others if _PROGRAMS[who] in lines.get(pid, "")]

    def pid_of(self, name: str | None) -> list[int]:
        """Return the process of a host, if it lives."""
        host = self.all.get(name or "")
        return [] if host is None else self._acting(host)

    def name_of(self, candidate: str) -> str | None:
        """Return the host of a candidate: a master has its name, a driver its pid in its own."""
        if candidate in self.all:
            return candidate
        for host in self._hosts():
            if host.is_driver and any(f"-{pid}-" in candidate for pid in self._all_of(host)):
                return host.name
        return None

    def _acting(self, host: Host) -> list[int]:
        """Return the process of a host that opens the store: a driver's may be a child of the
        command that starts it, such as a shell; none if the host has no living process."""
        if host.is_driver and host.process is not None:
            for pid in self._all_of(host):
                if files_of(self._folder / "history", host.name, pid):
                    return [pid]
        return _started(host)

    def _all_of(self, host: Host) -> list[int]:
        """Return all living processes of a host, the oldest first."""
        return sorted(marked(self._mark, **{NAME: host.name}))

    def _end_rest(self, host: Host) -> None:
        """Kill what is left of the session that a driver's command had, as any supervisor does:
        the driver itself, if its shell was killed. Guardians have sessions of their own."""
        for pid in self._all_of(host) if host.lives else ():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == host.lives[-1].process.pid:
                    os.kill(pid, signal.SIGKILL)

    def stop(self, seconds: float = 30.0) -> list[str]:
        """End all hosts; return a line for each of their processes that is left behind."""
        with self._lock:
            for host in self.all.values():
                host.is_done = True
                process = host.process
                if isinstance(process, MasterProcess):
                    process.stop()
                elif process is not None:
                    process.close()
                    self._end_rest(host)
        deadline = time.monotonic() + seconds
        while (left := marked(self._mark)) and time.monotonic() < deadline:
            time.sleep(0.05)  # No event reports the end of another process's child.
        lines = command_lines(left)
        return [f"process {pid} is left: {lines.get(pid, '?')}" for pid in left]

    def close(self) -> None:
        """Kill what is left of the run. Idempotent."""
        for host in self.all.values():
            host.is_done = True
        end(self._mark)
        for host in self.all.values():
            for process in host.lives:
                if host.is_driver:
                    process.close()
        self._stack.close()

    def last_words(self) -> list[Any]:
        """Return what the threads of masters broke with."""
        return [
            f"a thread of {process.name} broke: {said}"
            for host in self._hosts()
            for process in host.lives
            if isinstance(process, MasterProcess)
            and "Exception in thread" in (said := process.errors())
        ]


def _started(host: Host) -> list[int]:
    return [host.process.process.pid] if host.process is not None else []
