"""The demos: PySpark on real input, real kills, and the same results as without them."""

from __future__ import annotations


def run(backend: str | None = None, *, keep: bool = False) -> int:
    """Run the demo of a pipeline; return its exit status.

    `backend` is a URL, or ``etcd`` or ``zookeeper`` for a server that the demo starts and ends; by
    default it is a folder of the demo's own.

    0 if every result equals that of the same jobs run without any kill, 1 if one differs.

    Raises:
        InvalidInput: Spark, Java, the data or the server is not installed; says how to get it.
    """
    # The jobs' own processes import this package, too, and need nothing of the stage set.
    from jrs.demo.story import tell

    return tell(backend, keep=keep)


def run_streaming(
    backend: str | None = None, *, keep: bool = False, seed: int | None = None
) -> int:
    """Run the demo of streams; return its exit status.

    `backend` as for `run`. The same `seed` draws the same moments again, counted in batches; by
    default another one is drawn, and shown.

    0 if every row of every stream equals that of one batch job over the same files, 1 if one
    differs, is missing or is there twice.

    Raises:
        InvalidInput: as `run`.
    """
    from jrs.demo.streaming_story import tell

    return tell(backend, keep=keep, seed=seed)
