"""The demo: a PySpark pipeline on real input, two real kills, and the same results."""

from __future__ import annotations


def run(backend: str | None = None, *, keep: bool = False) -> int:
    """Run the demo; return its exit status.

    `backend` is a URL, or ``etcd`` or ``zookeeper`` for a server that the demo starts and ends; by
    default it is a folder of the demo's own.

    0 if every result equals that of the same jobs run without any kill, 1 if one differs.

    Raises:
        InvalidInput: Spark, Java, the data or the server is not installed; says how to get it.
    """
    # The jobs' own processes import this package, too, and need nothing of the stage set.
    from jrs.demo.story import tell

    return tell(backend, keep=keep)
