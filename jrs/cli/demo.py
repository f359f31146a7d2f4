"""``jrs demo``: the two stories, with real input and real kills."""

from __future__ import annotations

import click

from jrs.cli.common import ClusterRef, with_cluster
from jrs.contract.errors import InvalidInput


@click.command("demo")
@click.option("--streaming", is_flag=True, help="The demo of streams, in place of the pipeline.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="With --streaming: draw the same moments as the run that named it.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with all data and logs.")
@with_cluster
def demo_command(place: ClusterRef, streaming: bool, seed: int | None, keep: bool) -> int:
    """Run PySpark on three masters, kill leaders, and compare the results.

    The data are the flights of New York's airports in 2013. Needs Java 17 and jrs[demo].

    By default a pipeline of batch stages, whose leader is killed twice. Exits 0 only if every
    result equals that of the same pipeline run once without any kill.

    With --streaming three airports are replayed as bounded streams and joined with the weather, an
    unbounded one, for some three minutes. Leaders are killed at random; the job is suspended,
    resumed, rescaled and drained. Exits 0 only if every row equals that of one batch job.

    \b
    Examples:
    jrs demo                        on a folder of its own
    jrs demo --streaming            streams; a display that moves, on a terminal
    jrs demo --backend etcd         on an etcd that it starts and ends; zookeeper likewise
    jrs demo --backend etcd://…     on what is there
    """
    from jrs.demo import run, run_streaming

    if streaming:
        return run_streaming(place.backend, keep=keep, seed=seed)
    if seed is not None:
        raise InvalidInput("--seed is for --streaming: the other demo draws nothing at random")
    return run(place.backend, keep=keep)
