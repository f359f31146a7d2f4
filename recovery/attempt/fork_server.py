"""The fork server: starts watchdogs by fork, so that no attempt waits for Python to load modules.

Its master starts it as a process of its own, with one thread, which has loaded all that a watchdog
and an attempt need, but nothing of a user. Over its standard input it is asked for watchdogs; each
is a child of this process, and forks its attempt. It ends with its master.

A forked process is like one that was started: the same environment, folder and paths, its own mark
in /proc from its first moment on, and no module of the user. What cannot be changed after
the start is not forked: an attempt with an interpreter or variables of its own (see
`attempt_process`). The random seed of ``hash()`` is that of the fork server, for all its attempts.

    python -m jrs.recovery.attempt.fork_server PROGRAM SCHEMES ROOM < socket
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
from contextlib import suppress

from jrs.store.backend_schemes import opener_of

from ..processes import marks
from ..processes.shown_by_proc import Shown
from . import watchdog
from .launch_socket import Kind, LaunchSocket, Message, read

MODULE = "jrs.recovery.attempt.fork_server"
ROOM = {marks.MARK: 64, marks.OLD_MARK: 1024}
"""Bytes of the longest value that each variable of a watchdog and its attempt may have."""
_NO_MARK = "-"
"""No attempt has this mark."""


def main() -> None:
    """Fork watchdogs until the master has died, or closes the socket."""
    _, program, schemes, _ = sys.argv
    importlib.import_module(program)
    for scheme in schemes.split(":"):
        opener_of(f"{scheme}:")
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("a module has started a thread, which a forked process would not have")
    shown = Shown(*ROOM)
    shown.arguments([sys.executable, "-m", MODULE, program, schemes])  # Without the room.
    for name in ROOM:
        shown.variable(name, _NO_MARK)
        del os.environ[name]
    master = LaunchSocket.inherited()
    signal.signal(signal.SIGCHLD, _reap)
    gc.collect()
    gc.freeze()  # The pages of what is loaded stay shared.
    while (request := master.receive()) is not None:
        forked = _fork(program, request, shown)
        request.close()
        master.send(Kind.STARTED, *forked)
        for descriptor in forked:
            os.close(descriptor)


def _fork(program: str, request: Message, shown: Shown) -> list[int]:
    """Return a descriptor of the new process; nothing if the system has no room for it."""
    line, socket, word = request.descriptors
    mark, old_mark = json.loads(read(line))
    # It is born with its mark: a scan of /proc finds it as soon as it exists.
    shown.variable(marks.MARK, mark)
    # It must not be reaped before it has a descriptor.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        pid = os.fork()
        if pid == 0:
            os.environ[marks.MARK] = mark
            _become_watchdog(program, old_mark, socket, word, shown)
        return [os.pidfd_open(pid)]
    except OSError:
        return []
    finally:
        shown.variable(marks.MARK, _NO_MARK)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _become_watchdog(program: str, old_mark: str, socket: int, word: int, shown: Shown) -> None:
    """Run the watchdog in this child; never returns."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.dup2(socket, 0)
        os.dup2(word, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        shown.arguments([sys.executable, "-m", watchdog.MODULE, program, old_mark])
        watchdog.watch(program, old_mark, shown)
        status = 0
    finally:
        os._exit(status)


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
