"""The demos: PySpark jobs on real data whose results are equal with and without kills."""

from __future__ import annotations

from pathlib import Path


def run(
    backend: str | None = None, *, storage: str | Path | None = None, keep: bool = False
) -> int:
    """Run the demo of a pipeline; return its exit status.

    `backend` is a URL, or ``etcd`` or ``zookeeper`` for a server that the demo starts and stops; by
    default the demo uses a temporary folder. `storage` is a folder or the URL of objects for the
    files of the jobs.

    0 if every result equals that of the same jobs run without any kill, 1 if one differs.

    Raises:
        InvalidInput: Spark, Java, the data or the server is not installed; says how to get it.
    """
    # The processes of jobs import this package, too, and do not need the story.
    from jrs.demo.story import tell

    return tell(backend, storage, keep=keep)


def run_streaming(
    backend: str | None = None,
    *,
    storage: str | Path | None = None,
    keep: bool = False,
    seed: int | None = None,
) -> int:
    """Run the demo of streams; return its exit status.

    `backend` and `storage` as for `run`. The same `seed` gives the same moments, counted in
    batches; by default the demo draws a seed and prints it.

    0 if every row of every stream equals that of one batch job over the same files, 1 if one
    differs, is missing or is duplicated.

    Raises:
        InvalidInput: as `run`.
    """
    # See `run`.
    from jrs.demo.streaming_story import tell

    return tell(backend, storage, keep=keep, seed=seed)
