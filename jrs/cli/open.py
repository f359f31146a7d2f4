"""``jrs open``: a one-time link to the page of a server."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import echo
from jrs.sidecar.opening import link


@click.command("open")
@click.argument("url", default="http://127.0.0.1:8080", metavar="[URL]")
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), required=True,
              metavar="FILE",
              help="The link has the role of the first token in this file.")  # fmt: skip
@click.option("--tls-ca", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="The CA of the server's certificate.  [default: the system's]")  # fmt: skip
def open_command(url: str, token_file: Path, tls_ca: Path | None) -> int:
    """Print a link that logs one browser in to the page of jrs serve. It works once, for a minute.

    \b
    Example:  jrs open http://127.0.0.1:8080 --token-file /etc/jrs/tokens
    """
    echo(link(url, token_file, tls_ca))
    return 0
