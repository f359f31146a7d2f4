"""Processes that go ways into a scenario, and fork where others may want to continue later.

A simulator is a process that stands at some point of a scenario. It takes the steps that it is told
and says what has come of each. It can be split: the new one stays where it is, for later, and costs
some megabytes. Nothing has to be put back by hand but files, which all of them share.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from jrs.testing.chaos.checking.verdict import Violation
from jrs.testing.simulation.exploration import Exploration
from jrs.testing.simulation.explored import Use
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.job_files import Saved

_ROOT = "files"
_LARGEST = 1 << 20
"""Bytes of what a simulator says, at most."""


@attrs.frozen
class Option:
    """A choice, as its simulator tells it; see `Choice`."""

    says: str
    owner: str | None
    is_request: bool
    is_hidden: bool
    state: int | None


@attrs.frozen
class Situation:
    """Where a simulator stands.

    Attributes:
        violations: what is wrong; the rest says nothing then, but for the story.
        options: what can come next, in an order that depends on the state alone.
        used: by the last step.
        passed: time has passed behind the last step.
    """

    violations: tuple[str, ...]
    story: tuple[str, ...]
    state: int
    is_over: bool
    options: tuple[Option, ...]
    used: frozenset[Use]
    passed: bool


class Simulator:
    """A simulator as the one sees it who tells it where to go."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def go(self, way: Sequence[int]) -> Situation:
        """Let it take steps, by the numbers of their choices; return where it is then.

        Raises:
            RuntimeError: it broke.
        """
        self._channel.send(json.dumps(("go", list(way))).encode())
        told = self._channel.recv(_LARGEST)
        if not told:
            raise RuntimeError("a simulator broke; its last words are above")
        violations, story, state, is_over, options, used, passed = json.loads(told)
        return Situation(
            tuple(violations),
            tuple(story),
            state,
            is_over,
            tuple(Option(*option) for option in options),
            frozenset((how, what) for how, what in used),
            passed,
        )

    def split(self) -> Simulator:
        """Return another one that stays where this one is."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            socket.send_fds(self._channel, [json.dumps(("split", [])).encode()], [there.fileno()])
        if not self._channel.recv(1):
            raise RuntimeError("a simulator broke; its last words are above")
        return Simulator(here)

    def end(self) -> None:
        self._channel.close()


def start(scenario: Scenario, folder: Path) -> Simulator:
    """Return a simulator at the beginning of a scenario.

    Args:
        folder: a new folder, for the files of all simulators that it is split into.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if fork():
        there.close()
        return Simulator(here)
    here.close()
    try:
        with begun(scenario, folder) as run:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for those split off.
            _Served(run, there).serve()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


class _Served:
    """A simulator in its process."""

    def __init__(self, run: Exploration, channel: socket.socket) -> None:
        self._run = run
        self._channel = channel
        self._saved: Saved | None = None
        """The files as they were when it was split off."""
        self._run.settle()

    def serve(self) -> None:
        """Do what it is told until nobody tells it anything any more."""
        while True:
            told, fds, _, _ = socket.recv_fds(self._channel, _LARGEST, 1)
            if not told:
                return
            command, way = json.loads(told)
            if command == "go":
                self._go(way)
            else:
                self._split(fds[0])

    def _go(self, way: list[int]) -> None:
        if self._saved is not None:
            self._run.files.restore(self._saved)
            self._saved = None
        run, violations, now = self._run, [], 0.0
        for number in way:
            now = run.scheduler.now
            run.scheduler.steps += 1
            run.scheduler.used.clear()
            choice = list(run.choices())[number]
            if not choice.is_read:
                run.say(choice.says)
            choice.take()
            violations = run.settle()
        self._tell(violations, passed=run.scheduler.now > now)

    def _tell(self, violations: list[Violation], *, passed: bool) -> None:
        run = self._run
        options = [] if violations else [
            Option(one.says, one.owner, one.is_request, one.is_hidden, one.state and one.state())
            for one in run.choices()
        ]  # fmt: skip
        story = tuple(run.setting.story) if violations else ()
        told = (list(map(str, violations)), story, run.state(), run.is_over(),
                list(map(attrs.astuple, options)), sorted(run.scheduler.used), passed)  # fmt: skip
        self._channel.send(json.dumps(told).encode())

    def _split(self, fd: int) -> None:
        # Others change the files until one of the two continues.
        if self._saved is None:
            self._saved = self._run.files.save()
        if fork():
            os.close(fd)
            self._channel.send(b"x")
            return
        self._channel.close()
        self._channel = socket.socket(fileno=fd)


def fork() -> int:
    """Fork, without what Python does to the locks and threads of a child: they are simulated."""
    return int(_LIBC.fork())


_LIBC = ctypes.PyDLL(None)


@contextmanager
def begun(scenario: Scenario, folder: Path) -> Iterator[Exploration]:
    """Begin a run in a new folder, which becomes the one that this process works in.

    Only for a process that does nothing else: what it replaces stays replaced.
    """
    (folder / _ROOT).mkdir(parents=True)
    os.chdir(folder)
    _warm_up(scenario)
    run = Exploration(scenario, Path(_ROOT))
    with run.entered(run.scheduler.random_bits, run.new_space):
        run.files.watch()
        run.begin()
        gc.collect()
        gc.freeze()
        gc.disable()
        yield run


def _warm_up(scenario: Scenario) -> None:
    """Go one way to the end, so that what Python makes at the first use is made once."""
    run = Exploration(scenario, Path(_ROOT))
    with run.entered(run.scheduler.random_bits, run.new_space):
        run.begin()
        while not run.settle() and not run.is_over():
            next(run.choices()).take()
    run.files.restore([])
