"""Runs programs in processes that start in milliseconds: forks of one that has imported jrs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

# The fork leaves the loop and runs the program as the interpreter's own: it also ends as usual.
_PARENT = """
import importlib, json, os, sys

for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()

program, sys.argv, folder, environment, *paths = json.loads(line)
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
os.closerange(3, 64)
for to, path in enumerate((os.devnull, *paths)):
    opened = os.open(path, os.O_RDWR)
    os.dup2(opened, to)
    os.close(opened)
sys.path[0] = folder
exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
"""


class Forks:
    """Runs programs as `python -c PROGRAM ARGUMENT…` would, one after the other.

    Args:
        modules: what every program finds imported.
    """

    def __init__(self, *modules: str) -> None:
        self._files = tempfile.TemporaryDirectory()
        self._printed = [Path(self._files.name) / name for name in ("stdout", "stderr")]
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(
        self,
        program: str,
        *arguments: object,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a folder, with an environment: by default, those of this process."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        command = ["-c", *map(str, arguments)]
        for path in self._printed:
            path.write_bytes(b"")
        request = [program, command, str(folder or Path.cwd()), {**(environment or os.environ)}]
        json.dump([*request, *map(str, self._printed)], self._parent.stdin)
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        status = int(self._parent.stdout.readline())
        stdout, stderr = (path.read_text() for path in self._printed)
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._parent.communicate()
        self._files.cleanup()
