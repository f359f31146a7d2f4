"""The command line of jrs: every refusal is one line and exit code 2."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from jrs.cli.commands import COMMANDS, SECTIONS
from jrs.cli.common import (
    EXIT_REFUSED,
    EXIT_UNREAD,
    ClusterRef,
    Suggesting,
    echo,
    failed_with,
    may_have_changed,
)
from jrs.cli.toml_file import from_file
from jrs.contract.errors import JrsError
from jrs.contract.runtime import MORE_THREADS


class _Unread(Exception):
    """Who reads what is printed has closed the pipe. click itself would end the program by 1, which
    says that a job did not finish."""


@contextmanager
def _read_or_unread() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        if any(map(_is_unread, (sys.stdout, sys.stderr))):
            raise _Unread from error
        # Another pipe, or a connection. click would take it for the output by its number.
        raise OSError(str(error)) from error


def _is_unread(stream: TextIO) -> bool:
    """Return whether nobody can read what is written there any more."""
    try:
        polled = select.poll()
        polled.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in polled.poll(0))
    except (OSError, ValueError):  # It has no descriptor, or is closed.
        return False


class _Lazy(Suggesting):
    """A group that imports only the module of the called command, to keep `jrs master` small."""

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        with _read_or_unread():  # It prints the help.
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _read_or_unread():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(
            import_module(f"jrs.cli.{COMMANDS[cmd_name].module}"),
            f"{cmd_name.replace('-', '_')}_command",
        )
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for; import none of them."""
        widest = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), one.summary) for name, one in commands.items()]
                )


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 the job did not finish, or fsck, the demo or doctor found a "
    "problem; "
    "2 refused, nothing was changed (stderr says why), or fsck found damage (stdout names it); "
    "3 timed out; "
    "4 failed after a change, or it is unknown whether something was changed: check before you "
    "repeat the command; 130 interrupted; 141 the reader of the output has closed it, and nothing "
    "was changed.",
)
@click.version_option(package_name="jrs")
@click.option(
    "--backend",
    metavar="URL",
    envvar="JRS_BACKEND",
    show_envvar=True,
    default=from_file("backend"),
    help="The backend that stores the cluster's records.",
)
@click.option("--cluster", metavar="ID", envvar="JRS_CLUSTER", show_envvar=True,
              default=from_file("cluster", "default"),
              help="The cluster: its masters and their jobs.  [default: default]")  # fmt: skip
@click.pass_context
def cli(ctx: click.Context, backend: str | None, cluster: str) -> None:
    """Durable job results and failover for PySpark drivers.

    \b
    Try it:              jrs demo  (needs Java 17, and pip install 'jrs[demo]')
    Start a master:      jrs --backend file:///var/lib/jrs master
    Submit a job:        jrs --backend file:///var/lib/jrs submit nightly-1 etl.jobs:nightly
    Wait for its result: jrs --backend file:///var/lib/jrs wait nightly-1
    """
    ctx.obj = ClusterRef(backend, cluster)


_NO_THREAD = "can't start new thread"
"""Python's error, which has no type of its own, where memory or processes are limited."""
_OF_THE_SYSTEM: dict[type[Exception], str] = {
    MemoryError: "out of memory: raise the limit (ulimit -v) or lower --limit",
    RuntimeError: f"no thread can be started: {MORE_THREADS}",
}


def _replace_closed_streams() -> None:
    """Open streams that the caller has closed: Python has None in their place, and the next file
    that is opened would get their number, with all that a library prints there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode)  # noqa: SIM115 - open until the process ends
            os.set_inheritable(stream.fileno(), True)  # Else a child would lack it again.
            setattr(sys, name, stream)


def main() -> NoReturn:
    """Run the command line; the entry point of ``jrs``."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # The terminal's encoding may lack characters.
            stream.reconfigure(errors="backslashreplace")
    may_have_changed.clear()
    try:
        status = cli.main(prog_name="jrs", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = EXIT_REFUSED
    except click.ClickException as error:
        usage = getattr(error, "ctx", None)
        where = f" (see {usage.command_path} --help)" if usage else ""
        _say(f"{error.format_message()}{where}")
        status = EXIT_REFUSED
    except click.Abort:
        _say("interrupted")
        status = 130
    except _Unread as error:
        # What is left in the buffer would fail once more at the end, with an exit code of its own.
        for stream in filter(_is_unread, (sys.stdout, sys.stderr)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        status = failed_with(error)
        status = EXIT_UNREAD if status == EXIT_REFUSED else status
    except (JrsError, MemoryError, RuntimeError, OSError) as error:
        if isinstance(error, RuntimeError) and str(error) != _NO_THREAD:
            raise
        _say(_OF_THE_SYSTEM.get(type(error), str(error)))
        status = failed_with(error)
    sys.exit(status if isinstance(status, int) else 0)


def _say(text: str) -> None:
    with suppress(OSError):  # If stderr is full as well, the exit code has to do.
        echo(f"jrs: {' '.join(text.split())}", err=True)
