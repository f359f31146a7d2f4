"""Modules that a prepared process imports before it has an attempt.

Their files may be replaced between the import and the attempt, which has to run the code that is
there when it starts. A module cannot be taken back, so the process then begins again as a new
program, which keeps its number: its watchdog notices nothing.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import error_text, shown

from .launch_socket import LaunchSocket, Message

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

Files = dict[str, tuple[int, int, int]]
"""What identifies the contents of each file."""


def check(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names; raise `InvalidInput` for one that no module can have."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInput(f"preload must be a list of names of modules, not {shown(names)}")
    found = tuple(names)
    for name in found:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{shown(name)} is no name of a module to preload: name it as an import does, "
                "such as etl.jobs"
            )
    return found


def load(names: Sequence[str]) -> Files:
    """Import modules; return the files of all modules that were imported by that.

    Raises:
        SystemExit: a module cannot be imported; the text says which one and why.
    """
    before = set(sys.modules)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            sys.exit(f"jrs: the module {name} cannot be preloaded: {error_text(error)}")
    loaded = [sys.modules.get(name) for name in set(sys.modules) - before]
    paths = {getattr(module, "__file__", None) for module in loaded}
    return {path: found for path in paths if path and (found := _state_of(path)) is not None}


def changed(files: Files) -> str:
    """Return a file that is not what it was when it was imported; an empty text if none is."""
    return next((path for path, found in files.items() if _state_of(path) != found), "")


def begin_again(message: Message, pipe: int) -> NoReturn:
    """Become a new program that receives the launch as its first message.

    Args:
        pipe: the descriptor that the program needs besides.
    """
    os.set_inheritable(pipe, True)
    sending, receiving = LaunchSocket.pair()
    sending.send(message.kind, *message.descriptors)
    os.dup2(receiving.fileno(), 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
