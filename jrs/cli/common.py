"""Shared parts of the commands: the cluster's address, common options, and printing."""

from __future__ import annotations

import functools
import json
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import click
from click.core import ParameterSource

import jrs
from jrs.cli.toml_file import from_file, path_of_settings
from jrs.contract import texts
from jrs.contract.errors import InvalidInput, OutcomeUnknown
from jrs.contract.storage_place import checked
from jrs.contract.texts import did_you_mean, printable, shown
from jrs.host.credentials import SPEC_KEY_FILE
from jrs.host.filesystems import STORAGE
from jrs.records.codec import to_plain
from jrs.records.signing import SpecKey

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EXIT_DIFFERS = 1
EXIT_REFUSED = 2
EXIT_TIMEOUT = 3
EXIT_CHANGED = 4
EXIT_UNREAD = 141
"""As a shell shows it of a program that a closed pipe has ended."""
DEFAULT_TTL = 15.0
"""Of masters, in seconds."""


@attrs.define
class ClusterRef:
    """The backend and the cluster that a command works on."""

    backend: str | None
    cluster: str

    @property
    def url(self) -> str:
        if self.backend is None:
            raise InvalidInput(
                "no backend: give --backend URL, as file:///var/lib/jrs, or set JRS_BACKEND; "
                "or let JRS_CONFIG name the jrs.toml of the masters"
            )
        if not self.backend:
            raise InvalidInput("--backend is empty; give a URL, as file:///var/lib/jrs")
        if self.backend.startswith("memory:"):
            raise InvalidInput(
                "memory:// ends with its process; give a backend that outlives this command, for "
                "example file:///var/lib/jrs"
            )
        return self.backend


class Suggesting(click.Group):
    """A group that answers a mistyped command with similar ones, as click does for options."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
            near = did_you_mean(name, self.list_commands(ctx))
            ctx.fail(f"there is no command {shown(name)}{near}")
        return super().resolve_command(ctx, args)


def with_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept ``--backend`` and ``--cluster`` after the command's name, too."""

    @click.option("--backend", metavar="URL", help="The cluster's backend [env: JRS_BACKEND].")
    @click.option("--cluster", metavar="ID", help="The cluster: its masters and their jobs.")
    @functools.wraps(command)
    def wrapper(*args: Any, backend: str | None, cluster: str | None, **options: Any) -> Any:
        ctx = click.get_current_context()
        above = ctx.obj if isinstance(ctx.obj, ClusterRef) else ClusterRef(None, "default")
        ref = ClusterRef(
            above.backend if backend is None else backend,
            above.cluster if cluster is None else cluster,
        )
        with jrs.because(request=_command(ctx)):
            return command(ref, *args, **options)

    return wrapper


def _command(ctx: click.Context) -> str:
    """Return the command as the history has it: with the names of its options, and without their
    values, which may be secret."""
    given = [
        max(option.opts, key=len)
        for option in ctx.command.params
        if isinstance(option, click.Option)
        and ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    ]
    return " ".join([ctx.command_path, *given])


def because_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept ``--because``: the history shows it behind what the command does."""

    @click.option(
        "--because", metavar="TEXT", default="", help="The reason, which the history shows."
    )
    @functools.wraps(command)
    def wrapper(*args: Any, because: str, **options: Any) -> Any:
        with jrs.because(because):
            return command(*args, **options)

    return wrapper


def reason_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept ``--because`` for what stores its reason, and ``--reason``, its former name."""

    @click.option("--because", "reason", metavar="TEXT", default="",
                  help="The reason, which the request stores and the history shows.")  # fmt: skip
    @click.option("--reason", "former_reason", default="", hidden=True)
    @functools.wraps(command)
    def wrapper(*args: Any, reason: str, former_reason: str, **options: Any) -> Any:
        return command(*args, reason=reason or former_reason, **options)

    return wrapper


def import_from_here() -> None:
    """Have modules found in the working folder, as with ``python -m``: a console script does not
    look there."""
    sys.path.insert(0, "")


def _read_keys(
    ctx: click.Context, option: click.Parameter, paths: tuple[Path, ...]
) -> tuple[SpecKey, ...]:
    return tuple(map(SpecKey.read, paths))


def _read_signing_key(
    ctx: click.Context, option: click.Parameter, paths: tuple[Path, ...]
) -> SpecKey | None:
    return next(iter(_read_keys(ctx, option, paths[:1])), None)


def _spec_key_option(
    name: str, read: Callable[..., Any], several: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    # All commands take several: masters and submitters may share the variable.
    return click.option(
        "--spec-key",
        name,
        type=click.Path(path_type=Path),
        multiple=True,
        envvar=SPEC_KEY_FILE,
        show_envvar=True,
        callback=read,
        help=f"The file with the key that signs job specs. Repeatable, while the key is changed: "
        f"{several}.",
    )


spec_keys_option = _spec_key_option("spec_keys", _read_keys, "each of the keys counts")
spec_key_option = _spec_key_option("spec_key", _read_signing_key, "the first one signs")


class StorageType(click.Path):
    """A folder, as a path; or the URL of objects, as a text.

    Args:
        exists: whether the folder has to exist.
    """

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=False, exists=exists)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if "://" not in str(value):
            return super().convert(value, param, ctx)
        named = checked(value)
        return named if isinstance(named, str) else super().convert(named, param, ctx)

    def fail(self, message: str, param: Any = None, ctx: Any = None) -> NoReturn:
        """Say where the value comes from: click names the environment variable in any case."""
        said_by = ParameterSource.COMMANDLINE
        if ctx and param:
            said_by = ctx.get_parameter_source(param.name) or said_by
        where = {
            ParameterSource.ENVIRONMENT: f"the environment variable {STORAGE}",
            ParameterSource.DEFAULT: f"'storage' in {path_of_settings()}",
        }
        raise click.BadParameter(message, ctx, param, where.get(said_by, "'--storage'"))


def _storage_option(*, exists: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--storage",
        type=StorageType(exists=exists),
        metavar="FOLDER|URL",
        envvar=STORAGE,
        show_envvar=True,
        default=from_file("storage"),
        help="Where jobs keep their files; the same as for the masters.",
    )


storage_option = _storage_option(exists=True)
storage_name_option = _storage_option(exists=False)
"""For commands that only name the storage."""

no_wait_option = click.option(
    "--no-wait", is_flag=True, help="Store the request and return at once."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def echo(text: str, *, err: bool = False) -> None:
    """Print one line for people, with control characters escaped; see `printable`."""
    click.echo(printable(text), err=err)


may_have_changed = threading.Event()
"""Set once the command may have changed something durably: if it fails then, that is no refusal."""


def note_commit(error: BaseException | None) -> None:
    """Note that a commit has ended, with that error or done."""
    if error is None or isinstance(error, OutcomeUnknown):
        may_have_changed.set()


def failed_with(error: Exception) -> int:
    """Return the exit code of a command that ends by the error."""
    refused = not may_have_changed.is_set() and not isinstance(error, OutcomeUnknown)
    return EXIT_REFUSED if refused else EXIT_CHANGED


def echo_json(value: Any, *, indent: int | None = 2, err: bool = False) -> None:
    """Print plain JSON, a stored value or a list of stored values, as JSON in ASCII."""
    text = json.dumps(to_plain(value), indent=indent)
    # The only control character JSON leaves as it is.
    click.echo(text.replace("\x7f", "\\u007f"), err=err)


def when(stamp: float) -> str:
    """Return a timestamp for people, in UTC."""
    return texts.when(stamp).removesuffix(" UTC") if stamp else "-"


def shortened(text: str, longest: int) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def took(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; as wide as necessary if stdout is not a terminal.

    On a terminal, long cells are folded, but for the first ones: they are names that the next
    command needs. If it is too narrow for a table, each row is printed as a few lines: its name,
    and below that what is known, each cell with the name of its column.
    """
    # Every command imports this module, and most draw no table.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    rows = [[printable(cell) for cell in row] for row in rows]
    console = Console(soft_wrap=False)
    whole = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if not console.is_terminal:
        console = Console(width=max(120, _width(whole)))
    elif console.width < _width([whole[0], *(min(width, _READABLE) for width in whole[1:])]):
        for row in rows:
            click.echo("\n".join(_as_lines(columns, row, console.width)))
        return
    names = [Column(name, overflow="fold") for name in columns]
    names[0].no_wrap = True
    drawn = Table(*names, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    print_drawn(console, drawn)


def print_drawn(console: Console, drawn: RenderableType) -> None:
    """Print what rich draws. rich itself would end the program, by 1, at a closed pipe."""
    with console.capture() as text:
        console.print(drawn)
    click.echo(text.get(), nl=False)


_FURTHER = " " * 10
"""In front of a further line of a cell, so far that it looks like no line of its own."""


def _as_lines(columns: list[str], row: list[str], width: int) -> Iterator[str]:
    """Yield a row as lines of at most that width, but for what is one word."""
    cells = dict(zip(columns[1:], row[1:], strict=True))
    note = cells.pop("", "")
    known = [f"{name.lower()}: {cell}" for name, cell in cells.items() if cell not in ("", "-")]
    yield row[0]
    for text in ("; ".join(known), note):
        yield from textwrap.wrap(
            text, width, initial_indent="  ", subsequent_indent=_FURTHER,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


_READABLE = 6
"""Characters of a column, below which nobody can read its cells."""


def _width(widths: list[int]) -> int:
    """Return how wide a table of such columns is."""
    return 2 + sum(3 + width for width in widths)
