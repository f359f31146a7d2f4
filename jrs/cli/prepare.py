"""``jrs prepare``: what makes Spark start quicker on this host."""

from __future__ import annotations

import click

from jrs.cli.common import echo
from jrs.recovery.spark import class_data


@click.command("prepare")
def prepare_command() -> None:
    """Make Spark start quicker here: after a failover, most of the time is the start of its JVM.

    Makes the archive of Spark's classes that all jobs of this user and Python share, if there is
    none yet: about a minute, some 190 MB in ~/.cache/jrs, or in the folder that JRS_CLASS_DATA
    names. Masters make it by themselves when the host is idle; this is for who does not want to
    wait, and for building images.

    \b
    Example:  jrs prepare
    """
    echo(str(class_data.make()))
