"""What ``jrs --help`` prints."""

from __future__ import annotations

import subprocess
import sys

from jrs.cli.commands import COMMANDS, SECTIONS

PROGRAM = """
import sys
from contextlib import suppress
from jrs.cli import cli
with suppress(SystemExit):
    cli(["--help"], prog_name="jrs")
print(*sorted(name for name in sys.modules if name.startswith("jrs.cli.")), file=sys.stderr)
"""


def test_the_help_lists_every_command() -> None:
    """Each is listed under what it is for, in one whole line, and no command is imported for it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()

    for title, commands in SECTIONS.items():
        begin = lines.index(f"{title}:") + 1
        listed = [line.split(maxsplit=1) for line in lines[begin : begin + len(commands)]]
        assert listed == [[name, one.summary] for name, one in commands.items()]
    loaded = set(done.stderr.split())
    assert loaded.isdisjoint(f"jrs.cli.{one.module}" for one in COMMANDS.values())
