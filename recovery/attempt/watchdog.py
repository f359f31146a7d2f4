"""The watchdog: a tiny program that ties the lifetime of one attempt to its master's.

Its standard input is a socket whose other end only the master holds. From there it takes the launch
and starts the attempt (see `attempt_process`). If a plan comes before the launch, the attempt's
process is started at once, and prepares itself by the plan until the launch comes.

Then it waits for four things: the attempt's end, the end of the socket, the end of the leadership,
and the time limit of a stage. The kernel closes the socket however the master dies. The launch
brings the descriptor of the moment at which the leadership is over (see `Lifeline`): a master that
is stopped, or cut off, no longer moves that moment. The watchdog imports nothing that could block
it: a job's Python may be stopped, or stuck in C code, and still ends with its master.

It is the parent of every process that the attempt leaves behind: it reaps them, and ends only when
all of them have ended. If the watchdog itself is killed, the kernel kills the attempt. It shares
the lifeline's pipe with the attempt. What these processes print passes through it into the job's
logs, with the job's secrets masked. Its last word, on its standard output, reports how the attempt
ended.

    python -m jrs.recovery.attempt.watchdog PROGRAM [OLD_MARK] < socket > word

A fork server forks it instead.

Its master may be of another version of jrs: it then was started before this one was installed in
its place. If the two do not understand each other, the last word says that the attempt was refused.
A master of 0.1 passes more arguments, and a pipe in place of the socket. It knows no such word, and
counts what it does not know as a death: its attempt waits for the master's end, and runs nothing.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress

import attrs

from jrs.contract.clock import NAP, Deadline, lease_time
from jrs.contract.errors import Unavailable

from ..processes import marks, prctl
from ..processes.shown_by_proc import Shown
from . import scratch
from .attempt_process import AttemptProcess, Child
from .launch_socket import Kind, LaunchSocket, Message, NotUnderstood, read, understood
from .warm_wait import wait_for_launch

MODULE = "jrs.recovery.attempt.watchdog"

NO_PROCESS = 80
"""The status in the last word of a watchdog that could not start its attempt."""

_LEFT = 60.0
"""Seconds to wait for the processes that the attempt has left; they are killed repeatedly."""

_DRAINED = 5.0
"""Seconds to wait until the rest of the attempt's output is written: a disk may hang."""

_SAID = 1024
"""Characters of the end of its stderr that a last word has."""

_ROUND = 0.02
"""Seconds between two rounds of killing, if nothing has ended meanwhile."""


@attrs.frozen
class Word:
    """The last word of a watchdog. Versions of jrs understand each other's: the fields without a
    default stay for good, what is the default is not said, and what is unknown is ignored."""

    status: int
    """The attempt's exit code, or minus the signal's number."""
    clean: bool
    """Whether no process that the attempt had started is left."""
    lapsed: bool
    """Whether the watchdog ended it because the leadership was over."""
    timed_out: str = ""
    """Which stage the watchdog ended it for; empty if none ran longer than its limit."""
    launched: bool = True
    """Whether the attempt was passed its launch: one that was prepared may have ended before."""
    said: str = ""
    """The end of its stderr, if it was not; or why it has no process, if `status` is NO_PROCESS."""
    interrupted: bool = False
    """Whether the attempt said that a call of jrs's own had failed it."""
    refused: bool = False
    """Whether the watchdog or the attempt is of another version of jrs than its master, and does
    not understand it. The job's function was not called."""

    def to_line(self) -> bytes:
        told = attrs.asdict(self, filter=lambda field, value: value != field.default)
        return json.dumps(told).encode()

    @classmethod
    def from_line(cls, line: bytes) -> Word:
        known = {field.name for field in attrs.fields(cls)}
        return cls(**{name: value for name, value in json.loads(line).items() if name in known})


def main() -> None:
    """Watch over an attempt that is started by exec."""
    program, *old_mark = sys.argv[1:]
    if len(old_mark) > 1:
        sys.stdin.buffer.read()
        _speak(Word(NO_PROCESS, clean=True, lapsed=True))
    else:
        watch(program, "".join(old_mark))


def watch(program: str, old_mark: str = "", shown: Shown | None = None) -> None:
    """Start an attempt, and watch over it until it and all that it has started have ended.

    Args:
        program: the module that takes a `Launch` and runs the attempt.
        old_mark: the mark by which masters of earlier versions find the attempt.
        shown: what /proc shows of this process, if the attempt may be forked.
    """
    prctl.adopt_orphans()
    master = LaunchSocket.inherited()
    try:
        _watch_over(master, program, old_mark, shown)
    except NotUnderstood as error:
        # The kernel ends an attempt that was started; it waits for a launch.
        _speak(Word(NO_PROCESS, False, False, launched=False, said=str(error), refused=True))


def _watch_over(master: LaunchSocket, program: str, old_mark: str, shown: Shown | None) -> None:
    message = master.receive()
    if message is None:
        return  # The master died before it could pass a launch.
    ended, ended_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(ended_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with understood():
        given = json.loads(read(message.descriptors[0]))
        python, env = given["python"], given["env"]
    try:
        attempt = AttemptProcess(program, python, env, old_mark, shown)
    except OSError as error:
        # No descriptor, no memory, or too many processes: through no fault of the job.
        _speak(Word(NO_PROCESS, clean=True, lapsed=False, launched=False, said=str(error)))
        return
    launch: Message | None = message
    if message.kind is Kind.PLAN:
        attempt.socket.send(Kind.PLAN, *message.descriptors)
        message.close()
        launch = wait_for_launch(
            master, attempt.socket, ended, lambda: _reap(attempt.process) and _lives(attempt)
        )
    lapsed, timed_out = False, ""
    if launch is not None:
        until = attempt.launch(launch, json.loads(read(launch.descriptors[0])))
        lapsed, timed_out = _watch(attempt, master, until, ended)
    clean = _end(attempt.process, ended, Deadline.after(_LEFT))
    if clean:
        scratch.remove(os.environ[marks.MARK], {**os.environ, **env})
    attempt.pipe.read()
    attempt.pump.join(_DRAINED)  # Before the last word: the master then reads the end of the log.
    launched = launch is not None
    if launched and message.kind is Kind.PLAN:
        launched = attempt.had_read_launch()  # It may have died in the moment before.
    said = "" if launched else attempt.pump.kept(1).decode(errors="replace")[-_SAID:]
    status, pipe = attempt.process.returncode, attempt.pipe
    word = Word(status, clean, lapsed, timed_out, launched, said, pipe.interrupted, pipe.refused)
    _speak(word)


def _speak(word: Word) -> None:
    with suppress(BrokenPipeError):  # The master is dead.
        os.write(sys.stdout.fileno(), word.to_line())


def _lives(attempt: AttemptProcess) -> bool:
    return attempt.process.returncode is None


def _watch(
    attempt: AttemptProcess, master: LaunchSocket, until: int | None, ended: int
) -> tuple[bool, str]:
    """Wait until the attempt has ended, or has to; return whether its leadership is over, and which
    stage has run for too long."""
    pipe, socket = attempt.pipe, master.fileno()
    while _lives(attempt):
        left = _left(until)
        if left == 0:
            return True, ""  # Another master may start the job again from now on.
        waits = [] if left is None else [min(left, NAP)]
        pipe.read()
        if (first := pipe.first()) is not None:
            due, why = first
            if due <= time.monotonic():
                return False, why
            waits.append(due - time.monotonic())
        pipes = [pipe.descriptor] if pipe.is_open else []
        if socket in _wait([socket, *pipes, ended], max(0.0, min(waits)) if waits else None):
            return False, ""  # The master died, or wants the attempt to end.
        _reap(attempt.process)
    return False, ""


def _end(attempt: Child, ended: int, deadline: Deadline) -> bool:
    """Kill the attempt, then the processes that it left; return whether none is left."""
    while _reap(attempt):
        if attempt.returncode is None:
            os.kill(attempt.pid, signal.SIGKILL)
        elif deadline.expired:
            return False
        else:
            _kill_descendants()
        _wait([ended], _ROUND)
    return True


def _kill_descendants() -> None:
    with suppress(Unavailable):  # The host lacks resources: try again soon.
        for pid in marks.descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _reap(attempt: Child) -> bool:
    """Reap every child that has ended; return whether any is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == attempt.pid:
            attempt.returncode = os.waitstatus_to_exitcode(status)


def _wait(descriptors: list[int], seconds: float | None) -> list[int]:
    """Wait until one of the descriptors can be read; the last of them reports signals."""
    ready, _, _ = select.select(descriptors, [], [], seconds)
    if descriptors[-1] in ready:
        os.read(descriptors[-1], 512)
    return ready


def _left(until: int | None) -> float | None:
    """Return the seconds until the leadership is over, or None if that is not known here."""
    if until is None:
        return None
    (moment,) = struct.unpack("d", os.pread(until, 8, 0))
    return max(0.0, float(moment) - lease_time())


if __name__ == "__main__":
    main()
