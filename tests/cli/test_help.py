"""What ``jrs --help`` prints."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import click

from jrs.cli import cli
from jrs.cli.commands import COMMANDS, SECTIONS
from jrs.cli.durations import Duration

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


def test_every_default_can_be_read() -> None:
    """Durations have a unit, and no help shows a default in brackets, or how it is found."""
    for name, command in commands(cli):
        with click.Context(command, terminal_width=1000) as context:
            shown = re.findall(r"\[default: ([^]]*)\]", command.get_help(context))
            assert [text for text in shown if text.startswith("(")] == [], name
            for option in command.params:
                if isinstance(option.type, Duration) and getattr(option, "show_default", None):
                    assert re.fullmatch("[0-9]+[smhd]", str(option.default)), (name, option.opts)
    assert "[default: 0]" in help_of("master", "--warm")
    assert "[default: 15s]" in help_of("master", "--ttl")
    assert "[default: 15s]" in help_of("doctor", "--ttl")


def test_no_summary_is_cut() -> None:
    """Each group lists its commands with the whole first sentence of each."""
    for name in ("snapshot", "chaos"):
        group = cli.get_command(click.Context(cli), name)
        assert group is not None
        with click.Context(group, terminal_width=80) as context:
            assert "..." not in group.get_help(context).partition("Commands:")[2], name


def test_every_command_has_an_example() -> None:
    """It is not the line to which click adds that the command is deprecated."""
    for name, command in commands(cli):
        with click.Context(command, terminal_width=1000) as context:
            examples = re.findall("^ *Examples?:(.*)", command.get_help(context), re.MULTILINE)
        assert len(examples) == 1, name
        assert "DEPRECATED" not in examples[0], name


def test_two_limits_of_submit_are_told_apart() -> None:
    """What ends the job, and what a caller waits for."""
    assert "Not how long --wait waits." in help_of("submit", "--timeout")
    assert "jrs wait --timeout" in help_of("submit", "--wait")


def test_an_exit_code_with_two_meanings_says_so() -> None:
    """2 is damage, and any refusal: a pager must be able to tell one from the other."""
    for name in (["fsck"], ["snapshot", "verify"]):
        text = " ".join(whole_help(*name).split())
        assert re.search(r"2: (it is )?damaged?.*could not be checked.*stderr says", text), name


def test_a_reason_has_one_name() -> None:
    """``--reason`` of 0.1 is accepted, and no help shows it."""
    for name in ("cancel", "drain", "pause", "suspend", "switchover"):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        with click.Context(command) as context:
            assert "--because TEXT" in command.get_help(context)
            assert "--reason" not in command.get_help(context)
        assert {"--because", "--reason"} <= {opt for one in command.params for opt in one.opts}


def whole_help(*names: str) -> str:
    """Return the help of a command, each text of an option in one line."""
    command: click.Command = cli
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    with click.Context(command, terminal_width=1000) as context:
        return command.get_help(context)


def help_of(command: str, option: str) -> str:
    """Return what the help of a command says of an option."""
    (line,) = (
        line for line in whole_help(command).splitlines() if re.match(rf" *{option}\b[^,-]* ", line)
    )
    return line


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
