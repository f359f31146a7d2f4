"""``jrs demo``: the story, with real input and real kills."""

from __future__ import annotations

import click

from jrs.cli.common import Place, with_place


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the folder with all data and logs.")
@with_place
def demo_command(place: Place, keep: bool) -> int:
    """Run a PySpark pipeline on three masters, kill the leader twice, and compare the results.

    The data are the flights of New York's airports in 2013. Exits 0 only if every result equals
    that of the same pipeline run once without any kill. Needs Java 17 and jrs[demo].

    \b
    Examples:
    jrs demo                        on a folder of its own
    jrs demo --backend etcd         on an etcd that it starts and ends; zookeeper likewise
    jrs demo --backend etcd://…     on what is there
    """
    from jrs.demo import run

    return run(place.backend, keep=keep)
