"""How a helper process in Python is started: it imports the modules that this process would."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of jrs as a program.

    It does not search the working directory, which ``-m`` alone would search first: a ``queue.py``
    among a user's jobs would take the place of Python's own.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def search_path() -> str:
    """Return this process's import path as a value of ``PYTHONPATH``."""
    # What else a program has put into it, such as a `Path`, an import ignores, too.
    searched = [part for part in sys.path if isinstance(part, str) and part]
    # In an interactive session in a checkout, jrs is found through the working directory alone.
    return os.pathsep.join([*searched, str(Path(__file__).parents[2])])
