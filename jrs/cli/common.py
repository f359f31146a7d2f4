"""Shared parts of the commands: the cluster's address, common options, and printing."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import click

from jrs.contract.credentials import SPEC_KEY_FILE
from jrs.contract.errors import InvalidInput
from jrs.contract.texts import printable
from jrs.records.codec import to_plain
from jrs.records.signing import SpecKey

EXIT_DIFFERS = 1
EXIT_REFUSED = 2
EXIT_TIMEOUT = 3


@attrs.define
class ClusterRef:
    """The backend and the cluster that a command works on."""

    backend: str | None
    cluster: str

    @property
    def url(self) -> str:
        if not self.backend:
            raise InvalidInput("no backend: give --backend file:///var/lib/jrs or set JRS_BACKEND")
        if self.backend.startswith("memory:"):
            raise InvalidInput(
                "memory:// ends with its process; give a backend that outlives this command, for "
                "example file:///var/lib/jrs"
            )
        return self.backend


def with_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Accept ``--backend`` and ``--cluster`` after the command's name, too."""

    @click.option("--backend", metavar="URL", help="The cluster's backend [env: JRS_BACKEND].")
    @click.option("--cluster", metavar="ID", help="The cluster: its masters and their jobs.")
    @functools.wraps(command)
    def wrapper(*args: Any, backend: str | None, cluster: str | None, **options: Any) -> Any:
        ctx = click.get_current_context()
        above = ctx.obj if isinstance(ctx.obj, ClusterRef) else ClusterRef(None, "default")
        place = ClusterRef(backend or above.backend, cluster or above.cluster)
        return command(place, *args, **options)

    return wrapper


def _read_key(ctx: click.Context, option: click.Parameter, path: Path | None) -> SpecKey | None:
    return None if path is None else SpecKey.read(path)


spec_key_option = click.option(
    "--spec-key",
    type=click.Path(path_type=Path),
    envvar=SPEC_KEY_FILE,
    show_envvar=True,
    callback=_read_key,
    help="The file with the key that signs job specs.",
)

storage_option = click.option(
    "--storage",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where jobs keep their files; the same as for the masters.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def echo(text: str, *, err: bool = False) -> None:
    """Print one line for people, with control characters escaped; see `printable`."""
    click.echo(printable(text), err=err)


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    """Print plain JSON, a stored value or a list of stored values, as JSON in ASCII."""
    text = json.dumps(to_plain(value), indent=indent)
    click.echo(text.replace("\x7f", "\\u007f"))  # The only control character JSON leaves as it is.


def when(stamp: float) -> str:
    """Return a timestamp for people, in UTC."""
    if not stamp:
        return "-"
    try:
        return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{stamp:g} s"  # Not a valid date: the clock was wrong.


def took(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table, each cell in one line; as wide as necessary if stdout is not a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [[printable(cell) for cell in row] for row in rows]
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=max(120, 2 + sum(2 + max(map(len, column)) for column in
                                                 zip(columns, *rows, strict=True))))  # fmt: skip
    drawn = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console.print(drawn)
