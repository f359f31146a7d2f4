"""Runs programs in processes that start in milliseconds: forks of one that has imported jrs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Self

_PARENT = """
import json, os, sys
import jrs.backends.file, jrs.contract.errors, jrs.contract.operations

for line in sys.stdin:
    program, *arguments = json.loads(line)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 1)
        os.closerange(3, 64)
        sys.argv[1:] = arguments
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as output:
        printed = output.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, printed]), flush=True)
"""


class Forks:
    """Runs programs as `python -c PROGRAM ARGUMENT…` would, one after the other."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, program: str, *arguments: object) -> tuple[int, list[str]]:
        """Return the exit status, minus the signal's number where one ended it, and the output."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps([program, *map(str, arguments)]) + "\n")
        self._parent.stdin.flush()
        status, printed = json.loads(self._parent.stdout.readline())
        return status, printed.splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._parent.communicate()
