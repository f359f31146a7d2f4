"""What ``jrs --help`` prints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click

from jrs.cli import cli
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


def test_every_timeout_is_a_duration() -> None:
    """``5m`` and the plain seconds of 0.1 are accepted by each command that waits."""
    found = [
        (name, option)
        for name, command in commands(cli)
        for option in command.params
        if option.name == "timeout"
    ]

    assert {"jrs retry", "jrs suspend", "jrs switchover", "jrs wait"} <= {name for name, _ in found}
    for name, option in found:
        assert option.type.convert("5m", option, None) == 300.0, name
        assert option.type.convert("90", option, None) == 90.0, name


def test_a_reason_has_one_name() -> None:
    """``--reason`` of 0.1 is accepted, and no help shows it."""
    for name in ("cancel", "drain", "pause", "suspend", "switchover"):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        with click.Context(command) as context:
            assert "--because TEXT" in command.get_help(context)
            assert "--reason" not in command.get_help(context)
        assert {"--because", "--reason"} <= {opt for one in command.params for opt in one.opts}


def commands(group: click.Group, name: str = "jrs") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something itself, with its whole name."""
    with click.Context(group) as context:
        for part in group.list_commands(context):
            command = group.get_command(context, part)
            assert command is not None
            if isinstance(command, click.Group):
                yield from commands(command, f"{name} {part}")
            else:
                yield f"{name} {part}", command
