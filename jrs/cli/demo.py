"""``jrs demo``: a batch demo and a streaming demo, with real input and real kills."""

from __future__ import annotations

from pathlib import Path

import click

from jrs.cli.common import ClusterRef, StorageType, with_cluster
from jrs.contract.errors import InvalidInput


@click.command("demo")
@click.option("--streaming", is_flag=True, help="Run the streaming demo, not the batch demo.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="With --streaming: repeat the random choices of the run that printed this seed.",
)
@click.option("--storage", type=StorageType(), metavar="FOLDER|URL",
              help="Where the jobs keep their files.  [default: a temporary folder]")  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the folder with all data and logs.")
@with_cluster
def demo_command(
    ref: ClusterRef, streaming: bool, seed: int | None, storage: str | Path | None, keep: bool
) -> int:
    """Run PySpark jobs on three masters, kill leaders, and compare the results.

    The data are the flights of New York's airports in 2013. Needs Java 17 and jrs[demo].

    The batch demo runs a pipeline of batch stages and kills its leader twice. It exits 0 only if
    every result equals the result of the same pipeline run without interruption.

    The streaming demo replays three airports as bounded streams and joins them with an unbounded
    stream of the weather, for about three minutes. It kills leaders at random, and suspends,
    resumes, rescales and drains the job. It exits 0 only if every row equals the result of one
    batch job.

    \b
    Examples:
    jrs demo                        in a temporary folder
    jrs demo --streaming            with a live display on a terminal
    jrs demo --backend etcd         with an etcd that the demo starts; zookeeper likewise
    jrs demo --backend etcd://…     with a running server
    jrs demo --storage s3://…       with files in objects
    """
    # An extra has what it needs, and `jrs --help` loads every command.
    from jrs.demo import run, run_streaming

    if streaming:
        return run_streaming(ref.backend, storage=storage, keep=keep, seed=seed)
    if seed is not None:
        raise InvalidInput("--seed needs --streaming: the batch demo makes no random choices")
    return run(ref.backend, storage=storage, keep=keep)
